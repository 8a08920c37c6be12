"""Boosting: a fitting of trees, by the columns of training, until more of them do not help on validation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.evaluation import (
    CLASS_CODES,
    MOST_TREES,
    column_settings,
    grow_labels,
    higher_is_better,
    patience,
    selection_value,
    task_settings,
)
from quartet.features import CODE
from quartet.listener import Listener
from quartet.machine import import_lightgbm
from quartet.models.tree_target import ClassStart, ListStart, TreeTarget
from quartet.models.tree_text import checked_text, joined_labels
from quartet.tasks import KNOWN_LABELS, SPLITS, Split
from quartet.training import Epoch, RegressionOutput, TrainingData, duration

_FOR_A_TRIAL = (
    0.04  # of the time limit: where the first trees took longer, they are fitted again without a trial
)
_FOR_FIRST = 0.55  # of the time limit, where trees may be fitted again
_FOR_PACE, _ENOUGH_ROUNDS, _MOST_HASTE = 10, 400, 4.0  # rounds, and by how much they may learn faster
_ENOUGH_OF_CLASSES = 100  # rounds, each of which has a tree for each of many classes
_FEWEST = 100  # rows on either side of an earlier cut-off
_BINNED_BY = 50_000  # rows by which bins are laid


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that trees are fitted to, or stopped by: their places among those of training and then of validation."""

    places: NDArray[np.int64]
    labels: NDArray[Any]
    start: NDArray[np.float64] | None = None  # where trees begin

    def __getitem__(self, which: NDArray[np.bool_]) -> Rows:
        start = None if self.start is None else self.start[which]
        return Rows(self.places[which], self.labels[which], start)

    def __add__(self, other: Rows) -> Rows:
        start = None
        if self.start is not None and other.start is not None:
            start = np.concatenate([self.start, other.start])
        places = np.concatenate([self.places, other.places])
        return Rows(places, np.concatenate([self.labels, other.labels]), start)

    def learnable(self, num_classes: int) -> Rows:
        """Returns the rows from which something can be learned: not those of classes that training does not have."""
        return self if (self.labels < num_classes).all() else self[self.labels < num_classes]


