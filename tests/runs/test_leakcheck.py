"""Leakcheck: an honest task shows no difference, and a model that reads the future shows one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quartet.database import Database
from quartet.errors import TaskError, UsageError
from quartet.listener import SILENT
from quartet.runs import fit, leakcheck
from quartet.runs.checkpoint import Checkpoint
from quartet.runs.leakcheck import _box, _worlds
from quartet.tasks import Seeds, Task
from quartet.training import View
from tests.tasks.small import CHURN, small_shop, write_small_shop
from tests.trained import invoke


@pytest.fixture(scope="module")
def task() -> Task:
    return Task.from_sql(small_shop(), **CHURN)


@pytest.fixture(scope="module")
def box(task: Task) -> list[Checkpoint]:
    return _box(task)


def test_nothing_after_a_time_changes_anything_at_it(task: Task, box: list[Checkpoint]) -> None:
    report = leakcheck(task, box, num_times=2, num_seeds=8)
    assert (report.num_differences, report.first, report.num_seeds) == (0, "", 16)
    subjects = {subject for subject, _ in report.outcomes}
    assert {"labels", "features", "cells", "columns", "contexts"} < subjects
    assert {f"predictions of {model.recipe.model.architecture}" for model in box} < subjects
    assert {experiment for _, experiment in report.outcomes} == {
        "taken away",
        "scrambled",
        "and more invented",
    }
    assert all(outcome.compared for outcome in report.outcomes.values())


class Peeking:
    """A model that counts all orders of its database, past or not."""

    def to(self, device: str) -> None:
        pass

    def logits(self, view: View, seeds: Seeds, listener: Any = None) -> NDArray[np.float64]:  # noqa: ARG002
        return np.full((len(seeds), 1), view.database["orders"].data["amount"].to_numpy().sum())


def test_a_model_that_reads_the_future_is_found(task: Task, box: list[Checkpoint]) -> None:
    report = leakcheck(task, [replace(box[0], model=Peeking())], num_times=1, num_seeds=4)
    different = {subject for (subject, _), outcome in report.outcomes.items() if outcome.different}
    assert different == {"predictions of quartet"}
    assert report.outcome("predictions of quartet", "taken away").different == 4
    assert report.first.startswith("customers C")
    assert "with later rows taken away" in report.first
    assert "became" in report.first


def test_labels_that_look_too_far_are_refused_first() -> None:
    sql = CHURN["sql"].replace("'{timedelta}'", "'40 days'")
    with pytest.raises(TaskError, match="L20"):
        leakcheck(Task.from_sql(small_shop(), **(CHURN | {"sql": sql})), [])


def test_experiments_leave_the_past_and_change_the_future() -> None:
    shop = small_shop()
    time = int(np.median(shop["orders"].known_at))
    whole, without, scrambled, more = _worlds(shop, time, np.random.default_rng(0))
    assert whole.database is shop
    past = shop.upto(time)["orders"].data
    for world in (without, scrambled, more):
        assert world.database.upto(time)["orders"].data.equals(past)
        assert world.database["customers"].data.equals(shop["customers"].data)
    assert without.database["orders"].data.equals(past)
    after = shop["orders"].known_at > time
    for name in ("customer", "amount", "bought", "order"):
        before, mixed = (w.database["orders"].data[name].to_numpy() for w in (whole, scrambled))
        assert sorted(before) == sorted(mixed)
        assert (before[after] != mixed[after]).mean() > 0.5
    assert more.database["orders"].num_rows == shop["orders"].num_rows + 200
    assert (more.database["orders"].known_at[-200:] > time).all()
    assert len(more.database.relations[0].rows) == more.database["orders"].num_rows


def test_a_run_brings_its_schema_along_and_its_task(tmp_path: Path) -> None:
    folder = write_small_shop(tmp_path / "shop")
    database = Database.load(folder, {"tables": {"orders": {"pkey": None}}})
    model = fit(Task.load(database, "churn"), "lightgbm", runs=tmp_path, listener=SILENT)
    output = invoke("leakcheck", folder, "churn", model.run.folder, "--times", "1", "--seeds", "3")
    assert "predictions of lightgbm" in output
    assert "0 differences" in output
    other = Task.from_sql(database, **(CHURN | {"name": "other"}))
    with pytest.raises(UsageError, match=r'C05\] a model of task "churn" is given for task "other"'):
        leakcheck(other, [model.members[0][0]])


def test_the_verb_says_what_was_tried(tmp_path: Path) -> None:
    folder = write_small_shop(tmp_path / "shop")
    output = invoke("leakcheck", str(folder), "churn", "--times", "1", "--seeds", "3")
    assert "3 seeds at 2023-" in output
    assert "0 differences" in output
    assert Database.load(folder).num_rows  # it is as it was
