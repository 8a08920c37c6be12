"""Contexts from the cache, or sampled into it: of some seeds, or of a split of a task."""

from __future__ import annotations

import hashlib
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quartet.config import SamplingConfig
from quartet.contexts.cachefile import FORMAT, HEADER_SIZE, VERSION, cannot_write, open_cache, write_cache
from quartet.contexts.context import FIELDS, Array, Context
from quartet.contexts.parts import PART, sample_in_parts
from quartet.contexts.sampling import sample
from quartet.errors import IntegrityError, UsageError
from quartet.findings import warning
from quartet.graph import TemporalGraph
from quartet.listener import SILENT, Listener
from quartet.machine import Place, usable_cores, user_cache
from quartet.tasks import Seeds, Split, Task

PROBE = 512  # seeds that an estimate samples


def default_cache() -> Path:
    """Returns where contexts are kept unless another folder is given."""
    return user_cache() / "contexts"


def task_context(
    task: Task,
    graph: TemporalGraph,
    config: SamplingConfig,
    split: Split,
    folder: Path | None = None,
    listener: Listener = SILENT,
    num_threads: int | None = None,
    on: str | None = None,
) -> Context:
    """Returns the contexts of one split of a task, from the cache or sampled into it."""
    seeds, folder = task.asked_seeds(split), folder or default_cache()
    return cached_sample(graph, seeds, config, folder, f"{task.name}-{split}", listener, num_threads, on)


def seconds_of_a_seed(
    graph: TemporalGraph, seeds: Seeds, config: SamplingConfig, num_threads: int | None = None
) -> float:
    """Returns how long sampling takes for each of some seeds, code compiled."""
    sample(graph, seeds.select(np.arange(len(seeds)) < 1), config, 1)
    begin = time.perf_counter()
    sample(graph, seeds, config, num_threads)
    return (time.perf_counter() - begin) / max(1, len(seeds))


def cached_sample(
    graph: TemporalGraph,
    seeds: Seeds,
    config: SamplingConfig,
    folder: Path,
    name: str,
    listener: Listener = SILENT,
    num_threads: int | None = None,
    on: str | None = None,
) -> Context:
    """Returns the contexts of all seeds, mapped from `<folder>/<name>-<digest>.h5`; sampled first if need be.

    A file that is damaged or foreign is reported as a finding and built anew, never read. The listener is told
    of progress only if contexts are sampled, the first time with none done. Many seeds are sampled in parts, here or
    by those whom `on` names (`machine/shards.py`): the same bytes.
    """
    if name != Path(name).name:
        raise UsageError("C02", f'a cache cannot be called "{name}"', "give a plain name, without slashes")
    digest = cache_digest(graph.fingerprint, seeds, config)
    path = folder / f"{name}-{digest[:16]}.h5"
    if path.exists():
        try:
            return open_cache(path, digest)
        except IntegrityError as error:
            ending = "It will be rebuilt; nothing else is affected" if error.code == "C06" else "Rebuilding"
            listener.finding(warning(error.code, str(path), f"{error.what}. {ending}", len(seeds)))
    try:  # to find out before hours of sampling, not after them
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise cannot_write(folder, 0, error) from error
    what = f"contexts of {name}"
    if not len(seeds) or (len(seeds) <= PART and Place.parse(on).kind == "here"):
        write_cache(path, sample(graph, seeds, config, num_threads, listener, what), digest)
        return open_cache(path, digest)

    def digest_of(some: Seeds) -> str:
        return cache_digest(graph.fingerprint, some, config)

    sample_in_parts(graph, seeds, config, path, digest, digest_of, num_threads, on, listener, what)
    return open_cache(path, digest, verify=False)


def cache_digest(graph_fingerprint: str, seeds: Seeds, config: SamplingConfig) -> str:
    """Returns the name of a set of contexts: a digest of all that they depend on, and of nothing else.

    In it: the database as the task sees it (the graph's fingerprint), the node and time of each seed in
    order, the sampling settings, the version of format and samplers. Not in it: targets, the name of
    the split, threads, paths, the machine.

    Causality: rows after a seed's time cannot change its context, but they do change the digest, because a
    context names rows by number and numbers move when rows come and go. New data cost a rebuild; they
    never leave a context that names other rows than it meant.
    """
    digest = hashlib.sha256()
    for word in (FORMAT, str(VERSION), graph_fingerprint, config.digest(), str(len(seeds))):
        digest.update(f"{len(word)}:{word}".encode())
    for array in (seeds.node, seeds.time):
        digest.update(np.asarray(array, dtype="<i8").tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Estimate:
    """What sampling all seeds will take: seconds on all usable cores, and bytes in memory and on disk."""

    seconds: float
    num_bytes: int


def estimate(graph: TemporalGraph, seeds: Seeds, config: SamplingConfig) -> Estimate:
    """Estimates time and size of the contexts of all seeds from a few hundred spread over them.

    The time is that of sampling, code compiled; writing adds what the disk takes.
    """
    if not len(seeds):
        return Estimate(0.0, HEADER_SIZE)

    def sample_timed(places: Array) -> tuple[float, Context]:
        some = Seeds(seeds.node[places], seeds.time[places], None)
        begin = time.perf_counter()
        context = sample(graph, some, config, num_threads=1)
        return time.perf_counter() - begin, context

    places = np.unique(np.linspace(0, len(seeds) - 1, PROBE).astype(np.int64))
    sample_timed(places[:1])  # compiles
    set_up, _ = sample_timed(places[:1])
    seconds, probe = sample_timed(places)
    per_seed = max(seconds - set_up, 0.0) / len(places) / usable_cores()
    num_owners = {"seed": len(seeds), "time": len(np.unique(seeds.time))}
    num_bytes = sum(
        probe.arrays[each.name].nbytes / probe.num_owners(each.owner) * num_owners[each.owner]
        for each in FIELDS
    )
    return Estimate(set_up + per_seed * len(seeds), int(num_bytes))
