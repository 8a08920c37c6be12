"""Predictions: scores as a table, with what they mean in words, and where they can be written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from rich.console import Group, RenderableType

from quartet.database import DatabaseTable, Table
from quartet.drawing import cell, rendered
from quartet.errors import UsageError
from quartet.machine import as_path, new_file
from quartet.runs.checkpoint import Checkpoint
from quartet.runs.show import predictions_grid
from quartet.tasks import TaskSpec
from quartet.times import show_instant, show_length, to_arrow

if TYPE_CHECKING:
    import pandas as pd

_OURS = ("name", "time", "predicted", "score", "calibrated")  # and `score_` with a class
_KEPT = ("model", "horizon")  # columns that a table in a database has besides
_MOST_SHOWN, _MOST_ROWS = 10, 60
_WHAT = {
    "binary_classification": "probability of ",
    "multiclass_classification": "class of ",
    "recommendation": "the likeliest ",
}


@dataclass(frozen=True, eq=False)
class Predictions:
    """Scores as a table: a row for each entity and time, with its key, its name, `score` and `calibrated`.

    `headline` says what is predicted, when and for whom, and `quality` how good the model was when it was judged.
    """

    table: pa.Table
    headline: str = ""
    quality: str = ""
    model: str = ""
    horizon: str = ""

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __str__(self) -> str:
        return rendered(self.grid())

    __repr__ = __str__

    def grid(self, most: int = _MOST_SHOWN) -> RenderableType:
        """Returns the highest scores below the headline, and below them how good the model was."""
        lines = [
            cell(text, style) for text, style in ((self.headline, "bold"), (self.quality, "dim")) if text
        ]
        shown = self.top(most).table
        if "rank" in shown.column_names:  # so many places of each list, of as many lists as fit on a page
            shown = shown.slice(0, max(1, _MOST_ROWS // most) * most)
        return Group(*lines[:1], predictions_grid(shown, len(self)), *lines[1:])

    def top(self, most: int | None = None) -> Predictions:
        """Returns so many rows with the highest scores, or all, the highest first; equal ones in the order of keys.

        Of several classes, where there is no one score, all are in the order of keys; of lists so many places of each.
        """
        if most is not None and (not isinstance(most, int) or most < 0):
            raise UsageError("C02", f"the number of predictions is {most!r}", "give a whole number")
        if "rank" in self.table.column_names:  # of lists, so many places of each, in their order
            if most is None:
                return self
            return replace(self, table=self.table.filter(pc.less_equal(self.table["rank"], most)))
        by_score = [("score", "descending")] if "score" in self.table.column_names else []
        ordered = self.table.sort_by(
            [*by_score, (self.table.column_names[0], "ascending"), ("time", "ascending")]
        )
        return replace(self, table=ordered.slice(0, most))

    def to_arrow(self) -> pa.Table:
        return self.table

    def to_pandas(self) -> pd.DataFrame:
        return self.table.to_pandas()

    def to_json(self) -> str:
        """Returns headline, quality and all rows as JSON; times as ISO texts."""
        rows = self.table.set_column(
            self.table.column_names.index("time"), "time", self.table["time"].cast(pa.string())
        ).to_pylist()
        return json.dumps(
            {"headline": self.headline, "quality": self.quality, "predictions": rows}, default=str
        )

    def write(self, target: str | Path) -> None:
        """Writes the table to a .parquet or .csv file, or into a table of a database: `shop.sqlite#scores`.

        A table in a database has the columns `model` and `horizon` besides. Rows of the same model and time that are
        there already are replaced; all others stay.
        """
        write = prediction_writer(target)
        write(self)


def prediction_writer(target: str | Path) -> Any:
    """Returns what writes predictions to a file or into a database; an error where nothing does."""
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    path = as_path(target, "the file")
    writers = {".parquet": pq.write_table, ".csv": csv.write_csv}
    if path.suffix in writers and "://" not in str(target):

        def write_file(predictions: Predictions) -> None:
            with new_file(path) as fresh:
                writers[path.suffix](predictions.table, fresh)

        return write_file
    place = DatabaseTable.parse(str(target))
    if place is None:
        fix = "name a .parquet or .csv file, or a table of a database: shop.sqlite#scores"
        raise UsageError("C02", f'scores cannot be written as "{path.suffix}"', fix)
    return lambda predictions: place.write(_kept_rows(predictions), ("model", "time"))


def _kept_rows(predictions: Predictions) -> pa.Table:
    """Returns predictions as rows of a table in a database, with their model and horizon."""
    given, count = predictions.table, len(predictions)
    columns: dict[str, Any] = {"model": pa.array([predictions.model] * count, pa.string())}
    for name in given.column_names:
        columns[f"key.{name}" if name in _KEPT else name] = given[name]
        if name == "time":
            columns["horizon"] = pa.array([predictions.horizon] * count, pa.string())
    return pa.table(columns)


def headline(
    spec: TaskSpec, times: NDArray[np.int64], num_asked: int, num_known: int = 0, words: str = ""
) -> str:
    """Returns in words what is predicted, when, and for how many of whom."""
    if not len(times):
        return f"{spec.name}: nobody is asked about"
    of_all = f" of {num_known:,}" if words and num_known != num_asked else ""
    whom = f"{num_asked:,}{of_all} {spec.entity_table}{': ' if words else ''}{words}"
    return f"{question(spec, times)}, for {whom}"


def question(spec: TaskSpec, times: NDArray[np.int64]) -> str:
    """Returns in words what is predicted, and when."""
    first, last = show_instant(int(times.min())), show_instant(int(times.max()))
    when = first if first == last else f"times from {first} to {last}"
    length = show_length(spec.horizon)
    ahead = f" in the {length.removeprefix('1 ')} after {when}" if spec.horizon else f" at {when}"
    return f"{spec.name}: {_WHAT.get(spec.type, '')}{spec.target_col}{ahead}"


def prediction_table(
    table: Table,
    rows: NDArray[np.int64],
    times: NDArray[np.int64],
    members: Sequence[Checkpoint],
    logits: Sequence[NDArray[np.float64]],
    with_names: bool = True,
) -> pa.Table:
    """Returns the mean of the members' scores as a table, with calibrated ones where all members have them."""
    columns = asked_columns(table, rows, times)
    if with_names and table.name_column not in (None, *table.primary_key[:1]):
        key = next(iter(columns))
        columns = {key: columns[key], "name": table.data[table.name_column].take(pa.array(rows))} | columns
    pairs = list(zip(members, logits, strict=True))
    scores = _mean([member.scores(numbers) for member, numbers in pairs])
    classes = members[0].task.classes
    if classes is not None:
        columns["predicted"] = pa.array([classes[place] for place in scores.argmax(1)])
        columns |= {f"score_{c}": pa.array(scores[:, i]) for i, c in enumerate(classes)}
        return pa.table(columns)
    columns["score"] = pa.array(scores)
    calibrated = [member.calibration(n[:, 0]) for member, n in pairs if member.calibration is not None]
    if len(calibrated) == len(pairs):
        columns["calibrated"] = pa.array(_mean(calibrated))
    return pa.table(columns)


def asked_columns(
    table: Table, rows: NDArray[np.int64], times: NDArray[np.int64]
) -> dict[str, pa.Array | pa.ChunkedArray]:
    """Returns the first columns of predictions: the key of each entity, and the time at which it was asked about.

    A key that is called like a column of ours is called by its table, too: `matches.score`.
    """
    key = table.primary_key[0] if table.primary_key else "row"
    is_ours = key in _OURS or key.startswith("score_")
    keys = table.data[key].take(pa.array(rows)) if table.primary_key else pa.array(rows)
    return {f"{table.name}.{key}" if is_ours else key: keys, "time": to_arrow(times)}


def _mean(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return parts[0] if len(parts) == 1 else np.mean(parts, axis=0)
