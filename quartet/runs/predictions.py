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
from quartet.evaluation import Calibration
from quartet.machine import as_path, new_file
from quartet.runs.checkpoint import Checkpoint, mean_thresholds
from quartet.runs.show import predictions_grid
from quartet.runs.sure import Said
from quartet.tasks import TaskSpec
from quartet.times import show_instant, show_length, to_arrow

if TYPE_CHECKING:
    import pandas as pd

# And `score_` with a class.
_OURS = ("name", "time", "predicted", "score", "calibrated", "low", "high", "set", "rank")
_KEPT = ("model", "horizon")  # columns that a table in a database has besides
_MOST_SHOWN, _MOST_ROWS = 10, 60
_FEW_CLASSES = 12  # whose scores people are shown beside each other
_BEST = 3  # classes that they are shown where there are more


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
    classes: tuple[Any, ...] = ()
    are_named: bool = (
        False  # whether the entities were named one by one: they are not all there are at that time
    )

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
        if self._are_lists:  # so many places of each, of as many lists as fit on a page
            places = self.top(most).table.slice(0, max(1, _MOST_ROWS // most) * most)
            return Group(*lines[:1], predictions_grid(places, len(self)), *lines[1:])
        shown = (
            self.best_classes(_BEST)
            if len(self.classes) > _FEW_CLASSES and "rank" not in self._names
            else self
        )
        count = most * (len(shown) // max(1, len(self)))  # of each entity, all of its classes that are shown
        return Group(*lines[:1], predictions_grid(shown.top(count or most).table, len(shown)), *lines[1:])

    @property
    def _names(self) -> list[str]:
        return list(self.table.column_names)

    @property
    def _are_lists(self) -> bool:
        """Returns whether the rows are places in lists of recommended items."""
        return "rank" in self._names and not self.classes

    @property
    def num_asked(self) -> int:
        """Returns how many predictions there are: a list is one."""
        return self.table["rank"].to_pylist().count(1) if self._are_lists else len(self)

    def best_classes(self, most: int) -> Predictions:
        """Returns a row for each of the so many most probable classes of each entity and time, the best first.

        `rank` counts from 1, `predicted` is the class and `score` its score. What is told of the first class
        alone (`calibrated`, `set`) is left out. As rows they are filtered, joined and compared like any others.
        """
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            raise UsageError("C02", f"the number of classes is {most!r}", "give a whole number from 1 on")
        if not self.classes or "rank" in self._names:
            raise UsageError("C02", "these predictions have no scores of classes", "ask a model of classes")
        scores = np.stack([self.table[f"score_{name}"].to_numpy() for name in self.classes], 1)
        order = np.argsort(-scores, axis=1, kind="stable")[
            :, :most
        ]  # of equal ones the first, as `predicted`
        count = order.shape[1]
        of_first = ("predicted", "calibrated", "set")  # they tell of the first class alone, or of all at once
        kept = [name for name in self._names if name not in of_first and not name.startswith("score_")]
        table = self.table.select(kept).take(pa.array(np.repeat(np.arange(len(self)), count)))
        table = table.append_column("rank", pa.array(np.tile(np.arange(1, count + 1), len(self))))
        names = pa.array(_of_one_type(self.classes))
        table = table.append_column("predicted", names.take(pa.array(order.ravel())))
        table = table.append_column("score", pa.array(np.take_along_axis(scores, order, 1).ravel()))
        return replace(self, table=table)

    def top(self, most: int | None = None) -> Predictions:
        """Returns so many rows with the highest scores, or all, the highest first; equal ones in the order of keys.

        Of several classes, where there is no one score, all are in the order of keys; of lists so many places of each.
        """
        if most is not None and (not isinstance(most, int) or most < 0):
            raise UsageError("C02", f"the number of predictions is {most!r}", "give a whole number")
        if self._are_lists:  # so many places of each, in their order
            if most is None:
                return self
            return replace(self, table=self.table.filter(pc.less_equal(self.table["rank"], most)))
        is_ranked = "rank" in self._names
        by_score = [("score", "descending")] if "score" in self._names and not is_ranked else []
        by_rank = [("rank", "ascending")] if is_ranked else []
        ordered = self.table.sort_by(
            [*by_score, (self._names[0], "ascending"), ("time", "ascending"), *by_rank]
        )
        return replace(self, table=ordered.slice(0, most))

    def to_arrow(self) -> pa.Table:
        return self.table

    def rows(self) -> list[dict[str, Any]]:
        """Returns rows of plain values; of times the microseconds, as Python has no finer ones."""
        table = self.table
        for place, field in enumerate(table.schema):
            if pa.types.is_timestamp(field.type):
                column = table[place].cast(pa.timestamp("us", field.type.tz), safe=False)
                table = table.set_column(place, field.name, column)
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows

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
        there already are replaced; all others stay. Where entities were asked for by name, these alone are replaced.
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
                table = predictions.table
                writers[path.suffix](table if path.suffix == ".parquet" else _plain(table), fresh)

        return write_file
    place = DatabaseTable.parse(str(target))
    if place is None:
        fix = "name a .parquet or .csv file, or a table of a database: shop.sqlite#scores"
        raise UsageError("C02", f'scores cannot be written as "{path.suffix}"', fix)

    def write_rows(predictions: Predictions) -> None:
        rows = _kept_rows(predictions)
        key = [rows.column_names[1]] if predictions.are_named else []  # the first after the model
        place.write(rows, ("model", "time", *key))

    return write_rows


def _kept_rows(predictions: Predictions) -> pa.Table:
    """Returns predictions as rows of a table in a database, with their model and horizon."""
    given, count = _plain(predictions.table), len(predictions)
    columns: dict[str, Any] = {"model": pa.array([predictions.model] * count, pa.string())}
    for name in given.column_names:
        columns[f"key.{name}" if name in _KEPT else name] = given[name]
        if name == "time":
            columns["horizon"] = pa.array([predictions.horizon] * count, pa.string())
    return pa.table(columns)


def _plain(table: pa.Table) -> pa.Table:
    """Returns a table without lists, for where no cell can hold one: they become JSON."""
    for place, column in enumerate(table.columns):
        if pa.types.is_list(column.type):
            texts = pa.array(
                [json.dumps(cell, ensure_ascii=False) for cell in column.to_pylist()], pa.string()
            )
            table = table.set_column(place, table.column_names[place], texts)
    return table


def headline(
    spec: TaskSpec, times: NDArray[np.int64], num_asked: int, num_known: int = 0, words: str = ""
) -> str:
    """Returns in words what is predicted, when, and for how many of whom."""
    if not len(times):
        return f"{spec.name}: nobody is asked about"
    of_all = f" of {num_known:,}" if words and num_known != num_asked else ""
    one = " row of" if num_asked == 1 and not of_all else ""
    whom = f"{num_asked:,}{of_all}{one} {spec.entity_table}{': ' if words else ''}{words}"
    return f"{question(spec, times)}, for {whom}"


def question(spec: TaskSpec, times: NDArray[np.int64]) -> str:
    """Returns in words what is predicted, and when."""
    first, last = show_instant(int(times.min())), show_instant(int(times.max()))
    when = first if first == last else f"times from {first} to {last}"
    length = show_length(spec.horizon)
    ahead = f" in the {length.removeprefix('1 ')} after {when}" if spec.horizon else f" at {when}"
    return f"{spec.name}: {spec.facts.what}{spec.target_col}{ahead}"


def prediction_table(
    table: Table,
    rows: NDArray[np.int64],
    times: NDArray[np.int64],
    members: Sequence[Checkpoint],
    logits: Sequence[NDArray[np.float64]],
    with_names: bool = True,
    said: Said | None = None,
) -> pa.Table:
    """Returns the mean of the members' scores as a table, with calibrated ones where all members have them.

    Of several classes `calibrated` is the probability of the predicted one. What is said of how sure they are follows:
    `low` and `high`, empty where too little is known, or the classes of a `set`.
    """
    columns = asked_columns(table, rows, times)
    names = table.names_of(rows, times) if with_names else None
    if names is not None:
        key = next(iter(columns))
        columns = {key: columns[key], "name": names} | columns
    pairs = list(zip(members, logits, strict=True))
    scores = _mean([member.scores(numbers) for member, numbers in pairs])
    classes = members[0].task.classes
    is_calibrated = all(member.calibration is not None for member in members)
    sure = {} if said is None else _sure_columns(said, classes or (0, 1))
    if classes is not None:
        classes = _of_one_type(classes)
        if members[0].thresholds is not None:
            is_there = scores >= mean_thresholds(members)
            kind = pa.list_(pa.array(classes).type)
            columns["predicted"] = pa.array(
                [[classes[i] for i in np.flatnonzero(row)] for row in is_there], kind
            )
        else:
            top = scores.argmax(1)
            columns["predicted"] = pa.array([classes[place] for place in top])
            if is_calibrated:
                chances = _mean([member.probabilities(member.scores(numbers)) for member, numbers in pairs])
                columns["calibrated"] = pa.array(chances[np.arange(len(top)), top])
        columns |= sure | {f"score_{c}": pa.array(scores[:, i]) for i, c in enumerate(classes)}
        return pa.table(columns)
    columns["score"] = pa.array(scores)
    calibrated = [m.calibration(n[:, 0]) for m, n in pairs if isinstance(m.calibration, Calibration)]
    if len(calibrated) == len(pairs):
        columns["calibrated"] = pa.array(_mean(calibrated))
    return pa.table(columns | sure)


def _sure_columns(said: Said, classes: Sequence[Any]) -> dict[str, pa.Array]:
    """Returns the columns `low` and `high`, or `set`, in which names that could be misread are quoted as in JSON."""
    if said.ends is not None:
        lost = ~np.isfinite(said.ends).all(1)
        return {
            name: pa.array(ends, mask=lost) for name, ends in zip(("low", "high"), said.ends.T, strict=True)
        }
    assert said.held is not None
    plain = [str(name) for name in classes]
    is_odd = [not name or name != name.strip() or not set(name).isdisjoint(',{}"') for name in plain]
    quoted = [json.dumps(n, ensure_ascii=False) if odd else n for n, odd in zip(plain, is_odd, strict=True)]
    names = np.array(quoted, dtype=object)
    return {"set": pa.array([f"{{{','.join(names[held])}}}" for held in said.held], pa.string())}


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


def _of_one_type(classes: Sequence[Any]) -> tuple[Any, ...]:
    """Returns classes that one column can hold: numbers beside which others are pooled become text."""
    return tuple(classes) if len({type(name) for name in classes}) == 1 else tuple(map(str, classes))
