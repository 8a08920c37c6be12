"""Trees: LightGBM on `RelationalColumns`, a model that is fitted, kept and asked as a network is."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from quartet.config import Recipe
from quartet.evaluation import (
    selection_value,
)
from quartet.listener import SILENT, Listener
from quartet.machine import ALONE, Processes, import_lightgbm
from quartet.models.boosting import Boosting
from quartet.models.tree_target import ClassStart, ListStart, TreeTarget, target_from
from quartet.models.tree_text import checked_text, leading_columns
from quartet.tasks import SPLITS, Seeds
from quartet.training import Epoch, Fitted, Member, Output, TrainingData, View

_TREES, _FACTS = "trees.txt", "trees.json"
_LOSS_SEEDS = 10_000  # of training, spread among all, on which the loss is told


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees, and the columns that they read: logits, or standardised values. `registry.py` says what they heed."""

    names: tuple[str, ...]
    num_outputs: int
    text: str  # as `checked_text` writes them
    is_refit: bool = False  # whether they have seen the labels of validation
    target: TreeTarget | ClassStart | ListStart | None = (
        None  # what they were fitted to, or began with; None: values as they are
    )
    before: str = ""  # as validation has chosen them, where they are fitted again; not kept
    members: ClassVar[tuple[Member, ...]] = ()
    weights: ClassVar[tuple[float, ...]] = ()

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
        boosting, names, kind = Boosting(data), data.column_names, data.task.spec.type
        listener.begin(boosting)
        train, val = (boosting.rows(split) for split in SPLITS[:2])
        first = boosting.grow(train, val, must_stop=lambda: listener.should_stop() or boosting.is_grown)
        if listener.should_stop():
            return None
        model = cls(names, data.output.num_outputs, first, target=boosting.target)
        logits = model.logits(data.view, data.seeds["val"])
        validation = selection_value(kind, data.labels("val"), data.output.scores(logits))
        chosen = model.summary
        should_refit = boosting.should_refit(train, listener, lambda text: replace(model, text=text))
        if listener.should_stop():  # the trial may have ended early
            return None
        if should_refit:
            text = boosting.grow(train + val, rounds=model.rounds)
            again = replace(model, text=text, is_refit=True, before=model.text)
            if boosting.knows_labels(
                again.raw(data.columns("val"))
            ):  # else it was led astray: these it has seen
                model, chosen = again, f"{chosen}, fitted again to train and validation"
        seconds = time.perf_counter() - boosting.begin
        epoch = Epoch(0, model._loss(data), validation, seconds, 0.0, is_best=True)
        listener.epoch(epoch)
        return Fitted(model, [epoch], epoch, chosen, [logits])

    def _loss(self, data: TrainingData) -> float:
        """Returns the mean loss of training seeds; of many, of some that are spread among them."""
        train = data.seeds["train"]
        some = np.unique(np.linspace(0, len(train) - 1, _LOSS_SEEDS).astype(np.int64))
        logits = self.logits(data.view, Seeds(train.node[some], train.time[some], None))
        return float(data.output.loss(torch.tensor(logits), torch.tensor(data.labels("train")[some])).mean())

    def logits(self, view: View, seeds: Seeds, listener: Listener = SILENT) -> NDArray[np.float64]:
        """Returns the (S, outputs) logits of all seeds, some at a time: memory does not grow with their number."""
        parts = [self.raw(matrix) for matrix in view.matrices(seeds, self.names, listener)]
        return np.concatenate([np.empty((0, self.num_outputs)), *parts])

    def raw(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        """Returns the (S, outputs) logits of rows of columns."""
        raw = self._booster.predict(matrix, raw_score=True, num_threads=torch.get_num_threads())
        raw = np.asarray(raw, dtype=np.float64).reshape(len(matrix), self.num_outputs)
        if self.target is None:
            return raw
        start = self.target.start(matrix, self.names)
        return self.target.standardised(raw if start is None else raw + start.reshape(len(raw), -1))

    def contributions(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        """Returns what each column adds to each logit, by LightGBM's own Shapley values: (S, outputs, names)."""
        added = self._booster.predict(matrix, pred_contrib=True, num_threads=torch.get_num_threads())
        added = np.asarray(added).reshape(len(matrix), self.num_outputs, -1)
        added, base = added[:, :, :-1], added[:, :, -1]
        return added if self.target is None else self.target.shares(added, base, matrix, self.names)

    def leaves(self, matrix: NDArray[np.float32]) -> NDArray[np.int32]:
        """Returns the leaf into which each row falls, of each tree: (S, trees)."""
        places = self._booster.predict(matrix, pred_leaf=True, num_threads=torch.get_num_threads())
        return np.asarray(places, np.int32).reshape(len(matrix), -1)

    def blend(self, logits: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        return logits[0]

    def to(self, device: str) -> Trees:  # noqa: ARG002 (they are always on the CPU)
        return self

    def save(self, folder: Path) -> None:
        (folder / _TREES).write_text(self.text, encoding="utf-8")
        facts = {"columns": self.names, "is_refit": self.is_refit}
        facts |= {"target": asdict(self.target)} if self.target else {}
        (folder / _FACTS).write_text(json.dumps(facts), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, recipe: Recipe, output: Output) -> Trees:  # noqa: ARG003
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        names, text = tuple(facts["columns"]), (folder / _TREES).read_text(encoding="utf-8")
        checked = checked_text(text, len(names), output.num_outputs)
        target = target_from(facts["target"], output.num_outputs, names) if "target" in facts else None
        return cls(names, output.num_outputs, checked, bool(facts["is_refit"]), target)

    @property
    def num_trees(self) -> int:
        """Returns the number of trees, of all classes together."""
        return len(self._leaves)

    @property
    def num_parameters(self) -> int:
        """Returns how many numbers were learned: a value for each leaf and a threshold for each split."""
        return sum(2 * leaves - 1 for leaves in self._leaves)

    @property
    def num_rounds(self) -> int:
        """Returns how often trees were added: one a round, or one for each class."""
        return self.num_trees // self.num_outputs

    @property
    def rounds(self) -> NDArray[np.int64]:
        """Returns how many rounds each output has; those of labels end on their own."""
        leaves = np.array(self._leaves).reshape(-1, self.num_outputs)
        last = np.where(leaves > 1, np.arange(1, len(leaves) + 1)[:, None], 1).max(0)
        last[last.argmax()] = len(leaves)
        return np.asarray(last)

    @cached_property
    def gains(self) -> dict[str, float]:
        """Returns what splits by each column gained, as a part of all that was gained.

        Who chooses columns by it has not seen the labels of validation, where the trees were fitted just now.
        """
        lines = [
            re.findall(rf"^{what}=(.+)$", self.before or self.text, re.MULTILINE)
            for what in ("split_feature", "split_gain")
        ]
        place, gain = (np.array(" ".join(line).split(), dtype=np.float64) for line in lines)
        if len(place) != len(gain) or not gain.sum() > 0:
            return {}
        total = np.bincount(place.astype(np.int64), gain, len(self.names))
        return dict(zip(self.names, (total / total.sum()).tolist(), strict=True))

    @property
    def leading_columns(self) -> list[str]:
        return leading_columns(self.gains)

    @property
    def summary(self) -> str:
        return f"{self.num_trees:,} trees"

    @property
    def _leaves(self) -> list[int]:
        return [int(number) for number in re.findall(r"^num_leaves=(\d+)$", self.text, re.MULTILINE)]

    @cached_property
    def _booster(self) -> Any:
        lightgbm = import_lightgbm()

        return lightgbm.Booster(model_str=self.text)