@dataclass
class Boosting:
    """A fitting of trees, as a listener is told of it too."""

    data: TrainingData

    def __post_init__(self) -> None:
        self.begin, self.target = (
            time.perf_counter(),
            TreeTarget.of(self.data) or ClassStart.of(self.data) or ListStart.of(self.data),
        )
        self.haste, self.prepared = (
            1.0,
            0.0,
        )  # by which the learning rate is multiplied, and when rounds began

    def hasten(self, num_rounds: int) -> float:
        """Returns how much faster to learn, once the pace is known: so that enough rounds fit into the time limit.

        Trees that are grown again learn as fast.
        """
        limit, spent = self._time_to_grow, time.perf_counter() - self.begin
        if num_rounds == 1:
            self.prepared = spent  # before that, columns were sorted into bins
        if limit == math.inf or num_rounds != _FOR_PACE or self.haste > 1:
            return 1.0
        pace = (spent - self.prepared) / (num_rounds - 1)
        rounds = max(1.0, (limit - spent) / max(pace, 1e-9))
        has_many = patience(self.data.output.num_outputs) < patience(1)
        enough = _ENOUGH_OF_CLASSES if has_many else _ENOUGH_ROUNDS
        self.haste = float(np.clip(enough / rounds, 1.0, _MOST_HASTE))
        return self.haste

    def rows(self, split: Split) -> Rows:
        """Returns the columns of a split and its labels in the scale that trees learn."""
        data, labels, output = self.data, self.data.labels(split), self.data.output
        places = np.arange(len(labels)) + (len(data.seeds["train"]) if split == "val" else 0)
        if self.target is not None:
            start = self.target.start(data.columns(split), data.column_names)
            return Rows(places, self.target.learned(labels), start)
        if isinstance(output, RegressionOutput):
            labels = (labels - output.median) / output.spread
        return Rows(places, labels[:, : output.num_outputs] if labels.ndim > 1 else labels)

    @property
    def is_over(self) -> bool:
        return time.perf_counter() - self.begin > (self.data.recipe.time_limit or math.inf)

    @property
    def is_grown(self) -> bool:
        """Returns whether the time for the first trees is over: what is left is for growing them again."""
        return time.perf_counter() - self.begin > self._time_to_grow

    @property
    def _time_to_grow(self) -> float:
        recipe = self.data.recipe
        return (recipe.time_limit or math.inf) * (1.0 if recipe.refit == "never" else _FOR_FIRST)

    def grow(
        self,
        train: Rows,
        stop: Rows | None = None,
        rounds: int | NDArray[np.int64] = MOST_TREES,
        must_stop: Callable[[], bool] = lambda: False,
    ) -> str:
        """Returns trees as text: so many rounds of them, or those that are best for the rows that stop them."""
        lightgbm = import_lightgbm()  # which takes a second

        data, names = self.data, self.data.column_names
        kind, num_outputs, recipe = data.task.spec.type, data.output.num_outputs, data.recipe
        num_rows = len(data.seeds["train"])
        settings = column_settings(
            kind, num_rows, len(names), recipe.model.extra_trees, torch.get_num_threads()
        )
        settings |= {"seed": recipe.rng_seed, **task_settings(kind, num_outputs, num_rows)}
        rate, haste = settings["learning_rate"], self.haste
        paces = [1.0] * _FOR_PACE + [haste]  # as the first trees had them
        hasty = lightgbm.reset_parameter(learning_rate=lambda n: rate * paces[min(n, _FOR_PACE)])
        callbacks: list[Any] = [hasty] if haste > 1 else []
        codes = [place for place, name in enumerate(names) if name.endswith(CODE)]
        if any(KNOWN_LABELS in names[place] for place in codes):
            settings |= CLASS_CODES
        most = int(np.max(rounds))
        if train.labels.ndim > 1:
            stops = None if stop is None else (self.matrix(stop), stop.labels)
            starts = train.start, None if stop is None else stop.start
            grown = grow_labels(
                settings, (self.matrix(train), train.labels), stops, codes, most, must_stop, starts
            )
            own = rounds if isinstance(rounds, np.ndarray) else grown.rounds
            return joined_labels(grown.booster.model_to_string(), grown.base, own, len(names))
        if data.task.spec.facts.has_classes:
            train = train.learnable(num_outputs)
            stop = None if stop is None else stop.learnable(num_outputs)
        binned = self.binned(settings, codes)

        def subset(rows: Rows) -> Any:
            some = binned.subset(rows.places, params=dict(binned.params)).construct()
            some.set_label(rows.labels)
            return some if rows.start is None else some.set_init_score(rows.start.ravel(order="F"))

        dataset = subset(train)
        if stop is None:
            text = lightgbm.train(settings, dataset, most, callbacks=callbacks).model_to_string()
        else:
            watch = Watch(must_stop, lightgbm.callback.EarlyStopException, self.hasten)
            booster = lightgbm.train(
                settings,
                dataset,
                most,
                valid_sets=[subset(stop)],
                callbacks=[
                    *callbacks,
                    lightgbm.early_stopping(patience(num_outputs), verbose=False),
                    watch,
                ],
            )
            text = booster.model_to_string(num_iteration=watch.best_round)
        return checked_text(text, len(names), num_outputs)

    def binned(self, settings: dict[str, Any], codes: Sequence[int]) -> Any:
        """Returns the columns of all rows in bins, once for all trees that read them."""
        which = ("max_bin", "min_data_in_leaf", "force_row_wise", "force_col_wise")
        key = (self.data.column_names, *(settings.get(name) for name in which))
        bins = self.data.bins
        if key not in bins:
            bins.clear()  # they may be large
            whole = [np.ascontiguousarray(self.data.columns(split)) for split in SPLITS[:2]]
            settings = settings | {"bin_construct_sample_cnt": _BINNED_BY}
            made = import_lightgbm().Dataset(whole, categorical_feature=list(codes), params=settings)
            bins[key] = made.construct()
        return bins[key]

    def matrix(self, rows: Rows) -> NDArray[np.float32]:
        """Returns the columns of rows."""
        train, val = (self.data.columns(split) for split in SPLITS[:2])
        is_train = rows.places < len(train)
        return np.concatenate([train[rows.places[is_train]], val[rows.places[~is_train] - len(train)]])

    def should_refit(self, train: Rows, listener: Listener, made: Callable[[str], Any]) -> bool:
        """Returns whether trees that are fitted again, to the rows that stopped them too, are better later.

        That is tried at an earlier cut-off: a last part of training stops them, and validation judges.
        `made` makes trees of their text.
        """
        refit, data = self.data.recipe.refit, self.data
        if refit != "auto":
            return refit == "always"
        times, asked = data.seeds["train"].time, data.seeds["val"].time
        first = inner_cutoff(times, asked)
        is_before, is_after = visible(data.task.spec.known_at(times), first), times >= first
        took = time.perf_counter() - self.begin
        if took > _FOR_A_TRIAL * (data.recipe.time_limit or math.inf):
            return not self.is_over
        if not _can_be_learned(data, train.labels[is_before], train.labels[is_after]):
            return False
        before, after = train[is_before], train[is_after]
        stopped = self.grow(before, after, must_stop=listener.should_stop)
        earlier = made(stopped)
        again = made(self.grow(before + after, rounds=earlier.rounds))
        values = [
            selection_value(
                data.task.spec.type, data.labels("val"), data.output.scores(trees.raw(data.columns("val")))
            )
            for trees in (earlier, again)
        ]
        return values[1] > values[0] if higher_is_better(data.metric) else values[1] < values[0]

    def knows_labels(self, logits: NDArray[np.float64]) -> bool:
        """Returns whether logits tell the labels of validation better than the same answer for all would."""
        labels, output = torch.tensor(self.data.labels("val")), self.data.output
        constant = torch.tensor(output.start(), dtype=torch.float64).expand(len(labels), -1)
        losses = [output.loss(each, labels).mean() for each in (torch.tensor(logits), constant)]
        return bool(losses[0] <= losses[1])

    def lines(self) -> list[tuple[str, str]]:
        limit = self.data.recipe.time_limit
        stop = f", stopped after {duration(limit)}" if limit else ""
        text = (
            f"LightGBM, at most {MOST_TREES:,} trees, until {patience(self.data.output.num_outputs)} more do not help "
            f"on validation{stop}"
        )
        return [("model", text)]

    def epoch_line(self, epoch: Epoch) -> str:
        return f"fitted in {duration(epoch.seconds)}, training loss {epoch.loss:.4f}"

    def bar(self) -> None:
        return None


