"""QUARTET's costs beside RelGT's (appendix A.2.3), measured in one process, turn by turn.

RelGT is measured twice: as its public code computes it (`literal.py`: every token for itself, contexts stored with
their padding), which is the cost that the paper compares with; and by this project's pipeline, which computes nothing
twice for any model.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch

from quartet.config import Recipe
from quartet.contexts import select
from quartet.listener import SILENT, Listener
from quartet.paper.literal import literal, write_padded
from quartet.paper.numbers import paper_ratios
from quartet.paper.runner import dataset_name
from quartet.paper.tables import NOTHING, Sheet
from quartet.tasks import SPLITS, Task
from quartet.training import Trainer, TrainingData, backward_by_group, flat, step_tensor_bytes, weight_bytes

_LITERAL_SEEDS = 16  # at a time: more of them do not make a seed cheaper where nothing is shared
_COLUMNS = ("", "epoch", "throughput", "precompute", "memory of a step", "cache", "parameters")
EFFICIENCY_LEGEND = (
    "Epoch: CPU seconds of one core for all training seeds once, and then all validation seeds. Throughput: seeds a "
    "second at inference, likewise. Precompute: seconds for the contexts of all splits, sampled and written, on all "
    "cores. Memory: tensors of a step on a whole batch, with Adam's moments. Cache: the files, as written.",
    "RelGT as published: every token for itself, the whole batch at once, contexts stored with their padding. "
    "RelGT here: by the same pipeline as QUARTET. The paper's ratios are to the former, on a GPU.",
)


@dataclass(frozen=True)
class ModelCost:
    """The costs of one model, in the order of the table. Times are medians."""

    model: str
    epoch_seconds: float  # all training seeds once, and then all validation seeds
    seeds_per_second: float  # at inference
    precompute_seconds: float | None  # contexts of all splits; None: that of the public code is not run here
    step_bytes: int  # tensors of a step, and Adam's
    cache_bytes: int  # contexts of all splits on disk
    num_parameters: int


@dataclass
class _Subject:
    """A model under measurement."""

    name: str
    trainer: Trainer
    precompute_seconds: float | None
    cache_bytes: int
    is_literal: bool = False
    training: list[float] = field(default_factory=list)  # seconds of a seed in each step
    inference: list[float] = field(default_factory=list)

    def batch(self, places: Any) -> Any:
        data = self.trainer.data
        tokens = data.view.tokenizer(select(data.context("train"), places))
        return literal(tokens) if self.is_literal else tokens

    def measure(self, number: int) -> None:
        """Times one step of training, and inference on the same seeds: CPU time, which others do not lengthen."""
        trainer, network = self.trainer, self.trainer.network
        batches = trainer.epoch_places(0)
        places = batches[number % len(batches)][: _LITERAL_SEEDS if self.is_literal else None]
        batch, target = self.batch(places), trainer.target["train"][places]

        def loss(logits: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
            return trainer.data.output.loss(logits.float(), target[seed]).sum() / len(places)

        network.train()
        network.zero_grad()
        begin = time.process_time()
        backward_by_group(network, batch, loss)
        trained = time.process_time()
        # Adam's own step comes once for a batch, however many seeds it is timed with here.
        trainer.optimizer.step(
            flat([p.grad for p in trainer.parameters], trainer.parameters), trainer.recipe.learning_rate
        )
        network.after_step(lambda rows: rows)
        stepped = time.process_time()
        network.eval()
        with torch.inference_mode():
            network(batch)
        self.inference.append((time.process_time() - stepped) / len(places))
        self.training.append(
            (trained - begin) / len(places) + (stepped - trained) / trainer.recipe.batch_size
        )

    def cost(self) -> ModelCost:
        network = self.trainer.network
        whole = self.batch(self.trainer.epoch_places(0)[0])
        return ModelCost(
            self.name,
            # The first one loads and compiles.
            median(self.training[1:]) * len(self.trainer.places)
            + median(self.inference[1:]) * len(self.trainer.validated),
            1 / median(self.inference[1:]),
            self.precompute_seconds,
            step_tensor_bytes(network, whole) + 3 * weight_bytes(network),
            self.cache_bytes,
            network.num_parameters,
        )


def efficiency_study(
    task: Task,
    preset: str = "small",
    changes: Mapping[str, Any] | None = None,
    steps: int = 3,
    listener: Listener = SILENT,
) -> list[ModelCost]:
    """Returns the costs of QUARTET, of RelGT as published and of RelGT here, in this order."""
    subjects = []
    for model in ("quartet", "relgt"):
        name = f"{task.full_database.schema.name}/{task.name}"
        recipe = Recipe.load(preset, name, model, **{"tower": 0, **(changes or {})})
        data, seconds, num_bytes, public_bytes = _prepared(task, recipe, listener)
        trainer = Trainer(data, micro_batch=recipe.batch_size)
        if model == "quartet":
            subjects.append(_Subject("QUARTET", trainer, seconds, num_bytes))
        else:
            subjects.append(_Subject("RelGT as published", trainer, None, public_bytes, is_literal=True))
            subjects.append(_Subject("RelGT here", trainer, seconds, num_bytes))
    for number in range(
        steps + 1
    ):  # models take turns, so that a busy minute of the machine meets all of them
        for subject in subjects:
            subject.measure(number)
        listener.progress("steps", 1, steps + 1)
    return [subject.cost() for subject in subjects]


def _prepared(task: Task, recipe: Recipe, listener: Listener) -> tuple[TrainingData, float, int, int]:
    """Returns data, the seconds and bytes of the contexts of all splits, and their bytes in RelGT's own format."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # Windows keeps mapped files
        TrainingData.prepare(task, recipe, Path(folder) / "compile").context("val")
        data = TrainingData.prepare(task, recipe, Path(folder) / "all", listener)
        begin = time.perf_counter()
        contexts = [data.context(split) for split in SPLITS]
        seconds = time.perf_counter() - begin
        for split, context in zip(SPLITS, contexts, strict=True):
            write_padded(Path(folder) / "public" / f"{split}.h5", context, data.view.graph)
        num_bytes, public_bytes = (
            sum(path.stat().st_size for path in (Path(folder) / name).rglob("*") if path.is_file())
            for name in ("all", "public")
        )
    return data, seconds, num_bytes, public_bytes


def efficiency_sheet(task: Task, settings: str, costs: Sequence[ModelCost]) -> Sheet:
    """Returns the costs of QUARTET and of RelGT in both forms, QUARTET's as ratios, and the paper's ratios."""
    ours, *others = costs
    rows: list[tuple[str, ...]] = []
    for cost in costs:
        precompute = NOTHING if cost.precompute_seconds is None else f"{cost.precompute_seconds:.2f} s"
        memory, cache = f"{cost.step_bytes / 1e6:,.0f} MB", f"{cost.cache_bytes / 1e6:.2f} MB"
        times = f"{cost.epoch_seconds:.1f} s", f"{cost.seeds_per_second:,.0f} a second", precompute
        rows.append((cost.model, *times, memory, cache, f"{cost.num_parameters:,}"))
    for cost in others:
        pairs = zip(astuple(ours)[1:], astuple(cost)[1:], strict=True)
        ratios = (f"{one / two:.2f}x" if one and two else NOTHING for one, two in pairs)
        rows.append((f"QUARTET / {cost.model}", *ratios))
    label, paper = paper_ratios(task.full_database.schema.name, task.name)
    rows.append((label, *(f"{ratio:.2f}x" for ratio in paper.values())))
    return Sheet(f"{dataset_name(task)}/{task.name}, {settings}", _COLUMNS, rows)
