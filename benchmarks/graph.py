"""How long and how much memory `TemporalGraph.build` takes, from 1 M to 30 M links.

    python benchmarks/graph.py [--links 1 3 10 30] [--repeats 3]

Each size runs in a process of its own, so that its peak memory is its own. The database is built
first; its time is printed beside, its memory is not counted against the graph.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import resource
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

MILLION = 1_000_000


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--links", type=float, nargs="+", default=[1, 3, 10, 30], help="millions of links")
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.measure:
        print(json.dumps(measure(chosen.measure)))
        return
    table = Table(title="TemporalGraph.build (medians)")
    for name in ("links", "entries", "database s", "graph s", "µs/link", "graph MB", "peak/graph"):
        table.add_column(name, justify="right")
    for millions in chosen.links:
        runs = [_in_own_process(int(millions * MILLION)) for _ in range(chosen.repeats)]
        table.add_row(*_row(runs))
    Console(width=110).print(table)


def _in_own_process(links: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--measure", str(links)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def _row(runs: list[dict[str, float]]) -> list[str]:
    middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    return [
        f"{middle['links'] / MILLION:.0f} M",
        f"{middle['entries'] / MILLION:.0f} M",
        f"{middle['database_s']:.1f}",
        f"{middle['graph_s']:.2f}",
        f"{middle['graph_s'] / middle['links'] * 1e6:.3f}",
        f"{middle['graph_bytes'] / 1e6:.0f}",
        f"{middle['peak_bytes'] / middle['graph_bytes']:.2f}x",
    ]


def measure(links: int) -> dict[str, float]:
    from shop import shop

    from quartet.graph import TemporalGraph

    TemporalGraph.build(shop(1000))  # compile, or load the compiled code
    begin = time.perf_counter()
    database = shop(links)
    database_s = time.perf_counter() - begin
    _give_back_free_memory()
    before = _resident_bytes()
    with _Peak() as peak:
        begin = time.perf_counter()
        graph = TemporalGraph.build(database)
        graph_s = time.perf_counter() - begin
    return {
        "links": links,
        "entries": graph.num_entries,
        "database_s": database_s,
        "graph_s": graph_s,
        "graph_bytes": graph.num_bytes,
        "peak_bytes": peak.bytes - before,
    }


def _give_back_free_memory() -> None:
    """What the database's construction left free must not hide what the graph's takes."""
    import pyarrow as pa

    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)


class _Peak:
    """The largest resident size seen while the block runs, sampled every 2 ms."""

    def __enter__(self) -> _Peak:
        self.bytes = _resident_bytes()
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.002):
            self.bytes = max(self.bytes, _resident_bytes())

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._watcher.join()


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    main()