def inner_cutoff(times: NDArray[np.int64], asked: NDArray[np.int64]) -> int:
    """Returns where a last part of the training times begins: as many times as are asked, at most a quarter of all."""
    distinct = np.unique(times)
    return int(distinct[-max(1, min(len(np.unique(asked)), len(distinct) // 4))])


def _can_be_learned(data: TrainingData, before: NDArray[Any], after: NDArray[Any]) -> bool:
    """Returns whether labels before a cut-off can be learned from, and those after it tell when to stop."""
    are_enough = min(len(before), len(after)) >= _FEWEST
    if data.task.spec.facts.is_number:
        return are_enough
    return are_enough and all(len(np.unique(part)) > 1 for part in (before, after))


@dataclass(eq=False)
class Watch:
    """Asks after each round whether to stop, and remembers how good validation was."""

    must_stop: Callable[[], bool]
    stop: Callable[[int, Any], Exception]
    hasten: Callable[[int], float] = lambda _: 1.0  # how much faster to learn from a round on
    values: list[float] = field(default_factory=list)  # more is better

    def __call__(self, state: Any) -> None:
        ((_, _, value, is_higher_better),) = state.evaluation_result_list
        self.values.append(value if is_higher_better else -value)
        faster = self.hasten(len(self.values))
        if faster > 1:
            rate = state.params["learning_rate"] * faster
            state.model.reset_parameter({"learning_rate": rate})
            state.params["learning_rate"] = rate
        if self.must_stop():
            raise self.stop(state.iteration, state.evaluation_result_list)

    @property
    def best_round(self) -> int:
        """Returns the best round, counted from one; of equal ones the first."""
        return 1 + int(np.argmax(self.values))
