"""Model: what every model of this package can do. A network and trees are two of them, and no caller asks which.

fit     learns a task from its `TrainingData`
logits  answers seeds of any database that can be viewed like that of training
save    writes itself into a folder, from which `load` reads it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from quartet.config import Recipe
from quartet.listener import SILENT, Listener
from quartet.machine import ALONE, Processes
from quartet.tasks import Seeds
from quartet.training.data import TrainingData, View
from quartet.training.outputs import Output

Logits = NDArray[np.float64]


@dataclass(frozen=True)
class Epoch:
    """One line of a run's history. Trees have a single one."""

    number: int
    loss: float
    validation: float  # the task's main metric
    seconds: float  # of training
    validation_seconds: float
    is_best: bool


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model that has learned, and how it came there."""

    model: Any
    epochs: list[Epoch]
    best: Epoch
    chosen: str  # what was kept, for people: "epoch 3", "120 trees"
    validation: list[Logits] | None = (
        None  # of each member, from before any of them was fitted to validation too
    )


@dataclass(frozen=True, eq=False)
class Member:
    """A model of a portfolio, and how good it is by itself."""

    name: str
    architecture: str
    rng_seed: int
    validation: float  # the task's main metric
    seconds: float  # that it took
    model: Any


class Training(Protocol):
    """A training as a listener is told of it."""

    data: TrainingData

    def lines(self) -> list[tuple[str, str]]:
        """Returns what people should know before it begins: the model, its size, its cost."""

    def epoch_line(self, epoch: Epoch) -> str: ...

    def bar(self) -> tuple[str, int, int, str] | None:
        """Returns label, seeds done, seeds in all and a note on the epoch under way; None if there is none."""


class Model(Protocol):
    """Something that learns a task and gives (S, outputs) logits to seeds."""

    members: tuple[Member, ...]  # of a portfolio; a model by itself has none
    weights: tuple[float, ...]  # of these

    @property
    def is_refit(self) -> bool:
        """Returns whether it has seen the labels of validation, once these had chosen it."""

    @classmethod
    def fit(
        cls,
        data: TrainingData,
        processes: Processes = ALONE,
        listener: Listener = SILENT,
        state: Path | None = None,
    ) -> Fitted | None:
        """Returns a model that has learned the task; None if the listener asked to stop.

        `state` is a folder from which an interrupted training goes on, and in which it leaves what it needs for that.
        """

    def logits(self, view: View, seeds: Seeds, listener: Listener = SILENT) -> Logits:
        """Returns the (S, outputs) logits or standardised values of seeds, of which a view shows the past."""

    def blend(self, logits: Sequence[Logits]) -> Logits:
        """Returns the logits of the model from those of its members, or from its own alone."""

    def to(self, device: str) -> Any:
        """Moves the model to a device, as far as that means something to it."""

    def save(self, folder: Path) -> None: ...

    @classmethod
    def load(cls, folder: Path, recipe: Recipe, output: Output) -> Self: ...

    @property
    def num_parameters(self) -> int: ...

    @property
    def summary(self) -> str:
        """Returns its size in a few words: `0.58 M parameters, width 64`, `120 trees`."""
