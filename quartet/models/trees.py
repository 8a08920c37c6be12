"""Boosted: LightGBM on `RelationalColumns`, a model that is kept, loaded and asked as a network is."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.evaluation import MOST_TREES, PATIENCE, SETTINGS, lightgbm_for, task_settings
from quartet.features import CODE, RelationalColumns
from quartet.features.counts import Columns
from quartet.tasks import Seeds, TaskType

AT_ONCE = 2**18  # seeds whose columns are in memory together
Answers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Boosted:
    """Trees, and the columns that they read: logits, or values in the scale of the labels they were fitted to."""

    names: tuple[str, ...]
    num_outputs: int
    text: str  # the trees as LightGBM writes them

    @staticmethod
    def fit(
        task_type: TaskType,
        columns: RelationalColumns,
        train: Seeds,
        val: Seeds,
        num_outputs: int = 1,
        rng_seed: int = 0,
        must_stop: Callable[[], bool] = lambda: False,
    ) -> Boosted:
        """The trees that are best on validation, until more of them do not help, or something asks to stop."""
        lightgbm = load_lightgbm()
        found = columns.of_seeds(train)
        names = tuple(found)
        codes = [place for place, name in enumerate(names) if name.endswith(CODE)]
        data = lightgbm.Dataset(_matrix(found, names), train.target, categorical_feature=codes)
        validation = data.create_valid(_matrix(columns.of_seeds(val), names), val.target)
        watch = _Watch(must_stop, lightgbm.callback.EarlyStopException)
        booster = lightgbm.train(
            SETTINGS | task_settings(task_type, num_outputs) | {"seed": rng_seed},
            data,
            MOST_TREES,
            valid_sets=[validation],
            callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False), watch],
        )
        return Boosted(names, num_outputs, booster.model_to_string(num_iteration=watch.best_round))

    def answers(
        self, columns: RelationalColumns, seeds: Seeds, progress: Callable[[int], None] = lambda _: None
    ) -> Answers:
        """(S, outputs) answers to all seeds, some at a time: memory does not grow with their number."""
        found = [np.empty((0, self.num_outputs))]
        for first in range(0, len(seeds), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            asked = Seeds(seeds.node[some], seeds.time[some], None)
            found.append(self._answers(_matrix(columns.of_seeds(asked), self.names)))
            progress(len(asked))
        return np.concatenate(found)

    @property
    def num_trees(self) -> int:
        """Of all classes together."""
        return len(self._leaves)

    @property
    def num_parameters(self) -> int:
        """A value for each leaf and a threshold for each split."""
        return sum(2 * leaves - 1 for leaves in self._leaves)

    @property
    def _leaves(self) -> list[int]:
        return [int(number) for number in re.findall(r"^num_leaves=(\d+)$", self.text, re.MULTILINE)]

    @cached_property
    def _booster(self) -> Any:
        return load_lightgbm().Booster(model_str=self.text)

    def _answers(self, matrix: NDArray[np.float32]) -> Answers:
        raw = np.asarray(self._booster.predict(matrix, raw_score=True, num_threads=1), dtype=np.float64)
        return raw.reshape(len(matrix), self.num_outputs)


def load_lightgbm() -> Any:
    """The package, or an error that says how to get it."""
    return lightgbm_for('the model "lightgbm"')


def _matrix(columns: Columns, names: tuple[str, ...]) -> NDArray[np.float32]:
    matrix = np.empty((len(columns[names[0]]), len(names)), dtype=np.float32)
    for place, name in enumerate(names):
        matrix[:, place] = columns[name]
    return matrix


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
        """Counted from one; of equal ones the first."""
        return 1 + int(np.argmax(self.values))
