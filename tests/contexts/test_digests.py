"""P10: one digest, whatever the threads, the processes, how they start, and the seed of Python's hashes.

The whole matrix of 120 is `python -m benchmarks.leakcheck --digests`; here every value occurs, not every pair.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quartet.config import SamplingConfig
from quartet.contexts import sample, sampling
from quartet.graph import TemporalGraph
from quartet.listener import Listener
from tests.contexts.twins import seeds_from
from tests.shop import day, shop

ROOT = Path(__file__).parents[2]
FORK = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"  # Windows has none
COMBINATIONS = {"0": f"1,1,{FORK}", "1": "2,2,spawn", "2": f"4,1,{FORK}"}  # by PYTHONHASHSEED


def test_one_digest_on_every_path() -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.contexts.digests", combination],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed, combination in COMBINATIONS.items()
    ]
    lines = [line for run in runs for line in run.communicate()[0].splitlines()]
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert len(lines) == 3
    assert len({line.split()[1] for line in lines}) == 1, lines


def test_threads_and_chunks_change_no_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = TemporalGraph.build(shop())
    seeds = seeds_from([(node, day(number)) for node in range(30) for number in range(10)])
    found = set()
    for chunk, threads in ((1024, 1), (1024, 4), (7, 1), (7, 4), (1, 2)):
        monkeypatch.setattr(sampling, "CHUNK", chunk)
        arrays = sample(graph, seeds, SamplingConfig(), num_threads=threads).arrays
        found.add(b"|".join(array.tobytes() for array in arrays.values()))
    assert len(found) == 1


class Told(Listener):
    def __init__(self) -> None:
        self.lines: list[tuple[str, int, int]] = []

    def progress(self, what: str, done: int, total: int) -> None:
        self.lines.append((what, done, total))


def test_progress_begins_with_nothing_and_counts_every_seed() -> None:
    graph, told = TemporalGraph.build(shop()), Told()
    seeds = seeds_from([(node % 30, day(9)) for node in range(2500)])
    sample(graph, seeds, SamplingConfig(num_walks=1, walk_length=1), listener=told, what="walks")
    assert told.lines == [("walks", done, 2500) for done in (0, 1024, 1024, 452)]
