"""How fast the samplers are: seeds per second, hubs, size of the graph, threads, and the plain twin.

    python benchmarks/samplers.py [--links 6 30] [--seeds 20000] [--repeats 3]

Links are millions of foreign-key values; the graph has twice as many directed entries. Times are CPU
seconds of the process (wall-clock for the comparison of threads), medians over the repeats.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table
from shop import shop

from quartet.config import SamplingConfig
from quartet.contexts import sample
from quartet.contexts.sampling import CHUNK
from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.graph import TemporalGraph
from quartet.tasks import Seeds

CONSOLE = Console(width=110)
LOCAL = SamplingConfig(branches=())
PARTS = {
    "CRW (local context)": LOCAL,
    "BFS2": SamplingConfig(local_sampler="bfs", branches=()),
    "uniform": SamplingConfig(
        local_sampler="uniform", first_fanout=128, second_fanout=64, local_budget=1000, branches=()
    ),
    "CRW + sketch": SamplingConfig(branches=("topology",)),
    "CRW + look-alikes, 2 hops": SamplingConfig(branches=("collab",)),
    "CRW + look-alikes, 4 hops": SamplingConfig(branches=("collab",), collab_hops=4),
    "CRW + recent activity": SamplingConfig(branches=("temporal",)),
    "everything": SamplingConfig(),
    "CRW, random truncation": LOCAL.changed(truncation="random"),
    "CRW, no truncation": LOCAL.changed(max_recent=None),
    "CRW, no restart": LOCAL.changed(restart_prob=0.0),
}


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--links", type=float, nargs="+", default=[6, 30], help="millions of links")
    options.add_argument("--seeds", type=int, default=20_000)
    options.add_argument("--repeats", type=int, default=3)
    chosen = options.parse_args()
    graphs = {millions: TemporalGraph.build(shop(int(millions * 1e6))) for millions in chosen.links}
    sizes(graphs, chosen.seeds, chosen.repeats)
    smallest = graphs[min(graphs)]
    parts(smallest, chosen.seeds, chosen.repeats)
    threads(smallest, chosen.seeds, chosen.repeats)
    twin()
    hubs(chosen.repeats)


def random_seeds(graph: TemporalGraph, table: str, count: int, num_times: int = 64) -> Seeds:
    """Rows of a table at a few times in the later half of the data."""
    rng = np.random.default_rng(1)
    nodes = graph.nodes(table)
    times = rng.integers(graph.times[len(graph.times) // 2], graph.times[-1], num_times)
    return Seeds(rng.integers(nodes.start, nodes.stop, count), times[rng.integers(0, num_times, count)], None)


def cpu_seconds(work: Callable[[], object], repeats: int) -> float:
    work()  # compile, and warm the caches
    found = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        found.append(time.process_time() - begin)
    return statistics.median(found)


def sizes(graphs: dict[float, TemporalGraph], count: int, repeats: int) -> None:
    table = Table(title="CRW at the paper's defaults, one core")
    for name in ("entries", "seeds", "µs/seed", "seeds/s", "against the smallest"):
        table.add_column(name, justify="right")
    first: dict[str, float] = {}
    for graph in graphs.values():
        for kind in ("customers", "products"):
            seeds = random_seeds(graph, kind, count)
            spent = cpu_seconds(lambda g=graph, s=seeds: sample(g, s, LOCAL, num_threads=1), repeats) / count
            first.setdefault(kind, spent)
            label = kind if kind == "customers" else "products (hubs)"
            row = (f"{graph.num_entries / 1e6:.0f} M", label, f"{spent * 1e6:.1f}", f"{1 / spent:,.0f}")
            table.add_row(*row, f"{spent / first[kind]:.2f}x")
    CONSOLE.print(table)


def parts(graph: TemporalGraph, count: int, repeats: int) -> None:
    table = Table(title=f"By part, customers, {graph.num_entries / 1e6:.0f} M entries, one core")
    for name in ("what", "µs/seed", "seeds/s", "bytes/seed"):
        table.add_column(name, justify="left" if name == "what" else "right")
    seeds = random_seeds(graph, "customers", count)
    for name, config in PARTS.items():
        spent = cpu_seconds(lambda c=config: sample(graph, seeds, c, num_threads=1), repeats) / count
        size = sample(graph, seeds, config).num_bytes / count
        table.add_row(name, f"{spent * 1e6:.1f}", f"{1 / spent:,.0f}", f"{size:,.0f}")
    CONSOLE.print(table)


def threads(graph: TemporalGraph, count: int, repeats: int) -> None:
    seeds = random_seeds(graph, "customers", max(count, 16 * CHUNK))
    walls = {}
    for number in (1, 2):
        found = []
        for _ in range(repeats):
            begin = time.perf_counter()
            sample(graph, seeds, LOCAL, num_threads=number)
            found.append(time.perf_counter() - begin)
        walls[number] = statistics.median(found)
    CONSOLE.print(f"Two threads: {walls[1] / walls[2]:.2f}x as fast as one (wall-clock)")


def twin(count: int = 40, num_links: int = 40_000) -> None:
    """The plain-Python twin of the tests, on a shop that it can hold, and the same seeds."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.reference.graph import build_twin
    from tests.reference.walk import walk_context

    database = shop(num_links)
    graph = TemporalGraph.build(database)
    plain = build_twin({name: table.data for name, table in database.tables.items()}, database.schema)
    seeds = random_seeds(graph, "customers", 1_000)
    fast = cpu_seconds(lambda: sample(graph, seeds, LOCAL, num_threads=1), 5) / len(seeds)
    begin = time.process_time()
    for node, at in zip(seeds.node[:count].tolist(), seeds.time[:count].tolist(), strict=True):
        walk_context(plain, node, at, LOCAL)
    slow = (time.process_time() - begin) / count
    CONSOLE.print(
        f"Plain-Python twin: {slow * 1e3:.2f} ms/seed, {slow / fast:.0f}x the kernel's {fast * 1e6:.0f} µs"
    )


