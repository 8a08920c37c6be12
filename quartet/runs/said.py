"""What was said: a record of predictions in a run's folder.

`said.sqlite` has one table, `said`, with a row for each entity and time. The first answer stays: who asks again later,
perhaps with rows that came late, changes nothing of what was said then. `scores` holds the scores of all classes or, of
recommendations, the list: items and their scores, the best first.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from quartet.errors import IntegrityError, ResourceError, UsageError
from quartet.runs.predictions import Predictions
from quartet.runs.run import Run
from quartet.tasks import TaskRecord
from quartet.times import show_instant

RECORD = "said.sqlite"
_COLUMNS = (
    "model TEXT NOT NULL", "entity TEXT NOT NULL", "time TEXT NOT NULL", "horizon TEXT", "score REAL", "scores TEXT",
    "calibrated REAL", "low REAL", "high REAL", '"set" TEXT', "said_at TEXT NOT NULL",
)  # fmt: skip
_MAKE = f"CREATE TABLE IF NOT EXISTS said ({', '.join(_COLUMNS)}, PRIMARY KEY (entity, time)) WITHOUT ROWID"
_ADD = f"INSERT OR IGNORE INTO said VALUES ({', '.join('?' * len(_COLUMNS))})"


def keep_said(run: Run, task: TaskRecord, predictions: Predictions) -> int:
    """Adds predictions to the record of a run in one transaction, and returns how many are new."""
    names, is_list = predictions.table.column_names, task.spec.type == "recommendation"
    if predictions.model != run.folder.name or ("rank" in names and not is_list):
        what = f"predictions of {predictions.model or 'no run'} cannot be kept in {run.folder.name}"
        if predictions.model == run.folder.name:
            what = "single classes are not kept: a record holds the scores of all"
        raise UsageError("C02", what, "keep what one run said, as `predict` gives it")
    table, now = predictions.table, datetime.now(UTC).isoformat(" ", "seconds").removesuffix("+00:00")
    scores: list[Any] = [None] * len(table)
    if is_list:
        table, scores = _lists(table)
    elif task.classes is not None:
        each = [table[f"score_{name}"].to_numpy() for name in predictions.classes]
        scores = [json.dumps(row) for row in np.stack(each, 1).tolist()]
    parts = [
        [predictions.model] * len(table), table[0].cast(pa.string()).to_pylist(),
        _texts(table["time"]), [predictions.horizon] * len(table),
        _cells(table, "score"), scores, *(_cells(table, name) for name in ("calibrated", "low", "high", "set")),
        [now] * len(table),
    ]  # fmt: skip
    with _record(run) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_MAKE)
        before = connection.total_changes
        connection.executemany(_ADD, zip(*parts, strict=True))
        added = connection.total_changes - before
        connection.execute("COMMIT")
    return added


def _lists(table: pa.Table) -> tuple[pa.Table, list[str]]:
    """Returns the first row of each list of recommendations, and the lists as JSON."""
    first = np.flatnonzero(table["rank"].to_numpy() == 1)
    item = table.column_names[table.column_names.index("rank") + 1]
    places = list(zip(table[item].cast(pa.string()).to_pylist(), table["score"].to_pylist(), strict=True))
    ends = [*first[1:], len(table)]
    lists = [json.dumps(places[begin:end]) for begin, end in zip(first, ends, strict=True)]
    return table.take(pa.array(first)).drop(["score"]), lists


def _cells(table: pa.Table, name: str) -> list[Any]:
    return table[name].to_pylist() if name in table.column_names else [None] * len(table)


def _texts(times: Any) -> list[str]:
    return [show_instant(int(time)) for time in times.cast(pa.int64()).to_pylist()]


@contextmanager
def _record(run: Run) -> Iterator[sqlite3.Connection]:
    path = run.folder / RECORD
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            yield connection
    except sqlite3.OperationalError as error:
        fix = "check that the run folder may be written to, and that nobody else is writing"
        raise ResourceError("R02", f'"{path}" cannot be used: {error}', fix) from None
    except sqlite3.DatabaseError as error:
        raise IntegrityError(
            "C06", f'"{path}" is damaged: {error}', "copy the run again, or move it away"
        ) from None


def read_said(run: Run) -> pa.Table:
    """Returns all that a run has said and kept, in the order of times and entities; an error where it kept nothing."""
    rows: list[Any] = []
    if (run.folder / RECORD).is_file():
        with _record(run) as connection:
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'said'").fetchall():
                rows = connection.execute("SELECT * FROM said ORDER BY time, entity").fetchall()
    if not rows:
        what = f"{run.folder} has kept nothing of what it said"
        raise UsageError("C10", what, "predict with --record: quartet predict RUN SRC --record")
    names = [column.split()[0].strip('"') for column in _COLUMNS]
    return pa.table({name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)})
