"""Training: `fit` makes a model of a task by a recipe. A plain loop; validation is predict and evaluate.

Nothing random is remembered: the order of seeds, the noise and the dropout of a step are functions of the recipe's
`rng_seed` and the step's number. A run that was interrupted therefore goes on as if it had not been.

A batch may be cut: among processes (`distributed.py`), and in each into micro-batches that fit in memory
(`memory.py`). Either way a step is that of the whole batch, but for rounding and for which numbers dropout drops.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quartet.config import Protocol, Recipe
from quartet.contexts import Context, select, task_context
from quartet.database import Database
from quartet.errors import DataError, ResourceError
from quartet.evaluation import higher_is_better, main_metric, selection_value
from quartet.features import FeatureTable
from quartet.findings import Finding
from quartet.graph import TemporalGraph
from quartet.machine import ALONE, Processes, autocast
from quartet.machine.devices import free_bytes
from quartet.tasks import Task
from quartet.tokens import TokenBatch, Tokenizer, shuffled_places
from quartet.training.accumulate import Answer, PartAnswer, backward_in_parts
from quartet.training.answers import BATCH, answers
from quartet.training.memory import seeds_that_fit
from quartet.training.network import ModelSchema, PartModel
from quartet.training.outputs import Target, fit_output

_RISE = 0.05  # of a run: the share in which a cosine schedule rises

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
    task: Task,
    recipe: Recipe,
    cache: Path | None = None,
    report: Report = lambda _: None,
    progress: Callable[[int], None] = lambda _: None,
) -> Material:
    """Graph, features fitted at the train cut-off, contexts and labels of a task.

    `progress` is told of seeds that are sampled; those that are in the cache are not.
    """
    task = recipe_task(task, recipe)
    for finding in task.database.findings[len(task.full_database.findings) :]:
        report(finding)
    graph = TemporalGraph.build(task.database)
    features = FeatureTable.fit(task.database, task.splits.val, names=recipe.names)
    contexts = {
        split: task_context(
            task, graph, recipe.sampling, split, recipe.protocol, cache, progress, report
        ).context
        for split in ("train", "val")
    }
    labels = {split: np.asarray(task.seeds(split).target) for split in ("train", "val")}
    return Material(task, graph, features, fit_output(task), contexts, labels)


def recipe_task(task: Task, recipe: Recipe, protocol: Protocol | None = None) -> Task:
    """A task whose database has what the recipe wants to see of it, under its protocol or another."""
    return task.with_past_labels(protocol or recipe.protocol) if recipe.past_labels else task


def new_model(material: Material, recipe: Recipe) -> PartModel:
    """A model with random weights, whose first answer is the base rate."""
    from importlib import import_module

    build_model = import_module("quartet.models.registry").build_model
    torch.manual_seed(recipe.rng_seed)
    model = build_model(
        recipe.model,
        ModelSchema(
            material.features.layouts,
            recipe.sampling.num_hops,
            material.output.num_outputs,
            table_links(material.task.database),
        ),
    )
    with torch.no_grad():
        model.readout.bias.copy_(torch.tensor(material.output.start()))
    return model


def table_links(database: Database) -> tuple[tuple[int, int], ...]:
    """The places of child and parent table of every link, each pair once."""
    place = {name: number for number, name in enumerate(database.tables)}
    return tuple(dict.fromkeys((place[r.table], place[r.parent]) for r in database.relations))


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

    def __init__(
        self,
        material: Material,
        recipe: Recipe,
        processes: Processes = ALONE,
        micro_batch: int | None = None,
    ) -> None:
        self.material, self.recipe, self.processes = material, recipe, processes
        self.device = torch.device(processes.device)
        self.model = new_model(material, recipe).to(self.device)
        self.last_answer = processes.synchronised(PartAnswer(self.model))
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
        )
        self.tokenizer = Tokenizer(material.graph, material.features)
        self.progress = Progress()
        self.best_weights: dict[str, Tensor] = {}
        self.target = torch.tensor(material.labels["train"])
        self.places = _latest(material.contexts["train"].seed_time, recipe.train_fraction)
        self.watched = _some(len(material.contexts["val"]), recipe.validation_seeds)
        if micro_batch is not None:
            self.micro_batch = micro_batch

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
                if self.processes.any(must_stop()):
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
        chosen = rng.permutation(self.places)[: recipe.seeds_per_epoch]
        times = context.time_index[chosen] if recipe.group_by_time else None
        return [chosen[batch] for batch in shuffled_places(len(chosen), recipe.batch_size, rng, times)]

    @property
    def seeds_an_epoch(self) -> int:
        return min(len(self.places), self.recipe.seeds_per_epoch or len(self.places))

    @property
    def seeds_begun(self) -> int:
        """Seeds of the epoch under way that are done."""
        return min(self.progress.batch * self.recipe.batch_size, self.seeds_an_epoch)

    @cached_property
    def micro_batch(self) -> int:
        """How many seeds this process takes at a time: its share of a batch, or less where memory is short."""
        own, _ = self._own(max(self.epoch_places(0), key=len))
        free = free_bytes(self.processes.device) // self.processes.num_sharing_memory
        return seeds_that_fit(self.model, lambda count: self._tokens(own[:count]), len(own), free)

    def _step(self, places: NDArray[np.int64]) -> None:
        """One step of Adam on the mean loss of a batch."""
        own, weight = self._own(places)
        micro_batches = np.array_split(own, -(-len(own) // self.micro_batch))
        begin, progress = time.perf_counter(), self.progress  # `micro_batch` is counted before
        # Of dropout: other masks in every process.
        torch.manual_seed((self.recipe.rng_seed << 32) + (self.processes.rank << 26) + progress.step)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._backward(places, micro_batches, weight)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip_norm)
        if not torch.isfinite(norm) or not np.isfinite(loss):
            raise self._not_finite(f"the loss became {loss} at step {progress.step + 1}")
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.learning_rate * self._rate_share()
        self.optimizer.step()
        self.model.settle(lambda own_rows: self.processes.gathered(own_rows if weight else own_rows[:0]))
        progress.batch, progress.step = progress.batch + 1, progress.step + 1
        progress.loss += loss * len(places)
        took = self.processes.mean(time.perf_counter() - begin)  # so that time runs out in all at once
        progress.seconds, progress.epoch_seconds = progress.seconds + took, progress.epoch_seconds + took

    def _rate_share(self) -> float:
        """The share of the learning rate for this step, by how much of the recipe, or of its time, is done."""
        if self.recipe.schedule == "constant":
            return 1.0
        steps = -(-self.seeds_an_epoch // self.recipe.batch_size) * self.recipe.epochs
        done = (self.progress.step + 0.5) / steps
        if self.recipe.time_limit is not None:
            done = max(done, min(1.0, self.progress.seconds / self.recipe.time_limit))
        return min(done / _RISE, (1 + math.cos(math.pi * done)) / 2)

    def _backward(
        self, places: NDArray[np.int64], micro_batches: list[NDArray[np.int64]], weight: float
    ) -> float:
        """The mean loss of a batch, of which this process takes its share; its gradient is left in the model."""
        sketch = torch.from_numpy(self.material.contexts["train"].sketch[places]).to(self.device)
        self.model.observe(sketch)
        *others, last = micro_batches
        with _explained(f"{len(last):,} seeds at a time at width {self.recipe.model.width}"):
            with self.last_answer.no_sync():
                losses = [self._add_gradient(micro, weight, sketch, self.model.answer) for micro in others]
            losses.append(self._add_gradient(last, weight, sketch, self.last_answer))
        return self.processes.mean(sum(losses))

    def _add_gradient(
        self, places: NDArray[np.int64], weight: float, sketch: Tensor, last_answer: Answer
    ) -> float:
        """The weighted loss of some seeds, whose gradient is added to the model's."""
        batch = replace(self._tokens(places), whole_sketch=sketch)
        target = self.target[places].to(self.device)

        def loss(answer: Tensor, seed: Tensor) -> Tensor:
            return self.material.output.loss(answer.float(), target[seed]).sum() * weight

        with autocast(self.device.type, self.recipe.precision):
            return float(backward_in_parts(self.model, batch, loss, last_answer))

    def _own(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], float]:
        """This process's share of a batch, and what each of its seeds weighs: gradients are averaged at the end."""
        own = places[self.processes.slice_for(len(places))]
        if not len(own):  # more processes than seeds: it goes along with one that weighs nothing
            return places[:1], 0.0
        return own, self.processes.count / len(places)

    def _tokens(self, places: NDArray[np.int64]) -> TokenBatch:
        context = select(self.material.contexts["train"], places)
        return self.tokenizer(context, draw=self.progress.step + 1).to(self.device)

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
        """The main metric on validation: predict, each process some batches, then evaluate."""
        own = self.processes.slice_for(
            -(-len(self.watched) // BATCH)
        )  # whole batches: their sizes decide bits
        places = self.watched[own.start * BATCH : own.stop * BATCH]
        answer = self.answers(select(self.material.contexts["val"], places))
        joined = np.concatenate(self.processes.joined([answer]))
        if not np.isfinite(joined).all():  # the last step has spoiled the weights
            raise self._not_finite(f"answers on validation are not finite after step {self.progress.step}")
        scores = self.material.output.scores(joined)
        labels = self.material.labels["val"][self.watched]
        return selection_value(self.material.task.spec.type, labels, scores)

    def _is_better(self, one: float, other: float) -> bool:
        return one > other if higher_is_better(self.material.metric) else one < other

    def answers(self, context: Context) -> NDArray[np.float64]:
        """The answers of this process alone to all seeds of a context."""
        return answers(self.model, self.tokenizer, context, self.recipe.precision)

    def use_best(self) -> None:
        """Puts the weights of the best epoch in place; without any, the last stay."""
        if self.best_weights:
            self.model.load_state_dict(self.best_weights)

    def _out_of_time(self) -> bool:
        limit = self.recipe.time_limit
        return limit is not None and self.progress.seconds >= limit

    def _not_finite(self, what: str) -> DataError:
        """C12, with the first gradient that is not finite. No such state is ever saved."""
        bad = [
            name
            for name, p in self.model.named_parameters()
            if p.grad is not None and not torch.isfinite(p.grad).all()
        ]
        where = f"; first in the gradient of {bad[0]}" if bad else ""
        return DataError(
            "C12",
            f"{what} (epoch {self.progress.epoch + 1}){where}",
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


_NO_MEMORY = ("memory", "could not create a primitive")  # what torch says, and oneDNN inside it


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turns a lack of memory into C11, and leaves other errors as they are."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(words in str(error) for words in _NO_MEMORY):
            raise
        raise ResourceError(
            "C11", f"not enough memory for {what}", "lower batch_size, local_budget, width or local_layers"
        ) from error


def _latest(times: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """The places of the latest times, this share of all; those of one time stay together."""
    first = np.quantile(times, 1 - share, method="lower") if share < 1 else times.min(initial=0)
    return np.flatnonzero(times >= first)


def _some(count: int, wanted: int | None) -> NDArray[np.int64]:
    """So many places of `count`, always the same ones, in their order."""
    return np.sort(np.random.default_rng(0).permutation(count)[:wanted])


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
