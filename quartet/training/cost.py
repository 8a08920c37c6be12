"""What a training takes: measured on a few steps before it begins, and corrected as it goes."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np
import torch

from quartet.contexts import select
from quartet.listener import Listener
from quartet.machine import autocast
from quartet.training.model import Epoch
from quartet.training.trainer import Trainer

_GUESSED = (1e-3, 0.0)  # seconds of a seed and of a validation, until steps have shown them
_PATIENCE = 0.3  # seconds: after a trial step that took so long there is no larger one


def duration(seconds: float) -> str:
    """Returns about how long something takes: `2.5 s`, `40 s`, `12 min`, `3.5 h`."""
    if seconds < 99.5:
        return f"{seconds:.0f} s" if seconds >= 9.95 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 99.5 * 60 else f"{seconds / 3600:.1f} h"


@dataclass
class Pace:
    """A training as a listener is told of it: what it will cost, how fast it goes, and what is left.

    Figures come from trial steps before it begins, then from its own steps.
    """

    trainer: Trainer
    seed_seconds: float = math.nan  # of one seed in training
    validation_seconds: float = math.nan  # of a whole validation

    def __post_init__(self) -> None:
        self.data = self.trainer.data
        state = self.trainer.state
        self._begin_step, self._begin_epoch = state.step, len(state.epochs)
        self._begin_epoch_seconds = state.epoch_seconds

    def lines(self) -> list[tuple[str, str]]:
        """Returns what people should know before it begins; the trainer stays as it is."""
        trainer, recipe = self.trainer, self.trainer.recipe
        self.seed_seconds, self.validation_seconds = (
            _GUESSED  # a limit tells the cost, and trials would be part of it
        )
        if recipe.time_limit is None:
            self.seed_seconds, self.validation_seconds = measured_cost(trainer)
        train, state = trainer.data.context("train"), trainer.state
        alone = trainer.data.view.graph.degrees(train.seed_node, train.seed_time) == 0
        done = f"; {state.epoch} of them done before" if state.step else ""
        with autocast(trainer.device.type, recipe.precision):
            precision = "bf16" if torch.is_autocast_enabled(trainer.device.type) else "fp32"
        threads = torch.get_num_threads()
        an_epoch = self.seed_seconds * trainer.seeds_an_epoch + self.validation_seconds
        cost = f"about {duration(an_epoch)} an epoch, {duration(self.seconds_left())} in all"
        if recipe.time_limit is not None:
            cost = f"at most {duration(recipe.time_limit)}"
        return [
            ("no history", f"{int(alone.sum()):,} training seeds ({alone.mean():.1%})"),
            ("context", f"{np.diff(train.local_start).mean():.0f} distinct rows a seed"),
            ("model", f"{recipe.model.architecture}, {trainer.network.summary}"),
            ("epochs", f"{recipe.epochs} of {trainer.seeds_an_epoch:,} seeds, in batches of {recipe.batch_size}{done}"),
            ("device", f"{trainer.device.type}, {threads} thread{'' if threads == 1 else 's'}, {precision}"),
            ("cost", cost),
        ]  # fmt: skip

    def epoch_line(self, epoch: Epoch) -> str:
        self.validation_seconds = epoch.validation_seconds
        return (
            f"epoch {epoch.number + 1:>3}/{self.trainer.recipe.epochs}  loss {epoch.loss:.4f}  "
            f"validation {self.data.metric} {epoch.validation:.4f}{' *' if epoch.is_best else '  '}  "
            f"{epoch.seconds:.1f} s + {epoch.validation_seconds:.1f} s"
        )

    def bar(self) -> tuple[str, int, int, str]:
        trainer, state = self.trainer, self.trainer.state
        if steps := state.step - self._begin_step:
            seeds = min(steps * trainer.recipe.batch_size, trainer.seeds_an_epoch * (state.epoch + 1))
            done = state.epochs[self._begin_epoch :]
            trained = sum(epoch.seconds for epoch in done) + state.epoch_seconds
            self.seed_seconds = max(trained - self._begin_epoch_seconds, 1e-9) / seeds
        left, epochs = self.seconds_left(), trainer.recipe.epochs
        is_validating = trainer.seeds_begun >= trainer.seeds_an_epoch
        doing = "validating" if is_validating else f"{1 / self.seed_seconds:,.0f} seeds/s"
        note = f"{doing}, {duration(left)} left" if left else "keeping the best"
        return (
            f"epoch {min(state.epoch + 1, epochs):>3}/{epochs}",
            trainer.seeds_begun,
            trainer.seeds_an_epoch,
            note,
        )

    def seconds_left(self) -> float:
        """Returns the seconds until the run is done, or its time limit ends it."""
        trainer, recipe, state = self.trainer, self.trainer.recipe, self.trainer.state
        in_epoch, begun = trainer.seeds_an_epoch, trainer.seeds_begun
        training = self.seed_seconds * (in_epoch * (recipe.epochs - state.epoch) - begun)
        if recipe.time_limit is not None:
            training = min(training, max(0.0, recipe.time_limit - state.seconds))
        epochs = math.ceil((training / self.seed_seconds + begun) / in_epoch - 1e-9)
        return training + self.validation_seconds * epochs


def measured_cost(trainer: Trainer) -> tuple[float, float]:
    """Returns the seconds of a seed in training and of a whole validation, from trial steps on networks of their own.

    The steps grow to the recipe's batch while they are quick: seeds of a large batch share rows, and are cheaper.
    Where that would take too long, the last two sizes tell what another seed adds.
    """
    in_epoch = trainer.seeds_an_epoch
    batch = min(trainer.recipe.batch_size, in_epoch)
    most = max(1, min(batch, in_epoch // 3))
    measured = [(0, 0.0)]  # seeds of a step, and its seconds
    for size in [*(4**power for power in range(1, 20) if 4**power < most), most]:
        trial, seconds = _trial_step(trainer, size)
        measured.append((size, seconds))
        if len(measured) > 2 and seconds > _PATIENCE:
            break
    (small, less), (large, more) = measured[-2:]
    seconds = more + max(0.0, more - less) / (large - small) * (batch - large)
    places = trial.validated[:: max(1, len(trial.validated) // size)]
    begin = time.perf_counter()
    trial.logits(select(trial.data.context("val"), places))
    validation = (time.perf_counter() - begin) / max(1, len(places)) * len(trial.validated)
    return seconds / batch / trainer.processes.count, validation / trainer.processes.count


class _Trial(Listener):
    """Ends a trial after its second step, or after a slow one."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer, self.ends = trainer, [0.0]

    def step(self, num_seeds: int) -> None:  # noqa: ARG002
        self.ends.append(self.trainer.state.seconds)

    def should_stop(self) -> bool:
        return self.ends[-1] > _PATIENCE or len(self.ends) > 2  # before the third, and before validation


def _trial_step(trainer: Trainer, size: int) -> tuple[Trainer, float]:
    """Returns another trainer, and the seconds that a step of so many seeds took it; the second, if both were quick."""
    small = trainer.recipe.changed(batch_size=size, seeds_per_epoch=3 * size, epochs=1, time_limit=None)
    alone = replace(trainer.processes, rank=0, count=1)
    parts = -(-min(trainer.recipe.batch_size, trainer.seeds_an_epoch) // trainer.micro_batch)
    trial = Trainer(
        trainer.data, alone, micro_batch=-(-size // parts), recipe=small
    )  # as many threads have work
    listener = _Trial(trial)
    trial.run(listener)
    return trial, listener.ends[-1] - listener.ends[-2]
