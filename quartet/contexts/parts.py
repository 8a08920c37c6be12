"""Contexts of many seeds, sampled in parts of a fixed number of seeds and joined on disk.

Each part is a cache file of its own, in a folder beside the file that they become. So memory does not grow with the
number of seeds, other processes and machines may sample parts, and a job that was stopped goes on with those that
are missing. What they become is, byte for byte, the file of all seeds sampled at once.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from filelock import FileLock

from quartet.config import SamplingConfig
from quartet.contexts.cachefile import Pieces, open_cache, write_cache, write_pieces
from quartet.contexts.context import FIELDS, Array, ArrayField, Context, starts
from quartet.contexts.sampling import sample
from quartet.errors import IntegrityError, ResourceError
from quartet.graph import TemporalGraph
from quartet.listener import SILENT, Listener
from quartet.machine import map_shards, slices
from quartet.tasks import Seeds

PART = 2**14  # seeds: a second of work, and some fifty megabytes
_TIMES_AT_ONCE = 2**14

Shard = tuple[str, Array, Array, str, int | None]


def sample_part(shared: tuple[TemporalGraph, SamplingConfig], shard: Shard) -> None:
    """Samples the seeds of a shard into its file."""
    path, node, time, digest, num_threads = shard
    write_cache(Path(path), sample(shared[0], Seeds(node, time, None), shared[1], num_threads), digest)


def sample_in_parts(
    graph: TemporalGraph,
    seeds: Seeds,
    config: SamplingConfig,
    path: Path,
    digest: str,
    digest_of: Callable[[Seeds], str],
    num_threads: int | None = None,
    on: str | None = None,
    listener: Listener = SILENT,
    what: str = "contexts",
) -> None:
    """Samples contexts into a file, part by part; parts that an earlier job has left are taken as they are.

    Of several processes that want the same file one samples, and the others wait for it.
    """
    folder = path.with_suffix(".parts").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        if _is_whole(path, digest):
            return
        parts: list[tuple[Path, str]] = []
        missing: list[Shard] = []
        listener.progress(what, 0, len(seeds))
        for number, some in enumerate(slices(len(seeds), PART)):
            own = Seeds(seeds.node[some], seeds.time[some], None)
            part, of_part = folder / f"{number:06}.h5", digest_of(own)
            parts.append((part, of_part))
            if _is_whole(part, of_part):
                listener.progress(what, len(own), len(seeds))
            else:
                missing.append((str(part), own.node, own.time, of_part, num_threads if on is None else 1))
        sizes = [len(node) for _, node, _, _, _ in missing]
        done = map_shards(
            sample_part, (graph, config), missing, on, folder, listener, what, sizes, len(seeds)
        )
        for shard, _ in zip(missing, done, strict=True):
            if not Path(shard[0]).is_file():
                fix = "name a folder on storage that every machine of the cluster sees under the same path"
                raise ResourceError("C09", f'what a worker wrote is not in "{folder}"', fix)
        write_pieces(path, _joined([open_cache(*part, verify=False) for part in parts]), digest)
        shutil.rmtree(folder)


def _is_whole(path: Path, digest: str) -> bool:
    try:
        return path.is_file() and bool(open_cache(path, digest))
    except IntegrityError:
        return False


def _joined(parts: Sequence[Context]) -> dict[str, Pieces]:
    """Returns the arrays of all parts as those of one, none of them in memory as a whole."""
    times = np.unique(np.concatenate([np.unique(part.seed_time) for part in parts]))
    owner = np.empty(
        (len(times), 2), np.int64
    )  # of each distinct time: a part that has it, and its place there
    for number, part in enumerate(parts):
        own = np.unique(part.seed_time)  # in the order in which sampling numbers them
        owner[np.searchsorted(times, own)] = np.stack([np.full(len(own), number), np.arange(len(own))], 1)
    counts = np.array(
        [np.diff(parts[part].temporal_start[place : place + 2])[0] for part, place in owner], np.int64
    )
    pieces = {}
    give: Callable[[], Iterable[Array]]
    for each in FIELDS:
        shape = getattr(parts[0], each.name).shape[1:]
        if each.name == "time_index":
            length, give = sum(map(len, parts)), partial(_time_places, parts, times)
        elif each.name == "temporal_start":
            length, give = len(times) + 1, partial(list, [starts(counts)])
        elif each.owner == "time":
            length, give = int(counts.sum()), partial(_temporal, each, parts, owner)
        else:
            length = sum(len(getattr(part, each.name)) - each.is_start for part in parts) + each.is_start
            give = partial(_shifted if each.is_start else _in_turn, each, parts)
        pieces[each.name] = Pieces(each.dtype, (length, *shape), give)
    return pieces


def _in_turn(each: ArrayField, parts: Sequence[Context]) -> Iterator[Array]:
    for part in parts:
        yield getattr(part, each.name)


def _shifted(each: ArrayField, parts: Sequence[Context]) -> Iterator[Array]:
    """Yields where the rows of all seeds begin, those of a part after those of the parts before it."""
    end = 0
    yield np.zeros(1, np.int64)
    for part in parts:
        start = getattr(part, each.name)
        yield start[1:] + end
        end += int(start[-1])


def _time_places(parts: Sequence[Context], times: Array) -> Iterator[Array]:
    for part in parts:
        yield np.searchsorted(times, part.seed_time).astype(np.int32)


def _temporal(each: ArrayField, parts: Sequence[Context], owner: Array) -> Iterator[Array]:
    """Yields the rows of each distinct time, some times at once."""
    for first, end in pairwise([*range(0, len(owner), _TIMES_AT_ONCE), len(owner)]):
        rows = []
        for number, place in owner[first:end]:
            start = parts[number].temporal_start
            rows.append(getattr(parts[number], each.name)[start[place] : start[place + 1]])
        yield np.concatenate(rows)
