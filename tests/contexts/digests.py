"""One digest of many contexts, computed by some threads in some processes: `python -m tests.contexts.digests 2,1,fork`.

The processes share out the seeds; each combination prints one line. Run it under several PYTHONHASHSEED.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import random
import sys

from quartet.config import SamplingConfig
from quartet.contexts import sample
from quartet.database import Database
from quartet.graph import TemporalGraph
from tests.contexts.small import sales
from tests.contexts.twins import seeds_from
from tests.strategies import SECOND

CONFIGS = (
    SamplingConfig(
        num_walks=20, walk_length=5, max_recent=5, first_fanout=5, second_fanout=5, local_budget=40
    ),
    SamplingConfig(local_sampler="bfs", collab_hops=4, local_budget=30, lookback_days=1, time_rule="<"),
    SamplingConfig(num_walks=20, max_recent=4, truncation="random", restart_prob=0.0, local_budget=40),
    SamplingConfig(local_sampler="uniform", first_fanout=5, second_fanout=3, local_budget=30, branches=()),
)
NUM_SEEDS = 1500  # more than the threads of a process take at a time


def digest(threads: int, processes: int, start: str) -> str:
    """The digest of all contexts of all seeds, sampled by `threads` in each of `processes`."""
    bounds = [NUM_SEEDS * part // processes for part in range(processes + 1)]
    parts_of = [(bounds[part], bounds[part + 1], threads) for part in range(processes)]
    with multiprocessing.get_context(start).Pool(processes) as pool:
        parts = pool.starmap(_digests, parts_of, chunksize=1)
    by_config = zip(*parts, strict=True)
    return hashlib.sha256(b"".join(b"".join(found) for found in by_config)).hexdigest()


def _digests(begin: int, end: int, threads: int) -> list[bytes]:
    """For each configuration, 32 bytes for each of the seeds from `begin` to `end`."""
    graph, pairs = _world()
    return [_of_seeds(graph, pairs[begin:end], config, threads) for config in CONFIGS]


def _of_seeds(
    graph: TemporalGraph, pairs: list[tuple[int, int]], config: SamplingConfig, threads: int
) -> bytes:
    context = sample(graph, seeds_from(pairs), config, num_threads=threads)
    found = []
    for place in range(len(pairs)):
        lists = (context.collab(place), context.temporal(place), context.sketch[place])
        text = b"|".join(array.tobytes() for array in (*context.local(place), *lists))
        found.append(hashlib.sha256(text).digest())
    return b"".join(found)


def _world() -> tuple[TemporalGraph, list[tuple[int, int]]]:
    rng = random.Random(0)
    pairs = [(int(300 * rng.random() ** 2), int(60 * rng.random() ** 3)) for _ in range(2500)]
    graph = TemporalGraph.build(Database.build(*sales(pairs, 400, 60)))
    return graph, [(rng.randrange(460), rng.randrange(2500) * SECOND) for _ in range(NUM_SEEDS)]


if __name__ == "__main__":
    for combination in sys.argv[1:]:
        threads, processes, start = combination.split(",")
        print(combination, digest(int(threads), int(processes), start), flush=True)
