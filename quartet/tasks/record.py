"""TaskRecord: what a trained model remembers of its task, written to and read from JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.database import Database, Table, schema_facts
from quartet.errors import IntegrityError, SchemaError, UsageError
from quartet.findings import note
from quartet.listener import SILENT, Listener
from quartet.tasks.binding import OnEarlySeed
from quartet.tasks.past_labels import cases_at, known_cases, with_past_labels
from quartet.tasks.seeds import Seeds
from quartet.tasks.spec import TaskSpec, TaskType
from quartet.tasks.splits import Splits
from quartet.tasks.task import Task

_VERSION = 2


@dataclass(frozen=True)
class TaskRecord:
    """The definition of a task, its cut-offs, and the shape and fingerprint of the database it was bound to.

    `source` and `path` are the names under which the database and the task are found again.
    """

    spec: TaskSpec
    classes: tuple[Any, ...] | None
    structure: tuple[str, ...]  # sentences about keys, times and links
    val_timestamp: int
    test_timestamp: int
    fingerprint: str
    definition: tuple[tuple[str, str], ...]  # digests of what decides the labels, see `Task.definition`
    num_rows: tuple[tuple[str, int], ...]  # of each table
    last: int | None  # the time of the last row
    schema: str  # keys, links and times by which the database was read, as JSON
    source: str = ""
    path: str = ""
    on_early_seed: OnEarlySeed = "error"

    @staticmethod
    def of(task: Task) -> TaskRecord:
        return TaskRecord(
            spec=task.spec,
            classes=None if task.classes is None else tuple(task.classes),
            structure=_structure(task.visible_database),
            val_timestamp=task.splits.val,
            test_timestamp=task.splits.test,
            fingerprint=task.visible_database.fingerprint,
            definition=tuple(task.definition.items()),
            num_rows=tuple((name, table.num_rows) for name, table in task.full_database.tables.items()),
            last=task.full_database.span[1] if task.full_database.span else None,
            schema=json.dumps(schema_facts(task.full_database)),
            source=_absolute(task.full_database.location),
            path=_absolute(task.path) if task.path.endswith((".yaml", ".yml")) else task.path,
            on_early_seed=task.on_early_seed,
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the record as plain values that JSON can hold."""
        return {"version": _VERSION, **asdict(self)}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> TaskRecord:
        """Returns the record that `to_dict` wrote; a newer or a foreign one is refused."""
        version = values.get("version")
        if isinstance(version, int) and version > _VERSION:
            raise IntegrityError(
                "C10", f"the task was recorded by a newer version of quartet (format {version})", "upgrade"
            )
        names, spec_names = ({each.name for each in fields(kind)} for kind in (TaskRecord, TaskSpec))
        spec = values.get("spec")
        is_ours = isinstance(spec, Mapping) and set(spec) == spec_names
        if version != _VERSION or set(values) != names | {"version"} or not is_ours:
            raise IntegrityError(
                "C06", "the record of the task is damaged or of another format", "train anew"
            )
        given = {name: values[name] for name in names}
        hidden = tuple((table, column) for table, column in given["spec"]["remove_columns"])
        given["spec"] = TaskSpec(**{**given["spec"], "remove_columns": hidden})
        given["classes"] = None if given["classes"] is None else tuple(given["classes"])
        given |= {name: tuple(map(tuple, given[name])) for name in ("definition", "num_rows")}
        return TaskRecord(**{**given, "structure": tuple(given["structure"])})

    def where(self) -> str:
        """Returns where the database is found again; an error for one of data frames, or on the network."""
        if self.source in ("", "memory"):
            raise UsageError(
                "L01",
                f'the database of task "{self.name}" was given in memory and cannot be opened again',
                "give the task: model.evaluate(task), or on the command line --source",
            )
        if "://" in self.source and not self.source.startswith(("sqlite:", "duckdb:")):
            raise UsageError(
                "L01",
                f'the database of task "{self.name}" is on the network ({self.source}): no model opens it by itself',
                "name it: model.evaluate(task), or on the command line --source",
            )
        return self.source

    def open(self, source: object = None, schema: Path | None = None) -> Database:
        """Opens the database of training, or another source, by the keys, links and times of training.

        So a database that has grown is read as it was. `schema` is read instead where it is given.
        """
        return Database.load(self.where() if source is None else source, schema or json.loads(self.schema))

    def with_entities(self, database: Database) -> Database:
        """Returns a database with the tables that were made from distinct values in training."""
        columns: dict[str, Any] = json.loads(self.schema).get("entities") or {}
        return database.with_entities({n: [c] if isinstance(c, str) else c for n, c in columns.items()})

    def reopen(self, database: Database) -> Task:
        """Returns the task over a database: loaded again by its path, or bound again by its definition."""
        if self.path:
            return Task.load(database, self.path, on_early_seed=self.on_early_seed)
        if self.spec.kind == "external":
            raise UsageError(
                "L01", f'the labels of task "{self.name}" were given in memory', "give the task itself"
            )
        return self._at_cut_offs(Task.of(self.spec, database, on_early_seed=self.on_early_seed))

    def _at_cut_offs(self, task: Task) -> Task:
        """Returns a task with the cut-offs of training, where those that it has were proposed from the data."""
        if not task.splits.is_proposed:
            return task
        return replace(task, splits=Splits(self.val_timestamp, self.test_timestamp, is_proposed=True))

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def type(self) -> TaskType:
        return self.spec.type

    @property
    def entity_table(self) -> str:
        return self.spec.entity_table

    @property
    def target(self) -> str:
        return self.spec.target_col

    @property
    def horizon(self) -> int:
        return self.spec.horizon

    @property
    def hidden_columns(self) -> tuple[tuple[str, str], ...]:
        return self.spec.hidden_columns

    def visible(self, database: Database, table_order: Iterable[str] = ()) -> Database:
        """Returns the part of a database that the task may see, the tables of `table_order` first."""
        hidden = [
            (table, column)
            for table, column in self.hidden_columns
            if table in database.tables and column in database[table].data.column_names
        ]
        shown = database.without(hidden)
        names = dict.fromkeys([*(name for name in table_order if name in shown.tables), *shown.tables])
        return replace(shown, tables={name: shown[name] for name in names})

    def with_past_labels(
        self, database: Database, upto: int, labels: pa.Table | None = None, table_order: Iterable[str] = ()
    ) -> Database:
        """Returns what `visible` shows and the table of the labels that are known at a time.

        `labels` are the label rows of a task whose labels do not follow from the database.
        """
        splits = Splits(self.val_timestamp, self.test_timestamp)
        return self.visible(with_past_labels(database, self.spec, splits, upto, labels), table_order)

    def known_cases(self, database: Database, upto: int, labels: pa.Table | None = None) -> Seeds:
        """Returns the latest seeds whose labels are known at a time: rows of the entity table, with their labels."""
        splits = Splits(self.val_timestamp, self.test_timestamp)
        cases = known_cases(database, self.spec, splits, self.classes, upto, labels)
        return replace(cases, node=cases.node - database.offsets[self.entity_table])

    def cases_at(
        self, database: Database, times: NDArray[np.int64], upto: int, labels: pa.Table | None = None
    ) -> Seeds:
        """Returns the seeds of some times whose labels are known at a time: rows of the entity table, with labels."""
        cases = cases_at(database, self.spec, self.classes, times, upto, labels)
        return replace(cases, node=cases.node - database.offsets[self.entity_table])

    def as_then(self, task: Task, listener: Listener = SILENT) -> Task:
        """Returns the task over the rows of training where its database has only grown since then, else the task."""
        whole, last, num_rows = task.full_database, self.last, dict(self.num_rows)
        if task.visible_database.fingerprint == self.fingerprint or not set(num_rows) <= set(whole.tables):
            return task

        def then(table: Table) -> NDArray[np.bool_]:
            if table.is_timed and last is not None:
                return visible(table.known_at, last)
            return np.arange(table.num_rows) < num_rows[table.name]

        known = whole.taking({name: then(whole[name]) for name in num_rows})
        if self.visible(known).fingerprint != self.fingerprint:
            return task
        num_new = whole.num_rows - known.num_rows
        text = f"the database has grown by {num_new:,} rows since training; the rows of then are used"
        listener.finding(note("C15", self.name, text, num_new))
        bound = Task.of(task.spec, known, task.labels, task.stored, task.on_early_seed)
        return replace(self._at_cut_offs(bound), path=task.path)

    def check_same(self, other: TaskRecord, where: object) -> None:
        """Raises an error that names in what another task differs from that of a model (`where`)."""
        if other.name != self.name:
            raise UsageError(
                "C05",
                f'{where} is of task "{self.name}", not "{other.name}"',
                "give models and tasks of one kind",
            )
        before, now = dict(self.definition), dict(other.definition)
        changed = [part for part in {**before, **now} if before.get(part) != now.get(part)]
        if changed:
            raise UsageError(
                "C05",
                f'task "{self.name}" has another {", ".join(changed)} than that of {where}',
                "give the task with which it began, or start a new run",
            )
        if other.fingerprint != self.fingerprint:
            raise UsageError("C05", f"the data of {where} have changed since it began", "start a new run")

    def check_structure(self, database: Database) -> None:
        """Raises an error that names the key, time or link in which a database differs from that of training."""
        before, now = self.structure, _structure(database)
        lost = [fact for fact in before if fact not in now]
        new = [fact for fact in now if fact not in before]
        if lost or new:
            text = f'"{lost[0]}" held in training and does not now' if lost else ""
            if new:
                text = f'{text}, and now "{new[0]}"' if lost else f'"{new[0]}" did not hold in training'
            raise SchemaError("V04" if lost else "V05", text, "restore it with a schema file, or train anew")


def _absolute(name: str) -> str:
    """Returns a path that is found from every folder; other names, such as those of stored tasks, as they are."""
    scheme, sign, rest = name.rpartition(":///")
    path, mark, query = rest.partition("?")
    return f"{scheme}{sign}{Path(path).resolve()}{mark}{query}" if path and Path(path).exists() else name


def _structure(database: Database) -> tuple[str, ...]:
    return tuple(sorted(fact for table in database.tables.values() for fact in _facts(table)))


def _facts(table: Table) -> Iterator[str]:
    schema = table.schema
    if schema.primary_key:
        yield f"the key of {table.name} is {', '.join(schema.primary_key)}"
    if schema.time is not None:
        yield f"{table.name} is dated by {schema.time.column}"
    if schema.available_at is not None:
        yield f"{table.name} is available at {schema.available_at}"
    for link in schema.foreign_keys:
        target = link.table + "".join(f".{column}" for column in link.references)
        yield f"{table.name}.{link.label} links to {target}"
