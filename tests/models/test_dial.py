"""The dial: what it chooses follows from what was measured, and its trials see no more than a training does."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quartet.config import Recipe
from quartet.contexts import select
from quartet.errors import QuartetError, Stopped, UsageError
from quartet.evaluation import compared, main_metric, measures
from quartet.machine import ALONE, parse_size
from quartet.models import Fitting, Limits, turn
from quartet.models.dial import _chosen, _halvings, keeps, settings
from quartet.models.trials import NetworkTrial, Part, TrialData
from quartet.registry import model_row
from quartet.runs import fit, load
from quartet.training import TrainingData
from tests.trained import QUICK, SIZES, Heard, churn, network_of, run, write_shop

RECIPE = Recipe.load("small", model="auto", **SIZES, batch_size=32, seeds_per_epoch=64)
NETWORKS: dict[str, dict[str, Any]] = {"whole": {}, "local alone": {"branches": ()}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    return TrainingData.prepare(churn(), RECIPE, tmp_path_factory.mktemp("cache"))


def part(data: TrainingData, skill: float, cost: float = 1.0, num_bytes: int = 100) -> Part:
    """A part whose logits tell the label of validation as well as `skill` says, with noise of one deviation."""
    label = np.asarray(data.labels("val"), float)
    noise = np.random.default_rng(0).normal(size=len(label))
    return Part((skill * (2 * label - 1) + noise)[:, None], cost, cost, cost, num_bytes, cost)


def choose(
    data: TrainingData, parts: dict[str, Part], limits: Limits | None = None, finalists: Any = None
) -> Any:
    networks = {name: changes for name, changes in NETWORKS.items() if name in parts}
    judged = np.arange(len(data.seeds["val"]))
    last = list(networks) if finalists is None else finalists
    return _chosen(data, parts, networks, last, judged, limits or Limits(), 0.0)


def test_of_equally_good_networks_the_cheapest_to_train_is_chosen(data: TrainingData) -> None:
    parts = {"trees": part(data, 0.1), "tower": part(data, 0.1)}
    found = choose(data, parts | {"whole": part(data, 2, 9.0), "local alone": part(data, 2, 5.0)})
    assert (found.chosen, found.changes) == ("local alone", {"branches": ()})
    assert {t.name: t.verdict for t in found.trials} == {
        "trees": "worse", "columns": "worse", "whole": "as good", "local alone": "chosen",
    }  # fmt: skip
    found = choose(data, parts | {"whole": part(data, 4, 9.0), "local alone": part(data, 0.2, 5.0)})
    assert (found.chosen, found.changes) == ("whole", {})
    assert found.why.startswith("better than the others")


def test_a_network_that_is_clearly_worse_is_left_out(data: TrainingData) -> None:
    parts = {"trees": part(data, 1), "tower": part(data, 3), "whole": part(data, -4)}
    assert choose(data, parts).changes == {"kinds": "columns"}
    parts = {"trees": part(data, 3), "tower": part(data, -4), "whole": part(data, -4)}
    assert choose(data, parts).changes == {"kinds": "trees"}


def test_what_does_not_keep_to_the_limits_is_never_chosen(data: TrainingData) -> None:
    parts = {
        "trees": part(data, 0.1, 1, 10), "tower": part(data, 0.1, 1, 10), "whole": part(data, 3, 50, 1000),
        "local alone": part(data, 1, 20, 500),
    }  # fmt: skip
    assert choose(data, parts).chosen == "whole"
    assert choose(data, parts, Limits(memory=600)).chosen == "local alone"
    assert choose(data, parts, Limits(latency=0.052)).chosen == "whole"  # trees and a tower 2 ms, and its own
    assert choose(data, parts, Limits(latency=0.051)).chosen == "local alone"
    assert choose(data, parts, Limits(latency=0.022)).chosen == "local alone"
    assert choose(data, parts, Limits(latency=0.0219)).changes == {"kinds": "columns"}
    assert choose(data, parts, Limits(latency=0.0019)).changes == {"kinds": "trees"}
    none = choose(data, parts, Limits(memory=1))
    assert (none.chosen, none.why) == ("trees", "nothing keeps to the limits; trees cost least")
    assert choose(data, parts, finalists=["local alone"]).chosen == "local alone"  # the other dropped out


def test_a_trial_sees_some_seeds_as_training_sees_all(data: TrainingData) -> None:
    """Contexts, columns and labels are those of the same seeds, bit for bit."""
    places = {"train": np.array([3, 5, 40]), "val": np.array([1, 8])}
    recipe = RECIPE.changed(architecture="quartet", branches=("temporal", "collab"))
    names = data.readable_columns[:3]
    whole = data.changed(recipe, names)
    trial = TrialData(
        data.task, recipe, data.output, data.features, chosen_columns=names, whole=data, places=places
    )
    for split in ("train", "val"):
        own, expected = trial.context(split), select(whole.context(split), places[split])
        for name, value in vars(expected).items():
            if isinstance(value, np.ndarray):
                np.testing.assert_array_equal(getattr(own, name), value, name)
        np.testing.assert_array_equal(trial.labels(split), data.labels(split)[places[split]])


def test_a_network_on_trial_has_the_shape_of_one_that_sees_all_seeds(data: TrainingData) -> None:
    """It begins with a tower that knows codes which its few seeds lack: codes and knots are those of all seeds."""
    recipe, names = RECIPE.changed(architecture="quartet"), data.readable_columns
    every = data.changed(recipe, names)
    whole = model_row("quartet").model_class.new(every, recipe)
    trial = NetworkTrial(data, recipe, names, None, np.arange(2), np.arange(2))
    network = trial.trainer.network
    assert network.schema == whole.schema
    assert trial.data.context("train").columns.shape == (2, len(names))
    np.testing.assert_array_equal(trial.data.columns("train"), every.columns("train"))
    knots = dict(whole.readout.named_buffers())
    assert all(torch.equal(own, knots[name]) for name, own in network.readout.named_buffers())


def test_a_network_on_trial_goes_on_from_where_it_stands(data: TrainingData) -> None:
    recipe = RECIPE.changed(architecture="quartet", tower=0)
    trial = NetworkTrial(data, recipe, (), None, np.arange(64), np.arange(20))
    trial.train(1e-9, Heard())  # one step is done in any case
    first, before = trial.part(), trial.trainer.state.step
    assert before == 1
    assert first.logits.shape == (20, 1)
    assert first.num_bytes > 4 * sum(p.numel() for p in trial.trainer.network.parameters())
    weights = {name: t.clone() for name, t in trial.trainer.network.state_dict().items()}
    again = trial.part()
    assert again.logits.tolist() == first.logits.tolist()
    assert all(torch.equal(t, weights[name]) for name, t in trial.trainer.network.state_dict().items())
    trial.train(1e-9, Heard())
    assert trial.trainer.state.step == 2
    assert [epoch.number for epoch in trial.trainer.state.epochs] == [0, 1]


def test_the_settings_are_different_ones_and_the_first_is_the_default() -> None:
    found = settings(RECIPE)
    assert next(iter(found.values())) == {}
    assert (
        len({json.dumps(RECIPE.changed(**changes).to_dict()) for changes in found.values()})
        == len(found)
        >= 5
    )
    assert "local alone" not in settings(RECIPE.changed(branches=()))


@given(st.integers(1, 100))
def test_half_drop_out_until_there_are_two(count: int) -> None:
    left = [count, *_halvings(count)]
    assert left[-1] == min(count, 2)
    assert all(after == max(2, before // 2) for before, after in pairwise(left))


def test_the_best_has_no_noise_and_values_are_those_of_the_metric() -> None:
    rng = np.random.default_rng(0)
    target, entity = rng.integers(0, 2, 200), np.repeat(np.arange(50), 4)
    scores = [rng.random(200) + weight * target for weight in (0.0, 0.5, 0.1)]
    value, noise = compared("binary_classification", target, [entity], scores)
    name = main_metric("binary_classification")
    expected = [measures("binary_classification", target, own, num_resamples=0)[name].value for own in scores]
    assert value.tolist() == pytest.approx(expected)
    assert noise[1] == 0
    assert (noise[[0, 2]] > 0).all()


@pytest.mark.parametrize(
    ("text", "expected"), [("2GB", 2 * 10**9), ("512 MiB", 2**29), ("1.5g", 1_500_000_000), (77, 77)]
)
def test_sizes_are_read_as_people_write_them(text: str | int, expected: int) -> None:
    assert parse_size(text, "max_memory") == expected


@given(st.text("abgkm -.", max_size=8) | st.integers(-5, 0) | st.booleans())
def test_what_is_no_size_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="C02"):
        parse_size(value, "max_memory")


def test_limits_hold_both() -> None:
    assert keeps(Limits(), 10**15, 1e9)
    assert keeps(Limits(100, 0.02), 100, 20.0)
    assert not keeps(Limits(100, 0.02), 101, 1.0)
    assert not keeps(Limits(100, 0.02), 1, 20.1)


# --- trials beside a portfolio on its way -----------------------------------------------------------------


@pytest.fixture(scope="module")
def fitting(data: TrainingData) -> tuple[Fitting, tuple[str, ...]]:
    recipe = data.recipe.changed(bag=1, refit="never", epochs=1)
    fitting = Fitting(data.changed(recipe, data.readable_columns), ALONE, Heard(), None)
    columns = fitting.fit_on_columns()
    assert columns
    return fitting, columns


@pytest.mark.parametrize(
    ("left", "expected"),
    [(19.9, []), (63.9, []), (64.0, 2), (192.0, 3), (10_000.0, 5)],
)
def test_networks_are_tried_where_each_has_time_to_learn(
    fitting: tuple[Fitting, tuple[str, ...]], left: float, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step takes a second: two networks in a round of eight steps each take 16 of the 64 seconds that are left."""
    tried: list[str] = []

    class Slow(NetworkTrial):
        def train(self, seconds: float, listener: Any) -> None:
            super().train(1e-9, listener)
            self.step_seconds = 1.0
            if seconds > 1e-9:
                tried.append(str(self.data.recipe.sampling))

    monkeypatch.setattr("quartet.models.dial.NetworkTrial", Slow)
    monkeypatch.setattr("quartet.models.dial._now", lambda: 0.0)
    found = turn(*fitting, Limits(), left)
    assert len(set(tried)) == (expected or 0)
    if not expected:
        assert (found.chosen, found.changes, found.trials) == ("local and all branches", {}, ())
        assert ("networks have 20 s" if left < 20 else "a step takes 1.0 s") in found.why
    else:
        assert len(found.trials) == 2 + expected
        assert [t.verdict for t in found.trials].count("chosen") == 1


