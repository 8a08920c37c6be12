"""P10: one digest, whatever the threads, the processes, how they start, and the seed of Python's hashes.

The whole matrix of 120 is `python -m benchmarks.leakcheck --digests`; here every value occurs, not every pair.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from quartet.config import SamplingConfig
from quartet.contexts import context as context_module
from quartet.contexts import sample
from quartet.graph import TemporalGraph
from tests.contexts.twins import seeds_from
from tests.shop import day, shop

ROOT = Path(__file__).parents[2]
COMBINATIONS = {  # PYTHONHASHSEED -> threads, processes, start method
    "0": ["1,1,fork", "4,2,spawn"],
    "1": ["2,1,spawn", "4,1,fork"],
    "2": ["2,2,fork"],
}


def test_one_digest_on_every_path() -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.contexts.digests", *combinations],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed, combinations in COMBINATIONS.items()
    ]
    lines = [line for run in runs for line in run.communicate()[0].splitlines()]
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert len(lines) == 5
    assert len({line.split()[1] for line in lines}) == 1, lines


def test_threads_and_chunks_change_no_byte(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    graph = TemporalGraph.build(shop())
    seeds = seeds_from([(node, day(number)) for node in range(30) for number in range(10)])
    found = set()
    for chunk, threads in ((1024, 1), (1024, 4), (7, 1), (7, 4), (1, 2)):
        monkeypatch.setattr(context_module, "CHUNK", chunk)
        arrays = sample(graph, seeds, SamplingConfig(), num_threads=threads).arrays
        found.add(b"|".join(array.tobytes() for array in arrays.values()))
    assert len(found) == 1


def test_progress_counts_every_seed() -> None:
    graph, told = TemporalGraph.build(shop()), []
    seeds = seeds_from([(node % 30, day(9)) for node in range(2500)])
    sample(graph, seeds, SamplingConfig(num_walks=1, walk_length=1), progress=told.append)
    assert told == [1024, 1024, 452]
