"""Two processes train as one: the same losses, validation and weights; they stop, end and fail together.

`torchrun` starts this file twice (see `main`); what both found is compared here with a run of one process.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from quartet.config import Recipe
from quartet.errors import DataError
from quartet.machine import ALONE, Processes, all_processes
from quartet.models.registry import NETWORKS
from quartet.runs import Run
from quartet.tasks import Task
from quartet.training import Material, Trainer, backward_in_parts, prepare
from tests.models.test_equality import ABLATIONS, SAMPLERS, sales_setting
from tests.tasks.small import CHURN, small_shop

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in the same order: bits are compared here

# 40 seeds are three batches of 13 and one of a single seed: of an odd number, and of fewer than processes.
SIZES: dict[str, Any] = {
    "width": 16, "heads": 2, "encoder_width": 8, "num_latents": 2, "local_budget": 20, "temporal_budget": 10,
    "collab_budget": 5, "batch_size": 13, "seeds_per_epoch": 40, "dropout": 0.0, "encoder_dropout": 0.0,
}  # fmt: skip
RECIPE = Recipe.load("small", **SIZES, epochs=3, num_archetypes=4)
OTHERS = sorted(set(NETWORKS) - {"quartet"})
WHOLE = RECIPE.batch_size  # seeds at a time, where that is not what is tried
STOP = 6  # steps after which a run is asked to stop, in the second epoch
LIMIT = 1e-6  # seconds


def shop_task() -> Task:
    return Task.from_sql(small_shop(), **CHURN)


def trained(trainer: Trainer, num_steps: int = 10**6, processes: Processes = ALONE) -> dict[str, Any]:
    """What a run found: the loss of each step, validation of each epoch, answers and a digest of all tensors.

    Only the last process is asked to stop: the others must hear of it.
    """
    losses: list[float] = []
    sums = [trainer.progress.loss]

    def on_step(num_seeds: int) -> None:
        losses.append((trainer.progress.loss - sums[-1]) / num_seeds)
        sums.append(trainer.progress.loss if trainer.progress.batch < 4 else 0.0)

    def must_stop() -> bool:
        return processes.rank == processes.count - 1 and trainer.progress.step >= num_steps

    is_done = trainer.run(on_step=on_step, must_stop=must_stop)
    digest = hashlib.sha256(b"".join(t.numpy().tobytes() for t in trainer.state()[1].values()))
    return {
        "is_done": is_done,
        "losses": losses,
        "validation": [epoch.validation for epoch in trainer.progress.history],
        "answers": trainer.answers(trainer.material.contexts["val"])[:, 0].tolist(),
        "digest": digest.hexdigest(),
        "seconds": trainer.progress.seconds,
    }


def failed(material: Material, processes: Processes) -> str:
    """How a run ends when only the last process has a loss that is no number."""
    trainer = Trainer(material, RECIPE, processes, WHOLE)
    if processes.rank == processes.count - 1:
        with torch.no_grad():
            trainer.model.readout.weight.fill_(float("inf"))
    try:
        trainer.run()
    except DataError as error:
        return str(error)
    return "nothing was noticed"


def network(name: str, folder: Path, processes: Processes = ALONE) -> dict[str, Any]:
    """What a run of another network found, in two epochs."""
    recipe = Recipe.load("small", "", name, **SIZES, epochs=2, num_archetypes=4)
    with processes.first_alone():
        material = prepare(shop_task(), recipe, folder / "cache")
    return trained(Trainer(material, recipe, processes, micro_batch=WHOLE))


def main(folder: Path) -> None:
    """What one of several processes does; its findings go to a file of its own."""
    torch.set_num_threads(1)
    with all_processes() as processes:
        with processes.first_alone():
            was_there = any((folder / "cache").glob("*.h5"))
            material = prepare(shop_task(), RECIPE, folder / "cache")
        found: dict[str, Any] = {
            "was_there": was_there,
            "made": processes.from_first(os.getpid),
            "whole": trained(Trainer(material, RECIPE, processes)),
            "micro": trained(Trainer(material, RECIPE, processes, micro_batch=3)),
            "limit": trained(Trainer(material, RECIPE.changed(time_limit=LIMIT), processes, WHOLE)),
            "failed": failed(material, processes),
            "networks": {name: network(name, folder, processes) for name in OTHERS},
        }
        stopped = Trainer(material, RECIPE, processes, WHOLE)
        found["stopped"] = trained(stopped, STOP, processes)
        if processes.is_first:
            Run(folder / "by two").save_state(stopped)
        resumed = Trainer(material, RECIPE, processes, WHOLE)
        Run(folder / "by one").restore_state(resumed)
        found["resumed"] = trained(resumed)
        (folder / f"{processes.rank}.json").write_text(json.dumps(found))


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return prepare(shop_task(), RECIPE, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def alone(material: Material) -> dict[str, Any]:
    return trained(Trainer(material, RECIPE, micro_batch=WHOLE))


@pytest.fixture(scope="module")
def folder(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two processes have left what they found; one process had left a state for them to go on from."""
    folder = tmp_path_factory.mktemp("two")
    for name in ("by one", "by two"):
        (folder / name).mkdir()
    begun = Trainer(material, RECIPE, micro_batch=WHOLE)
    trained(begun, STOP)
    Run(folder / "by one").save_state(begun)
    words = ["torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "tests.test_distributed"]
    command, root = [sys.executable, "-m", *words, str(folder)], Path(__file__).parents[1]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def two(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("kind", ["whole", "micro"])
def test_two_processes_train_as_one(alone: dict[str, Any], two: list[dict[str, Any]], kind: str) -> None:
    assert len(alone["losses"]) == 12
    for found in two:
        assert found[kind]["losses"] == pytest.approx(alone["losses"], rel=1e-5)
        assert found[kind]["validation"] == pytest.approx(alone["validation"], rel=1e-5)
        assert found[kind]["answers"] == pytest.approx(alone["answers"], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", OTHERS)
def test_the_other_networks_do_too(
    two: list[dict[str, Any]], name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What RelGT learns without gradient included."""
    alone = network(name, tmp_path_factory.mktemp("alone"))
    first, second = (found["networks"][name] for found in two)
    assert first == second
    assert first["losses"] == pytest.approx(alone["losses"], rel=1e-4)
    assert first["validation"] == pytest.approx(alone["validation"], rel=1e-4)


@pytest.mark.parametrize("kind", ["whole", "micro", "limit", "stopped", "resumed"])
def test_both_processes_have_the_same_model_and_statistics(two: list[dict[str, Any]], kind: str) -> None:
    assert two[0][kind] == two[1][kind]


def test_they_stop_together(two: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    for found in two:
        assert not found["stopped"]["is_done"]
        assert found["stopped"]["losses"] == pytest.approx(alone["losses"][:STOP], rel=1e-5)


def test_their_time_runs_out_together(two: list[dict[str, Any]]) -> None:
    for found in two:
        assert found["limit"]["is_done"]
        assert len(found["limit"]["losses"]) == len(found["limit"]["validation"]) == 1


def test_they_fail_together(two: list[dict[str, Any]]) -> None:
    for found in two:
        assert found["failed"] == (
            "error[C12] the loss became nan at step 1 (epoch 1); first in the gradient of tables.0.numbers.weight."
            " Fix: lower learning_rate; the last saved state is good"
        )


def test_two_go_on_with_what_one_began(two: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    for found in two:
        assert found["resumed"]["is_done"]
        assert found["resumed"]["losses"] == pytest.approx(alone["losses"][STOP:], rel=1e-5)
        assert found["resumed"]["validation"] == pytest.approx(alone["validation"], rel=1e-5)


def test_one_goes_on_with_what_two_began(
    folder: Path, two: list[Any], material: Material, alone: Any
) -> None:
    assert len(two) == 2
    trainer = Trainer(material, RECIPE, micro_batch=WHOLE)
    Run(folder / "by two").restore_state(trainer)
    found = trained(trainer)
    assert found["losses"] == pytest.approx(alone["losses"][STOP:], rel=1e-5)
    assert found["validation"] == pytest.approx(alone["validation"], rel=1e-5)


def test_the_first_goes_ahead_and_tells(two: list[dict[str, Any]]) -> None:
    assert [found["was_there"] for found in two] == [False, True]
    assert two[0]["made"] == two[1]["made"]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("num_items", [0, 1, 2, 13, 14])
def test_shares_are_even_and_leave_nothing_out(count: int, num_items: int) -> None:
    items = np.arange(num_items)
    shares = [items[Processes(rank, count).share(num_items)] for rank in range(count)]
    assert np.concatenate(shares).tolist() == items.tolist()
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_without_torchrun_a_process_is_alone() -> None:
    with all_processes() as processes:
        assert processes == ALONE
        assert processes.summed(1.5, 2.0) == [1.5, 2.0]
        assert processes.joined([1, 2]) == [1, 2]


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_parameter_always_has_a_gradient(name: str) -> None:
    """DistributedDataParallel waits for each of them in every step: also for those of a table without rows."""
    case = sales_setting(3, ABLATIONS[name], SAMPLERS["no fallback"], count=1)
    backward_in_parts(case.model.train(), case.batch.to(torch.float64), lambda answer, _: answer.sum())
    assert [key for key, parameter in case.model.named_parameters() if parameter.grad is None] == []


if __name__ == "__main__":
    main(Path(sys.argv[1]))
