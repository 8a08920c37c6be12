"""How fast the samplers are beside C++: `walk.cpp`, compiled by g++, with the same draws and the same contexts.

    python benchmarks/native.py [--links 6] [--seeds 20000] [--repeats 5] [--json FILE]

Links are millions of foreign-key values; the graph has twice as many directed entries. Times are CPU seconds on one
core, the best of rounds in which each is measured in turn.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from samplers import random_seeds
from shop import shop

from quartet.config import SamplingConfig
from quartet.contexts import sample
from quartet.contexts.chunk import Chunk
from quartet.contexts.local import LocalRows
from quartet.contexts.walk import WalkSettings, walk_local
from quartet.drawing import console, new_grid
from quartet.graph import TemporalGraph
from quartet.tasks import Seeds

GOAL = 1.3
LOCAL = SamplingConfig(branches=(), fallback="null")  # rows for seeds that stand alone are another sampler's
_FLAGS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC")
Arrays = dict[str, np.ndarray]


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--links", type=float, default=6, help="millions of links")
    options.add_argument("--seeds", type=int, default=20_000)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    if shutil.which("g++") is None:
        raise SystemExit("there is no g++ here")
    graph = TemporalGraph.build(shop(int(chosen.links * 1e6)))
    found = []
    with tempfile.TemporaryDirectory() as folder:
        ways = {
            "C++": compiled(Path(folder), "fetching"),
            "plain C++": compiled(Path(folder), "plain", "-DPLAIN"),
        }
        for kind in ("customers", "products"):
            found.append(raced(ways, graph, kind, chosen.seeds, chosen.repeats))
    show(found)
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


def compiled(folder: Path, name: str, *flags: str) -> ctypes.CDLL:
    """Returns the sampler in C++; a plain one fetches no cell before it is read."""
    path = folder / f"{name}.so"
    subprocess.run(
        ["g++", *_FLAGS, *flags, str(Path(__file__).with_name("walk.cpp")), "-o", str(path)], check=True
    )
    return ctypes.CDLL(str(path))


def raced(
    libraries: dict[str, ctypes.CDLL], graph: TemporalGraph, kind: str, count: int, repeats: int
) -> dict[str, Any]:
    """Returns the microseconds that a seed of some table takes, contexts compared first."""
    seeds = random_seeds(graph, kind, count)
    chunk = Chunk.of(graph, LOCAL, np.asarray(seeds.node, np.int64), np.asarray(seeds.time, np.int64))
    rows = LocalRows.alone(chunk)
    native = {name: prepared(library, chunk) for name, library in libraries.items()}
    ways: dict[str, Callable[[], object]] = {
        **{name: run for name, (run, _) in native.items()},
        "kernel": lambda: walk_local(chunk, rows),
        "sample()": lambda: sample(graph, seeds, LOCAL, num_threads=1),
    }
    for run in ways.values():
        run()
    for _, arrays in native.values():
        compare(arrays, graph, seeds)
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, run in ways.items():
            begin = time.process_time()
            run()
            spent[name].append((time.process_time() - begin) / count * 1e6)
    best = {name: min(times) for name, times in spent.items()}
    return {"entries": graph.num_entries, "seeds of": kind, **best}


def prepared(library: ctypes.CDLL, chunk: Chunk) -> tuple[Callable[[], object], Arrays]:
    """Returns what runs the sampler in C++, and the arrays that it fills."""
    settings, graph = WalkSettings.of(chunk.config), chunk.graph.arrays
    count, budget = len(chunk), settings.budget
    most_edges = budget * int(graph.num_foreign_keys.max())
    arrays = {
        "local_start": np.zeros(count + 1, np.int64),
        "edge_start": np.zeros(count + 1, np.int64),
        "local_node": np.zeros(count * budget, np.int32),
        "local_hop": np.zeros(count * budget, np.uint8),
        "local_count": np.zeros(count * budget, np.uint16),
        "edge": np.zeros((count * most_edges, 2), np.uint16),
    }
    read = [
        np.ascontiguousarray(each)
        for each in (
            graph.offsets.astype(np.int64),
            graph.node_rank.astype(np.int64),
            graph.indptr.astype(np.int64),
            graph.entries,
            graph.parents_start.astype(np.int64),
            graph.num_foreign_keys.astype(np.int64),
            graph.parents,
        )
    ]
    numbers = (settings.num_walks, settings.length, settings.restart, settings.max_recent, budget)
    given = (
        (ctypes.c_int64 * 8)(*(each.ctypes.data for each in read), len(graph.num_foreign_keys)),
        (ctypes.c_int64 * 5)(*numbers),
    )
    own = (chunk.node, chunk.last_rank, chunk.keys("walk"))
    keep = (read, own)

    def run() -> object:
        pointers = (ctypes.c_void_p(each.ctypes.data) for each in (*own, *arrays.values()))
        library.sample(*given, ctypes.c_int64(count), *pointers)
        return keep

    return run, arrays


def compare(arrays: Arrays, graph: TemporalGraph, seeds: Seeds) -> None:
    """Raises where the contexts of the two are not equal, bit for bit."""
    ours = sample(graph, seeds, LOCAL, num_threads=1)
    found = ours.arrays | dict(zip(("edge_start", "edge"), ours.edges(), strict=True))
    for name, theirs in arrays.items():
        mine = found[name]
        if not np.array_equal(mine, theirs[: len(mine)]):
            raise SystemExit(f"{name} differs")


def show(found: list[dict[str, Any]]) -> None:
    right = (
        "C++ µs",
        "plain C++ µs",
        "kernel µs",
        "sample() µs",
        "seeds/s",
        "kernel / C++",
        "sample() / C++",
    )
    title = f"Restart walks beside C++, one core, {found[0]['entries'] / 1e6:.0f} M entries"
    table = new_grid(title, "seeds of", *right, right=right)
    for row in found:
        native, kernel, whole = row["C++"], row["kernel"], row["sample()"]
        times = (native, row["plain C++"], kernel, whole)
        cells = (*(f"{time:.1f}" for time in times), f"{1e6 / whole:,.0f}")
        ratios = (f"{kernel / native:.2f}", f"{whole / native:.2f} (goal {GOAL})")
        table.add_row(row["seeds of"], *cells, *ratios)
    console().print(table)


if __name__ == "__main__":
    main()
