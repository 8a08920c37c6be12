"""TaskSpec: the definition of a task, in RelBench's task manifest format (docs/tasks.md shows one)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from quartet.errors import TaskError, did_you_mean
from quartet.times import parse_length

Kind = Literal["forecast", "autocomplete", "external"]
_LARGEST = 2**31 - 1
TaskType = Literal[
    "binary_classification",
    "regression",
    "multiclass_classification",
    "multilabel_classification",
    "recommendation",
]


@dataclass(frozen=True)
class TypeFacts:
    """What a type of target is, for all who would else ask for its name."""

    what: str = ""  # is predicted, before the name of the target
    question: str = "{target}{ahead}"
    is_number: bool = False
    has_classes: bool = False  # training names them, and each has a score of its own
    holds_lists: bool = False  # a cell of the label column is a list


TYPES: dict[TaskType, TypeFacts] = {
    "binary_classification": TypeFacts("probability of ", "will “{target}” come true{ahead}?"),
    "regression": TypeFacts("", "how large will “{target}” be{ahead}?", is_number=True),
    "multiclass_classification": TypeFacts(
        "class of ", "which “{target}” will it be{ahead}?", has_classes=True
    ),
    "multilabel_classification": TypeFacts(
        "classes of ", "which of “{target}” will there be{ahead}?", has_classes=True, holds_lists=True
    ),
    "recommendation": TypeFacts(
        "the likeliest ", "which “{target}” will it have to do with{ahead}?", holds_lists=True
    ),
}

_WORDS = frozenset(
    {
        *("name", "kind", "task_type", "description", "manifest_version"),
        *("entity_table", "entity_col", "target_col", "time_col"),
        *("src_entity_table", "src_entity_col", "dst_entity_table", "dst_entity_col", "eval_k"),
        *(
            "timedelta",
            "known_after",
            "num_eval_timestamps",
            "remove_columns",
            "pool_classes",
            "sql",
            "labels",
            "timezone",
        ),
        *("query", "population", "val_timestamp", "test_timestamp", "evaluator", "extra_files"),
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
    entity_col: str = ""  # the columns of the label table with the entity and the prediction time
    time_col: str = ""
    item_table: str = ""
    eval_k: int = 0
    horizon: int = 0  # nanoseconds: labels look at (t, t + horizon]; 0 for a label that belongs to t itself
    known_after: int = 0  # nanoseconds from the end of the window until the label is known
    num_eval_times: int = 1
    remove_columns: tuple[tuple[str, str], ...] = ()
    pool_classes: int = 0  # classes with fewer training labels are one class, "(other)"
    sql: str = ""
    population: str = ""  # SQL of who is asked about at a time, from rows known then
    query: str = ""  # the predictive query that `sql` and `population` were made from
    labels: str = ""
    timezone: str | None = None  # of the times of a label table that name no zone
    description: str = ""
    val_timestamp: str | None = None
    test_timestamp: str | None = None

    def known_at(self, time: Any) -> Any:
        """Returns when the label of a prediction time (or of each of an array) becomes known.

        A label (entity, t, y) tells what happens in (t, t + horizon] and is known when that is over. One that belongs
        to t itself is known right after it, so that no seed of that time sees its own.
        """
        return time + (self.lag or 1)

    @property
    def facts(self) -> TypeFacts:
        return TYPES[self.type]

    @property
    def lag(self) -> int:
        """Nanoseconds from a prediction time until its label is known."""
        return self.horizon + self.known_after

    @property
    def hidden_columns(self) -> tuple[tuple[str, str], ...]:
        """The (table, column) pairs that the task's database must not show."""
        if self.kind == "autocomplete":
            return (*self.remove_columns, (self.entity_table, self.target_col))
        return self.remove_columns


