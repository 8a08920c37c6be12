"""One prediction is made within the latency that was asked for, or it is said that it is not: by a clock of our own."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quartet.evaluation import selection_value
from quartet.models.portfolio import Portfolio
from quartet.runs import TrainedModel, fit, load
from quartet.runs.latency import quick_enough
from quartet.training import Fitted, TrainingData
from tests.trained import QUICK, Heard, churn


class Clock:
    """A clock that goes on only while a member is asked."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Costly:
    """A member of a portfolio that takes so many seconds."""

    model: Any
    clock: Clock
    seconds: float

    def logits(self, *asked: Any) -> Any:
        self.clock.now += self.seconds
        return self.model.logits(*asked)

    def to(self, device: str) -> None:
        self.model.to(device)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    folder = tmp_path_factory.mktemp("runs")
    return fit(churn(), "auto", bag=1, runs=folder, cache=folder, listener=Heard(), **QUICK)


def tried(
    trained: TrainedModel, costs: tuple[float, ...], limit: float
) -> tuple[Any, Any, Heard, list[float]]:
    """The blend and what was measured, where each member that is asked takes so many seconds."""
    clock, heard, checkpoint = Clock(), Heard(), trained.members[0][0]
    data = TrainingData.prepare(churn(), checkpoint.recipe)
    blend = checkpoint.model
    members = [
        replace(member, model=Costly(member.model, clock, seconds))
        for member, seconds in zip(blend.members, costs, strict=True)
    ]
    costly = Portfolio(tuple(members), (0.25,) * 4)
    logits = [member.model.logits(data.view, data.seeds["val"]) for member in blend.members]
    best = trained.run.epochs()[-1]
    fitted = Fitted(costly, [best], best, "all", logits)
    told = (
        fitted,
        replace(checkpoint, model=costly, sure=None),
        data,
        churn().full_database,
        limit,
        heard,
        clock,
    )
    values = [
        selection_value("binary_classification", data.labels("val"), data.output.scores(own))
        for own in logits
    ]
    return *quick_enough(*told), heard, values


def test_what_is_quick_enough_stays_as_it_is(trained: TrainedModel) -> None:
    found, latency, heard, _ = tried(trained, (0.01, 0.01, 0.01, 0.01), 0.0400001)
    assert found.model.weights == (0.25,) * 4
    assert (latency.measured, latency.dropped) == (pytest.approx(0.04), ())
    assert not heard.findings


def test_members_go_until_it_is_quick_enough(trained: TrainedModel) -> None:
    """Of the blends that keep to the limit the best on validation is taken, with the proportions of its weights."""
    found, latency, heard, _ = tried(trained, (0.01, 0.02, 0.04, 0.08), 0.075)
    assert latency.measured == pytest.approx(sum(
        cost for cost, weight in zip((0.01, 0.02, 0.04, 0.08), found.model.weights, strict=True) if weight
    ))  # fmt: skip
    assert latency.measured <= 0.075
    assert found.model.weights[3] == 0
    assert len(latency.dropped) == found.model.weights.count(0)
    assert sum(found.model.weights) == pytest.approx(1)
    assert len({weight for weight in found.model.weights if weight}) == 1
    data = TrainingData.prepare(churn(), trained.recipe)
    blended = found.model.blend(found.validation)
    value = selection_value("binary_classification", data.labels("val"), data.output.scores(blended))
    assert found.best.validation == value
    for first in (0, 1):  # no blend of the three others is better
        for kept in ([0, 1, 2], [first, 2], [0, 1], [0], [1], [2]):
            other = np.mean([found.validation[place] for place in kept], axis=0)
            assert value >= selection_value(
                "binary_classification", data.labels("val"), data.output.scores(other)
            )
    [finding] = [finding for finding in heard.findings if finding.code == "C16"]
    assert "150 ms, 75 ms are wanted" in finding.message


def test_where_nothing_is_quick_enough_the_quickest_is_taken_and_it_is_said(trained: TrainedModel) -> None:
    found, latency, heard, _ = tried(trained, (0.03, 0.02, 0.04, 0.08), 0.01)
    assert found.model.weights == (0, 1, 0, 0)
    assert latency.measured == pytest.approx(0.02)
    [finding] = heard.findings
    assert "nothing is quicker" in finding.message


def test_the_run_keeps_what_was_measured(tmp_path: Path) -> None:
    heard = Heard()
    told = {"runs": tmp_path, "cache": tmp_path, "listener": heard, **QUICK}
    model = fit(churn(), max_latency=1e-6, time_limit=2, **told)
    dial = json.loads((model.folder / "dial.json").read_text())
    assert dial["latency"]["limit"] == pytest.approx(1e-6)
    assert dial["latency"]["measured"] > 1e-6
    assert any(finding.code == "C16" for finding in heard.findings)
    again = load(model.folder)
    used = [weight for weight in again.members[0][0].model.weights if weight]
    assert used == [1]
    assert again.run.is_done
    model.evaluate(rules=False, listener=Heard())
