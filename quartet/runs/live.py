"""LiveModel: a trained model bound to a database. Graph and features are built once, then it is asked many times.

Contexts are sampled live, with the bits of the cached ones. The database may have grown since training: new rows,
new entities, new categories. What the model cannot read is an error that names it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.database import Database, KeyColumn, Table
from quartet.drawing import rendered
from quartet.errors import TaskError, TimeError, UsageError, examples
from quartet.features import FeatureTable
from quartet.listener import SILENT, Listener
from quartet.machine import as_path, new_file
from quartet.runs.checkpoint import Checkpoint
from quartet.runs.show import predictions_grid
from quartet.tasks import Seeds, early_text
from quartet.times import NEVER, STATIC, parse_instant, to_arrow
from quartet.training import View

if TYPE_CHECKING:
    import pandas as pd

_OURS = ("name", "time", "predicted", "score", "calibrated")  # and `score_` with a class

Times = str | int | date | Sequence[str | int | date]


@dataclass(frozen=True, eq=False)
class Predictions:
    """Scores as a table: a row for each entity and time, with its key, its name, `score` and `calibrated`."""

    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __str__(self) -> str:
        return rendered(predictions_grid(self.table))

    __repr__ = __str__

    def to_arrow(self) -> pa.Table:
        return self.table

    def to_pandas(self) -> pd.DataFrame:
        return self.table.to_pandas()

    def write(self, path: str | Path) -> None:
        """Writes the table to a .parquet or .csv file."""
        writer = prediction_writer(as_path(path, "the file"))
        with new_file(Path(path)) as fresh:
            writer(self.table, fresh)


def prediction_writer(path: str | Path) -> Any:
    """Returns what writes a table to a file of that kind; an error where there is none."""
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    writers = {".parquet": pq.write_table, ".csv": csv.write_csv}
    if Path(path).suffix not in writers:
        raise UsageError(
            "C02", f'scores cannot be written as "{Path(path).suffix}"', "name a .parquet or .csv file"
        )
    return writers[Path(path).suffix]


class LiveModel:
    """A model, or several whose scores are averaged, bound to a database."""

    def __init__(
        self,
        members: Sequence[Checkpoint],
        database: Database,
        labels: pa.Table | None = None,
        device: str = "cpu",
        listener: Listener = SILENT,
    ) -> None:
        if not isinstance(database, Database):
            raise UsageError(
                "C02",
                f"a model is bound to a database, got {type(database).__name__}",
                "open it first: quartet.open(source)",
            )
        self.members, self.database, self.labels, self.listener = tuple(members), database, labels, listener
        for member in self.members:
            member.model.to(device)
        self.views: list[View] = []  # of each member
        self._upto = STATIC
        self._has_past_labels = any(member.recipe.past_labels for member in self.members)
        for member in self.members:
            if member.recipe.past_labels:  # before the task's SQL fails by what has changed
                member.task.check_structure(member.task.visible(database, tuple(member.statistics.tables)))
        if not self._has_past_labels:  # these wait for the time that is asked for
            self.bind(STATIC)

    def __repr__(self) -> str:
        models = ", ".join(member.recipe.model.architecture for member in self.members)
        return f"<LiveModel of {self.members[0].task.name} ({models}) on {self.database!r}>"

    def predict(
        self, entities: Sequence[Any] | None = None, at: Times | None = None, listener: Listener | None = None
    ) -> Predictions:
        """Returns scores of entities at times.

        `entities` are keys of the entity table, by default all that are known then; `at` is one time, or one for each
        entity, by default the last time of the database. A model with past labels sees those that are known by then:
        the task's SQL or column tells them from the database.

        The same question has the same bits. In the company of other entities a score may differ in its last ones:
        matrix kernels round by the shape of a batch.
        """
        times = _instants(self.database, at)
        self.bind(int(times.max(initial=STATIC)))
        table = self.views[0].database[self.members[0].task.entity_table]
        if entities is None:
            if len(times) > 1:
                raise UsageError(
                    "C02", "several times were given, but no entities", "give one entity for each time"
                )
            rows = np.flatnonzero(visible(table.known_at, np.full(table.num_rows, times[0])))
        else:
            rows = _entity_rows(table, entities)
        if len(times) not in (1, len(rows)):
            raise UsageError(
                "C02", f"{len(rows):,} entities and {len(times):,} times", "give one time, or one for each"
            )
        times = np.broadcast_to(times, len(rows)).copy()
        early = ~visible(table.known_at[rows], times)
        if early.any():
            raise TimeError(
                "T05", early_text(table, rows, times, early), "ask at later times, or leave them out"
            )
        logits = [self.logits(number, rows, times, listener) for number in range(len(self.members))]
        return Predictions(prediction_table(table, rows, times, self.members, logits))

    def logits(
        self, member: int, rows: NDArray[np.int64], times: NDArray[np.int64], listener: Listener | None = None
    ) -> NDArray[np.float64]:
        """Returns the (S, outputs) logits of one member for rows of the entity table at times."""
        view = self.views[member]
        seeds = Seeds(rows + view.database.offsets[view.entity_table], times, None)
        return self.members[member].model.logits(view, seeds, listener or self.listener)

    def bind(self, upto: int) -> None:
        """Builds what each member reads; those that read the same share it, and past labels are made once.

        Past labels are made up to the time that is asked for, so that no later row can be in the way; once a later
        time is asked for, up to the end of the data. An earlier seed does not see the later labels: it is answered with
        the same bits.
        """
        if self.views and (upto <= self._upto or not self._has_past_labels):
            return
        if self.views and self.database.span:
            upto = max(upto, self.database.span[1])
        databases: dict[Hashable, Database] = {}
        features: dict[Hashable, FeatureTable] = {}
        views = []
        for member in self.members:
            record, order, recipe = member.task, tuple(member.statistics.tables), member.recipe
            cut_offs = (record.val_timestamp, record.test_timestamp) if recipe.past_labels else None
            shown = (order, record.spec, cut_offs)  # all that decides which rows a member sees
            if shown not in databases:
                databases[shown] = given = record.visible(self.database, order)
                if recipe.past_labels:
                    databases[shown] = record.with_past_labels(self.database, upto, self.labels, order)
                    for finding in databases[shown].findings[len(given.findings) :]:
                        self.listener.finding(finding)
            key = (shown, member.features_key)
            if key not in features:
                features[key] = FeatureTable.encode(databases[shown], member.statistics)
                if not recipe.past_labels:
                    record.check_structure(databases[shown])
                for finding in features[key].findings:
                    self.listener.finding(finding)
            views.append(View(databases[shown], features[key], record.spec, recipe))
        self._upto, self.views = upto, views


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


def _instants(database: Database, at: Times | None) -> NDArray[np.int64]:
    """Returns the asked times; if none are asked, the last one of the database."""
    if at is None:
        if database.span is None:
            raise UsageError("C02", "no time was given, and the database has none", "say at which time")
        at = database.span[1]
    is_one = isinstance(at, (str, bytes, date, np.datetime64)) or not hasattr(at, "__iter__")
    times: Any = [at] if is_one else at
    return np.array([_instant(time) for time in times], np.int64)


def _instant(time: Any) -> int:
    if isinstance(time, (int, np.integer)) and not isinstance(time, bool) and STATIC < time < NEVER:
        return int(time)
    if isinstance(time, (str, date, np.datetime64)) or hasattr(time, "isoformat"):
        return parse_instant(str(time), "the asked time")
    raise UsageError(
        "C02", f"the asked time is {time!r}", 'give a text such as "2024-06-01", a datetime, or nanoseconds'
    )


def _entity_rows(table: Table, entities: Any) -> NDArray[np.int64]:
    """Returns the rows of entities by their keys."""
    if isinstance(entities, (str, bytes)) or not hasattr(entities, "__iter__"):
        raise UsageError("C02", f"entities are {entities!r}", "give a list of keys, also of a single one")
    keys = list(entities)
    if len(table.primary_key) != 1:
        raise TaskError("L11", f'the rows of "{table.name}" have no single key by which to name them')
    known = table.data[table.primary_key[0]].type
    try:
        wanted = pa.chunked_array([pa.array(keys).cast(known)])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OverflowError):
        raise TaskError(
            "S08", f"keys of {table.name} are {known}, asked about {examples(keys)}", "give keys of that type"
        ) from None
    rows = table.key_map.rows([KeyColumn.of(wanted, "entities")])
    unknown = [keys[place] for place in np.flatnonzero(rows < 0)]
    if unknown:
        raise TaskError(
            "L11",
            f'{len(unknown):,} of {len(keys):,} entities are not in "{table.name}" {examples(unknown)}',
            "remove them, or add their rows",
        )
    return rows
