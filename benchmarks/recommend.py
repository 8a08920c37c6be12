"""Measures how long it takes to rank items for many sources, how much memory that needs, and what each pool finds.

    python benchmarks/recommend.py [--sources 10000] [--items 100000] [--events 1000000] [--train-seeds 2000]

Shoppers buy products of a few favourite kinds, again and again, and now and then what sells. Trees and towers learn
from some of them, and rank for all: candidates, pair columns, scores and lists.
"""

from __future__ import annotations

import argparse
import resource
import time
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.listener import Listener
from quartet.runs import fit
from quartet.tasks import Task

DAY = 86_400 * 10**9
START = int(np.datetime64("2023-01-01", "ns").astype(np.int64))
NUM_DAYS, NUM_KINDS = 360, 200


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--sources", type=int, default=10_000)
    options.add_argument("--items", type=int, default=100_000)
    options.add_argument("--events", type=int, default=1_000_000)
    options.add_argument("--train-seeds", type=int, default=2_000)
    options.add_argument("--model", default="auto")
    chosen = options.parse_args()
    database = shoppers(chosen.sources, chosen.items, chosen.events)
    task = next_products(database, chosen.sources, chosen.train_seeds)
    with TemporaryDirectory() as runs:
        begin = time.perf_counter()
        model = fit(
            task, chosen.model, runs=runs, listener=Listener(), width=32, epochs=2, local_budget=20,
            temporal_budget=10, collab_budget=5, time_limit=120,
        )  # fmt: skip
        fitted = time.perf_counter() - begin
        live = model.on(database, listener=Listener())
        begin, worked = time.perf_counter(), time.process_time()
        lists = live.predict(everyone=True)
        ranked, worked = time.perf_counter() - begin, time.process_time() - worked
        found = model.evaluate(task, listener=Listener())
    title = f"{chosen.sources:,} sources, {chosen.items:,} items, {chosen.events:,} events"
    report = Table(title=title)
    for name in ("what", "figure"):
        report.add_column(name, justify="left" if name == "what" else "right")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    report.add_row("fitting, s", f"{fitted:.0f}")
    report.add_row(f"{len(lists):,} places of lists, s", f"{ranked:.0f}", style="bold")
    report.add_row("of that computing, s", f"{worked:.0f}")
    report.add_row("highest memory of all, GB", f"{memory:.1f}")
    for row in found.rows:
        report.add_row(f"MAP of {row.name}", str(row.measures["map"]))
    for name, recall in found.pools.items():
        report.add_row(f"recall of {name}", f"{recall:.3f}")
    Console(width=110).print(report)


def shoppers(num_sources: int, num_items: int, num_events: int) -> Database:
    """Shoppers, each with three favourite kinds of products, and their purchases over a year."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, NUM_KINDS, num_items)
    by_kind = np.argsort(kind, kind="stable")
    first = np.searchsorted(kind[by_kind], np.arange(NUM_KINDS + 1))
    liked = rng.integers(0, NUM_KINDS, (num_sources, 3))
    source = rng.integers(0, num_sources, num_events)
    wanted = liked[source, rng.integers(0, 3, num_events)]
    size = np.maximum(1, first[wanted + 1] - first[wanted])
    item = by_kind[
        np.minimum(first[wanted] + (size * rng.random(num_events) ** 4).astype(int), num_items - 1)
    ]
    by_chance = rng.random(num_events) < 0.2
    item[by_chance] = (num_items * rng.random(int(by_chance.sum())) ** 3).astype(int)
    day = np.sort(rng.integers(0, NUM_DAYS, num_events))
    tables = {
        "shoppers": pa.table({"shopper": np.arange(num_sources)}),
        "products": pa.table({"product": np.arange(num_items), "price": rng.gamma(2.0, 10.0, num_items)}),
        "purchases": pa.table(
            {
                "purchase": np.arange(num_events),
                "shopper": source,
                "product": item,
                "bought": pa.array(START + DAY * day, pa.timestamp("ns")),
            }
        ),
    }
    links = (ForeignKey(("shopper",), "shoppers"), ForeignKey(("product",), "products"))
    schema = {
        "shoppers": TableSchema(("shopper",), settled=FACTS),
        "products": TableSchema(("product",), settled=FACTS),
        "purchases": TableSchema(("purchase",), links, TimeColumn("bought"), settled=FACTS),
    }
    return Database.build(tables, Schema(schema, name="shoppers"))


def next_products(database: Database, num_sources: int, num_seeds: int) -> Task:
    """What some shoppers buy in the next 30 days; of them there are few, so that fitting takes little."""
    step = max(1, num_sources // num_seeds)
    sql = f"""
        SELECT t.timestamp, p.shopper, LIST(DISTINCT p.product) AS products
        FROM timestamps t
        JOIN purchases p ON p.bought > t.timestamp AND p.bought <= t.timestamp + INTERVAL '{{timedelta}}'
        WHERE p.shopper % {step} = 0 AND t.timestamp >= TIMESTAMP '2023-07-01'
        GROUP BY t.timestamp, p.shopper
    """
    return Task.from_sql(
        database, name="next-products", task_type="recommendation", src_entity_table="shoppers",
        src_entity_col="shopper", dst_entity_table="products", dst_entity_col="products", target_col="products",
        time_col="timestamp", timedelta="30 days", eval_k=20, sql=sql, val_timestamp="2023-10-15",
        test_timestamp="2023-11-20",
    )  # fmt: skip


if __name__ == "__main__":
    main()
