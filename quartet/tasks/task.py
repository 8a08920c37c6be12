"""Task: a definition bound to a database; hands out seeds, and keeps the test targets in a vault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quartet.config import Protocol
from quartet.database import Database, read_yaml
from quartet.errors import TaskError, TimeError, UsageError, did_you_mean
from quartet.findings import Finding, warning
from quartet.tasks.labels import (
    LabelColumns,
    check_columns,
    column_labels,
    forecast_labels,
    read_labels,
    to_seeds,
)
from quartet.tasks.past_labels import past_label_seeds, with_past_labels
from quartet.tasks.seeds import Seeds, Target, joined
from quartet.tasks.spec import TaskSpec, spec_from_dict
from quartet.tasks.splits import SPLITS, Split, Splits, propose, split_of_labels
from quartet.tasks.vault import Vault
from quartet.times import parse_instant, to_utc

MANIFEST = "manifest.yaml"
OnEarlySeed = Literal["error", "drop"]


def task_names(database: Database) -> list[str]:
    """The tasks that are stored with a database."""
    if database.task_folder is None:
        return []
    return sorted(path.parent.name for path in database.task_folder.glob(f"*/{MANIFEST}"))


@dataclass(frozen=True, eq=False)
class Task:
    """What to predict. Build one with `Task.load`, `Task.from_sql` or `Task.from_labels`.

    `full_database` is the whole database, from which labels are made; `database` is the part of it that
    the task may see.
    """

    spec: TaskSpec
    full_database: Database
    splits: Splits
    stored: Mapping[Split, Path] = field(default_factory=dict)
    labels: pa.Table | None = None
    on_early_seed: OnEarlySeed = "error"
    past_labels: Protocol | None = (
        None  # whether known labels are rows of the database, and how far they reach
    )
    _seeds: dict[Split, tuple[Seeds, list[Finding]]] = field(default_factory=dict, repr=False)

    @staticmethod
    def load(
        database: Database, name: str | Path, regenerate: bool = False, on_early_seed: OnEarlySeed = "error"
    ) -> Task:
        """A task by the name under which it is stored with the database, or by the path of its YAML file.

        `regenerate` makes the labels again from the database instead of reading the stored ones.
        """
        path = _manifest_path(database, str(name))
        spec = spec_from_dict(read_yaml(path), str(path))
        labels = read_labels(path.parent / spec.labels) if spec.labels else None
        files: dict[Split, Path] = {s: path.parent / f"{s}.parquet" for s in SPLITS}
        stored = {s: file for s, file in files.items() if file.is_file() and not regenerate}
        return Task.of(spec, database, labels, stored, on_early_seed)

    @staticmethod
    def from_sql(database: Database, on_early_seed: OnEarlySeed = "error", **definition: Any) -> Task:
        """A forecast task from SQL and a horizon, in the words of the manifest (see `spec.py`)."""
        spec = spec_from_dict({"kind": "forecast", **definition}, "the task")
        return Task.of(spec, database, None, {}, on_early_seed)

    @staticmethod
    def from_labels(
        database: Database, labels: pa.Table, on_early_seed: OnEarlySeed = "error", **definition: Any
    ) -> Task:
        """A task from a label table (entity, time, target)."""
        spec = spec_from_dict({"kind": "external", **definition}, "the task")
        return Task.of(spec, database, labels, {}, on_early_seed)

    @staticmethod
    def of(
        spec: TaskSpec,
        database: Database,
        labels: pa.Table | None,
        stored: Mapping[Split, Path],
        on_early_seed: OnEarlySeed,
    ) -> Task:
        """A task bound to its database, with its cut-offs given or proposed."""
        for table in filter(None, (spec.entity_table, spec.item_table)):
            database[table]  # an unknown table is an error with a suggestion
        if labels is not None:
            columns = LabelColumns.of(spec, database[spec.entity_table])
            labels = check_columns(labels, columns, f'the label table of task "{spec.name}"')
        splits = _splits(spec, database, labels)
        return Task(spec, database, splits, stored, labels, on_early_seed)

    @property
    def name(self) -> str:
        return self.spec.name

    @cached_property
    def visible_database(self) -> Database:
        """The database without its target and its `remove_columns`."""
        return self.full_database.without(self.spec.hidden_columns)

    @cached_property
    def database(self) -> Database:
        """The database as the task may see it: the given one and, with `past_labels`, the labels that are known."""
        if self.past_labels is None:
            return self.visible_database
        end = self.splits.test
        if self.past_labels == "rolling":
            end = int(self.seeds("test").time.max(initial=end))
        whole = with_past_labels(self.full_database, self.spec, self.splits, end, self._given_labels)
        return whole.without(self.spec.hidden_columns)

    def with_past_labels(self, protocol: Protocol) -> Task:
        """The same task where labels that are known are rows of the database (see `history.py`).

        `frozen`: those that are known at the test cut-off; `rolling`: those that are known at the last seed.
        """
        task = replace(self, past_labels=protocol)
        task.__dict__["vault"] = self.vault  # every opening is written down in one place
        return task

    def seeds(self, split: Split) -> Seeds:
        """The seeds of a split. Those of test come without targets, which stay in the vault."""
        seeds, _ = self._labelled(split)
        return seeds.without_target() if split == "test" else seeds

    @cached_property
    def vault(self) -> Vault:
        def load() -> Target:
            target = self._labelled("test")[0].target
            assert target is not None
            return target

        return Vault(load)

    def known_labels(self) -> Seeds:
        """All labels from which a rule may learn the past of an entity, each once its window has closed.

        Those of train and validation, or with `past_labels` all that the database tells. Who looks at them, and from when,
        is for the rule to heed.
        """
        if self.past_labels is not None:
            return past_label_seeds(self.database, self.spec, self.classes)
        return joined(self.seeds("train"), self.seeds("val"))

    def findings(self, split: Split) -> list[Finding]:
        """What was left out of a split, counted."""
        return self._labelled(split)[1]

    @cached_property
    def classes(self) -> list[Any] | None:
        """The classes of a multiclass task, as train has them, in order."""
        if self.spec.type != "multiclass_classification":
            return None
        columns = LabelColumns.of(self.spec, self.full_database[self.spec.entity_table])
        return sorted(pc.unique(self.label_rows("train")[columns.target].drop_null()).to_pylist())

    def label_rows(self, split: Split) -> pa.Table:
        """The rows of the label table of a split: stored, given, or made from the database."""
        columns = LabelColumns.of(self.spec, self.full_database[self.spec.entity_table])
        if split in self.stored:
            return check_columns(pq.read_table(self.stored[split]), columns, str(self.stored[split]))
        if self.labels is not None:
            return self._part(self.labels, split)
        if self.spec.kind == "forecast":
            return forecast_labels(self.spec, self.full_database, self.splits, split)
        if self.spec.kind == "autocomplete":
            return self._part(column_labels(self.spec, self.full_database), split)
        raise TaskError(
            "L01", f'task "{self.name}" has no stored {split} labels and no way to make them', "give `labels`"
        )

    @property
    def _given_labels(self) -> pa.Table | None:
        """The label rows of a task whose labels do not follow from the database."""
        if self.spec.kind != "external":
            return None
        return self.labels if self.labels is not None else pa.concat_tables(map(self.label_rows, SPLITS))

    def _part(self, labels: pa.Table, split: Split) -> pa.Table:
        """The label rows whose time lies in a split."""
        column = LabelColumns.of(self.spec, self.full_database[self.spec.entity_table]).time
        time = to_utc(labels[column], f'task "{self.name}", column {column}').ns
        chosen = split_of_labels(time, self.spec.horizon, self.splits)[split]
        return labels.filter(pa.array(chosen))

    def _labelled(self, split: Split) -> tuple[Seeds, list[Finding]]:
        if split not in SPLITS:
            raise UsageError("C01", f'there is no split "{split}"', f"say one of {', '.join(SPLITS)}")
        if split not in self._seeds:
            where = f'task "{self.name}", {split}'
            self._seeds[split] = to_seeds(
                self.label_rows(split), self.spec, self.full_database, self.classes, self.on_early_seed, where
            )
        return self._seeds[split]


def check_labels(task: Task) -> list[Finding]:
    """Whether the labels of train and validation can carry a model; an error when they cannot."""
    if task.spec.type != "binary_classification":
        return []
    found = []
    for split in ("train", "val"):
        target = np.asarray(task.seeds(split).target)
        if len(target) and target.min() == target.max():
            if split == "train":
                raise TaskError(
                    "L05",
                    f"all {len(target):,} training labels are {target[0]}. A classifier cannot be trained",
                )
            text = f"all {len(target):,} {split} labels are {target[0]}: no model can be selected by them"
            found.append(warning("L06", task.name, text, len(target)))
        elif len(target) < 50 or target.sum() < 10:
            text = (
                f"{split} has {len(target):,} labels, {int(target.sum()):,} positive: any score will be vague"
            )
            found.append(warning("L09", task.name, text, len(target)))
    return found


def _manifest_path(database: Database, name: str) -> Path:
    if name.endswith((".yaml", ".yml")) and Path(name).is_file():
        return Path(name)
    if database.task_folder is not None and name in task_names(database):
        return database.task_folder / name / MANIFEST
    known = task_names(database)
    raise UsageError(
        "L01",
        f'there is no task "{name}"' + did_you_mean(name, known),
        "give one of these, or the path of a task's YAML file"
        if known
        else "give the path of a task's YAML file",
    )


def _splits(spec: TaskSpec, database: Database, labels: pa.Table | None) -> Splits:
    """The cut-offs of the task, else of the database, else proposed from the data's span."""
    val = spec.val_timestamp or database.schema.val_timestamp
    test = spec.test_timestamp or database.schema.test_timestamp
    if val and test:
        return Splits(parse_instant(val, "val_timestamp"), parse_instant(test, "test_timestamp"))
    if labels is not None:
        columns = LabelColumns.of(spec, database[spec.entity_table])
        time = to_utc(labels[columns.time], f'task "{spec.name}", column {columns.time}').ns
        return propose(int(time.min()), int(time.max()), spec.horizon)
    if database.span is None:
        raise TimeError("T10", f'task "{spec.name}" has no cut-offs, and no table has a time column')
    return propose(*database.span, spec.horizon)
