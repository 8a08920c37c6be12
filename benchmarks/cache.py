"""What a cache of contexts costs: bytes for each seed, seconds to build and to open, milliseconds for a batch.

    python benchmarks/cache.py [--links 6000000] [--seeds 100000] [--repeats 5] [--rel-f1 FOLDER]

Two sets of seeds: all three splits of rel-f1's driver-dnf (left out where the dataset is absent), and
customers of the synthetic shop, drawn uniformly, at the 104 weeks of its seventh and eighth year, with
products, its hubs, beside them. Times are medians by the wall clock, code compiled; "first touch" are
the first batches after opening, when no page has been seen yet, on data that are in the page cache.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from shop import START, YEARS, shop

from quartet.config import SamplingConfig
from quartet.contexts import Context, cached_sample, estimate, sample, select
from quartet.contexts.cache import cache_digest
from quartet.contexts.cachefile import open_cache, write_cache
from quartet.database import Database
from quartet.graph import TemporalGraph
from quartet.tasks import Seeds, Task

CONFIG = SamplingConfig()
BATCH = 512
NUM_BATCHES = 200
REL_F1 = Path(__file__).resolve().parents[2] / "shared" / "data" / "rel-f1"
WEEK = 7 * 86_400
Case = tuple[str, TemporalGraph, Seeds]


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--links", type=int, default=6_000_000)
    options.add_argument("--seeds", type=int, default=100_000)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--rel-f1", type=Path, default=REL_F1)
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    cases = [*_driver_dnf(chosen.rel_f1), *_shop(chosen.links, chosen.seeds)]
    results = {name: _measure(graph, seeds, chosen.repeats) for name, graph, seeds in cases}
    console = Console(width=110)
    for title, place in (("Bytes for each seed", 0), ("Seconds, sizes and batches", 1)):
        table = Table(title=title)
        table.add_column("")
        for name in results:
            table.add_column(name, justify="right")
        for word in next(iter(results.values()))[place]:
            table.add_row(word, *(result[place][word] for result in results.values()))
        console.print(table)
    if chosen.json:
        sizes = {
            name: float(figures["whole file"].replace(",", "")) for name, (figures, _) in results.items()
        }
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(sizes, indent=1), encoding="utf-8")


def _driver_dnf(folder: Path) -> list[Case]:
    if not folder.is_dir():
        return []
    task = Task.load(Database.load(str(folder)), "driver-dnf")
    splits = [task.seeds(split) for split in ("train", "val", "test")]
    node, when = np.concatenate([s.node for s in splits]), np.concatenate([s.time for s in splits])
    return [("driver-dnf", TemporalGraph.build(task.database), Seeds(node, when, None))]


def _shop(links: int, count: int) -> list[Case]:
    graph, rng = TemporalGraph.build(shop(links)), np.random.default_rng(0)
    first = int(START) + (YEARS - 2) * 365 * 86_400
    cases = []
    for table in ("customers", "products"):
        nodes = graph.nodes(table)
        when = (first + rng.integers(0, 104, count) * WEEK) * 10**9
        cases.append(
            (f"shop {table}", graph, Seeds(rng.integers(nodes.start, nodes.stop, count), when, None))
        )
    return cases


def _measure(graph: TemporalGraph, seeds: Seeds, repeats: int) -> tuple[dict[str, str], dict[str, str]]:
    guess = estimate(graph, seeds, CONFIG)  # compiles, too
    digest = cache_digest(graph.fingerprint, seeds, CONFIG)
    with tempfile.TemporaryDirectory() as folder:
        whole = [_seconds(lambda n=n: _build(graph, seeds, Path(folder) / str(n))) for n in range(2)]
        again = _seconds(lambda: _build(graph, seeds, Path(folder) / "1"))
        sampling = [_seconds(lambda: sample(graph, seeds, CONFIG)) for _ in range(2)]
        context, path = sample(graph, seeds, CONFIG), Path(folder) / "timed.h5"
        writing = [_seconds(lambda: write_cache(path, context, digest)) for _ in range(repeats)]
        opening = [_seconds(lambda: open_cache(path, digest)) for _ in range(repeats)]
        size = path.stat().st_size
        opened = open_cache(path, digest)
        first, later = _batch_ms(opened, 20), _batch_ms(opened, NUM_BATCHES)
        live = _batch_ms(context, NUM_BATCHES)
    build, verify = statistics.median(sampling), statistics.median(opening)
    figures = {
        "seeds": f"{len(seeds):,}",
        "distinct times": f"{len(context.temporal_start) - 1:,}",
        "file, MB": f"{size / 1e6:.1f}",
        "sampled and cached, s": " ".join(f"{s:.2f}" for s in whole),
        "opened instead, s": f"{again:.2f}",
        "of it sampling, s": f"{build:.2f}",
        "of it writing, s": f"{statistics.median(writing):.2f}",
        "of it verifying and mapping, s": f"{verify:.3f}",
        "verification, GB/s (median, best)": f"{size / verify / 1e9:.2f}, {size / min(opening) / 1e9:.2f}",
        "batch of 512, ms (median, p90)": later,
        "batch of 512, first touch, ms": first,
        "batch of 512 from memory, ms": live,
        "estimate, s (off by)": f"{guess.seconds:.2f} ({guess.seconds / build - 1:+.0%})",
        "estimate, MB (off by)": f"{guess.num_bytes / 1e6:.1f} ({guess.num_bytes / context.num_bytes - 1:+.1%})",
    }
    return _bytes_by_array(context, size), figures


def _bytes_by_array(context: Context, size: int) -> dict[str, str]:
    rows = {name: f"{array.nbytes / len(context):,.1f}" for name, array in context.arrays.items()}
    overhead = {"header and HDF5": f"{(size - context.num_bytes) / len(context):,.1f}"}
    return {**rows, **overhead, "whole file": f"{size / len(context):,.1f}"}


def _build(graph: TemporalGraph, seeds: Seeds, folder: Path) -> Context:
    return cached_sample(graph, seeds, CONFIG, folder, "bench")


def _seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _batch_ms(context: Context, count: int) -> str:
    """Median and 90th percentile of random batches; the kernel was compiled by an earlier one."""
    select(context, np.arange(1))
    rng = np.random.default_rng(count)
    batches = [rng.choice(len(context), BATCH, replace=False) for _ in range(count)]
    times = [_seconds(lambda b=b: select(context, b)) * 1e3 for b in batches]
    return f"{statistics.median(times):.2f}, {np.percentile(times, 90):.2f}"


if __name__ == "__main__":
    main()
