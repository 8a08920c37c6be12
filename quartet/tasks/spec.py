"""TaskSpec: the definition of a task, in RelBench's task manifest format.

name: churn
kind: forecast                     # labels from SQL; or autocomplete (a column), external (a table)
task_type: binary_classification   # regression, multiclass_classification, recommendation
entity_table: customers
entity_col: customer_id            # the column of the label table that names the entity
target_col: churned
time_col: timestamp                # the column of the label table with the prediction time
timedelta: 30 days                 # the horizon: labels look at (t, t + timedelta]
known_after: 12 hours              # optional: labels are known only so long after their window has closed
sql: SELECT ...                    # over the tables, and timestamps(timestamp); {timedelta} is filled in
remove_columns: [[customers, churn_flag]]
labels: labels.parquet             # external: one label table, beside this file or given whole
val_timestamp: '2024-01-01'        # optional: this task's own cut-offs
test_timestamp: '2024-03-01'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from quartet.errors import TaskError, did_you_mean
from quartet.times import parse_length

Kind = Literal["forecast", "autocomplete", "external"]
TaskType = Literal["binary_classification", "regression", "multiclass_classification", "recommendation"]

KINDS = ("forecast", "autocomplete", "external")
TYPES = ("binary_classification", "regression", "multiclass_classification", "recommendation")
_WORDS = frozenset(
    {
        *("name", "kind", "task_type", "description", "manifest_version"),
        *("entity_table", "entity_col", "target_col", "time_col"),
        *("src_entity_table", "src_entity_col", "dst_entity_table", "dst_entity_col", "eval_k"),
        *("timedelta", "known_after", "num_eval_timestamps", "remove_columns", "sql", "labels"),
        *("val_timestamp", "test_timestamp", "evaluator", "extra_files"),
    }
)


@dataclass(frozen=True)
class TaskSpec:
    """One task. For recommendation the entity is the source, and `item_table` holds what is recommended."""

    name: str
    kind: Kind
    type: TaskType
    entity_table: str
    target_col: str
    entity_col: str = ""
    time_col: str = ""
    item_table: str = ""
    eval_k: int = 0
    horizon: int = 0  # nanoseconds; 0 for a label that is known at the prediction time itself
    known_after: int = 0  # nanoseconds
    num_eval_times: int = 1
    remove_columns: tuple[tuple[str, str], ...] = ()
    sql: str = ""
    labels: str = ""
    description: str = ""
    val_timestamp: str | None = None
    test_timestamp: str | None = None

    def known_at(self, time: Any) -> Any:
        """From when on a label of a prediction time (or of each of an array) is known.

        A label (entity, t, y) tells what happens in (t, t + horizon]: it is known when that is over. One that belongs
        to t itself is known right after it, so that no seed of that time sees its own.
        """
        return time + (self.horizon + self.known_after or 1)

    @property
    def hidden_columns(self) -> tuple[tuple[str, str], ...]:
        """The (table, column) pairs that the task's database must not show."""
        if self.kind == "autocomplete":
            return (*self.remove_columns, (self.entity_table, self.target_col))
        return self.remove_columns


def spec_from_dict(said: Mapping[str, Any], where: str) -> TaskSpec:
    """A checked `TaskSpec` from the mapping of a manifest.

    A manifest of RelBench names its version; its unknown words may belong to another program.
    """
    for word in said:
        if word not in _WORDS and "manifest_version" not in said:
            raise TaskError("C01", f'{where}: unknown word "{word}"{did_you_mean(str(word), _WORDS)}')
    kind = _one_of(said.get("kind"), KINDS, "kind", where)
    task_type = _one_of(said.get("task_type"), TYPES, "task_type", where)
    is_link = task_type == "recommendation"
    entity = "src_entity" if is_link else "entity"
    spec = TaskSpec(
        name=str(said.get("name") or ""),
        kind=kind,  # type: ignore[arg-type]
        type=task_type,  # type: ignore[arg-type]
        entity_table=str(said.get(f"{entity}_table") or ""),
        entity_col=str(said.get(f"{entity}_col") or ""),
        target_col=str(said.get("target_col") or (said.get("dst_entity_col") if is_link else "") or ""),
        time_col=str(said.get("time_col") or ""),
        item_table=str(said.get("dst_entity_table") or ""),
        eval_k=int(said.get("eval_k") or 0),
        horizon=parse_length(str(said["timedelta"]), f"{where}: timedelta") if said.get("timedelta") else 0,
        known_after=parse_length(str(said["known_after"]), f"{where}: known_after")
        if said.get("known_after")
        else 0,
        num_eval_times=int(said.get("num_eval_timestamps") or 1),
        remove_columns=tuple((str(table), str(column)) for table, column in said.get("remove_columns") or ()),
        sql=str(said.get("sql") or ""),
        labels=str(said.get("labels") or ""),
        description=str(said.get("description") or ""),
        val_timestamp=_text(said.get("val_timestamp")),
        test_timestamp=_text(said.get("test_timestamp")),
    )
    _check_complete(spec, where)
    return spec


def _check_complete(spec: TaskSpec, where: str) -> None:
    needed: dict[str, object] = {
        "name": spec.name,
        "entity_table": spec.entity_table,
        "target_col": spec.target_col,
    }
    if spec.kind != "autocomplete":
        needed |= {"entity_col": spec.entity_col, "time_col": spec.time_col}
    if spec.kind == "forecast":
        needed |= {"timedelta": spec.horizon, "sql": spec.sql}
    if spec.type == "recommendation":
        needed |= {"dst_entity_table": spec.item_table}
    missing = [word for word, value in needed.items() if not value]
    if missing:
        raise TaskError(
            "L01", f"{where}: a {spec.kind} task needs {', '.join(missing)}", "add what is missing"
        )


def _one_of(value: object, known: tuple[str, ...], word: str, where: str) -> str:
    if value not in known:
        raise TaskError("C01", f"{where}: {word} is {value!r}", f"say one of {', '.join(known)}")
    return str(value)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
