"""What models read: a `View` of a database, and the `TrainingData` of a task.

Each part is built once and when it is first asked for: trees never wait for a graph, and networks never for columns.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.config import Recipe
from quartet.contexts import Context, cached_sample, default_cache, kept_graph, sample, seconds_of_a_seed
from quartet.database import Database
from quartet.errors import IntegrityError, examples
from quartet.evaluation import check_selectable, main_metric
from quartet.features import CODE, FeatureTable, RelationalColumns
from quartet.graph import TemporalGraph
from quartet.listener import SILENT, Listener
from quartet.machine import empty_aside, slices
from quartet.tasks import KNOWN_LABELS, SPLITS, Links, Seeds, Split, Task, TaskSpec
from quartet.times import STATIC
from quartet.tokens import Tokenizer
from quartet.training.outputs import Output, fit_output

BATCH = 512  # seeds of a batch at inference: a fixed number, because its size decides the last bits
_AT_ONCE = 32 * BATCH  # seeds that are sampled together: whole batches, so that their bits stay the same
_ROWS_AT_ONCE = 2**18  # seeds whose columns are in memory together: whole batches, too
_MOST_CELLS = 2**24  # of columns that are kept from one model to the next
_TRIED = 128  # seeds that tell how long a context takes
_DRAW = 0x5EED5  # of the seeds that stand for all
_graphs: WeakKeyDictionary[Database, TemporalGraph] = WeakKeyDictionary()


def graph_of(database: Database, before: Database | None = None) -> TemporalGraph:
    """Returns the graph of a database, which is built once however many models read it.

    Where there is one of a database from which this one has grown (`before`), it is built from that.
    """
    if database not in _graphs:
        grown_from = None if before is None else _graphs.get(before)
        _graphs[database] = (
            kept_graph(database) if grown_from is None else TemporalGraph.build(database, grown_from)
        )
    return _graphs[database]


@dataclass(eq=False)
class View:
    """A database as a model of a task reads it: its features, and when they are asked for its graph or its columns."""

    database: Database
    features: FeatureTable
    spec: TaskSpec
    recipe: Recipe
    # Columns of a database from which this one has grown.
    old_columns: RelationalColumns | None = field(default=None, init=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Is what another process was sent: with its tokenizer, where it has one, came the graph."""
        self.__dict__ |= state
        if "tokenizer" in state:
            _graphs[self.database] = self.tokenizer.graph

    @property
    def entity_table(self) -> str:
        return self.spec.entity_table

    @property
    def graph(self) -> TemporalGraph:
        return graph_of(self.database)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self.graph, self.features)

    @cached_property
    def columns(self) -> RelationalColumns:
        rule = self.recipe.sampling.time_rule
        old, self.old_columns = self.old_columns, None
        return RelationalColumns.of(
            self.database, self.entity_table, self.features, rule, self.spec.horizon, old
        )

    def grown_from(self, other: View) -> View:
        """Returns the view, whose columns are to be made from those of a view of a smaller database."""
        self.old_columns = other.__dict__.get("columns", other.old_columns)
        return self

    def asked(self, seeds: Seeds) -> Seeds:
        """Returns the seeds as a model is asked about them: none long after the newest row that is visible to it."""
        return held(seeds, self.database, self.spec, self.recipe, self.features.statistics.longest_wait)

    def contexts(self, seeds: Seeds, columns: tuple[str, ...] = ()) -> Iterator[Context]:
        """Yields the contexts of seeds, some at a time: memory does not grow with their number.

        They hold the named relational columns, too.
        """
        seeds = self.asked(seeds)
        for first in range(0, len(seeds), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            part = Seeds(seeds.node[some], seeds.time[some], None)
            context = sample(self.graph, part, self.recipe.sampling, torch.get_num_threads())
            yield replace(context, columns=self.matrix(part, columns)) if columns else context

    def matrix(self, seeds: Seeds, names: tuple[str, ...]) -> NDArray[np.float32]:
        """Returns the (S, names) relational columns of seeds; an error where there is no such column."""
        seeds, known = self.asked(seeds), {name: place for place, name in enumerate(self.columns.names)}
        unknown = [name for name in names if name not in known]
        if unknown:
            what = f"the model reads columns that there are not {examples(unknown)}"
            raise IntegrityError("C06", what, "train anew")
        matrix = self.columns.matrix(seeds, frozenset(names), torch.get_num_threads(), self._made_of(seeds))
        return matrix if names == self.columns.names else matrix[:, [known[name] for name in names]]

    def _made_of(self, seeds: Seeds) -> tuple[NDArray[np.float32], set[int]] | None:
        """Returns the columns of these seeds that a model of this thread has asked for just before, to be gone on with.

        Several models look at the same few seeds, each at other columns. Of many seeds they would take much memory.
        """
        if len(seeds) * len(self.columns.names) > _MOST_CELLS:
            return None
        key = (np.asarray(seeds.node).tobytes(), np.asarray(seeds.time).tobytes())
        if getattr(self._last, "key", None) != key:
            self._last.key, self._last.made = key, (self.columns.no_columns(seeds), set())
        made: tuple[NDArray[np.float32], set[int]] = self._last.made
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Returns what another process is sent: not the columns that threads of this one go on with."""
        return {name: value for name, value in self.__dict__.items() if name != "_last"}

    @cached_property
    def _last(self) -> threading.local:
        return threading.local()

    def matrices(
        self, seeds: Seeds, names: tuple[str, ...], listener: Listener = SILENT
    ) -> Iterator[NDArray[np.float32]]:
        """Yields the columns of all seeds, some at a time: memory does not grow with their number."""
        for first in range(0, len(seeds), _ROWS_AT_ONCE):
            some = slice(first, first + _ROWS_AT_ONCE)
            asked = Seeds(seeds.node[some], seeds.time[some], None)
            yield self.matrix(seeds if len(asked) == len(seeds) else asked, names)
            listener.progress("scores", len(asked), len(seeds))


def held(seeds: Seeds, database: Database, spec: TaskSpec, recipe: Recipe, longest: int | None) -> Seeds:
    """Returns the seeds of which those long after the newest visible row are asked as of where the data end.

    When a database ends years before, windows are empty and ages beyond what any training seed has seen. Such a seed is
    asked as long after that row as any of training was, at most, or a horizon after it, whichever is longer.
    """
    if recipe.sampling.late_seeds == "own" or longest is None or spec.type == "recommendation":
        return seeds
    newest, longest = newest_seen(seeds, database, spec, recipe), wait_limit(spec, longest)
    is_late = (newest != STATIC) & (seeds.time > STATIC + longest) & (seeds.time - longest > newest)
    if not is_late.any():
        return seeds
    return replace(seeds, time=np.where(is_late, newest + longest, seeds.time))


def wait_limit(spec: TaskSpec, longest: int) -> int:
    """Returns how long after the newest row a seed is asked at its own time, in nanoseconds."""
    return max(longest, spec.horizon, 1)


def newest_seen(seeds: Seeds, database: Database, spec: TaskSpec, recipe: Recipe) -> NDArray[np.int64]:
    """Returns the time of the newest row that each seed may see; its own is known at its time under any rule.

    Labels that are known by now are no news: of a window in which nothing came there is one, too.
    """
    entity = database[spec.entity_table]
    own = entity.known_at[seeds.node - database.offsets[entity.name]]
    newest = database.newest(seeds.time, recipe.sampling.time_rule, KNOWN_LABELS)
    return np.maximum(newest, np.where(visible(own, seeds.time), own, STATIC))


@dataclass(eq=False)
class TrainingData:
    """What a model is fitted to and validated with. Test labels are not among it."""

    task: Task
    recipe: Recipe
    output: Output
    features: FeatureTable
    cache: Path | None = None
    listener: Listener = SILENT
    on: str | None = None  # who samples contexts
    chosen_columns: tuple[str, ...] | None = None  # of all relational columns; None: all
    start: Mapping[str, torch.Tensor] | None = None  # the weights of a tower that a new network takes over
    gains: Mapping[str, float] = field(default_factory=dict)  # of trees by each column, for towers
    some: dict[Split, NDArray[np.bool_]] = field(
        default_factory=dict
    )  # of a split's seeds, where not all are read

    @staticmethod
    def prepare(
        task: Task,
        recipe: Recipe,
        cache: Path | None = None,
        listener: Listener = SILENT,
        on: str | None = None,
    ) -> TrainingData:
        """Returns the data of a task, with features fitted at the train cut-off.

        Validation labels by which no model could be selected are an error.
        """
        num_classes = None if task.classes is None else len(task.classes)
        check_selectable(task.spec.type, task.seeds("val").target, recipe.validation_seeds, num_classes)
        task = task.under(recipe.protocol, recipe.past_labels)
        listener.noticed(task.database.findings[len(task.full_database.findings) :])
        features = FeatureTable.fit(
            task.database,
            task.splits.val,
            use_row_names=recipe.use_row_names,
            text_model=recipe.text_model,
        )
        train = task.seeds("train")
        newest = newest_seen(train, task.database, task.spec, recipe)
        waits = (train.time - newest)[newest != STATIC]
        features = features.waiting(int(waits.max(initial=0)))
        return TrainingData(task, recipe, fit_output(task), features, cache, listener, on)

    @property
    def metric(self) -> str:
        return main_metric(self.task.spec.type)

    @cached_property
    def seeds(self) -> dict[Split, Seeds]:
        """Returns the seeds of each split at the times as of which they are asked."""
        return {split: self.view.asked(self.task.asked_seeds(split)) for split in SPLITS}

    def labels(self, split: Split) -> Any:
        """Returns the targets of a split: an array or, of a recommendation task, `Links`."""
        target = self.task.seeds(split).target
        target = target if isinstance(target, Links) else np.asarray(target)
        return target[self.some[split]] if split in self.some else target

    @cached_property
    def view(self) -> View:
        return _TrainingView(self.task.database, self.features, self.task.spec, self.recipe, self)

    def context(self, split: Split) -> Context:
        """Returns the contexts of a split, sampled once and then mapped from the cache."""
        if split not in self._contexts:
            self._contexts[split] = cached_sample(
                self.view.graph, self.seeds[split], self.recipe.sampling, self.cache or default_cache(),
                f"{self.task.name}-{split}", self.listener, torch.get_num_threads(), self.on,
            )  # fmt: skip
            if self.recipe.model.tower:
                self._contexts[split] = replace(self._contexts[split], columns=self.columns(split))
        return self._contexts[split]

    def seconds_of_a_context(self) -> float:
        """Returns how long it takes to sample the context of a training seed, by some; 0 where others sample them."""
        if self.on is not None:
            return 0.0
        some = self.fewer(train=_TRIED).seeds["train"].without_target()
        return seconds_of_a_seed(self.view.graph, some, self.recipe.sampling, torch.get_num_threads())

    @cached_property
    def readable_columns(self) -> tuple[str, ...]:
        return self.view.columns.readable(self.seeds["train"])

    @property
    def column_names(self) -> tuple[str, ...]:
        return self.readable_columns if self.chosen_columns is None else self.chosen_columns

    def columns(self, split: Split) -> NDArray[np.float32]:
        """Returns the relational columns of a split's seeds, which are made once."""
        return self.view.matrix(self.seeds[split], self.column_names)

    def changed(
        self,
        recipe: Recipe,
        columns: tuple[str, ...],
        start: Mapping[str, torch.Tensor] | None = None,
        gains: Mapping[str, float] | None = None,
    ) -> TrainingData:
        """Returns the same data for another recipe that reads the same features, with some of the columns."""
        gains = self.gains if gains is None else gains
        other = replace(self, recipe=recipe, chosen_columns=columns, start=start, gains=gains)
        kept = {"seeds": self.seeds, "_columns": self._columns, "bins": self.bins}
        kept |= {"readable_columns": self.readable_columns}
        kept |= {name: self.__dict__[name] for name in ("highest_codes",) if name in self.__dict__}
        other.__dict__ |= kept
        other.view.__dict__["columns"] = self.view.columns
        return other

    def reading(self, columns: tuple[str, ...]) -> TrainingData:
        """Returns the same data with these columns alone: no others are made of its seeds."""
        other = self.changed(self.recipe, columns)
        other.chosen_columns = None
        other.__dict__ |= {"readable_columns": columns, "_columns": {}, "bins": {}}
        other.__dict__.pop("highest_codes", None)
        return other

    def fewer(self, **most: int) -> TrainingData:
        """Returns the same data with at most so many seeds of a split, drawn from all of them: the same each time."""
        if all(len(own) <= most.get(split, len(own)) for split, own in self.seeds.items()):
            return self
        other = replace(self, some=dict(self.some))
        kept: dict[str, Any] = {"seeds": dict(self.seeds), "_columns": dict(self._columns)}
        for split in SPLITS[:2]:
            own = self.seeds[split]
            if most.get(split, len(own)) < len(own):
                drawn = np.zeros(len(own), np.bool_)
                drawn[np.random.default_rng([_DRAW, len(own)]).permutation(len(own))[: most[split]]] = True
                before = self.some.get(split, np.ones(len(own), np.bool_))
                other.some[split] = before.copy()
                other.some[split][before] = drawn
                kept["seeds"][split] = own.select(drawn)
                if split in self._columns:
                    kept["_columns"][split] = self._columns[split][drawn]
                    kept["highest_codes"] = (
                        self.highest_codes
                    )  # a network may go on from one that saw them all
        other.__dict__ |= kept | {"readable_columns": self.readable_columns}
        other.view.__dict__["columns"] = self.view.columns
        return other

    @cached_property
    def highest_codes(self) -> dict[str, float]:
        """Returns the highest code of each column of codes among the seeds of training."""
        codes = [(place, name) for place, name in enumerate(self.readable_columns) if name.endswith(CODE)]
        made = self.view.matrix(self.seeds["train"], self.readable_columns)
        return {name: float(np.nanmax(made[:, place], initial=0)) for place, name in codes}

    @cached_property
    def bins(self) -> dict[Any, Any]:
        """Returns where trees keep their columns in bins, for others that read the same ones."""
        return {}

    @cached_property
    def _columns(self) -> dict[Split, NDArray[np.float32]]:
        return {}

    @cached_property
    def _contexts(self) -> dict[Split, Context]:
        return {}


@dataclass(eq=False)
class _TrainingView(View):
    """A view that takes the contexts of a task's own seeds from the cache."""

    data: TrainingData

    def contexts(self, seeds: Seeds, columns: tuple[str, ...] = ()) -> Iterator[Context]:
        for split, own in self.data.seeds.items():
            if seeds is own:
                context = self.data.context(split)
                is_same = not columns or columns == self.data.column_names
                yield context if is_same else replace(context, columns=self.matrix(seeds, columns))
                return
        yield from super().contexts(seeds, columns)

    def matrix(self, seeds: Seeds, names: tuple[str, ...]) -> NDArray[np.float32]:
        made, all_names = self.data._columns, self.data.readable_columns
        for split, own in self.data.seeds.items():
            if seeds is own and set(names) <= set(all_names):
                if split not in made:
                    if names != all_names:  # the first trees do not wait for columns that they do not read
                        return self._in_pieces(seeds, names)
                    made[split] = self._in_pieces(seeds, all_names)
                place = {name: number for number, name in enumerate(all_names)}
                return made[split] if names == all_names else made[split][:, [place[name] for name in names]]
        return super().matrix(seeds, names)

    def _in_pieces(self, seeds: Seeds, names: tuple[str, ...]) -> NDArray[np.float32]:
        """Returns the columns of all seeds of a split: of many, in a file, made of some at a time."""
        whole: NDArray[np.float32] = empty_aside((len(seeds), len(names)), np.float32)
        for some in slices(len(seeds), _ROWS_AT_ONCE):
            whole[some] = super().matrix(Seeds(seeds.node[some], seeds.time[some], None), names)
        return whole
