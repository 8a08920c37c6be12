"""Training: `fit` makes a model of a task by a recipe. A plain loop; validation is predict and evaluate.

Nothing random is remembered: the order of seeds, the noise and the dropout of a step are functions of the recipe's
`rng_seed` and the step's number. A run that was interrupted therefore goes on as if it had not been.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quartet.contexts import task_context
from quartet.errors import DataError, ResourceError
from quartet.features import FeatureTable
from quartet.findings import Finding
from quartet.graph import TemporalGraph
from quartet.metrics import higher_is_better, main_metric, selection_score
from quartet.nn.accumulate import backward_in_parts
from quartet.nn.model import ModelSchema, Quartet
from quartet.nn.precision import autocast
from quartet.nn.targets import Target, fit_target
from quartet.predict import answers
from quartet.recipe import Recipe
from quartet.samplers.context import Context
from quartet.samplers.select import select
from quartet.tasks import Task
from quartet.tokens import TokenBatch, Tokenizer, shuffled_places

Report = Callable[[Finding], None]


@dataclass(frozen=True, eq=False)
class Material:
    """What a run trains on and is validated with. Test labels are not among it."""

    task: Task
    graph: TemporalGraph
    features: FeatureTable
    target: Target
    contexts: dict[str, Context]  # of train and val
    labels: dict[str, NDArray[Any]]

    @property
    def metric(self) -> str:
        return main_metric(self.task.spec.type)


def prepare(
    task: Task, recipe: Recipe, cache: Path | None = None, report: Report = lambda _: None
) -> Material:
    """Graph, features fitted at the train cut-off, contexts and labels of a task."""
    graph = TemporalGraph.build(task.database)
    features = FeatureTable.fit(task.database, task.splits.val)
    contexts = {
        split: task_context(task, graph, recipe.sampler, split, recipe.protocol, cache, report=report).context
        for split in ("train", "val")
    }
    labels = {split: np.asarray(task.seeds(split).target) for split in ("train", "val")}
    return Material(task, graph, features, fit_target(task), contexts, labels)


def new_model(material: Material, recipe: Recipe) -> Quartet:
    """A model with random weights, whose first answer is the base rate."""
    torch.manual_seed(recipe.rng_seed)
    schema = ModelSchema(material.features.layouts, recipe.sampler.num_hops, material.target.num_outputs)
    model = Quartet(recipe.model, schema)
    with torch.no_grad():
        model.readout.bias.copy_(torch.tensor(material.target.start()))
    return model


@dataclass(frozen=True)
class Epoch:
    """One line of a run's history."""

    number: int
    loss: float
    validation: float  # the task's main metric
    seconds: float  # of training
    validation_seconds: float
    is_best: bool


@dataclass
class Progress:
    """How far a run has come: all of it, with the tensors, is what a resumed run needs."""

    epoch: int = 0  # finished ones
    batch: int = 0  # finished ones of the epoch under way
    step: int = 0  # finished steps in all
    loss: float = 0.0  # summed over the seeds of the epoch under way
    seconds: float = 0.0  # of training, in all
    epoch_seconds: float = 0.0
    history: list[Epoch] = field(default_factory=list)
    best_epoch: int = -1
    best: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(said: dict[str, Any]) -> Progress:
        return Progress(**(said | {"history": [Epoch(**line) for line in said["history"]]}))


