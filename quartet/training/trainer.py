"""Trainer: one network under training. A plain loop; validation is the same function as prediction.

Nothing random is remembered: the order of seeds, the noise and the dropout of a step are functions of the recipe's
`rng_seed` and the step's number. A run that was interrupted therefore goes on as if it had not been.

A batch is cut: among processes (`machine/processes.py`), and in each into parts of seeds with near times, which share
most of what they read. A thread takes whole parts, and gradients are added in the order of the parts: no bit depends on
how many threads there are. However it is cut (parts are smaller where memory is short, `memory.py`), a step is that of
the whole batch, but for rounding and for which numbers dropout drops.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from quartet.config import Recipe
from quartet.contexts import Context, select
from quartet.errors import DataError, ResourceError
from quartet.evaluation import higher_is_better, selection_rows, selection_value
from quartet.listener import SILENT, Listener
from quartet.machine import (
    ALONE,
    Processes,
    autocast,
    check_checksums,
    free_bytes,
    intact,
    keep_freed,
    mapped,
    new_folder,
    one_thread_each,
    write_checksums,
)
from quartet.registry import model_row
from quartet.tasks import SPLITS, Split
from quartet.tokens import TokenBatch, Tokenizer, shuffled_places
from quartet.training.accumulate import gradient_by_group
from quartet.training.adam import Adam, flat
from quartet.training.data import BATCH, TrainingData
from quartet.training.logits import context_logits
from quartet.training.masks import counted_masks
from quartet.training.memory import parts_that_fit, seeds_that_fit
from quartet.training.model import Epoch
from quartet.training.network import Network

_RISE = 0.05  # the fraction of a run in which a cosine schedule rises
_REFIT, _REFIT_RATE, _FEWEST_REFIT_STEPS = 0.25, 0.5, 10  # of the steps and of the learning rate of training
_REFIT_DRAW = 2**20  # of the order of seeds, beside the numbers of epochs
# Seeds of a part on a CPU, of a wide network and of one up to this width: of fewer each costs more, because a part of a
# narrow network takes tens of milliseconds for small operations; of more there are too few parts for threads.
_PART, _NARROW_PART, _NARROW = 64, 128, 128
_GROUP_NUMBERS = 2400 * 512  # on a CPU, the most numbers of a group's tokens: what stays in its cache
_ANEW = "start a new run"
_NO_MEMORY = ("memory", "could not create a primitive")  # what torch says, and oneDNN inside it


@dataclass
class TrainingState:
    """How far a run has come: with the tensors, all that a resumed run needs."""

    epoch: int = 0  # finished ones
    batch: int = 0  # finished ones of the epoch under way
    step: int = 0  # finished steps in all
    loss: float = 0.0  # summed over the seeds of the epoch under way
    seconds: float = 0.0  # of training and validation, in all
    epoch_seconds: float = 0.0
    epochs: list[Epoch] = field(default_factory=list)
    best: Epoch | None = None
    micro_batch: int | None = (
        None  # seeds at a time, as they fitted in memory when the run began: they decide bits
    )

    @staticmethod
    def from_dict(values: dict[str, Any]) -> TrainingState:
        epochs = [Epoch(**line) for line in values["epochs"]]
        best = Epoch(**values["best"]) if values["best"] else None
        return TrainingState(**(values | {"epochs": epochs, "best": best}))


class Trainer:
    """A network under training. `run` goes on until the recipe is done, or the listener asks it to stop."""

    def __init__(
        self,
        data: TrainingData,
        processes: Processes = ALONE,
        micro_batch: int | None = None,
        recipe: Recipe | None = None,
    ) -> None:
        self.data, self.processes = data, processes
        self.recipe = recipe = recipe or data.recipe
        self.device = torch.device(processes.device)
        keep_freed()
        self.network: Network = (
            model_row(recipe.model.architecture).model_class.new(data, recipe).to(self.device)
        )
        self.parameters = list(self.network.parameters())
        self.optimizer = Adam(self.parameters, recipe.weight_decay)
        self.state = TrainingState(micro_batch=micro_batch)
        self.best_weights: dict[str, Tensor] = {}
        self.split: Split = "train"  # of the batch under way
        self.target = {split: torch.tensor(data.labels(split)) for split in SPLITS[:2]}
        self.refit_done: float | None = None  # how much of refitting is done, once that has begun
        self.places = _latest(data.context("train").seed_time, recipe.train_fraction)
        self.validated = selection_rows(len(data.context("val")), recipe.validation_seeds)

    # --- the loop -----------------------------------------------------------------------------------

    def run(self, listener: Listener = SILENT, state_folder: Path | None = None) -> bool:
        """Trains; tells whether the recipe was done to its end. It stops only between two steps."""
        state = self.state
        while state.epoch < self.recipe.epochs and not self._out_of_time():
            batches = self.epoch_places(state.epoch)
            while state.batch < len(batches):
                if self.processes.any(listener.should_stop()):
                    self.save(state_folder)
                    return False
                self._step(batches[state.batch])
                listener.step(len(batches[state.batch - 1]))
                if self._out_of_time():
                    break
            epoch = self._end_epoch(sum(map(len, batches[: state.batch])))
            self.save(state_folder)
            listener.epoch(epoch)
        return True

    def refit(self, listener: Listener = SILENT) -> bool:
        """Goes on from the best weights with train and validation together; tells whether it came to its end.

        It takes a part of the steps that training took, at a part of its learning rate: the seeds of validation are the
        latest, and what they say of now is worth most. A batch is of either split. No epoch is chosen afterwards.
        """
        state, size = self.state, self.recipe.batch_size
        first, num_steps = state.step, max(_FEWEST_REFIT_STEPS, round(_REFIT * state.step))
        self.optimizer = Adam(self.parameters, self.recipe.weight_decay)
        batches: list[tuple[Split, NDArray[np.int64]]] = []
        while state.step < first + num_steps:
            if self.processes.any(listener.should_stop()):
                return False
            if not batches:
                rng = np.random.default_rng([self.recipe.rng_seed, _REFIT_DRAW, state.step])
                pools: dict[Split, NDArray[np.int64]] = {
                    "train": self.places, "val": np.arange(len(self.data.context("val"))),
                }  # fmt: skip
                for split, pool in pools.items():
                    batches += [(split, pool[b]) for b in shuffled_places(len(pool), size, rng, None)]
                batches = [batches[place] for place in rng.permutation(len(batches))]
            self.split, places = batches.pop()
            self.refit_done = (state.step - first + 0.5) / num_steps
            self._step(places)
        self.network.is_refit = True
        return True

    def epoch_places(self, epoch: int) -> list[NDArray[np.int64]]:
        """Returns the seeds of an epoch in batches: a function of the recipe and the epoch's number."""
        recipe, context = self.recipe, self.data.context("train")
        rng = np.random.default_rng([recipe.rng_seed, epoch])
        chosen = rng.permutation(self.places)[: recipe.seeds_per_epoch]
        times = context.time_index[chosen] if recipe.group_by_time else None
        return [chosen[batch] for batch in shuffled_places(len(chosen), recipe.batch_size, rng, times)]

    @property
    def seeds_an_epoch(self) -> int:
        return min(len(self.places), self.recipe.seeds_per_epoch or len(self.places))

    @property
    def seeds_begun(self) -> int:
        """Returns how many seeds of the epoch under way are done."""
        return min(self.state.batch * self.recipe.batch_size, self.seeds_an_epoch)

    @property
    def micro_batch(self) -> int:
        """Returns how many seeds a part has: as many as suit the device, or less where memory is short."""
        if self.state.micro_batch is None:
            batch = max(self.epoch_places(0), key=len)
            own, most = self._own(batch)[0], -(-len(batch) // self.processes.count)  # most: of any process
            part = _NARROW_PART if self.recipe.model.width <= _NARROW else _PART
            most = min(most, part) if self.device.type == "cpu" else most
            fits = seeds_that_fit(
                self.network, lambda count: self._tokens(own[:count]), most, self._free_bytes()
            )
            self.state.micro_batch = min(self.processes.joined([fits]))
        return self.state.micro_batch

    @cached_property
    def _parts_at_once(self) -> int:
        """Returns how many parts may be under way together: on a CPU as many as fit in memory."""
        if self.device.type != "cpu":
            return 1
        tokens = self._tokens(self._own(max(self.epoch_places(0), key=len))[0][: self.micro_batch])
        return parts_that_fit(self.network, tokens, self._free_bytes())

    def _free_bytes(self) -> int:
        return free_bytes(self.processes.device) // self.processes.num_sharing_memory

    def _step(self, places: NDArray[np.int64]) -> None:
        """Takes one step of Adam on the mean loss of a batch."""
        own, weight = self._own(places)
        parts = np.array_split(own, -(-len(own) // self.micro_batch))
        begin, state, recipe = time.perf_counter(), self.state, self.recipe  # `micro_batch` is counted before
        if self.device.type != "cpu":  # of dropout: other masks in every process
            torch.manual_seed((recipe.rng_seed << 32) + (self.processes.rank << 26) + state.step)
        self.network.train()
        with one_thread_each() as threads:  # also of what is not cut: sums of several threads have other bits
            with _memory_explained(f"{len(parts[0]):,} seeds at a time at width {recipe.model.width}"):
                loss, gradient = self._gradient(places, parts, weight, threads)
            norm = float(gradient.norm())
            if not math.isfinite(norm) or not math.isfinite(loss):
                raise self._not_finite(f"the loss became {loss} at step {state.step + 1}", gradient)
            gradient.mul_(min(1.0, recipe.clip_norm / (norm + 1e-6)))
            self.optimizer.step(gradient, recipe.learning_rate * self._rate())
            self.network.after_step(lambda rows: self.processes.gathered(rows if weight else rows[:0]))
        state.batch, state.step = state.batch + 1, state.step + 1
        state.loss += loss * len(places)
        took = self.processes.mean(time.perf_counter() - begin)  # so that time runs out in all at once
        state.seconds, state.epoch_seconds = state.seconds + took, state.epoch_seconds + took

    def _rate(self) -> float:
        """Returns the learning rate of this step as a fraction of the highest, by how much of the run is done."""
        if self.refit_done is not None:
            return _REFIT_RATE * _cosine(self.refit_done)
        if self.recipe.schedule == "constant":
            return 1.0
        steps = -(-self.seeds_an_epoch // self.recipe.batch_size) * self.recipe.epochs
        done = (self.state.step + 0.5) / steps
        if self.recipe.time_limit is not None:
            done = max(done, min(1.0, self.state.seconds / self.recipe.time_limit))
        return _cosine(done)

    def _gradient(
        self, places: NDArray[np.int64], parts: list[NDArray[np.int64]], weight: float, threads: int
    ) -> tuple[float, Tensor]:
        """Returns the mean loss of a batch, of which this process takes some parts, and its gradient."""
        sketch = torch.from_numpy(self.data.context(self.split).sketch[places]).to(self.device)
        self.network.update_batch_stats(sketch)
        key = (self.recipe.rng_seed, self.processes.rank, self.state.step)

        def of_part(number: int) -> tuple[float, Tensor]:
            with counted_masks(*key, number), autocast(self.device.type, self.recipe.precision):
                return self._part_gradient(parts[number], weight, sketch)

        at_once = min(threads, len(parts))
        at_once = min(at_once, self._parts_at_once) if at_once > 1 else 1
        found = mapped(of_part, range(len(parts)), at_once)
        loss, gradient = next(found)
        for value, own in found:
            loss += value
            gradient.add_(own)
        return self.processes.mean(loss), self.processes.averaged(gradient)

    def _part_gradient(
        self, places: NDArray[np.int64], weight: float, sketch: Tensor
    ) -> tuple[float, Tensor]:
        """Returns the weighted loss of some seeds, and its gradient."""
        batch = replace(self._tokens(places), whole_sketch=sketch)
        target = self.target[self.split][places].to(self.device)

        def loss(logits: Tensor, seed: Tensor) -> Tensor:
            heads = logits.shape[1:-1].numel()  # each of a tower's has an answer of its own
            wanted = target[seed].repeat_interleave(heads, dim=0)
            return self.data.output.loss(logits.float().reshape(len(wanted), -1), wanted).sum() * (
                weight / heads
            )

        value, gradients = gradient_by_group(self.network, batch, loss)
        return float(value), flat(gradients, self.parameters)

    def _own(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], float]:
        """Returns this process's slice of a batch in the order of time, and the weight of each seed.

        Gradients are averaged at the end.
        """
        times = self.data.context(self.split).seed_time
        places = places[np.argsort(times[places], kind="stable")]
        own = places[self.processes.slice_for(len(places))]
        if not len(own):  # more processes than seeds: it goes along with one that weighs nothing
            return places[:1], 0.0
        return own, self.processes.count / len(places)

    def _tokens(self, places: NDArray[np.int64]) -> TokenBatch:
        context = select(self.data.context(self.split), places)
        return self._tokenizer(context, draw=self.state.step + 1, device=self.device)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        tokenizer = self.data.view.tokenizer
        if self.device.type != "cpu" or tokenizer.group_tokens is not None:
            return tokenizer
        return replace(tokenizer, group_tokens=_GROUP_NUMBERS // self.recipe.model.width)

    def _end_epoch(self, num_seeds: int) -> Epoch:
        state, begin = self.state, time.perf_counter()
        value = self.validate()
        is_higher = higher_is_better(self.data.metric)
        best = state.best  # of equal ones the first stays
        is_best = best is None or (value > best.validation if is_higher else value < best.validation)
        loss = state.loss / max(1, num_seeds)
        seconds = self.processes.mean(time.perf_counter() - begin)
        state.seconds += seconds  # a limit is heeded by both
        epoch = Epoch(state.epoch, loss, value, state.epoch_seconds, seconds, is_best)
        if is_best:
            state.best = epoch
            self.best_weights = {name: t.detach().clone() for name, t in self.network.state_dict().items()}
        state.epochs.append(epoch)
        state.epoch, state.batch, state.loss, state.epoch_seconds = state.epoch + 1, 0, 0.0, 0.0
        return epoch

    def validate(self) -> float:
        """Returns the main metric on validation; each process predicts some batches."""
        own = self.processes.slice_for(
            -(-len(self.validated) // BATCH)
        )  # whole batches: their sizes decide bits
        places = self.validated[own.start * BATCH : own.stop * BATCH]
        logits = self.logits(select(self.data.context("val"), places))
        joined = np.concatenate(self.processes.joined([logits]))
        if not np.isfinite(joined).all():  # the last step has spoiled the weights
            raise self._not_finite(f"logits on validation are not finite after step {self.state.step}")
        labels = self.data.labels("val")[self.validated]
        return selection_value(self.data.task.spec.type, labels, self.data.output.scores(joined))

    def logits(self, context: Context) -> NDArray[np.float64]:
        """Returns the logits of this process alone for all seeds of a context."""
        return context_logits(self.network, self.data.view.tokenizer, context, self.recipe.precision)

    def use_best(self) -> None:
        """Puts the weights of the best epoch in place; without any, the last stay."""
        if self.best_weights:
            self.network.load_state_dict(self.best_weights)

    def _out_of_time(self) -> bool:
        limit = self.recipe.time_limit
        return limit is not None and self.state.seconds >= limit

    def _not_finite(self, what: str, gradient: Tensor | None = None) -> DataError:
        """Returns error C12, with the first gradient that is not finite. No such state is ever saved."""
        names = [name for name, _ in self.network.named_parameters()]
        own = () if gradient is None else gradient.split([p.numel() for p in self.parameters])
        bad = [name for name, each in zip(names, own, strict=False) if not each.isfinite().all()]
        where = f"; first in the gradient of {bad[0]}" if bad else ""
        return DataError(
            "C12",
            f"{what} (epoch {self.state.epoch + 1}){where}",
            "lower learning_rate; the last saved state is good",
        )

    # --- what a resumed run needs --------------------------------------------------------------------

    def save(self, folder: Path | None) -> None:
        """Writes all that `restore` needs; of several processes the first alone writes."""
        if folder is None or not self.processes.is_first:
            return
        tensors = {f"model.{name}": t for name, t in self.network.state_dict().items()}
        tensors |= {f"best.{name}": t for name, t in self.best_weights.items()}
        tensors |= {"adam.mean": self.optimizer.mean, "adam.square": self.optimizer.square}
        with new_folder(folder) as fresh:
            (fresh / "state.json").write_text(json.dumps(asdict(self.state)), encoding="utf-8")
            save_file(
                {name: t.detach().cpu().contiguous() for name, t in tensors.items()},
                fresh / "tensors.safetensors",
            )
            write_checksums(fresh)

    def restore(self, folder: Path | None) -> None:
        """Goes on from a folder that `save` has written; without one, begins anew. A damaged one is refused."""
        if folder is not None and folder.is_dir():
            with intact(folder, _ANEW):
                check_checksums(folder, _ANEW)
                self._restore(folder)

    def _restore(self, folder: Path) -> None:
        self.state = TrainingState.from_dict(json.loads((folder / "state.json").read_text(encoding="utf-8")))
        tensors = load_file(folder / "tensors.safetensors")
        self.network.load_state_dict(_below(tensors, "model."))
        self.best_weights = _below(tensors, "best.")
        self.optimizer.mean.copy_(tensors["adam.mean"])
        self.optimizer.square.copy_(tensors["adam.square"])
        self.optimizer.num_steps = self.state.step


def _cosine(done: float) -> float:
    """Returns a short rise, then a fall to zero."""
    return min(done / _RISE, (1 + math.cos(math.pi * done)) / 2)


@contextmanager
def _memory_explained(what: str) -> Iterator[None]:
    """Turns a lack of memory into error C11, and leaves other errors as they are."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(words in str(error) for words in _NO_MEMORY):
            raise
        raise ResourceError(
            "C11", f"not enough memory for {what}", "lower batch_size, local_budget, width or local_layers"
        ) from error


def _latest(times: NDArray[np.int64], fraction: float) -> NDArray[np.int64]:
    """Returns the places of the latest times, this fraction of all; those of one time stay together."""
    first = np.quantile(times, 1 - fraction, method="lower") if fraction < 1 else times.min(initial=0)
    return np.flatnonzero(times >= first)


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
