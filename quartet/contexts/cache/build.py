"""Contexts from the cache, or sampled into it: what they are keyed by, and what they will cost."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quartet.config import SamplingConfig
from quartet.contexts.cache.layout import FORMAT, HEADER_SIZE, VERSION
from quartet.contexts.cache.read import open_cache
from quartet.contexts.cache.write import cannot_write, write_cache
from quartet.contexts.context import Array, Context, Progress, sample
from quartet.errors import IntegrityError, UsageError
from quartet.findings import Finding, warning
from quartet.graph import TemporalGraph
from quartet.machine import usable_cores
from quartet.tasks import Seeds

PROBE = 512  # seeds that an estimate samples
Report = Callable[[Finding], None]


def cache_digest(graph_fingerprint: str, seeds: Seeds, config: SamplingConfig) -> str:
    """The name of a set of contexts: a digest of all that they depend on, and of nothing else.

    In it: the database as the task sees it (the graph's fingerprint), the node and time of each seed in
    order, the sampler configuration, the version of format and samplers. Not in it: targets, the name of
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


def cached_sample(
    graph: TemporalGraph,
    seeds: Seeds,
    config: SamplingConfig,
    folder: Path,
    name: str,
    progress: Progress = lambda _: None,
    report: Report = lambda _: None,
    announce: Callable[[Estimate], None] | None = None,
) -> Context:
    """The contexts of all seeds, mapped from `<folder>/<name>-<digest>.h5`; sampled first if need be.

    A file that is damaged or foreign is reported as a finding and built anew, never read. What the work
    will cost is announced before it begins, to whoever wants to know.
    """
    if name != Path(name).name:
        raise UsageError("C02", f'a cache cannot be called "{name}"', "give a plain name, without slashes")
    digest = cache_digest(graph.fingerprint, seeds, config)
    path = folder / f"{name}-{digest[:16]}.h5"
    if path.exists():
        try:
            return open_cache(path, digest)
        except IntegrityError as error:
            report(_will_be_rebuilt(error, path, len(seeds)))
    _check_writable(folder)
    if announce is not None:
        announce(estimate(graph, seeds, config))
    write_cache(path, sample(graph, seeds, config, progress=progress), digest)
    return open_cache(path, digest)


def _will_be_rebuilt(error: IntegrityError, path: Path, count: int) -> Finding:
    ending = "It will be rebuilt; nothing else is affected" if error.code == "C06" else "Rebuilding"
    return warning(error.code, str(path), f"{error.what}. {ending}", count)


def _check_writable(folder: Path) -> None:
    """Finds out before hours of sampling, not after them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise cannot_write(folder, 0, error) from error


@dataclass(frozen=True)
class Estimate:
    """What sampling all seeds will take: seconds on all free cores, and bytes in memory and on disk."""

    seconds: float
    num_bytes: int


def estimate(graph: TemporalGraph, seeds: Seeds, config: SamplingConfig) -> Estimate:
    """Time and size of the contexts of all seeds, from a few hundred spread over them.

    The time is that of sampling, code compiled; writing adds what the disk takes.
    """
    if not len(seeds):
        return Estimate(0.0, HEADER_SIZE)
    places = np.unique(np.linspace(0, len(seeds) - 1, PROBE).astype(np.int64))
    _sample_timed(graph, seeds, places[:1], config)  # compiles
    set_up, _ = _sample_timed(graph, seeds, places[:1], config)
    seconds, probe = _sample_timed(graph, seeds, places, config)
    per_seed = max(seconds - set_up, 0.0) / len(places) / usable_cores()
    temporal = probe.temporal_start.nbytes + probe.temporal_node.nbytes
    for_seeds = (probe.num_bytes - temporal) / len(places) * len(seeds)
    for_times = temporal / len(np.unique(seeds.time[places])) * len(np.unique(seeds.time))
    return Estimate(set_up + per_seed * len(seeds), int(for_seeds + for_times))


def _sample_timed(
    graph: TemporalGraph, seeds: Seeds, places: Array, config: SamplingConfig
) -> tuple[float, Context]:
    some = Seeds(seeds.node[places], seeds.time[places], None)
    begin = time.perf_counter()
    context = sample(graph, some, config, num_threads=1)
    return time.perf_counter() - begin, context
