"""Trees: LightGBM on `RelationalColumns`, a model that is fitted, kept and asked as a network is."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from quartet.config import Recipe
from quartet.evaluation import (
    MOST_TREES,
    PATIENCE,
    SETTINGS,
    lightgbm_for,
    selection_value,
    task_settings,
)
from quartet.features import CODE
from quartet.listener import SILENT, Listener
from quartet.machine import ALONE, Processes
from quartet.models.tree_text import checked_text
from quartet.tasks import Seeds, Split
from quartet.training import Epoch, Fitted, Member, Output, RegressionOutput, TrainingData, View, duration

_AT_ONCE = 2**18  # seeds whose columns are in memory together
_TREES, _COLUMNS = "trees.txt", "columns.json"
_LOSS_SEEDS = 10_000  # of training, spread among all, on which the loss is told


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees, and the columns that they read: logits, or standardised values. `registry.py` says what they heed."""

    names: tuple[str, ...]
    num_outputs: int
    text: str  # as `checked_text` writes them
    members: ClassVar[tuple[Member, ...]] = ()

    @classmethod
    def fit(
        cls,
        data: TrainingData,
        processes: Processes = ALONE,
        listener: Listener = SILENT,
        state: Path | None = None,  # noqa: ARG003 (there is none: another try begins anew)
    ) -> Fitted | None:
        """Returns the trees that are best on validation, until more of them do not help.

        Several processes have the trees that the first of them has fitted.
        """
        return processes.from_first(lambda: cls._fit(data, listener))

    @classmethod
    def _fit(cls, data: TrainingData, listener: Listener) -> Fitted | None:
        lightgbm, recipe, kind = _lightgbm(), data.recipe, data.task.spec.type
        listener.begin(_Boosting(data))
        begin, limit = time.perf_counter(), recipe.time_limit or math.inf
        names = data.column_names
        codes = [place for place, name in enumerate(names) if name.endswith(CODE)]
        dataset = lightgbm.Dataset(data.columns("train"), _labels(data, "train"), categorical_feature=codes)
        watch = _Watch(
            lambda: listener.should_stop() or time.perf_counter() - begin > limit,
            lightgbm.callback.EarlyStopException,
        )
        num_outputs = data.output.num_outputs
        booster = lightgbm.train(
            SETTINGS | task_settings(kind, num_outputs) | {"seed": recipe.rng_seed},
            dataset,
            MOST_TREES,
            valid_sets=[dataset.create_valid(data.columns("val"), _labels(data, "val"))],
            callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False), watch],
        )
        if listener.should_stop():
            return None
        text = booster.model_to_string(num_iteration=watch.best_round)
        model = cls(names, num_outputs, checked_text(text, len(names), num_outputs))
        fitted = time.perf_counter()
        scores = data.output.scores(model.logits(data.view, data.seeds["val"]))
        validation = selection_value(kind, data.labels("val"), scores)
        seconds = (fitted - begin, time.perf_counter() - fitted)
        epoch = Epoch(0, model._loss(data), validation, *seconds, is_best=True)
        listener.epoch(epoch)
        return Fitted(model, [epoch], epoch, model.summary)

    def _loss(self, data: TrainingData) -> float:
        """Returns the mean loss of training seeds; of many, of some that are spread among them."""
        train = data.seeds["train"]
        some = np.unique(np.linspace(0, len(train) - 1, _LOSS_SEEDS).astype(np.int64))
        logits = self.logits(data.view, Seeds(train.node[some], train.time[some], None))
        return float(data.output.loss(torch.tensor(logits), torch.tensor(data.labels("train")[some])).mean())

    def logits(self, view: View, seeds: Seeds, listener: Listener = SILENT) -> NDArray[np.float64]:
        """Returns the (S, outputs) logits of all seeds, some at a time: memory does not grow with their number."""
        parts = [np.empty((0, self.num_outputs))]
        for first in range(0, len(seeds), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            asked = Seeds(seeds.node[some], seeds.time[some], None)
            matrix = view.matrix(seeds if len(asked) == len(seeds) else asked, self.names)
            raw = np.asarray(self._booster.predict(matrix, raw_score=True, num_threads=1), dtype=np.float64)
            parts.append(raw.reshape(len(asked), self.num_outputs))
            listener.progress("scores", len(asked), len(seeds))
        return np.concatenate(parts)

    def blend(self, logits: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        return logits[0]

    def to(self, device: str) -> Trees:  # noqa: ARG002 (they are always on the CPU)
        return self

    def save(self, folder: Path) -> None:
        (folder / _TREES).write_text(self.text, encoding="utf-8")
        (folder / _COLUMNS).write_text(json.dumps(self.names), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, recipe: Recipe, output: Output) -> Trees:  # noqa: ARG003
        names = tuple(json.loads((folder / _COLUMNS).read_text(encoding="utf-8")))
        text = (folder / _TREES).read_text(encoding="utf-8")
        return cls(names, output.num_outputs, checked_text(text, len(names), output.num_outputs))

    @property
    def num_trees(self) -> int:
        """Returns the number of trees, of all classes together."""
        return len(self._leaves)

    @property
    def num_parameters(self) -> int:
        """Returns how many numbers were learned: a value for each leaf and a threshold for each split."""
        return sum(2 * leaves - 1 for leaves in self._leaves)

    @property
    def leading_columns(self) -> list[str]:
        """Returns the three columns by which splits gained most, each with its part of all that was gained."""
        lines = [
            re.findall(rf"^{what}=(.+)$", self.text, re.MULTILINE) for what in ("split_feature", "split_gain")
        ]
        place, gain = (np.array(" ".join(line).split(), dtype=np.float64) for line in lines)
        if len(place) != len(gain) or not gain.sum() > 0:
            return []
        total = np.bincount(place.astype(np.int64), gain, len(self.names))
        best = np.argsort(-total, kind="stable")[:3]
        return [f'"{self.names[at]}" ({total[at] / total.sum():.0%})' for at in best if total[at] > 0]

    @property
    def summary(self) -> str:
        return f"{self.num_trees:,} trees"

    @property
    def _leaves(self) -> list[int]:
        return [int(number) for number in re.findall(r"^num_leaves=(\d+)$", self.text, re.MULTILINE)]

    @cached_property
    def _booster(self) -> Any:
        return _lightgbm().Booster(model_str=self.text)


@dataclass
class _Boosting:
    """A fitting of trees as a listener is told of it."""

    data: TrainingData

    def lines(self) -> list[tuple[str, str]]:
        limit = self.data.recipe.time_limit
        stop = f", stopped after {duration(limit)}" if limit else ""
        text = (
            f"LightGBM, at most {MOST_TREES:,} trees, until {PATIENCE} more do not help on validation{stop}"
        )
        return [("model", text)]

    def epoch_line(self, epoch: Epoch) -> str:
        return f"fitted in {duration(epoch.seconds)}, training loss {epoch.loss:.4f}"

    def bar(self) -> None:
        return None


def _lightgbm() -> Any:
    return lightgbm_for('the model "lightgbm"')


def _labels(data: TrainingData, split: Split) -> NDArray[Any]:
    """Returns labels in the scale of the model's outputs."""
    labels, output = data.labels(split), data.output
    if not isinstance(output, RegressionOutput):
        return labels
    return (labels - output.median) / output.spread


@dataclass(eq=False)
class _Watch:
    """Asks after each round whether to stop, and remembers how good validation was."""

    must_stop: Callable[[], bool]
    stop: Callable[[int, Any], Exception]
    values: list[float] = field(default_factory=list)  # more is better

    def __call__(self, state: Any) -> None:
        ((_, _, value, is_higher_better),) = state.evaluation_result_list
        self.values.append(value if is_higher_better else -value)
        if self.must_stop():
            raise self.stop(state.iteration, state.evaluation_result_list)

    @property
    def best_round(self) -> int:
        """Returns the best round, counted from one; of equal ones the first."""
        return 1 + int(np.argmax(self.values))