def test_without_time_the_first_network_that_keeps_to_the_limits_is_taken(
    fitting: tuple[Fitting, tuple[str, ...]],
) -> None:
    every = turn(*fitting, Limits(memory=10**12), 0.0)
    assert {trial.name: trial.verdict for trial in every.trials} == dict.fromkeys(
        settings(RECIPE), "not tried"
    ) | {"local and all branches": "chosen"}
    most = {trial.name: trial.num_bytes for trial in every.trials}
    found = turn(*fitting, Limits(memory=max(most.values()) - 1), 0.0)
    able = [name for name in most if most[name] < max(most.values())]
    assert len(able) > 1
    assert (found.chosen, found.why.startswith("the first that keeps")) == (able[0], True)
    assert {t.name for t in found.trials if t.verdict == "over a limit"} == set(most) - set(able)
    none = turn(*fitting, Limits(memory=1), 0.0)
    assert (none.chosen, none.changes) == ("trees", {"kinds": "trees"})


def test_trees_and_tower_of_a_trial_are_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the bits of those that are fitted without a budget, and are fitted once."""
    monkeypatch.setattr("quartet.models.dial._FOR_TRIALS", 0.0)
    heard = Heard()
    told = {"runs": tmp_path, "cache": tmp_path, **QUICK}
    plain = fit(churn(), "auto", bag=1, time_limit=1e6, listener=Heard(), **told)
    dialled = fit(churn(), budget=1e6, max_latency=1e6, listener=heard, **told)
    pairs = list(zip(network_of(plain).members, network_of(dialled).members, strict=True))
    assert [one.name for one, _ in pairs] == ["plain trees", "trees", "tower", "quartet"]
    view, seeds = TrainingData.prepare(churn(), plain.recipe, tmp_path).view, churn().seeds("val")
    for one, other in pairs[:3]:
        assert one.model.logits(view, seeds).tolist() == other.model.logits(view, seeds).tolist()


# --- the whole way ------------------------------------------------------------------------------------


def test_a_budget_is_kept_and_told(tmp_path: Path) -> None:
    heard = Heard()
    turned: list[Any] = []
    heard.turned = turned.append  # type: ignore[method-assign]
    task = churn()
    model = fit(task, budget="20s", max_memory="4GB", runs=tmp_path, cache=tmp_path, listener=heard, **QUICK)
    assert task.vault.openings == []
    [dial] = turned
    told = json.loads((model.folder / "dial.json").read_text())
    assert told["chosen"] == dial.chosen
    assert told["limits"] == {"memory": 4 * 10**9, "latency": None}
    assert {trial["name"] for trial in told["trials"]} >= {"local alone"}
    assert model.recipe.time_limit == 20
    assert load(model.folder).recipe == model.recipe
    for name, value in dial.changes.items():
        assert model.recipe.to_dict()[name] == (list(value) if isinstance(value, list) else value)


def test_a_run_with_a_budget_goes_on_with_what_was_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quartet.models.dial._FOR_TRIALS", 0.0)
    told = {"runs": tmp_path, "cache": tmp_path, **QUICK}
    with pytest.raises(Stopped) as stopped:  # in its network
        fit(churn(), budget=1e6, max_memory="4GB", listener=Heard(stop_at=1), **told)
    folder = Path(stopped.value.folder)
    before = json.loads((folder / "dial.json").read_text())
    assert before["chosen"] == "local and all branches"
    model = fit(churn(), resume=folder, cache=tmp_path, listener=Heard())
    assert model.run.is_done
    assert json.loads((folder / "dial.json").read_text()) == before


@pytest.mark.parametrize(("kinds", "expected"), [("trees", {"lightgbm"}), ("columns", {"lightgbm", "tower"})])
def test_a_portfolio_is_made_of_the_kinds_that_are_wanted(
    kinds: str, expected: set[str], tmp_path: Path
) -> None:
    model = fit(churn(), "auto", kinds=kinds, bag=1, runs=tmp_path, cache=tmp_path, listener=Heard(), **QUICK)
    members = network_of(model).members
    assert {member.architecture for member in members} == expected
    assert [member.architecture for member in members].count("lightgbm") == 2


@pytest.mark.parametrize(
    "settings",
    [{"model": "lightgbm", "budget": "10s"}, {"budget": "10s", "time_limit": 5}, {"budget": -1}, {"budget": "soon"},
     {"max_memory": "much"}, {"max_latency": 0}],
)  # fmt: skip
def test_a_budget_that_cannot_be_is_refused_before_the_work(settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(QuartetError, match=r"C02|T15"):
        fit(churn(), runs=tmp_path / "runs", listener=Heard(), **settings)
    assert not (tmp_path / "runs").exists()


def test_the_verb_shows_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_shop(tmp_path / "shop")
    small = [word for pair in QUICK.items() for word in ("--set", "{}={}".format(*pair))]
    done = run("train", "shop", "churn.yaml", "--budget", "6s", "--threads", 1, *small)
    assert done.returncode == 0, done.stderr
    for text in ("Chosen: local and all branches", "too little for trials"):
        assert text in done.stdout
    with pytest.raises(UsageError, match="C02"):
        fit(churn(), budget="5s", resume=next((tmp_path / "runs").glob("churn-*")), listener=Heard())