class Trainer:
    """A model under training. `run` goes on until the recipe is done, or something asks it to stop."""

    def __init__(self, material: Material, recipe: Recipe, device: str = "cpu") -> None:
        self.material, self.recipe, self.device = material, recipe, device
        self.model = new_model(material, recipe).to(device)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
        )
        self.tokenizer = Tokenizer(material.graph, material.features)
        self.progress = Progress()
        self.best_weights: dict[str, Tensor] = {}
        self.target = torch.tensor(material.labels["train"])

    # --- the loop -----------------------------------------------------------------------------------

    def run(
        self,
        on_epoch: Callable[[Epoch], None] = lambda _: None,
        on_step: Callable[[int], None] = lambda _: None,
        must_stop: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Trains; says whether the recipe was done to its end. It stops only between two steps."""
        progress = self.progress
        while progress.epoch < self.recipe.epochs and not self._out_of_time():
            places = self.epoch_places(progress.epoch)
            while progress.batch < len(places):
                if must_stop():
                    return False
                self._step(places[progress.batch])
                on_step(len(places[progress.batch - 1]))
                if self._out_of_time():
                    break
            on_epoch(self._end_epoch(sum(map(len, places[: progress.batch]))))
        return True

    def epoch_places(self, epoch: int) -> list[NDArray[np.int64]]:
        """The seeds of an epoch in batches: a function of the recipe and the epoch's number."""
        recipe, context = self.recipe, self.material.contexts["train"]
        rng = np.random.default_rng([recipe.rng_seed, epoch])
        chosen = rng.permutation(len(context))[: recipe.seeds_per_epoch]
        times = context.time_index[chosen] if recipe.group_by_time else None
        return [chosen[batch] for batch in shuffled_places(len(chosen), recipe.batch_size, rng, times)]

    def _step(self, places: NDArray[np.int64]) -> None:
        """One step of Adam on the mean loss of a batch."""
        begin, progress = time.perf_counter(), self.progress
        torch.manual_seed((self.recipe.rng_seed << 32) + progress.step)  # of dropout
        self.model.train()
        context = select(self.material.contexts["train"], places)
        batch = self.tokenizer(context, draw=progress.step + 1).to(self.device)
        loss = self._backward(batch, self.target[places].to(self.device))
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip_norm)
        if not torch.isfinite(norm) or not np.isfinite(loss):
            raise self._not_finite(loss)
        self.optimizer.step()
        progress.batch, progress.step = progress.batch + 1, progress.step + 1
        progress.loss += loss * len(places)
        took = time.perf_counter() - begin
        progress.seconds, progress.epoch_seconds = progress.seconds + took, progress.epoch_seconds + took

    def _backward(self, batch: TokenBatch, target: Tensor) -> float:
        self.optimizer.zero_grad(set_to_none=True)

        def loss(answer: Tensor, seed: Tensor) -> Tensor:
            return self.material.target.loss(answer.float(), target[seed]).sum() / len(target)

        try:
            with autocast(self.device, self.recipe.precision):
                return float(backward_in_parts(self.model, batch, loss))
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "memory" not in str(error):
                raise
            raise ResourceError(
                "C11",
                f"not enough memory for a step of {len(batch):,} seeds at width {self.recipe.model.width}",
                "lower batch_size, local_budget, width or local_layers",
            ) from error

    def _end_epoch(self, num_seeds: int) -> Epoch:
        progress = self.progress
        begin = time.perf_counter()
        value = self.validate()
        is_best = progress.best is None or self._is_better(value, progress.best)  # of equal ones the first
        if is_best:
            progress.best, progress.best_epoch = value, progress.epoch
            self.best_weights = {name: t.detach().clone() for name, t in self.model.state_dict().items()}
        done = Epoch(
            progress.epoch,
            progress.loss / max(1, num_seeds),
            value,
            progress.epoch_seconds,
            time.perf_counter() - begin,
            is_best,
        )
        progress.history.append(done)
        progress.epoch, progress.batch, progress.loss, progress.epoch_seconds = (
            progress.epoch + 1,
            0,
            0.0,
            0.0,
        )
        return done

    def validate(self) -> float:
        """The main metric on validation: predict, then evaluate."""
        scores = self.material.target.scores(self.answers("val"))
        value = selection_score(self.material.task.spec.type, self.material.labels["val"], scores)
        return value if higher_is_better(self.material.metric) else -value

    def _is_better(self, one: float, other: float) -> bool:
        return one > other if higher_is_better(self.material.metric) else one < other

    def answers(self, split: str) -> NDArray[np.float64]:
        return answers(self.model, self.tokenizer, self.material.contexts[split], self.recipe.precision)

    def use_best(self) -> None:
        """Puts the weights of the best epoch in place; without any, the last stay."""
        if self.best_weights:
            self.model.load_state_dict(self.best_weights)

    def _out_of_time(self) -> bool:
        limit = self.recipe.time_limit
        return limit is not None and self.progress.seconds >= limit

    def _not_finite(self, loss: float) -> DataError:
        """C12, with the first tensor that is not finite. The weights are still those before the step."""
        bad = [
            name
            for name, p in self.model.named_parameters()
            if p.grad is not None and not torch.isfinite(p.grad).all()
        ]
        where = f"; first in the gradient of {bad[0]}" if bad else ""
        return DataError(
            "C12",
            f"the loss became {loss} at step {self.progress.step + 1} (epoch {self.progress.epoch + 1}){where}",
            "lower learning_rate; the last saved state is good",
        )

    # --- what a resumed run needs --------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Plain values and tensors from which `restore` goes on."""
        tensors = {f"model.{name}": t for name, t in self.model.state_dict().items()}
        tensors |= {f"best.{name}": t for name, t in self.best_weights.items()}
        names = [name for name, _ in self.model.named_parameters()]
        for number, kept in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{part}.{names[number]}": t for part, t in kept.items()}
        return self.progress.to_dict(), {name: t.detach().cpu().contiguous() for name, t in tensors.items()}

    def restore(self, said: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.progress = Progress.from_dict(said)
        self.model.load_state_dict(_below(tensors, "model."))
        self.best_weights = _below(tensors, "best.")
        kept: dict[int, dict[str, Tensor]] = {}
        for number, (name, _) in enumerate(self.model.named_parameters()):
            parts = {
                part: tensors[f"adam.{part}.{name}"]
                for part in ("step", "exp_avg", "exp_avg_sq")
                if f"adam.{part}.{name}" in tensors
            }
            if parts:
                kept[number] = parts
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": kept, "param_groups": groups})


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