def hubs(repeats: int, count: int = 10_000) -> None:
    table = Table(title="Cost beside a hub, one core")
    for name in ("hub degree", "seeds beside it µs", "the hub itself µs", "against a tenth"):
        table.add_column(name, justify="right")
    before = None
    for degree in (100, 1_000, 10_000, 100_000, 1_000_000):
        graph = TemporalGraph.build(star(degree))
        beside, itself = (
            cpu_seconds(lambda s=s, g=graph: sample(g, s, LOCAL, num_threads=1), repeats) / count * 1e6
            for s in (random_seeds(graph, "customers", count), random_seeds(graph, "hub", count))
        )
        ratio = f"{max(beside / before[0], itself / before[1]):.2f}x" if before else ""
        table.add_row(f"{degree:,}", f"{beside:.1f}", f"{itself:.1f}", ratio)
        before = beside, itself
    CONSOLE.print(table)


def star(degree: int) -> Database:
    """One hub, and `degree` purchases of it by a tenth as many customers."""
    rng = np.random.default_rng(0)
    tables = {
        "hub": pa.table({"hub": [0]}),
        "customers": pa.table({"customer": np.arange(degree // 10)}),
        "purchases": pa.table(
            {
                "purchase": np.arange(degree),
                "hub": np.zeros(degree, np.int64),
                "customer": rng.integers(0, degree // 10, degree),
                "at": pa.array(rng.integers(0, 10**9, degree)).cast(pa.timestamp("s")),
            }
        ),
    }
    links = (ForeignKey(("hub",), "hub"), ForeignKey(("customer",), "customers"))
    schema = {
        "hub": TableSchema(("hub",), settled=FACTS),
        "customers": TableSchema(("customer",), settled=FACTS),
        "purchases": TableSchema(("purchase",), links, TimeColumn("at"), settled=FACTS),
    }
    return Database.build(tables, Schema(schema))


if __name__ == "__main__":
    main()
