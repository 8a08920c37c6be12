"""The model auto: which members it has, what each reads, what they weigh, and what a limit or a stop leaves of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quartet.config import Recipe
from quartet.errors import Stopped
from quartet.evaluation import blend_weights
from quartet.features import is_about_others
from quartet.models import portfolio
from quartet.models.portfolio import Portfolio
from quartet.runs import Run, TrainedModel, fit, load
from quartet.tasks import Seeds, Task
from quartet.training import Fitted, Member, TrainingData
from quartet.training.data import _TrainingView
from tests.trained import QUICK, Heard, asked_again, churn, network_of

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in the same order: bits are compared here

TREES = ["plain trees", "trees on own rows", "trees"] * 2
NETWORKS = ["tower", "quartet"]


@pytest.fixture(scope="module")
def task() -> Task:
    """With four times of validation, so that trees may be fitted again."""
    return churn(num_eval_timestamps=4)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


class Following(Heard):
    """Remembers the members, what was fitted with each, and stops after some of them."""

    def __init__(self, most: int = 100) -> None:
        super().__init__()
        self.members: list[Member] = []
        self.fitted: list[Fitted] = []
        self.most = most

    def member(self, member: Member, fitted: Fitted) -> None:
        self.members.append(member)
        self.fitted.append(fitted)

    def should_stop(self) -> bool:
        return len(self.members) >= self.most


def fitted_with(
    task: Task, runs: Path, cache: Path, heard: Heard | None = None, **settings: Any
) -> TrainedModel:
    listener, settings = heard or Heard(), QUICK | {"refit": "always"} | settings
    return fit(task, "auto", runs=runs, cache=cache, threads=1, listener=listener, **settings)


@pytest.fixture(scope="module")
def heard() -> Following:
    return Following()


@pytest.fixture(scope="module")
def model(
    task: Task, cache: Path, heard: Following, tmp_path_factory: pytest.TempPathFactory
) -> TrainedModel:
    return fitted_with(task, tmp_path_factory.mktemp("runs"), cache, heard)


@pytest.fixture(scope="module")
def whole(model: TrainedModel) -> Portfolio:
    return network_of(model)


def kept(model: TrainedModel, split: Any = "val") -> list[np.ndarray]:
    """The scores of each member."""
    return model.run.kept_members(split)


# --- members ----------------------------------------------------------------------------------------


def test_there_are_trees_a_tower_quartet_and_more_random_seeds_of_networks(whole: Portfolio) -> None:
    assert [member.name for member in whole.members] == TREES + NETWORKS * 3
    assert [member.rng_seed for member in whole.members] == [0, 1, 2, 3, 4, 5, 0, 0, 1, 1, 2, 2]
    kinds = dict.fromkeys(TREES, "lightgbm") | {name: name for name in NETWORKS}
    assert all(member.architecture == kinds[member.name] for member in whole.members)
    texts = {member.model.text for member in whole.members[:6]}
    assert len(texts) == 6


def test_trees_on_own_rows_read_nothing_about_others(whole: Portfolio) -> None:
    plain, own, every = (set(whole.members[place].model.names) for place in (0, 1, 2))
    assert own == {name for name in every if not is_about_others(name)} != every
    assert plain < own
    assert [set(member.model.names) == every for member in whole.members[:6]] == [False, False, True] * 2


def test_networks_read_the_columns_by_which_trees_gained(whole: Portfolio) -> None:
    """Nearly all of what any of the trees has gained, and nothing by which none of them did."""
    trees, networks = whole.members[:6], whole.members[6:]
    columns = set(networks[0].model.schema.columns)
    assert all(set(member.model.schema.columns) == columns for member in networks)
    for member in trees:
        assert sum(member.model.gains[name] for name in columns if name in member.model.gains) > 0.99
    assert all(any(member.model.gains.get(name) for member in trees) for name in columns)


def test_the_first_quartet_begins_with_what_the_first_tower_has_learned(
    task: Task, cache: Path, tmp_path: Path, model: TrainedModel
) -> None:
    """Where it learns next to nothing it answers as that tower does; those of other random seeds begin anew."""
    still = fitted_with(task, tmp_path, cache, learning_rate=1e-9)
    tower, quartet, *others = kept(still)[6:]
    np.testing.assert_allclose(quartet, tower, atol=1e-5)
    assert len(others) == 4
    assert not any(np.allclose(own, tower, atol=1e-5) for own in others)
    assert len({own.tobytes() for own in kept(model)}) == 12


# --- the blend --------------------------------------------------------------------------------------


def test_members_of_a_name_weigh_the_same_and_names_by_sixths_of_a_sixth(whole: Portfolio) -> None:
    assert sum(whole.weights) == pytest.approx(1.0)
    names = [member.name for member in whole.members]
    for name in names:
        of_name = [weight for weight, other in zip(whole.weights, names, strict=True) if other == name]
        assert len(set(of_name)) == 1
        assert 36 * sum(of_name) == pytest.approx(round(36 * sum(of_name)))


def test_weights_are_chosen_by_validation_before_any_member_has_seen_it(
    model: TrainedModel, whole: Portfolio, task: Task
) -> None:
    """All members were fitted again, and yet the scores that are kept and blended are those from before."""
    assert all(member.model.is_refit for member in whole.members)
    assert task.vault.openings == []
    scores = kept(model)
    logits = [np.log(own / (1 - own)) for own in scores]
    val = task.seeds("val")

    def blended(parts: list[np.ndarray], usual: tuple[float, ...] | None = None) -> np.ndarray:
        """Weights of all members in a blend of parts, which are such weights."""
        found = [np.sum([w * x for w, x in zip(part, logits, strict=True)], axis=0) for part in parts]
        groups, target = (val.node, val.time), np.asarray(val.target)
        of_part = blend_weights("binary_classification", target, groups, found, lambda x: x, usual)
        return np.sum([w * part for w, part in zip(of_part, parts, strict=True)], axis=0)

    def mean_of(name: str) -> np.ndarray:
        is_named = np.array([member.name == name for member in whole.members])
        return is_named / is_named.sum()

    families = [TREES[:3], NETWORKS]  # trees, then networks, then both
    expected = blended([blended([mean_of(name) for name in family]) for family in families], (2 / 3, 1 / 3))
    assert whole.weights == pytest.approx(expected.tolist())
    blend = np.sum([w * x for w, x in zip(whole.weights, logits, strict=True)], axis=0)
    table = model.run.predictions("val")
    np.testing.assert_allclose(table["score"].to_numpy(), 1 / (1 + np.exp(-blend)), atol=1e-9)
    assert not asked_again(model, task.full_database, table)["score"].equals(table["score"])


@pytest.fixture(scope="module")
def never(task: Task, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    """The same, with trees that were not fitted again."""
    return fitted_with(task, tmp_path_factory.mktemp("never"), cache, refit="never")


def test_scores_of_validation_do_not_know_whether_trees_are_fitted_again(
    model: TrainedModel, never: TrainedModel
) -> None:
    for one, other in zip(kept(model)[:6], kept(never)[:6], strict=True):
        assert one.tobytes() == other.tobytes()
    for one, other in zip(kept(model, "test")[:6], kept(never, "test")[:6], strict=True):
        assert one.tobytes() != other.tobytes()


def test_columns_of_networks_do_not_know_whether_trees_are_fitted_again(
    model: TrainedModel, never: TrainedModel
) -> None:
    """Else these, and by them the scores of validation, would follow from its labels."""
    for one, other in zip(network_of(model).members[6:], network_of(never).members[6:], strict=True):
        assert one.model.schema.columns == other.model.schema.columns


def test_scores_of_validation_do_not_know_whether_networks_are_fitted_further(
    task: Task, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does the network that begins with the tower: it takes what that was before it saw validation."""
    monkeypatch.setattr("quartet.models.portfolio.Fitting.gained", lambda _, names: names)
    again, never = (fitted_with(task, tmp_path, cache, refit=refit) for refit in ("always", "never"))
    names = [f"{member.name}, {member.rng_seed}" for member in network_of(again).members]
    changed = [
        name
        for name, one, other in zip(names, kept(again), kept(never), strict=True)
        if one.tobytes() != other.tobytes()
    ]
    assert changed == []
    for one, other in zip(kept(again, "test"), kept(never, "test"), strict=True):
        assert one.tobytes() != other.tobytes()


