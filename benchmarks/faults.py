"""Kills writers of caches with kill -9 and flips bits of a cache, and counts what readers then find.

    python benchmarks/faults.py [--kills 300] [--rng-seed 0]

Half of the writers fill an empty folder, half replace an older cache. Each is killed once, at a moment
drawn uniformly from one and a quarter times the duration of a write. A file is found complete (the old or
the new contexts, compared byte by byte), absent, or corrupt: opened with other bytes, or there and refused.
Then one bit of every byte of a small cache is flipped. Ends with exit code 1 if anything was corrupt.

A kill ends a process, not the machine: what a power cut leaves rests on fsync, which this does not test.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from quartet.config import SamplingConfig
from quartet.contexts import Context, sample, select
from quartet.contexts.cachefile import open_cache, write_cache
from quartet.errors import IntegrityError
from quartet.graph import TemporalGraph
from quartet.machine.files import PART
from quartet.tasks import Seeds

OLD, NEW = "a" * 64, "b" * 64
NUM_SEEDS = 6_000  # about 16 MB


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--kills", type=int, default=300)
    options.add_argument("--rng-seed", type=int, default=0)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        writers = _kill_writers(Path(folder), chosen.kills, random.Random(chosen.rng_seed))
        flips = _flip_bits(Path(folder))
    table = Table("fault", "trials", "complete", "absent", "refused", "corrupt", "halves left behind")
    table.add_row("kill -9 while writing", *_cells(writers, chosen.kills), str(writers["halves"]))
    table.add_row("one bit flipped", *_cells(flips, flips.total()), "-")
    Console(width=110).print(table)
    print(f"after a kill: {writers['absent']} absent, {writers['old']} still old, {writers['new']} new")
    sys.exit(1 if writers["corrupt"] or flips["corrupt"] else 0)


def _cells(found: Counter[str], trials: int) -> list[str]:
    return [f"{trials:,}", *(f"{found[word]:,}" for word in ("complete", "absent", "refused", "corrupt"))]


# --- kill -9 --------------------------------------------------------------------------------------


def _contexts(num_seeds: int) -> Context:
    from shop import shop

    graph = TemporalGraph.build(shop(60_000))
    rng = np.random.default_rng(num_seeds)
    nodes = rng.choice(np.array(graph.nodes("customers")), num_seeds)
    times = rng.choice(graph.times[1:], num_seeds)
    return sample(graph, Seeds(nodes, times, None), SamplingConfig())


def _kill_writers(folder: Path, kills: int, rng: random.Random) -> Counter[str]:
    """How often a file was complete, absent or corrupt after its writer was killed."""
    new = _contexts(NUM_SEEDS)
    old = select(new, np.arange(NUM_SEEDS // 2))
    write_cache(folder / "source.h5", new, NEW)
    seconds = statistics.median(_write_seconds(folder / "timed.h5", new) for _ in range(9))
    context, found = multiprocessing.get_context("forkserver"), Counter[str]()
    context.set_forkserver_preload(["h5py", "quartet.contexts"])
    for trial in range(kills):
        path = folder / str(trial) / "cache.h5"
        if trial % 2:
            write_cache(path, old, OLD)
        _kill_one(context, folder / "source.h5", path, rng.random() * 1.25 * seconds)
        outcome = _look(path, old, new)
        found[outcome] += 1
        found["complete"] += outcome in ("old", "new")
        found["halves"] += any(path.parent.glob(f".*{PART}"))
        for leftover in (path, *path.parent.glob(f".*{PART}")):
            leftover.unlink(missing_ok=True)
    return found


def _write_seconds(path: Path, context: Context) -> float:
    begin = time.perf_counter()
    write_cache(path, context, NEW)
    return time.perf_counter() - begin


def _kill_one(context: Any, source: Path, path: Path, seconds: float) -> None:
    """Lets a process write a cache and kills it after some seconds."""
    started = context.Event()
    process = context.Process(target=_write_when_told, args=(source, path, started))
    process.start()
    started.wait()
    time.sleep(seconds)
    process.kill()
    process.join()


def _write_when_told(source: Path, path: Path, started: Any) -> None:
    contexts = open_cache(source, NEW)
    started.set()
    write_cache(path, contexts, NEW)


def _look(path: Path, old: Context, new: Context) -> str:
    if not path.exists():
        return "absent"
    for word, digest, context in (("old", OLD, old), ("new", NEW, new)):
        try:
            return word if _is_same(open_cache(path, digest), context) else "corrupt"
        except IntegrityError as error:
            if error.code != "C05":
                return "corrupt"
    return "corrupt"


def _is_same(one: Context, other: Context) -> bool:
    return all(array.tobytes() == other.arrays[name].tobytes() for name, array in one.arrays.items())


# --- flipped bits ---------------------------------------------------------------------------------


def _flip_bits(folder: Path) -> Counter[str]:
    """What becomes of a small cache with one bit of one byte flipped, for every byte."""
    context, path, rng = _contexts(8), folder / "small.h5", random.Random(0)
    write_cache(path, context, NEW)
    whole, found = path.read_bytes(), Counter[str]()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            found["complete" if _is_same(open_cache(path, NEW), context) else "corrupt"] += 1
        except IntegrityError:
            found["refused"] += 1
    return found


if __name__ == "__main__":
    main()
