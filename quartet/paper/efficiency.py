"""What QUARTET costs beside RelGT (the paper's appendix A.2.3), measured in one process, turn by turn.

RelGT is measured twice: as its public code computes it (`literal.py`: every token for itself, contexts stored with
their padding), which is the cost that the paper compares with; and by this project's pipeline, which computes nothing
twice for any model.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray

from quartet.config import Recipe
from quartet.contexts import Context, cached_sample, protocol_seeds, select
from quartet.graph import TemporalGraph
from quartet.paper.literal import literal
from quartet.tasks import SPLITS, Task
from quartet.tokens import TokenBatch
from quartet.training import (
    Material,
    PartModel,
    Trainer,
    backward_in_parts,
    prepare,
    recipe_task,
    step_tensor_bytes,
    weight_bytes,
)

LITERAL_SEEDS = 16  # at a time: more of them do not make a seed cheaper where nothing is shared
PUBLIC_TOKEN_BYTES, PUBLIC_EDGE_BYTES = 11, 4  # of RelGT's HDF5 files, a directed edge at a time
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Cost:
    """What one model takes. Times are medians; memory is that of the tensors of a step and of Adam."""

    model: str
    epoch_seconds: float  # all training seeds once, without validation
    seeds_per_second: float  # at inference
    precompute_seconds: float | None  # contexts of all splits; None: that of the public code is not run here
    step_bytes: int
    cache_bytes: int  # contexts of all splits on disk
    num_parameters: int


@dataclass(frozen=True)
class _Subject:
    """A model under measurement."""

    name: str
    trainer: Trainer
    precompute_seconds: float | None
    cache_bytes: int
    is_literal: bool = False

    def batch(self, places: NDArray[np.int64]) -> TokenBatch:
        tokens = self.trainer.tokenizer(select(self.trainer.material.contexts["train"], places))
        return literal(tokens) if self.is_literal else tokens


def efficiency_study(
    task: Task,
    preset: str = "small",
    changes: dict[str, object] | None = None,
    steps: int = 3,
    progress: Progress = lambda _: None,
) -> list[Cost]:
    """The costs of QUARTET, of RelGT as published and of RelGT here, in this order."""
    name = f"{task.full_database.schema.name}/{task.name}"
    recipes = {model: Recipe.load(preset, name, model, **(changes or {})) for model in ("quartet", "relgt")}
    subjects = []
    for model, recipe in recipes.items():
        progress(f"contexts of {model}")
        material, seconds, num_bytes, public_bytes = _prepared(task, recipe)
        trainer = Trainer(material, recipe, micro_batch=recipe.batch_size)
        if model == "relgt":
            subjects.append(_Subject("RelGT as published", trainer, None, public_bytes, is_literal=True))
        label = "QUARTET" if model == "quartet" else "RelGT here"
        subjects.append(_Subject(label, trainer, seconds, num_bytes))
    return list(_costs(subjects, steps, progress))


def _prepared(task: Task, recipe: Recipe) -> tuple[Material, float, int, int]:
    """Material, the seconds and bytes of the contexts of all splits, and their bytes in RelGT's own format."""
    task = recipe_task(task, recipe)
    with tempfile.TemporaryDirectory() as folder:
        graph = TemporalGraph.build(task.database)
        few = protocol_seeds(task, "val", recipe.protocol)
        cached_sample(graph, few, recipe.sampling, Path(folder) / "compile", "once")
        begin, public = time.perf_counter(), 0
        for split in SPLITS:
            seeds = protocol_seeds(task, split, recipe.protocol)
            public += _public_bytes(cached_sample(graph, seeds, recipe.sampling, Path(folder) / "all", split))
        seconds = time.perf_counter() - begin
        num_bytes = sum(path.stat().st_size for path in (Path(folder) / "all").iterdir())
        return prepare(task, recipe, Path(folder) / "all"), seconds, num_bytes, public


def _public_bytes(context: Context) -> int:
    """What RelGT's files would take: every slot of the budget, and each link in both directions."""
    return PUBLIC_TOKEN_BYTES * int(context.local_count.sum()) + 2 * PUBLIC_EDGE_BYTES * len(context.edge)


def _costs(subjects: list[_Subject], steps: int, progress: Progress) -> Iterator[Cost]:
    """Each model takes its turn in every round, so that a busy minute of the machine meets all of them."""
    training: dict[str, list[float]] = {subject.name: [] for subject in subjects}
    inference: dict[str, list[float]] = {subject.name: [] for subject in subjects}
    for number in range(steps + 1):  # the first one is not counted: it loads and compiles
        progress(f"step {number} of {steps}")
        for subject in subjects:
            trained, answered = _seconds_per_seed(subject, number)
            if number:
                training[subject.name].append(trained)
                inference[subject.name].append(answered)
    for subject in subjects:
        model = subject.trainer.model
        num_seeds = len(subject.trainer.places)
        yield Cost(
            subject.name,
            median(training[subject.name]) * num_seeds,
            1 / median(inference[subject.name]),
            subject.precompute_seconds,
            _step_bytes(subject, model),
            subject.cache_bytes,
            model.num_parameters,
        )


def _seconds_per_seed(subject: _Subject, number: int) -> tuple[float, float]:
    """Of one step of training, and of inference, on the same seeds: CPU time, which other processes do not lengthen."""
    trainer = subject.trainer
    batches = trainer.epoch_places(0)
    places = batches[number % len(batches)]
    if subject.is_literal:
        places = places[:LITERAL_SEEDS]
    batch = subject.batch(places)
    target = trainer.target[places]

    def loss(answer: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
        return trainer.material.output.loss(answer.float(), target[seed]).sum() / len(places)

    trainer.model.train()
    trainer.optimizer.zero_grad()
    begin = time.process_time()
    backward_in_parts(trainer.model, batch, loss)
    trained = time.process_time() - begin
    # Adam's own step comes once for a batch, however many seeds were looked at here.
    begin = time.process_time()
    trainer.optimizer.step()
    trainer.model.settle(lambda tensor: tensor)
    per_batch = time.process_time() - begin
    trainer.model.eval()
    begin = time.process_time()
    with torch.inference_mode():
        trainer.model(batch)
    answered = time.process_time() - begin
    return trained / len(places) + per_batch / trainer.recipe.batch_size, answered / len(places)


def _step_bytes(subject: _Subject, model: PartModel) -> int:
    """Tensors of a step on a whole batch, counted without allotting them, and Adam's two moments."""
    whole = subject.batch(subject.trainer.epoch_places(0)[0])
    return step_tensor_bytes(model, whole) + 3 * weight_bytes(model)