def test_a_member_that_weighs_nothing_is_not_asked(task: Task) -> None:
    class Asked:
        def __init__(self, number: float) -> None:
            self.number, self.times = number, 0

        def logits(self, _: Any, seeds: Any, __: Any) -> np.ndarray:
            self.times += 1
            return np.full((len(seeds), 1), self.number)

    models = [Asked(1.0), Asked(2.0), Asked(4.0)]
    members = tuple(Member(str(n), "lightgbm", 0, 0.0, 0.0, one) for n, one in enumerate(models))
    portfolio = Portfolio(members, (0.75, 0.0, 0.25))
    assert portfolio.logits(None, task.seeds("val"))[0, 0] == 1.75  # type: ignore[arg-type]
    assert [one.times for one in models] == [1, 0, 1]
    blend = portfolio.blend([np.array([[1.0]]), np.array([[2.0]]), np.array([[4.0]])])
    assert blend.tolist() == [[1.75]]


# --- on the way -------------------------------------------------------------------------------------


def test_a_listener_hears_of_each_member_and_of_all_so_far(heard: Following, whole: Portfolio) -> None:
    """Until it is done all names weigh the same."""
    assert [member.name for member in heard.members] == [member.name for member in whole.members]
    assert [len(fitted.model.members) for fitted in heard.fitted] == list(range(1, len(whole.members) + 1))
    assert heard.fitted[1].model.weights == (0.5, 0.5)
    assert heard.fitted[3].model.weights == pytest.approx((1 / 6, 1 / 3, 1 / 3, 1 / 6))
    assert [fitted.best.validation for fitted in heard.fitted[:1]] == [heard.members[0].validation]


