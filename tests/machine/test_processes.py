"""Two processes train as one: the same losses, validation and weights; they stop, end and fail together.

`torchrun` starts `two.py` twice; what both found is compared here with a run of one process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from quartet.config import SamplingConfig
from quartet.machine import ALONE, Processes, all_processes
from quartet.training import Trainer, TrainingData, backward_by_group
from tests.machine.two import FRONT_DOOR, OTHERS, RECIPE, STOP, WHOLE, other_network, trained
from tests.models.data import SMALL, buyers
from tests.trained import ROOT, churn, command_environment

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    return TrainingData.prepare(churn(), RECIPE, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def alone(data: TrainingData) -> dict[str, Any]:
    return trained(Trainer(data, micro_batch=WHOLE))


@pytest.fixture(scope="module")
def folder(data: TrainingData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two processes have left what they found; one process had left a state for them to go on from."""
    folder = tmp_path_factory.mktemp("two")
    begun = Trainer(data, micro_batch=WHOLE)
    trained(begun, STOP)
    begun.save(folder / "by one")
    words = ["torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "tests.machine.two"]
    done = subprocess.run(
        [sys.executable, "-m", *words, str(folder)], capture_output=True, text=True, cwd=ROOT, timeout=300,
        env=command_environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (folder / "stdout").write_text(done.stdout)
    (folder / "stderr").write_text(done.stderr)
    return folder


@pytest.fixture(scope="module")
def two(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("kind", ["whole", "micro"])
def test_two_processes_train_as_one(alone: dict[str, Any], two: list[dict[str, Any]], kind: str) -> None:
    assert len(alone["losses"]) == 8
    for found in two:
        assert found[kind]["losses"] == pytest.approx(alone["losses"], rel=1e-5)
        assert found[kind]["validation"] == pytest.approx(alone["validation"], rel=1e-5)
        assert found[kind]["logits"] == pytest.approx(alone["logits"], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", OTHERS)
def test_the_other_networks_do_too(two: list[dict[str, Any]], name: str, tmp_path: Path) -> None:
    """What RelGT learns without gradient included."""
    alone = other_network(name, tmp_path)
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
        assert found["failed"].startswith("error[C12] the loss became nan at step 1 (epoch 1); first in the")


def test_two_go_on_with_what_one_began(two: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    for found in two:
        assert found["resumed"]["is_done"]
        assert found["resumed"]["losses"] == pytest.approx(alone["losses"][STOP:], rel=1e-5)
        assert found["resumed"]["validation"] == pytest.approx(alone["validation"], rel=1e-5)


def test_one_goes_on_with_what_two_began(
    folder: Path, two: list[Any], data: TrainingData, alone: dict[str, Any]
) -> None:
    assert len(two) == 2
    trainer = Trainer(data, micro_batch=WHOLE)
    trainer.restore(folder / "by two")
    found = trained(trainer)
    assert found["losses"] == pytest.approx(alone["losses"][STOP:], rel=1e-5)
    assert found["validation"] == pytest.approx(alone["validation"], rel=1e-5)


def test_the_first_goes_ahead_and_tells(two: list[dict[str, Any]]) -> None:
    assert [found["was_there"] for found in two] == [False, True]
    assert two[0]["made"] == two[1]["made"]


@pytest.mark.parametrize("name", FRONT_DOOR)
def test_by_the_front_door_there_is_one_run(name: str, two: list[dict[str, Any]]) -> None:
    assert two[0][name] == two[1][name]
    assert two[0][name]["runs"] == [Path(two[0][name]["folder"]).name]


def test_the_first_alone_prints(folder: Path, two: list[dict[str, Any]]) -> None:
    lines = (folder / "stdout").read_text().splitlines()
    assert len(two) == 2
    assert len([line for line in lines if line.startswith("Best: ")]) == len(FRONT_DOOR)  # one of each model
    assert (folder / "stderr").read_text().count("warning[L09]") == len(FRONT_DOOR)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("num_items", [0, 1, 2, 13, 14])
def test_slices_are_even_and_leave_nothing_out(count: int, num_items: int) -> None:
    items = np.arange(num_items)
    slices = [items[Processes(rank, count).slice_for(num_items)] for rank in range(count)]
    assert np.concatenate(slices).tolist() == items.tolist()
    assert max(map(len, slices)) - min(map(len, slices)) <= 1


def test_without_torchrun_a_process_is_alone() -> None:
    with all_processes() as processes:
        assert processes == ALONE
        assert processes.mean(1.5) == 1.5
        assert processes.joined([1, 2]) == [1, 2]
        assert not processes.any(False)


@pytest.mark.parametrize(
    "changes",
    [{}, {"local": False}, {"perceiver": False}, {"branches": ()}, {"mix": "linear", "time": "linear"},
     *({"branches": (branch,)} for branch in SMALL.branches)],
)  # fmt: skip
def test_every_parameter_always_has_a_gradient(changes: dict[str, Any]) -> None:
    """Also those of a table without rows: without one, weight decay alone would move it by the whole learning rate."""
    sampling = SamplingConfig(fallback="null", local_budget=10, lookback_days=1)
    case = buyers(3, SMALL.changed(**changes), sampling, count=1)
    backward_by_group(case.model.train(), case.batch.to(torch.float64), lambda logits, _: logits.sum())
    assert [key for key, parameter in case.model.named_parameters() if parameter.grad is None] == []
