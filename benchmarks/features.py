"""Measures how long `FeatureTable` takes for a table of mixed columns, by kind, with PyTorch Frame beside it.

    python benchmarks/features.py [--rows 1000000] [--repeats 3]

The table has two columns of numbers, two of text categories, a whole-number code, a time, a text of several categories
and a text with repeats. PyTorch Frame, where it is installed, gets at most 100,000 rows, without the text (it has no
embedder of its own) and without the several categories (which fail with pandas 3); its time is scaled up and says so.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from quartet.database import FACTS, Database, TableSchema
from quartet.database.schema import Schema
from quartet.features import FeatureStatistics, FeatureTable
from quartet.times import NEVER

KINDS = {
    "number": ("price", "weight"),
    "category": ("colour", "brand", "shop_code"),
    "time": ("sold",),
    "multicategory": ("tags",),
    "text": ("title",),
}
MOST_FRAME_ROWS = 100_000
FRAME_COLUMNS = ("price", "weight", "colour", "brand", "shop_code", "sold")


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--repeats", type=int, default=3)
    chosen = options.parse_args()
    table = mixed_table(chosen.rows)
    FeatureTable.fit(database_of(table.slice(0, 1000)), NEVER)  # compile, or load the compiled code
    report = Table(title=f"FeatureTable, {chosen.rows:,} rows (medians of {chosen.repeats})")
    for name in ("columns", "fit s", "encode s", "rows/s"):
        report.add_column(name, justify="left" if name == "columns" else "right")
    for kind, names in KINDS.items():
        report.add_row(f"{len(names)} {kind}", *figures(table.select(list(names)), chosen.repeats))
    report.add_row("all 8", *figures(table, chosen.repeats), style="bold")
    if find_spec("torch_frame") is not None:
        rows = min(MOST_FRAME_ROWS, chosen.rows)
        seconds = torch_frame_seconds(table.slice(0, rows)) * chosen.rows / rows
        name = f"PyTorch Frame, {len(FRAME_COLUMNS)} of these (from {rows:,} rows, scaled)"
        report.add_row(name, "", f"{seconds:.1f}", f"{chosen.rows / seconds:,.0f}")
    Console(width=110).print(report)


def figures(table: pa.Table, repeats: int) -> list[str]:
    """Returns the medians of fit and encode, and the rows that pass both in a second."""
    database = database_of(table)
    fit = median(lambda: FeatureStatistics.fit(database, NEVER), repeats)
    learned = FeatureStatistics.fit(database, NEVER)
    encode = median(lambda: FeatureTable.encode(database, learned), repeats)
    return [f"{fit:.2f}", f"{encode:.2f}", f"{table.num_rows / (fit + encode):,.0f}"]


def median(work: Callable[[], object], repeats: int) -> float:
    def seconds() -> float:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    return statistics.median(seconds() for _ in range(repeats))


def database_of(table: pa.Table) -> Database:
    return Database.build({"sales": table}, Schema({"sales": TableSchema(settled=FACTS)}))


def mixed_table(rows: int) -> pa.Table:
    """Eight columns, a twentieth of the prices and brands absent; 50,000 titles of six words."""
    rng = np.random.default_rng(0)
    words = np.array(
        [f"{a}{b}{c}" for a in "bdfgkl" for b in ("a", "eo", "u") for c in ("rt", "nd", "ss", "lm")]
    )
    titles = np.array([" ".join(rng.choice(words, 6)) for _ in range(50_000)])
    tags = np.array(["|".join(rng.choice(words, rng.integers(1, 5))) for _ in range(20_000)])
    colours = np.array(["red", "green", "blue", "grey", "white"])
    brands = np.array([f"brand {n}" for n in range(500)])
    sold = rng.integers(1_500_000_000, 1_700_000_000, rows)
    return pa.table(
        {
            "price": pa.array(rng.lognormal(3, 1, rows), mask=rng.random(rows) < 0.05),
            "weight": rng.integers(1, 100_000, rows),
            "colour": pa.array(colours[rng.integers(0, 5, rows)]),
            "brand": pa.array(brands[rng.integers(0, 500, rows)], mask=rng.random(rows) < 0.05),
            "shop_code": rng.integers(1, 300, rows),
            "sold": pa.array(sold, pa.timestamp("s")),
            "tags": pa.array(tags[rng.integers(0, len(tags), rows)]),
            "title": pa.array(titles[rng.integers(0, len(titles), rows)]),
        }
    )


def torch_frame_seconds(table: pa.Table) -> float:
    """Returns how long PyTorch Frame takes to materialise the columns that it can read."""
    from torch_frame import categorical as category
    from torch_frame import numerical, timestamp
    from torch_frame.data import Dataset

    kinds = {"price": numerical, "weight": numerical, "sold": timestamp}
    frame = table.select(list(FRAME_COLUMNS)).to_pandas()
    dataset = Dataset(frame, {name: kinds.get(name, category) for name in FRAME_COLUMNS})
    begin = time.perf_counter()
    dataset.materialize()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