def test_what_was_stopped_has_a_first_answer_and_goes_on(
    task: Task, cache: Path, tmp_path: Path, model: TrainedModel
) -> None:
    """The trees that came first are kept at once; members are those of a run that nobody stopped."""
    with pytest.raises(Stopped) as stopped:
        fitted_with(task, tmp_path, cache, Following(most=6))
    run = Run.open(str(stopped.value.folder))
    assert not run.is_done
    first = load(run.folder)
    assert [member.name for member in network_of(first).members] == TREES[:1]
    assert kept(first)[0].tobytes() == kept(model)[0].tobytes()
    resumed = fit(task, resume=run.folder, cache=cache, listener=Heard())
    assert resumed.run.is_done
    for split in ("val", "test"):
        assert resumed.run.predictions(split).equals(model.run.predictions(split))


def test_where_there_is_no_time_the_first_trees_are_the_answer(
    task: Task, cache: Path, tmp_path: Path
) -> None:
    short = fitted_with(task, tmp_path, cache, time_limit=1e-6)
    assert [member.name for member in network_of(short).members] == TREES[:1]
    assert network_of(short).weights == (1.0,)
    assert short.run.is_done


def test_short_of_time_trees_have_that_of_networks(
    task: Task, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Quartet would hardly begin to learn, it is left out, and the first trees are those of `lightgbm`."""
    monkeypatch.setattr(portfolio, "_LEARNED", 1)
    heard = Following()
    model = fitted_with(task, tmp_path, cache, heard, time_limit=60.0)
    assert {member.architecture for member in heard.members} == {"lightgbm", "tower"}
    trees = next(member.model for member in heard.members if member.name == "trees")
    alone = fit(
        task, "lightgbm", runs=tmp_path, cache=cache, threads=1, listener=Heard(), refit="always",
        past_labels=model.recipe.past_labels, rng_seed=model.recipe.rng_seed + 2,
    )  # fmt: skip
    assert trees.text == network_of(alone).text
    told = dict(heard.begun[0].lines())
    assert told["model"] == "auto: trees, towers on their columns, and a blend, 60 s in all"
    assert "Quartet" in told["left out"]


def test_how_long_contexts_take_is_known_before_they_are_sampled(task: Task, tmp_path: Path) -> None:
    data = TrainingData.prepare(task, Recipe.load("small", **QUICK), tmp_path)
    assert data.seconds_of_a_context() > 0
    assert not list(tmp_path.iterdir())
    assert replace(data, on="local:2").seconds_of_a_context() == 0  # others sample them


def test_without_columns_about_others_no_set_is_there_twice(
    task: Task, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = TrainingData.column_names.fget  # type: ignore[attr-defined]
    near = property(lambda data: tuple(name for name in own(data) if not is_about_others(name)))
    monkeypatch.setattr(TrainingData, "column_names", near)
    few = fitted_with(task, tmp_path, cache)
    assert [member.name for member in network_of(few).members] == ["plain trees", "trees"] * 2 + NETWORKS * 3


def test_gains_are_the_mean_of_the_trees_as_they_weigh(whole: Portfolio) -> None:
    trees = whole.members[:6]
    expected = {
        name: sum(w * m.model.gains.get(name, 0.0) for m, w in zip(trees, whole.weights, strict=False))
        / sum(whole.weights[:6])
        for name in trees[2].model.names
    }
    assert whole.gains == pytest.approx(expected)
    assert sum(whole.gains.values()) == pytest.approx(1.0)


def test_scouts_choose_the_columns_of_many_seeds(
    task: Task, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond so many cells quick trees on some of the seeds choose columns, and no others are made of all seeds."""
    monkeypatch.setattr(portfolio, "_CELLS", 0)
    monkeypatch.setattr(portfolio, "_FEWEST_COLUMNS", 1)
    monkeypatch.setattr(portfolio, "_SCOUTED", {"train": 300, "val": 40})
    made: list[tuple[int, int]] = []
    in_pieces = _TrainingView._in_pieces

    def counted(self: Any, seeds: Seeds, names: tuple[str, ...]) -> Any:
        made.append((len(seeds), len(names)))
        return in_pieces(self, seeds, names)

    monkeypatch.setattr(_TrainingView, "_in_pieces", counted)
    heard = Following()
    model = fitted_with(task, tmp_path / "runs", cache, heard, time_limit=60.0, bag=1, protocol="rolling")
    every = TrainingData.prepare(task.under("rolling", False), model.recipe).column_names
    columns = {member.name: getattr(member.model, "names", ()) for member in heard.members}
    assert portfolio._FEWEST_COLUMNS <= len(columns["trees"]) < len(every)
    assert set(columns["trees"]) <= set(every)
    num_train = len(task.seeds("train"))
    assert max(size for seeds, size in made if seeds == num_train) < len(every)
    assert (300, len(every)) in made
    live = asked_again(load(model.folder), task.full_database, model.run.predictions("test"))
    assert live["score"].equals(model.run.predictions("test")["score"])


def test_networks_gather_contexts_of_no_more_seeds_than_they_can_see(
    task: Task, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrainingData, "seconds_of_a_context", lambda *_: 1e6)
    heard = Following()
    fitted_with(task, tmp_path, cache, heard, time_limit=60.0, bag=1, batch_size=8)
    # Before that, those of a tower, which reads no rows.
    assert heard.work["contexts of churn-train"][-1] == (16, 16)  # two batches
