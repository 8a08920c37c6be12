"""What one of several processes does for `test_processes.py`; torchrun starts this file twice."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from quartet.config import Recipe
from quartet.errors import DataError
from quartet.machine import ALONE, Processes, all_processes
from quartet.registry import MODELS
from quartet.runs import fit
from quartet.training import Trainer, TrainingData
from tests.trained import SIZES, Heard, churn

# 40 seeds are three batches of 13 and one of a single seed: of an odd number, and of fewer than processes.
SETTINGS: dict[str, Any] = {
    **SIZES, "batch_size": 13, "seeds_per_epoch": 40, "dropout": 0.0, "encoder_dropout": 0.0,
}  # fmt: skip
RECIPE = Recipe.load("small", **SETTINGS, epochs=2)
OTHERS = sorted(set(MODELS) - {"quartet", "lightgbm", "auto"})
FRONT_DOOR = ("quartet", "lightgbm", "auto")
WHOLE = RECIPE.batch_size  # seeds at a time, where that is not what is tried
STOP = 6  # steps after which a run is asked to stop, in the second epoch
LIMIT = 1e-6  # seconds


def trained(trainer: Trainer, num_steps: int = 10**6, processes: Processes = ALONE) -> dict[str, Any]:
    """The loss of each step, validation of each epoch, logits and a digest of all tensors.

    Only the last process is asked to stop: the others must hear of it.
    """
    losses: list[float] = []
    sums = [trainer.state.loss]

    class Watch(Heard):
        def step(self, num_seeds: int) -> None:
            losses.append((trainer.state.loss - sums[-1]) / num_seeds)
            sums.append(trainer.state.loss if trainer.state.batch < 4 else 0.0)

        def should_stop(self) -> bool:
            return processes.rank == processes.count - 1 and trainer.state.step >= num_steps

    is_done = trainer.run(Watch())
    tensors = [*trainer.network.state_dict().values(), *trainer.best_weights.values()]
    return {
        "is_done": is_done,
        "losses": losses,
        "validation": [epoch.validation for epoch in trainer.state.epochs],
        "logits": trainer.logits(trainer.data.context("val"))[:, 0].tolist(),
        "digest": hashlib.sha256(b"".join(t.numpy().tobytes() for t in tensors)).hexdigest(),
        "seconds": trainer.state.seconds,
    }


def failed(data: TrainingData, processes: Processes) -> str:
    """How a run ends when only the last process has a loss that is no number."""
    trainer = Trainer(data, processes, WHOLE)
    if processes.rank == processes.count - 1:
        with torch.no_grad():
            trainer.network.readout.weight.fill_(float("inf"))
    try:
        trainer.run()
    except DataError as error:
        return str(error)
    return "nothing was noticed"


def other_network(name: str, cache: Path, processes: Processes = ALONE) -> dict[str, Any]:
    """A run of another network."""
    recipe = Recipe.load("small", "", name, **SETTINGS, epochs=1)
    with processes.first_alone():
        data = TrainingData.prepare(churn(), recipe, cache)
        data.context("train"), data.context("val")
    return trained(Trainer(data, processes, micro_batch=WHOLE))


def by_the_trainer(folder: Path) -> dict[str, Any]:
    with all_processes() as processes:
        with processes.first_alone():
            was_there = any((folder / "cache").glob("*"))
            data = TrainingData.prepare(churn(), RECIPE, folder / "cache")
            data.context("train"), data.context("val")
        found: dict[str, Any] = {
            "was_there": was_there,
            "made": processes.from_first(os.getpid),
            "whole": trained(Trainer(data, processes)),
            "micro": trained(Trainer(data, processes, micro_batch=3)),
            "limit": trained(Trainer(data, processes, WHOLE, RECIPE.changed(time_limit=LIMIT))),
            "failed": failed(data, processes),
            "networks": {name: other_network(name, folder / "cache", processes) for name in OTHERS},
        }
        stopped = Trainer(data, processes, WHOLE)
        found["stopped"] = trained(stopped, STOP, processes)
        stopped.save(folder / "by two")
        resumed = Trainer(data, processes, WHOLE)
        resumed.restore(folder / "by one")
        found["resumed"] = trained(resumed)
        return found


def by_the_front_door(folder: Path, name: str) -> dict[str, Any]:
    """One folder is made and filled, by the first; all have the model, and the first alone prints."""
    settings = {} if name == "lightgbm" else SETTINGS | {"epochs": 1}
    model = fit(churn(), name, runs=folder / name, cache=folder / "cache", threads=1, **settings)
    kept = sorted(path.name for path in (folder / name).iterdir() if not path.is_symlink())
    scores = model.on(model.task.full_database).predict(["C03", "C07"], "2023-09-01")
    return {"runs": kept, "folder": str(model.folder), "scores": scores.table["score"].to_pylist()}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    rank = os.environ["RANK"]
    found = by_the_trainer(folder)
    found |= {name: by_the_front_door(folder, name) for name in FRONT_DOOR}
    (folder / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
