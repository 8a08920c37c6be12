"""Parts of `auto` on trial: networks that train for as long as they are given, and what any part costs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quartet.config import Recipe
from quartet.contexts import Context, sample, select
from quartet.listener import Listener
from quartet.machine import ALONE
from quartet.models.portfolio import Fitting
from quartet.tasks import Seeds, Split
from quartet.training import Network, Trainer, TrainingData, View, step_tensor_bytes, weight_bytes

_ASKED_ALONE = 5  # seeds by which it is measured how long one takes
_SCORED = 256  # seeds by which it is measured how long one takes among many


@dataclass
class Part:
    """A part on trial: its validation logits of the judged seeds, and what it costs."""

    logits: NDArray[np.float64]
    train_ms: float  # a seed
    score_ms: float  # a seed among many
    latency_ms: float  # a seed by itself
    num_bytes: int  # of a training step
    seconds: float  # that it took


class NetworkTrial:
    """A network under trial: it trains on some seeds, at a steady rate, for as long as it is given."""

    def __init__(
        self,
        data: TrainingData,
        recipe: Recipe,
        columns: tuple[str, ...],
        start: Any,
        taught: NDArray[np.int64],
        judged: NDArray[np.int64],
    ) -> None:
        begin = time.perf_counter()
        recipe = recipe.changed(
            schedule="constant", epochs=100_000, seeds_per_epoch=None, train_fraction=1.0, validation_seeds=None,
            refit="never",
        )  # fmt: skip
        self.data = TrialData(
            data.task, recipe, data.output, data.features, chosen_columns=columns, start=start, whole=data,
            places={"train": taught, "val": judged},
        )  # fmt: skip
        self.trainer = Trainer(self.data, ALONE, recipe=recipe)
        batch = self.data.view.tokenizer(_first(self.data.context("train"), recipe.batch_size))
        network = self.trainer.network
        self.num_bytes = 4 * weight_bytes(network) + step_tensor_bytes(network, batch)
        self.seconds, self.step_seconds = time.perf_counter() - begin, 0.0

    def train(self, seconds: float, listener: Listener) -> None:
        """Trains for some seconds, a step at least, and then validates."""
        begin, trainer, done = time.perf_counter(), self.trainer, self.trainer.state.step
        trainer.recipe = trainer.recipe.changed(time_limit=trainer.state.seconds + seconds)
        epochs = len(trainer.state.epochs)
        trainer.run(listener)
        spent = sum(epoch.seconds for epoch in trainer.state.epochs[epochs:])
        self.step_seconds = spent / max(1, trainer.state.step - done)
        self.seconds += time.perf_counter() - begin

    def part(self) -> Part:
        """Returns how it stands: with the weights of its best epoch so far, which it does not go on from."""
        trainer, view = self.trainer, self.data.plain_view
        state = trainer.state
        last = {name: t.detach().clone() for name, t in trainer.network.state_dict().items()}
        trainer.use_best()
        begin = time.perf_counter()
        logits = trainer.logits(self.data.context("val"))
        score = (time.perf_counter() - begin + self.data.sampled["val"]) / max(1, len(logits))
        alone = _alone(trainer.network, view, self.data.seeds["val"])
        trainer.network.load_state_dict(last)
        seeds = max(1, state.step * trainer.recipe.batch_size)
        spent = sum(epoch.seconds for epoch in state.epochs)
        return Part(logits, 1e3 * spent / seeds, 1e3 * score, 1e3 * alone, self.num_bytes, self.seconds)


@dataclass(eq=False)
class TrialData(TrainingData):
    """Some seeds of a task's data, whose contexts are sampled now and kept in memory."""

    whole: Any = None
    places: Mapping[Split, NDArray[np.int64]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sampled: dict[Split, float] = {}  # seconds that it took
        self.view.__dict__["columns"] = self.whole.view.columns
        self.view.__dict__["tokenizer"] = self.whole.view.tokenizer

    @cached_property
    def seeds(self) -> dict[Split, Seeds]:
        every = self.whole.seeds
        return {
            split: Seeds(every[split].node[at], every[split].time[at], None)
            for split, at in self.places.items()
        }

    def labels(self, split: Split) -> Any:
        return self.whole.labels(split)[self.places[split]]

    def columns(self, split: Split) -> NDArray[np.float32]:
        """Returns the columns of all seeds, by which a network knows how many codes there are, as its start does."""
        return np.asarray(self.whole.view.matrix(self.whole.seeds[split], self.column_names))

    @cached_property
    def highest_codes(self) -> dict[str, float]:
        return dict(self.whole.highest_codes)

    def context(self, split: Split) -> Context:
        if split not in self._contexts:
            begin = time.perf_counter()
            seeds, threads = self.seeds[split], torch.get_num_threads()
            context = sample(self.view.graph, seeds, self.recipe.sampling, threads)
            self.sampled[split] = time.perf_counter() - begin
            own = np.ascontiguousarray(self.columns(split)[self.places[split]])
            self._contexts[split] = replace(context, columns=own)
        return self._contexts[split]

    @cached_property
    def plain_view(self) -> View:
        """Returns a view that samples each seed anew, as a prediction does."""
        view = View(self.task.database, self.features, self.task.spec, self.recipe)
        view.__dict__ |= {"columns": self.whole.view.columns, "tokenizer": self.whole.view.tokenizer}
        return view


def _first(context: Context, count: int) -> Context:
    return select(context, np.arange(min(count, len(context))))


def part_of(fitting: Fitting, kind: str, judged: NDArray[np.int64]) -> Part:
    """Returns the members of a portfolio that are trees, or the others, as one part: their mean, and what they cost."""
    own = [
        (member, logits[judged])
        for member, logits in zip(fitting.members, fitting.logits, strict=True)
        if (member.architecture == "lightgbm") == (kind == "trees")
    ]
    data, models = fitting.data, [member.model for member, _ in own]
    asked = data.seeds["val"]
    some = judged[spread(len(judged), _SCORED)]
    seeds = Seeds(asked.node[some], asked.time[some], None)
    view = View(data.task.database, data.features, data.task.spec, data.recipe)
    view.__dict__["columns"] = data.view.columns
    begin = time.perf_counter()
    for model in models:
        model.logits(view, seeds)
    score = (time.perf_counter() - begin) / max(1, len(seeds))
    alone, taught = sum(_alone(model, view, seeds) for model in models), max(1, len(data.seeds["train"]))
    train = max(member.seconds for member, _ in own) / taught
    weights = [4 * weight_bytes(model) for model in models if isinstance(model, Network)]
    num_bytes = max(weights, default=8 * taught * len(data.readable_columns))
    seconds = sum(member.seconds for member, _ in own)
    logits = np.mean([logits for _, logits in own], axis=0)
    return Part(logits, 1e3 * train, 1e3 * score, 1e3 * alone, num_bytes, seconds)


def _alone(model: Any, view: View, seeds: Seeds) -> float:
    """Returns the seconds in which a model answers one seed by itself: the middle of some of one time.

    What all seeds of a time share is there by then.
    """
    last = np.flatnonzero(seeds.time == seeds.time.max()) if len(seeds) else np.empty(0, np.int64)
    took = []
    for place in [*last[:1], *last[spread(len(last), _ASKED_ALONE)]]:
        one = Seeds(seeds.node[[place]], seeds.time[[place]], None)
        begin = time.perf_counter()
        model.logits(view, one)
        took.append(time.perf_counter() - begin)
    return float(np.median(took[1:])) if took else 0.0


def spread(count: int, most: int) -> NDArray[np.int64]:
    """Returns the places of at most so many among all, spread evenly."""
    return (
        np.unique(np.linspace(0, max(0, count - 1), min(most, count)).astype(np.int64))
        if count
        else np.empty(0, np.int64)
    )
