"""How long relational columns take, beside DuckDB that computes the same of the rows one link away.

    python -m benchmarks.columns [--data FOLDER] [--tasks DATASET/TASK ...] [--threads 2]

DuckDB joins the training seeds with the rows that are known at their times, and sums up counts, means and sums by
windows in one GROUP BY a link; the counts must be equal. Seconds are the best of three; the ratio is ours to DuckDB's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.past_labels import task_of
from benchmarks.results import SHARED, print_line, source_of
from quartet.config import Recipe
from quartet.features.blocks import PathBlock
from quartet.features.paths import WINDOWS
from quartet.training import TrainingData

TASKS = ("demo/plane-idle", "demo/airport-late", "rel-f1/driver-dnf", "rel-travel/user-badge")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    print_line("task", "seeds", "links", "columns", "ours, s", "DuckDB, s", "ratio", is_head=True)
    for name in asked.tasks:
        source = source_of(name, asked.data)
        if source is not None:
            measure(name, source, asked.threads)


def measure(name: str, source: str, threads: int) -> None:
    task = task_of(name, source)
    data = TrainingData.prepare(task, Recipe.load("small", "", "lightgbm", protocol="rolling"))
    columns, seeds = data.view.columns, data.seeds["train"]
    blocks = [b for b in columns.blocks if isinstance(b, PathBlock) and b.path.is_near and not b.way.links]
    rows = seeds.node - columns.first_node
    connection = duckdb.connect(config={"threads": threads})
    asked = pa.table({"seed": np.arange(len(rows)), "node": rows, "t": seeds.time})
    connection.register("asked", asked)
    connection.execute("CREATE TABLE seeds AS SELECT * FROM asked")
    names = [name for block in blocks for name in block.names]
    place = {name: number for number, name in enumerate(columns.names)}
    ours = seconds_of(lambda: columns.matrix(seeds, frozenset(names), threads))
    made = columns.matrix(seeds, frozenset(names), threads)
    theirs = 0.0
    for number, block in enumerate(blocks):
        sql = _sql(connection, block, number)
        theirs += seconds_of(lambda sql=sql: connection.sql(sql).to_arrow_table())  # type: ignore[misc]
        found = connection.sql(sql).to_arrow_table()
        counts = np.zeros((len(rows), 1 + len(WINDOWS)), np.float32)
        for column in range(counts.shape[1]):
            counts[found["seed"].to_numpy(), column] = found[f"n{column}"].to_numpy()
        told = made[:, [place[name] for name in block.names[: counts.shape[1]]]]
        assert np.array_equal(told, counts), f"{block.path.label}: not the same counts"
    ratio = f"{ours / theirs:.2f}"
    print_line(
        name, f"{len(rows):,}", str(len(blocks)), str(len(names)), f"{ours:.2f}", f"{theirs:.2f}", ratio
    )


def seconds_of(work: Callable[[], Any]) -> float:
    took = []
    for _ in range(3):
        begin = time.perf_counter()
        work()
        took.append(time.perf_counter() - begin)
    return min(took)


def _sql(connection: Any, block: PathBlock, number: int) -> str:
    """Returns the SELECT of a path's columns; its events become a table of the connection first."""
    path, cells, names = block.path, {}, []
    for part in block.summed.parts:
        values, _ = block.summed.cells(part)
        for place in range(len(part.names)):
            names.append((f"x{len(names)}", part.is_number))
            cells[names[-1][0]] = values[path.shown, place]
    node = path.timeline._key // max(1, len(path.timeline.distinct_times))
    held = {column: pa.array(values, from_pandas=True) for column, values in cells.items()}
    connection.register("told", pa.table({"node": node, "known": path.timeline.time, **held}))
    connection.execute(f"CREATE TABLE events{number} AS SELECT * FROM told")

    def recent(units: int) -> str:
        return f"FILTER (known > t - {units * path.unit})"

    words = ["count(*) AS n0", *(f"count(*) {recent(n)} AS n{i}" for i, n in enumerate(WINDOWS, 1))]
    words += ["max(known)", "min(known)"]
    for name, is_number in names:
        words += [
            f"avg({name})",
            f"avg({name}) {recent(4)}",
            f"sum({name}) {recent(4)}",
            f"arg_max({name}, known)",
        ]
        words.append(f"avg({name}) FILTER (rank <= 12)")
        if is_number:
            words += [f"avg({name}) {recent(n)}" for n in (1, 12)] + [
                f"sum({name}) {recent(1)}",
                f"sum({name})",
            ]
            words.append(f"avg({name}) FILTER (known > t - {2 * path.unit} AND known <= t - {path.unit})")
    joined = (
        f"SELECT seed, t, e.*, row_number() OVER (PARTITION BY seed ORDER BY known DESC) AS rank "
        f"FROM seeds JOIN events{number} e ON e.node = seeds.node AND e.known <= seeds.t"
    )
    return f"SELECT seed, {', '.join(words)} FROM ({joined}) GROUP BY seed"


if __name__ == "__main__":
    main()
