"""What a training run takes: measured on a few steps before it begins, and corrected as it goes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from quartet.contexts import select
from quartet.training.trainer import Trainer

_PATIENCE = 0.3  # seconds: after a trial step that took so long there is no larger one


@dataclass(frozen=True)
class Cost:
    """Seconds that one seed takes in training, and seconds of a whole validation."""

    seed: float
    validation: float

    def left(self, trainer: Trainer) -> float:
        """Seconds until a run that has come so far is done, or its time limit ends it."""
        recipe, progress = trainer.recipe, trainer.progress
        in_epoch, begun = trainer.seeds_an_epoch, trainer.seeds_begun
        training = self.seed * (in_epoch * (recipe.epochs - progress.epoch) - begun)
        if recipe.time_limit is not None:
            training = min(training, max(0.0, recipe.time_limit - progress.seconds))
        epochs = math.ceil((training / self.seed + begun) / in_epoch - 1e-9)
        return training + self.validation * epochs


def measured_cost(trainer: Trainer) -> Cost:
    """The cost of a run, from steps of real seeds on models of their own: the trainer's stays as it is.

    The steps grow to the recipe's batch while they are quick: seeds of a large batch share rows, and are cheaper.
    Where that would take too long, the last two sizes tell what another seed adds.
    """
    in_epoch = trainer.seeds_an_epoch
    batch = min(trainer.recipe.batch_size, in_epoch)
    found: list[tuple[int, float]] = []  # seeds of a step, and its seconds
    for size in _sizes(max(1, min(batch, in_epoch // 3))):
        trial, seconds = _trial_step(trainer, size)
        found.append((size, seconds))
        if len(found) > 1 and seconds > _PATIENCE:
            break
    seconds = _extrapolated(found, batch) / trainer.processes.count
    return Cost(seconds / batch, _validation_seconds(trial, size) / trainer.processes.count)


def _sizes(most: int) -> list[int]:
    """4, 16, 64 … and at last `most`."""
    return [*(4**power for power in range(1, 20) if 4**power < most), most]


def _extrapolated(found: Sequence[tuple[int, float]], size: int) -> float:
    """Seconds of a step of some size, on the line through the last two that were measured."""
    (small, less), (large, more) = found[-2:] if len(found) > 1 else ((0, 0.0), *found)
    return more + max(0.0, more - less) / (large - small) * (size - large)


def _trial_step(trainer: Trainer, size: int) -> tuple[Trainer, float]:
    """Another trainer, and the seconds that a step of so many seeds took it; a second one, if the first was quick."""
    small = trainer.recipe.changed(batch_size=size, seeds_per_epoch=3 * size, epochs=1, time_limit=None)
    trial = Trainer(trainer.material, small, replace(trainer.processes, rank=0, count=1), micro_batch=size)
    ends = [0.0]
    trial.run(
        on_step=lambda _: ends.append(trial.progress.seconds),
        must_stop=lambda: (
            ends[-1] > _PATIENCE or len(ends) > 2
        ),  # at the latest before the third, and validation
    )
    return trial, ends[-1] - ends[-2]


def _validation_seconds(trial: Trainer, size: int) -> float:
    """What a whole validation would take, from so many of its seeds."""
    watched = trial.watched
    places = watched[:: max(1, len(watched) // size)]
    begin = time.perf_counter()
    trial.answers(select(trial.material.contexts["val"], places))
    return (time.perf_counter() - begin) / max(1, len(places)) * len(watched)