def spec_from_dict(manifest: Mapping[str, Any], where: str) -> TaskSpec:
    """Returns the checked `TaskSpec` of a manifest.

    A manifest of RelBench names its version; its unknown words may belong to another program.
    """
    for word in manifest:
        if word not in _WORDS and "manifest_version" not in manifest:
            raise TaskError("C01", f'{where}: unknown word "{word}"{did_you_mean(str(word), _WORDS)}')
    for word, kind in (("kind", Kind), ("task_type", TaskType)):
        if manifest.get(word) not in get_args(kind):
            choices = ", ".join(get_args(kind))
            raise TaskError("C01", f"{where}: {word} is {manifest.get(word)!r}", f"say one of {choices}")

    def text(word: str) -> str:
        value = manifest.get(word)
        if isinstance(value, (Mapping, list, tuple, bool, bytes)):
            raise TaskError("C01", f"{where}: {word} is {value!r}", "give a text")
        return "" if value is None else str(value)

    def length(word: str) -> int:
        told = parse_length(text(word), f"{where}: {word}") if text(word) else 0
        if told % 1000:
            raise TaskError(
                "C01", f"{where}: {word} is {text(word)}", "give whole microseconds, as SQL counts them"
            )
        return told

    def whole(word: str, default: int) -> int:
        value = manifest.get(word)
        if value is None:
            return default
        if type(value) is not int or not 1 <= value <= _LARGEST:
            raise TaskError(
                "C01", f"{where}: {word} is {value!r}", f"give a whole number from 1 to {_LARGEST:,}"
            )
        return value

    is_link = manifest["task_type"] == "recommendation"
    entity = "src_entity" if is_link else "entity"
    spec = TaskSpec(
        name=text("name"),
        kind=manifest["kind"],
        type=manifest["task_type"],
        entity_table=text(f"{entity}_table") or text("entity_table"),
        entity_col=text(f"{entity}_col") or text("entity_col"),
        target_col=text("target_col") or (text("dst_entity_col") if is_link else ""),
        time_col=text("time_col"),
        item_table=text("dst_entity_table"),
        eval_k=whole("eval_k", 0),
        horizon=length("timedelta"),
        known_after=length("known_after"),
        num_eval_times=whole("num_eval_timestamps", 1),
        remove_columns=column_pairs(manifest.get("remove_columns") or (), where, "remove_columns"),
        pool_classes=whole("pool_classes", 0),
        sql=text("sql"),
        population=text("population"),
        query=text("query"),
        labels=text("labels"),
        timezone=text("timezone") or None,
        description=text("description"),
        val_timestamp=text("val_timestamp") or None,
        test_timestamp=text("test_timestamp") or None,
    )
    _check_complete(spec, where)
    return spec


def column_pairs(pairs: Any, where: str, word: str) -> tuple[tuple[str, str], ...]:
    is_list = isinstance(pairs, (list, tuple))
    if not is_list or not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs):
        raise TaskError("C01", f"{where}: {word} is {pairs!r}", "write [[table, column], ...]")
    return tuple((str(table), str(column)) for table, column in pairs)


def _check_complete(spec: TaskSpec, where: str) -> None:
    needed = {"name": spec.name, "entity_table": spec.entity_table, "target_col": spec.target_col}
    if spec.kind != "autocomplete":
        needed |= {"entity_col": spec.entity_col, "time_col": spec.time_col}
    if spec.kind == "forecast":
        needed |= {"timedelta": str(spec.horizon or ""), "sql": spec.sql}
    if spec.type == "recommendation":
        needed |= {"dst_entity_table": spec.item_table}
    missing = ", ".join(word for word, value in needed.items() if not value)
    if missing:
        raise TaskError("L01", f"{where}: a {spec.kind} task needs {missing}", "add what is missing")
    if spec.pool_classes and not spec.facts.has_classes:
        text = f"{where}: pool_classes is given, and a task of type {spec.type} has no classes to pool"
        raise TaskError("C01", text, "take pool_classes out, or correct task_type")
    if not spec.name.isprintable():
        raise TaskError("C01", f"{where}: name is {spec.name!r}", "give a name without control characters")
    columns = [column for column in (spec.time_col, spec.entity_col, spec.target_col) if column]
    if len({column.lower() for column in columns}) < len(columns):  # as SQL compares them
        text = f"{where}: time_col, entity_col and target_col are {', '.join(columns)}"
        raise TaskError("L01", text, "name three different columns")
