"""Leakcheck: whether anything after a time t changes what is known, read or predicted at t, by experiment.

Rows after t are taken away, scrambled and invented. Labels that are known at t, what features learn by then, the cells
of visible rows, relational columns, contexts and the predictions of models must come out with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.config import Recipe, SamplingConfig
from quartet.contexts import sample
from quartet.database import Database, Table
from quartet.errors import UsageError
from quartet.features import FeatureTable, RelationalColumns
from quartet.findings import Findings
from quartet.listener import SILENT, Listener
from quartet.registry import MODELS
from quartet.runs.checkpoint import Checkpoint
from quartet.runs.live import LiveModel
from quartet.runs.ranking import list_length, ranked
from quartet.tasks import Seeds, Task, TaskRecord, labels_at
from quartet.times import DAY, NEVER, show_instant, to_arrow
from quartet.training import TrainingData, graph_of

_INVENTED = 200  # rows of each table
_TO_RANK = 20.0  # seconds to learn to rank items: what is looked at does not depend on how well
_Rows = NDArray[np.int64]


class _Nodes(np.ndarray):
    """The rows of a context, by their numbers in the original database."""


@dataclass
class Outcome:
    """How often something was compared, how often it differed, and where first."""

    compared: int = 0
    different: int = 0
    first: str = ""

    def compare(self, before: Any, after: Any, where: str, show: Callable[[Any], str]) -> None:
        """Compares two values to the bit."""
        self.compared += 1
        if _bits(before) != _bits(after):
            self.different += 1
            self.first = self.first or f"{where}: {_difference(before, after, show)}"


@dataclass
class LeakReport:
    """What was tried on a task, and what it showed."""

    findings: Findings  # on the definition and the data
    times: tuple[int, ...]
    num_seeds: int = 0
    outcomes: dict[tuple[str, str], Outcome] = field(default_factory=dict)  # by subject and experiment

    @property
    def num_differences(self) -> int:
        return sum(outcome.different for outcome in self.outcomes.values())

    @property
    def first(self) -> str:
        """Returns the first difference in words, or nothing."""
        return next((outcome.first for outcome in self.outcomes.values() if outcome.first), "")

    def outcome(self, subject: str, experiment: str) -> Outcome:
        return self.outcomes.setdefault((subject, experiment), Outcome())


@dataclass(frozen=True, eq=False)
class _World:
    """A database whose rows up to t are those of another: `origin` says which, -1 where a row is invented."""

    name: str
    database: Database
    origin: dict[str, _Rows]

    def rows(self, table: str, rows: _Rows) -> _Rows:
        """Returns where rows of the original table stand here."""
        kept = np.flatnonzero(
            self.origin[table] >= 0
        )  # in the original order, whatever stands between and behind
        return kept[np.searchsorted(self.origin[table][kept], rows)]


def leakcheck(
    task: Task,
    models: Sequence[Checkpoint] = (),
    num_times: int = 3,
    num_seeds: int = 50,
    rng_seed: int = 0,
    listener: Listener = SILENT,
) -> LeakReport:
    """Tries whether rows after t change anything at t; without models, all of the box are tried.

    Networks have random weights then: what they may look at does not depend on what they have learned.
    """
    for model in models:
        if model.task.name != task.name:
            text = f'a model of task "{model.task.name}" is given for task "{task.name}"'
            raise UsageError("C05", text, "give models of this task")
    rng = np.random.default_rng(rng_seed)
    seeds = [task.seeds(split) for split in ("train", "val", "test")]
    every = np.unique(np.concatenate([each.time for each in seeds]))
    times = every[np.linspace(0, len(every) - 1, num_times + 2).astype(int)[1:-1]]  # with a past and a future
    report = LeakReport(task.check(), tuple(map(int, np.unique(times))))
    models = models or _box(task)

    def show(node: Any) -> str:
        """Returns a row by its table and key."""
        name = max((n for n, start in offsets.items() if start <= node), key=lambda n: offsets[n])
        table = database[name]
        row = int(node) - offsets[name]
        return f"{name} {table.key_map.show(row)}" if table.primary_key else f"{name}, row {row}"

    database, offsets = task.full_database, task.full_database.offsets
    for place, time in enumerate(report.times):
        rows = _asked(task, seeds, time, num_seeds, rng)
        report.num_seeds += len(rows)
        before = None
        for world in _worlds(task.full_database, time, rng):
            seen = _look(task, world, models, time, rows)
            if before is None:
                before = seen
            else:
                for subject, what in {**before, **seen}:
                    where = f"{what} at {show_instant(time)}, with later rows {world.name}"
                    one, other = before.get((subject, what)), seen.get((subject, what))
                    report.outcome(subject, world.name).compare(one, other, where, show)
        listener.progress("times", place + 1, len(report.times))
    return report


def _box(task: Task) -> list[Checkpoint]:
    """Returns every model of the box: networks with random weights, trees fitted to the task."""
    found, is_ranking = [], task.spec.type == "recommendation"
    for name, row in MODELS.items():
        if is_ranking and (not row.recommends or name == "auto"):  # which is made of the others
            continue
        kind, recipe = row.class_for(task.spec.type), Recipe.load("small", "", name)
        recipe = recipe.changed(time_limit=_TO_RANK) if is_ranking else recipe
        fills_in = task.spec.kind == "autocomplete"
        recipe = recipe.changed(past_labels=fills_in and task.tells_past_labels)
        data = TrainingData.prepare(task, recipe.changed(protocol="rolling"))
        model = kind.new(data, recipe) if hasattr(kind, "new") else kind.fit(data).model
        model = model.eval() if hasattr(model, "eval") else model
        found.append(
            Checkpoint(
                model, recipe, data.output, data.features.statistics, TaskRecord.of(task), 0, 0.0, None
            )
        )
    return found


def _asked(task: Task, seeds: Sequence[Seeds], time: int, num_seeds: int, rng: np.random.Generator) -> _Rows:
    """Returns the entities to ask about: those of the task at that time, and others that exist by then."""
    table = task.full_database[task.spec.entity_table]
    own = (
        np.concatenate([each.node[each.time == time] for each in seeds])
        - task.full_database.offsets[table.name]
    )
    others = np.setdiff1d(np.flatnonzero(visible(table.known_at, time)), own)
    chosen = np.concatenate([rng.permutation(own), rng.permutation(others)])[:num_seeds]
    return np.sort(chosen)


# --- experiments ----------------------------------------------------------------------------------


def _worlds(database: Database, time: int, rng: np.random.Generator) -> Iterator[_World]:
    """Yields the database as it is, and with its rows after a time taken away, scrambled, and more of them."""
    same = {name: np.arange(table.num_rows) for name, table in database.tables.items()}
    yield _World("as they are", database, same)
    kept = {name: visible(table.known_at, time) for name, table in database.tables.items()}
    yield _World("taken away", database.taking(kept), {name: rows[kept[name]] for name, rows in same.items()})
    tables = {name: _scrambled(table, time, rng) for name, table in database.tables.items()}
    yield _World("scrambled", database.with_tables(tables), same)
    tables = {name: _with_more(table, time, rng) for name, table in database.tables.items()}
    origin = {
        name: np.concatenate([same[name], np.full(table.num_rows - len(same[name]), -1)])
        for name, table in tables.items()
    }
    yield _World("and more invented", database.with_tables(tables), origin)


def _scrambled(table: Table, time: int, rng: np.random.Generator) -> Table:
    """Returns the table with the cells of its rows after a time mixed up, column by column; keys stay keys."""
    late = np.flatnonzero(~visible(table.known_at, time))
    own_time = {table.schema.time.column, table.schema.available_at} if table.schema.time else set()
    together: dict[str | None, str] = dict.fromkeys(own_time, "time")
    together |= dict.fromkeys(table.primary_key, "key")
    orders: dict[str, _Rows] = {}

    def order(column: str) -> _Rows:
        group = together.get(column, column)
        if group not in orders:
            orders[group] = np.arange(table.num_rows)
            orders[group][late] = rng.permutation(late)
        return orders[group]

    data = {name: table.data[name].take(pa.array(order(name))) for name in table.data.column_names}
    written = {name: column.take(pa.array(order(name))) for name, column in table.written.items()}
    dated = next(filter(None, own_time), "")  # rows are known at the times that moved with that column
    return replace(table, data=pa.table(data), known_at=table.known_at[order(dated)], written=written)


def _with_more(table: Table, time: int, rng: np.random.Generator) -> Table:
    """Returns the table with copies of some rows that become known after a time, with keys of their own."""
    dating = table.schema.time
    if dating is None or not table.num_rows or table.written or len(table.primary_key) > 1:
        return table
    rows = np.sort(rng.choice(table.num_rows, min(_INVENTED, table.num_rows), replace=False))
    known_at = np.maximum(np.where(table.known_at == NEVER, time, table.known_at)[rows], time)
    known_at = known_at + rng.integers(1, 30 * DAY, len(rows))
    more = table.data.take(pa.array(rows))
    for name in (dating.column, table.schema.available_at):
        if name is not None:
            moments = to_arrow(known_at).cast(more[name].type, safe=False)
            more = more.set_column(more.column_names.index(name), more.field(name), moments)
    for name in table.primary_key:
        keys = _new_keys(table.data[name], len(rows))
        if keys is None:
            return table
        more = more.set_column(more.column_names.index(name), more.field(name), keys)
    data = pa.concat_tables([table.data, more])
    return replace(table, data=data, known_at=np.concatenate([table.known_at, known_at]))


def _new_keys(keys: pa.ChunkedArray, count: int) -> pa.Array | None:
    if pa.types.is_integer(keys.type):
        last = int(np.max(keys.to_numpy()))
        info = np.iinfo(keys.type.to_pandas_dtype())
        return pa.array(last + 1 + np.arange(count)).cast(keys.type) if last + count < info.max else None
    if pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type):
        return pa.array([f"invented by leakcheck, {number}" for number in range(count)], keys.type)
    return None


# --- what is compared -----------------------------------------------------------------------------


def _look(
    task: Task, world: _World, models: Sequence[Checkpoint], time: int, rows: _Rows
) -> dict[tuple[str, str], Any]:
    """Returns all that may be seen at a time in a world, by subject and name; rows have their original numbers."""
    spec, shown = task.spec, world.database.without(task.spec.hidden_columns)
    seen: dict[tuple[str, str], Any] = {}
    if spec.kind == "forecast":
        last = time - spec.lag
        labels = labels_at(spec, world.database, np.array([last]), None)
        told = zip(labels[spec.entity_col].to_pylist(), labels[spec.target_col].to_pylist(), strict=True)
        for entity, label in told:
            seen["labels", f"{spec.entity_table} {entity}"] = (
                sorted(label) if isinstance(label, list) else label
            )
    features = FeatureTable.fit(shown, time)
    for learned in features.statistics.to_dict()["tables"]:
        for column in learned["columns"]:
            seen["features", f"what is learned of {learned['name']}.{column['name']}"] = column
        seen["features", f"what is left out of {learned['name']}"] = learned["unused"]
    seen |= {("features", f"vectors of {name}"): array for name, array in features.statistics.arrays.items()}
    for name, table in shown.tables.items():
        origin = world.origin[name]
        known = np.flatnonzero(visible(table.known_at, time) & (origin >= 0))
        cells = features.tables[name]
        for kind in ("numbers", "categories", "calendar"):
            columns = getattr(cells.layout, "times" if kind == "calendar" else kind)
            for place, column in enumerate(columns):
                seen["cells", f"{name}.{column}"] = getattr(cells, kind)[known, place]
    here = world.rows(spec.entity_table, rows) + shown.offsets[spec.entity_table]
    seeds = Seeds(here, np.full(len(rows), time), None)
    keys = [_key(task, row) for row in rows]
    columns = RelationalColumns.of(shown, spec.entity_table, features, horizon=spec.horizon).of_seeds(seeds)
    for column, values in columns.items():
        for key, value in zip(keys, np.asarray(values), strict=True):
            seen["columns", f"{column} of {key}"] = value
    context = sample(graph_of(shown), seeds, SamplingConfig(), num_threads=1)
    original = _original_nodes(task.full_database, world)
    for place, key in enumerate(keys):
        for name in ("local_node", "collab_node", "temporal_node"):
            nodes = original[context.part(name, place)].view(_Nodes)
            seen["contexts", f"{name.removesuffix('_node')} context of {key}"] = nodes
        for name in ("local_hop", "local_count", "link", "sketch"):
            seen["contexts", f"{name} of {key}"] = context.part(name, place)
    live = LiveModel(models, world.database)
    live.bind(time)
    if spec.type == "recommendation":
        for model, view in zip(models, live.views, strict=True):
            first = view.database.offsets
            asked = world.rows(spec.entity_table, rows) + first[spec.entity_table]
            lists = ranked([model], [view], Seeds(asked, seeds.time, None), list_length(spec))
            for key, items, scores in zip(keys, lists.items, lists.scores, strict=True):
                own = items[items >= 0] - first[spec.item_table]
                listed = [*zip(world.origin[spec.item_table][own].tolist(), scores.tolist(), strict=False)]
                seen[f"lists of {model.recipe.model.architecture}", key] = listed
        return seen
    for number, model in enumerate(models):
        logits = live.logits(number, world.rows(spec.entity_table, rows), seeds.time)
        for key, value in zip(keys, logits, strict=True):
            seen[f"predictions of {model.recipe.model.architecture}", key] = value
    return seen


def _key(task: Task, row: int) -> str:
    table = task.full_database[task.spec.entity_table]
    return f"{table.name} {table.key_map.show(int(row)) if table.primary_key else row}"


def _original_nodes(database: Database, world: _World) -> _Rows:
    """Returns for each node of a world its number in the original database, -1 where it is invented."""
    parts = [
        np.where(origin >= 0, origin + database.offsets[name], -1) for name, origin in world.origin.items()
    ]
    return np.concatenate(parts)


def _bits(value: Any) -> Any:
    return (value.shape, value.tobytes()) if isinstance(value, (np.ndarray, np.generic)) else repr(value)


def _difference(before: Any, after: Any, show: Callable[[Any], str]) -> str:
    """Returns in a few words in what two values differ."""
    if isinstance(before, _Nodes) and isinstance(after, _Nodes):
        gone, come = np.setdiff1d(before, after), np.setdiff1d(after, before)
        lost = f"{show(gone[0])} is missing" if len(gone) else "the same rows in another order"
        return f"{'an invented row' if come[0] < 0 else show(come[0])} is there" if len(come) else lost
    if isinstance(before, np.ndarray) and isinstance(after, np.ndarray) and before.shape == after.shape:
        place = int(np.flatnonzero((before != after).ravel())[0]) if (before != after).any() else 0
        before, after = before.ravel()[place], after.ravel()[place]
    return f"{str(before)[:80]} became {str(after)[:80]}"
