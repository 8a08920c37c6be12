"""Task: a definition bound to a database; gives seeds, and keeps the test targets in a vault."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.config import Protocol
from quartet.database import Database, digest_column, read_yaml
from quartet.errors import QueryError, TaskError, TimeError, UsageError, did_you_mean, examples
from quartet.findings import Finding, Findings
from quartet.tasks.binding import OnEarlySeed, to_seeds
from quartet.tasks.checks import lint
from quartet.tasks.classes import class_counts, pooled_finding
from quartet.tasks.labels import (
    LabelColumns,
    column_labels,
    forecast_labels,
    has_label,
    label_times,
    labels_at,
    read_labels,
)
from quartet.tasks.past_labels import KNOWN_LABELS, past_label_seeds, with_past_labels
from quartet.tasks.query import is_query, query_place, read_query
from quartet.tasks.seeds import Seeds, Target
from quartet.tasks.spec import TaskSpec, spec_from_dict
from quartet.tasks.splits import (
    SPLITS,
    Split,
    Splits,
    enough_windows,
    last_windows,
    most_windows,
    no_times,
    propose,
    split_of_labels,
)
from quartet.tasks.vault import Vault
from quartet.times import NEVER, STATIC, parse_instant, show_instant, show_length, to_utc

_MANIFEST = "manifest.yaml"
_MOST_WINDOWS = 2000  # of past labels, each of which takes a SELECT


def task_names(database: Database) -> list[str]:
    """Returns the names of the tasks that are stored with a database."""
    if database.task_folder is None:
        return []
    return sorted(path.parent.name for path in database.task_folder.glob(f"*/{_MANIFEST}"))


@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """What to predict. Build one with `Task.load`, `Task.from_sql` or `Task.from_labels`.

    `full_database` is the whole database, from which labels are made; `database` is the part of it that
    the task may see. With `past_labels`, labels that are already known are rows of `database`. `protocol` says where
    the database ends for a seed (see `under`).
    """

    spec: TaskSpec
    full_database: Database
    splits: Splits
    stored: Mapping[Split, Path] = field(default_factory=dict)
    labels: pa.Table | None = None
    on_early_seed: OnEarlySeed = "error"
    past_labels: bool = False
    protocol: Protocol = "rolling"
    path: str = ""  # the name or file by which it was loaded, if it was
    _seeds: dict[Split, tuple[Seeds, list[Finding]]] = field(default_factory=dict)

    @staticmethod
    def load(
        database: Database,
        definition: str | Path | Mapping[str, Any],
        regenerate: bool = False,
        on_early_seed: OnEarlySeed = "error",
    ) -> Task:
        """Loads a task by the name under which it is stored with the database, from a YAML file, or from a dict.

        A text that begins with PREDICT is a query (docs/query.md). `regenerate` makes the labels again from the
        database instead of reading the stored ones.
        """
        _check_type(database, Database, "the database")
        _check_type(
            definition, (str, Path, Mapping), "the task", "give a name, the path of a YAML file, or a dict"
        )
        if isinstance(definition, str) and is_query(definition):
            definition = {"query": definition}
        folder, manifest, where = Path(), definition, "the task"
        if not isinstance(manifest, Mapping):
            path = _manifest_path(database, str(definition))
            folder, manifest, where = path.parent, read_yaml(path), str(path)
        if manifest.get("query"):
            return Task._from_query(database, manifest, on_early_seed)
        spec = spec_from_dict(manifest, where)
        is_stored = not regenerate and not isinstance(definition, Mapping)
        files: dict[Split, Path] = {split: folder / f"{split}.parquet" for split in SPLITS}
        stored = {split: file for split, file in files.items() if is_stored and file.is_file()}
        labels = read_labels(folder / spec.labels) if spec.labels else None
        task = Task.of(spec, database, labels, stored, on_early_seed)
        return task if isinstance(definition, Mapping) else replace(task, path=str(definition))

    @staticmethod
    def from_sql(database: Database, on_early_seed: OnEarlySeed = "error", **definition: Any) -> Task:
        """Makes a forecast task from SQL and a horizon, in the words of the manifest (see `spec.py`)."""
        if definition.get("query"):
            return Task._from_query(database, definition, on_early_seed)
        spec = spec_from_dict({"kind": "forecast", **definition}, "the task")
        return Task.of(spec, database, on_early_seed=on_early_seed)

    @staticmethod
    def _from_query(database: Database, manifest: Mapping[str, Any], on_early_seed: OnEarlySeed) -> Task:
        """Makes the task of a query, with as many windows in validation and test as their scores need."""
        _check_type(database, Database, "the database")
        reading = read_query(str(manifest["query"]), database, manifest)
        spec, database = reading.spec, reading.database
        task = Task.of(spec, database, on_early_seed=on_early_seed)
        database = task.full_database
        if spec.kind != "forecast" or database.span is None:
            return task
        if task.splits.val % 1000 or task.splits.test % 1000:
            cut_offs = f"{show_instant(task.splits.val)} and {show_instant(task.splits.test)}"
            raise TimeError(
                "T12", f"the cut-offs {cut_offs} are finer than SQL counts", "give whole microseconds"
            )
        labels = labels_at(spec, database, np.array([task.splits.val]), task.splits.test)
        if not labels.num_rows:
            raise QueryError(
                "Q09",
                f"nobody is asked about at {show_instant(task.splits.val)}, when validation begins",
                "loosen the WHERE, or move val_timestamp",
                query_place(spec.query, "where"),
            )
        if manifest.get("num_eval_timestamps") is None:
            possible = most_windows(task.splits, spec.horizon, database.span, spec.known_after)
            num_labels = pc.sum(has_label(labels[spec.target_col])).as_py() or 0
            spec = replace(spec, num_eval_times=enough_windows(num_labels, possible))
        if task.splits.is_proposed:
            splits = last_windows(database.span, spec.horizon, spec.num_eval_times, spec.known_after)
            task = replace(task, splits=splits)
        return replace(task, spec=spec)

    @staticmethod
    def from_labels(
        database: Database, labels: object, on_early_seed: OnEarlySeed = "error", **definition: Any
    ) -> Task:
        """Makes a task from labels (entity, time, target): a data frame, an Arrow table, or the path of a file."""
        spec = spec_from_dict({"kind": "external", **definition}, "the task")
        return Task.of(spec, database, read_labels(labels), on_early_seed=on_early_seed)

    @staticmethod
    def of(
        spec: TaskSpec,
        database: Database,
        labels: pa.Table | None = None,
        stored: Mapping[Split, Path] | None = None,
        on_early_seed: OnEarlySeed = "error",
    ) -> Task:
        """Binds a definition to its database, with its cut-offs given or proposed."""
        _check_type(database, Database, "the database")
        _check_choice(on_early_seed, get_args(OnEarlySeed), "on_early_seed")
        for table in filter(None, (spec.entity_table, spec.item_table)):
            database = database.with_entity(table)  # made from distinct values, or an error with a suggestion
        entity, item = database.entity_name(spec.entity_table), database.entity_name(spec.item_table)
        spec = replace(spec, entity_table=entity or spec.entity_table, item_table=item or spec.item_table)
        if labels is not None:
            columns = LabelColumns.of(spec, database[spec.entity_table])
            labels = columns.select(labels, f'the label table of task "{spec.name}"')
        return Task(spec, database, _splits(spec, database, labels), stored or {}, labels, on_early_seed)

    def __repr__(self) -> str:
        ahead = f", {show_length(self.spec.horizon)} ahead" if self.spec.horizon else ""
        val, test = show_instant(self.splits.val), show_instant(self.splits.test)
        return (
            f'Task("{self.name}": {self.spec.type.replace("_", " ")} for {self.spec.entity_table}{ahead}; '
            f"validation from {val}, test from {test}{' (proposed)' if self.splits.is_proposed else ''})"
        )

    @property
    def name(self) -> str:
        return self.spec.name

    @cached_property
    def visible_database(self) -> Database:
        """The database without its target and its `remove_columns`."""
        return self.full_database.without(self.spec.hidden_columns)

    @cached_property
    def database(self) -> Database:
        """The database as the task may see it: the visible one and, with `past_labels`, the labels that are known."""
        end = self.splits.test
        if self.protocol == "rolling":
            end = int(self.seeds("test").time.max(initial=end))
        shown = self.visible_database
        if self.past_labels:
            given = None
            if self.spec.kind == "external":  # labels do not follow from the database
                given = (
                    self.labels if self.labels is not None else pa.concat_tables(map(self.label_rows, SPLITS))
                )
            whole = with_past_labels(self.full_database, self.spec, self.splits, end, given)
            shown = whole.without(self.spec.hidden_columns)
        return shown if self.protocol == "rolling" else shown.frozen_at(end)

    def under(self, protocol: Protocol, past_labels: bool = False) -> Task:
        """Returns the same task where the database ends, for a seed, where a protocol says.

        frozen   at the test cut-off, the seed keeping its own time: RelBench's examples, RelGT, the paper
        rolling  at the seed's own time, as in use
        clamped  at the test cut-off, and a later seed is asked as of that moment
        auto     frozen, or rolling where test asks about rows that do not exist at the cut-off (an order at the
                 moment it is placed): a frozen database has nothing to tell of them

        With `past_labels`, labels that are known by then are rows of the database (see `past_labels.py`).
        """
        _check_choice(protocol, get_args(Protocol), "the protocol")
        if protocol == "auto":
            protocol = "rolling" if self.num_new_entities else "frozen"
        elif protocol != "rolling" and self.num_new_entities:
            raise TimeError(
                "T17",
                f'{self.num_new_entities:,} of {len(self.seeds("test")):,} test seeds of task "{self.name}" ask about '
                f"{self.spec.entity_table} that do not exist at the test cut-off, {show_instant(self.splits.test)}, "
                f"where a {protocol} database ends",
                'say --protocol rolling, in Python protocol="rolling"',
            )
        task = replace(self, past_labels=past_labels, protocol=protocol)
        task.__dict__["vault"] = self.vault  # every opening is written down in one place
        return task

    @cached_property
    def num_new_entities(self) -> int:
        """How many test seeds ask about rows that do not exist yet at the test cut-off."""
        entity, seeds = self.full_database[self.spec.entity_table], self.seeds("test")
        rows = seeds.node - self.full_database.offsets[entity.name]
        return int((~visible(entity.known_at[rows], self.splits.test)).sum())

    @cached_property
    def definition(self) -> dict[str, str]:
        """A short digest of each part of all that decides the labels: tasks with equal ones are the same."""

        def short(content: bytes) -> str:
            return hashlib.sha256(content).hexdigest()[:16]

        undecisive = {"name", "description", "labels", "val_timestamp", "test_timestamp", "query"}
        parts = {
            each.name: short(repr(getattr(self.spec, each.name)).encode())
            for each in fields(self.spec)
            if each.name not in undecisive
        }
        parts["cut-offs"] = short(f"{self.splits.val} {self.splits.test}".encode())
        parts["on_early_seed"] = short(self.on_early_seed.encode())
        if self.labels is not None:
            digest = hashlib.sha256()
            for column in self.labels.columns:
                digest_column(digest, column)
            parts["labels"] = digest.hexdigest()[:16]
        return parts | {f"{split} labels": short(path.read_bytes()) for split, path in self.stored.items()}

    @property
    def digest(self) -> str:
        """Returns one digest of the data that the task may see and of its definition."""
        parts = [self.visible_database.fingerprint, *map(str, sorted(self.definition.items()))]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def check(self) -> Findings:
        """Returns everything suspicious about the task and what was left out of its splits.

        Labels that cannot carry a model, or that look past their window, are an error. Test labels stay in the vault.
        """
        return self._checked

    @cached_property
    def _checked(self) -> Findings:
        left_out = [finding for split in SPLITS for finding in self.findings(split)]
        made = [finding for finding in self.full_database.findings if finding.code == "S22"]
        return Findings([*made, *left_out, *lint(self)])

    def seeds(self, split: Split) -> Seeds:
        """Returns the seeds of a split. Those of test come without targets, which stay in the vault."""
        seeds, _ = self._labelled(split)
        return seeds.without_target() if split == "test" else seeds

    def asked_seeds(self, split: Split) -> Seeds:
        """Returns the seeds of a split at the times as of which they are asked: their own, unless they are clamped."""
        seeds = self.seeds(split)
        if self.protocol != "clamped":
            return seeds
        return replace(seeds, time=np.minimum(seeds.time, self.splits.test))

    @cached_property
    def vault(self) -> Vault:
        def load() -> Target:
            target = self._labelled("test")[0].target
            assert target is not None
            return target

        return Vault(load)

    @property
    def tells_past_labels(self) -> bool:
        """Returns whether labels that are known by now follow from the database, soon, and at a time that is told.

        A column that is filled in at an unknown time does not tell when (`known_after` does). A link that is filled in
        follows from earlier ones alone: these count as known right after their rows where nothing is said.
        """
        spec, database = self.spec, self.full_database
        is_told = spec.kind == "autocomplete" or (spec.kind == "forecast" and spec.type != "recommendation")
        if not is_told or KNOWN_LABELS in database.tables or not (spec.lag or self.fills_in_links):
            return False
        return len(database[spec.entity_table].primary_key) == 1 and self._num_past_windows <= _MOST_WINDOWS

    @property
    def fills_in_links(self) -> bool:
        """Returns whether rows of another table are listed that a row may link to."""
        return self.spec.kind == "autocomplete" and self.spec.type == "recommendation"

    @property
    def _num_past_windows(self) -> int:
        spec, span = self.spec, self.full_database.span
        if spec.kind == "autocomplete" or span is None:
            return 0
        return (self.splits.test - span[0]) // spec.horizon

    def known_labels(self) -> Seeds:
        """Returns all labels from which a rule may learn the past of an entity.

        They are those of train and validation or, with `past_labels`, all that the database tells. The rule itself
        takes care that a seed sees a label only once its window has closed.
        """
        if self.past_labels:
            return past_label_seeds(self.database, self.spec, self.classes)
        return self.seeds("train").joined_with(self.seeds("val"))

    def findings(self, split: Split) -> list[Finding]:
        """Returns what was left out of a split, and what no model can know of it, counted."""
        return self._labelled(split)[1]

    @cached_property
    def classes(self) -> list[Any] | None:
        """The classes that occur in train, in order, and at the end those that are pooled; None of other types."""
        return None if self.class_counts is None else list(self.class_counts)

    @cached_property
    def class_counts(self) -> dict[Any, int] | None:
        """How many training labels each class has."""
        if not self.spec.facts.has_classes:
            return None
        labels = self.label_rows("train")[self.label_columns.target]
        return class_counts(labels, self.spec, f'task "{self.name}", train')

    @property
    def label_columns(self) -> LabelColumns:
        return LabelColumns.of(self.spec, self.full_database[self.spec.entity_table])

    def label_rows(self, split: Split) -> pa.Table:
        """Returns the rows of the label table of a split: stored, given, or made from the database."""
        columns = self.label_columns
        if split in self.stored:
            rows = columns.select(read_labels(self.stored[split]), str(self.stored[split]))
            self._check_split(rows, split)
            return rows
        if self.spec.kind == "forecast" and self.labels is None:
            return forecast_labels(self.spec, self.full_database, self.splits, split)
        if self._label_table is None:
            raise TaskError(
                "L01",
                f'task "{self.name}" has no stored {split} labels and no way to make them',
                "give `labels`",
            )
        labels, belongs_to = self._label_table
        return labels.filter(pa.array(belongs_to[split]))

    @cached_property
    def _label_table(self) -> tuple[pa.Table, dict[Split, NDArray[np.bool_]]] | None:
        """The label rows of all splits, where they are given or a column, and which belong to which."""
        labels, time = self.labels, self.label_columns.time
        if labels is None and self.spec.kind == "autocomplete":
            labels = column_labels(self.spec, self.full_database)
        if labels is None:
            return None
        times = to_utc(labels[time], f'task "{self.name}", column {time}').ns
        return labels, split_of_labels(times, self.spec.lag, self.splits)

    @property
    def num_waiting(self) -> int:
        """How many label rows belong to no split: they begin before a cut-off, and are known only after it."""
        if self._label_table is None or self.stored:
            return 0
        return int((~np.any(list(self._label_table[1].values()), axis=0)).sum())

    def _check_split(self, rows: pa.Table, split: Split) -> None:
        """Refuses stored label rows that do not belong to their split: the future must not be learned from."""
        where = f'"{self.stored[split]}"'
        time = label_times(rows[self.label_columns.time], where)
        strays = time[~split_of_labels(time, self.spec.lag, self.splits)[split]]
        if len(strays):
            val, test = show_instant(self.splits.val), show_instant(self.splits.test)
            belong = {
                "train": f"Labels of train are known by {val}, when validation begins",
                "val": f"Validation begins at {val}, and its labels are known by {test}, when test begins",
                "test": f"Test begins at {test}",
            }
            raise TimeError(
                "T16",
                f"{where}: {len(strays):,} of {len(time):,} rows do not belong to {split} "
                f"{examples(map(show_instant, map(int, strays)))}. {belong[split]}",
                "take these rows out, or correct val_timestamp and test_timestamp",
            )

    def _labelled(self, split: Split) -> tuple[Seeds, list[Finding]]:
        _check_choice(split, SPLITS, "the split")
        if split not in self._seeds:
            where = f'task "{self.name}", {split}'
            is_made = self.spec.kind == "forecast" and self.labels is None and split not in self.stored
            self._seeds[split] = to_seeds(
                self.label_rows(split), self.spec, self.full_database, self.classes, self.on_early_seed, where,
                self.splits.test if is_made else None, split == "test",
            )  # fmt: skip
            if split == "train" and self.class_counts is not None:
                labels = self.label_rows(split)[self.label_columns.target]
                self._seeds[split][1].extend(pooled_finding(self.spec, self.class_counts, labels))
        return self._seeds[split]


def _manifest_path(database: Database, name: str) -> Path:
    if name.endswith((".yaml", ".yml")) and Path(name).is_file():
        return Path(name)
    known = task_names(database)
    if database.task_folder is not None and name in known:
        return database.task_folder / name / _MANIFEST
    raise UsageError(
        "L01",
        f'there is no task "{name}"' + did_you_mean(name, known),
        f"give {'one of these, or ' if known else ''}the path of a task's YAML file",
    )


def _splits(spec: TaskSpec, database: Database, labels: pa.Table | None) -> Splits:
    """Returns the cut-offs of the task, else of the database, else proposed ones from the data's span."""
    val = spec.val_timestamp or database.schema.val_timestamp
    test = spec.test_timestamp or database.schema.test_timestamp
    if val and test:
        return Splits(parse_instant(val, "val_timestamp"), parse_instant(test, "test_timestamp"))
    if val or test:
        given, absent = ("val", "test") if val else ("test", "val")
        text = f'task "{spec.name}" has a {given}_timestamp and no {absent}_timestamp'
        raise TaskError("C01", text, "give both, or none: then they are proposed")
    span = database.span
    if labels is not None:
        columns = LabelColumns.of(spec, database[spec.entity_table])
        time = to_utc(labels[columns.time], f'task "{spec.name}", column {columns.time}').ns
        if not len(time):
            raise TaskError("L01", f'task "{spec.name}" has neither labels nor cut-offs', "give label rows")
        span = int(time.min()), int(time.max())
    elif spec.kind == "autocomplete":  # asked about are its rows, which may end before the others do
        known_at = database[spec.entity_table].known_at
        dated = known_at[(known_at != STATIC) & (known_at != NEVER)]
        span = (int(dated.min()), int(dated.max())) if len(dated) else span
    if span is None:
        raise no_times(
            f'task "{spec.name}" has no cut-offs, and no table has a time column', database.possible
        )
    return propose(*span, spec.lag)


def _check_type(value: object, kinds: Any, what: str, fix: str = "load one with `quartet.open`") -> None:
    if not isinstance(value, kinds):
        raise UsageError("C02", f"{what} is given as {type(value).__name__}", fix)


def _check_choice(value: object, choices: tuple[str, ...], what: str) -> None:
    if value not in choices:
        raise UsageError("C01", f"{what} cannot be {value!r}", f"say one of {', '.join(choices)}")
