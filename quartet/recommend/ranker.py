"""Ranker: LightGBM's lambdarank on pair columns, a bag of a few random seeds.

Every second one chooses among random thresholds, as trees elsewhere here do: they err in other places.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quartet.machine import import_lightgbm
from quartet.models import checked_text
from quartet.recommend.events import Floats
from quartet.recommend.pairs import Matrix
from quartet.recommend.rows import PairRows

_BAG = 3
_MOST_ROUNDS, _FEWEST_ROUNDS, _USUAL_ROUNDS, _PATIENCE = 400, 10, 50, 50
_FILE, _NAMES = "ranker-{}.txt", "ranker.json"


@dataclass(frozen=True, eq=False)
class Ranker:
    """Trees, and the pair columns that they read. The score of a pair is their mean."""

    names: tuple[str, ...]
    texts: tuple[str, ...]

    @staticmethod
    def fit(
        names: tuple[str, ...],
        train: PairRows,
        early: NDArray[np.bool_],
        stop: PairRows,
        k: int,
        rng_seed: int,
        seconds: float,
        should_stop: Callable[[], bool],
    ) -> Ranker | None:
        """Returns as many trees as are best for the rows that stop them; None if it was stopped.

        How many is found with the `early` rows of training; then trees are fitted to all of them.
        """
        begin = time.perf_counter()
        watch = _Watch(lambda: should_stop() or time.perf_counter() - begin > 0.4 * seconds)
        tried = train[early & train.is_candidate]
        rounds = _USUAL_ROUNDS
        if tried.label.any() and stop.label.any():
            rounds = _grow(tried, k, rng_seed, _MOST_ROUNDS, watch, stop)[1]
        texts = []
        for number in range(_BAG):
            if number and time.perf_counter() - begin > 0.8 * seconds:
                break
            last = _Watch(lambda: should_stop() or time.perf_counter() - begin > seconds)
            text, grown = _grow(train, k, rng_seed + number, rounds, last)
            if should_stop():
                return None
            if not number or grown == rounds:  # else the time was over
                texts.append(text)
        return Ranker(names, tuple(checked_text(text, len(names), 1) for text in texts))

    def scores(self, matrix: Matrix) -> Floats:
        threads = torch.get_num_threads()
        each = [b.predict(matrix, raw_score=True, num_threads=threads) for b in self._boosters]
        return np.asarray(np.mean(each, axis=0), np.float64)

    def contributions(self, matrix: Matrix) -> NDArray[np.float64]:
        """Returns what each column adds to the score of each pair, by TreeSHAP; the mean score is left out."""
        threads = torch.get_num_threads()
        each = [b.predict(matrix, pred_contrib=True, num_threads=threads)[:, :-1] for b in self._boosters]
        return np.asarray(np.mean(each, axis=0), np.float64)

    @cached_property
    def _boosters(self) -> list[Any]:
        lightgbm = import_lightgbm()

        return [lightgbm.Booster(model_str=text) for text in self.texts]

    @property
    def num_trees(self) -> int:
        return sum(text.count("\nTree=") for text in self.texts)

    def save(self, folder: Path) -> None:
        (folder / _NAMES).write_text(json.dumps(self.names), encoding="utf-8")
        for number, text in enumerate(self.texts):
            (folder / _FILE.format(number)).write_text(text, encoding="utf-8")

    @staticmethod
    def load(folder: Path) -> Ranker:
        names = tuple(json.loads((folder / _NAMES).read_text(encoding="utf-8")))
        paths = sorted(folder.glob(_FILE.format("*")))
        return Ranker(names, tuple(checked_text(p.read_text(encoding="utf-8"), len(names), 1) for p in paths))


@dataclass(eq=False)
class _Watch:
    """Asks after each round whether to stop."""

    must_stop: Callable[[], bool]

    def __call__(self, state: Any) -> None:
        lightgbm = import_lightgbm()

        if self.must_stop():
            raise lightgbm.callback.EarlyStopException(state.iteration, state.evaluation_result_list)


def _grow(
    rows: PairRows,
    k: int,
    rng_seed: int,
    rounds: int,
    watch: Callable[[Any], None],
    stop: PairRows | None = None,
) -> tuple[str, int]:
    """Returns trees as text, and how many rounds are best for the rows that stop them."""
    lightgbm = import_lightgbm()

    rows = _with_hits(rows[rows.is_candidate])
    settings = {
        "objective": "lambdarank", "metric": "map", "eval_at": [k], "lambdarank_truncation_level": 2 * k,
        "learning_rate": 0.05, "num_leaves": 31, "min_data_in_leaf": 20, "feature_fraction": 0.5,
        "bagging_fraction": 0.8, "bagging_freq": 1, "extra_trees": rng_seed % 2 == 1, "deterministic": True,
        "force_row_wise": True, "verbose": -1, "max_bin": 63, "num_threads": torch.get_num_threads(), "seed": rng_seed,
    }  # fmt: skip
    data = lightgbm.Dataset(rows.matrix, rows.label.astype(np.int32), group=rows.group_sizes, params=settings)
    if stop is None:
        booster = lightgbm.train(settings, data, rounds, callbacks=[watch])
        return booster.model_to_string(), booster.current_iteration()
    stop = _with_hits(stop)
    watched = data.create_valid(stop.matrix, stop.label.astype(np.int32), group=stop.group_sizes)
    callbacks = [lightgbm.early_stopping(_PATIENCE, verbose=False), watch]
    booster = lightgbm.train(settings, data, rounds, valid_sets=[watched], callbacks=callbacks)
    best = booster.best_iteration
    return "", max(_FEWEST_ROUNDS, best if best > 0 else booster.current_iteration())


def _with_hits(rows: PairRows) -> PairRows:
    """Returns the pairs of seeds that have one which came true: others teach no order."""
    num_true = np.bincount(rows.seed, rows.label)
    return rows[num_true[rows.seed] > 0]


def stop_rows(times: NDArray[np.int64], num_val: int, enough: int = 300) -> int | float:
    """Returns from when on seeds of training stop the trees, too, where validation has few: at most a fourth."""
    distinct, first = np.unique(times), math.inf
    for time_ in distinct[::-1].tolist():
        num_late = int((times >= time_).sum())
        if num_val + (0 if first == math.inf else int((times >= first).sum())) >= enough:
            break
        if num_late > len(times) / 4:
            break
        first = time_
    return first
