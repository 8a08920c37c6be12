"""What trees of a regression are fitted to: the scale of logarithms, and the past labels with which they begin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.config import Recipe
from quartet.database import Database
from quartet.features import MEAN_PAST_LABEL
from quartet.models.boosting import Boosting
from quartet.models.tree_target import TreeTarget
from quartet.models.trees import Trees
from quartet.runs import fit, load
from quartet.tasks import Task
from quartet.times import DAY
from quartet.training import TrainingData
from tests.tasks.small import small_shop
from tests.trained import KINDS, TREES, Heard, asked_again, network_of

pytestmark = pytest.mark.usefixtures("one_thread")
numbers = st.floats(-1e6, 1e6)


@pytest.fixture(scope="module")
def task() -> Task:
    return Task.from_sql(small_shop(), **KINDS["regression"])


def recipe(target: str, past_labels: bool = True) -> Recipe:
    return TREES.changed(tree_target=target, past_labels=past_labels, protocol="rolling", refit="always")


@given(labels=st.lists(numbers, min_size=2, max_size=30), median=numbers, spread=st.floats(1e-3, 1e3))
def test_labels_come_back_from_logarithms(labels: list[float], median: float, spread: float) -> None:
    values = np.array(labels)
    above = values - values.min()
    size = float(np.median(above) or above.mean() or 1.0)
    target = TreeTarget(median, spread, float(values.min()), size, np.inf)
    back = target.standardised(target.learned(values)) * spread + median
    np.testing.assert_allclose(back, values, rtol=1e-6, atol=1e-6 * max(1, np.abs([*labels, median]).max()))
    order = np.argsort(values, kind="stable")
    assert (np.diff(target.learned(values)[order]) >= 0).all()  # a median stays one


def test_answers_stay_among_the_labels_of_training() -> None:
    target = TreeTarget(2.0, 3.0, 0.0, 2.0, most=float(np.log1p(50.0)))
    far = target.standardised(np.array([-1e9, 1e9, np.log1p(50.0)])) * 3.0 + 2.0
    np.testing.assert_allclose(far, [-100.0, 100.0, 100.0])


def mean_of_past(data: TrainingData, split: Any) -> np.ndarray[Any, Any]:
    """The mean of the last twelve labels of each seed's entity that are known by then, looked up row by row."""
    database, seeds = data.task.database, data.seeds[split]
    table = database["known_labels"]
    (relation,) = (r for r in database.relations if r.table == "known_labels")
    label = np.asarray(table.data["label"], dtype=np.float64)
    means = []
    for node, time in zip(seeds.node, seeds.time, strict=True):
        own = np.flatnonzero(
            (relation.rows == node - database.offsets[data.task.spec.entity_table]) & (table.known_at <= time)
        )
        latest = own[np.argsort(table.known_at[own])][-12:]
        means.append(label[latest].mean() if len(latest) else np.nan)
    return np.array(means)


def test_trees_on_changes_begin_with_the_mean_of_past_labels(task: Task) -> None:
    data = TrainingData.prepare(task, recipe("changes"))
    target = TreeTarget.of(data)
    assert target is not None
    assert target.begins
    for split in ("train", "val"):
        start = target.start(data.columns(split), data.column_names)
        expected = mean_of_past(data, split)
        assert np.isfinite(expected).any()
        known = np.where(np.isnan(expected), data.output.median, expected)  # type: ignore[union-attr]
        np.testing.assert_allclose(start, target.learned(known), rtol=1e-4, atol=1e-5)
        assert np.array_equal(Boosting(data).rows(split).start, start)


NUM_RESULTS, NUM_TEAMS = 400, 8
_rng = np.random.default_rng(0)
day_of, team_of, race_of = (
    np.arange(NUM_RESULTS) // 2,
    *(_rng.integers(0, NUM_TEAMS, NUM_RESULTS) for _ in range(2)),
)
place_of = 10.0 * team_of + _rng.integers(0, 3, NUM_RESULTS)


def league(place: np.ndarray[Any, Any]) -> TrainingData:
    """Results of teams in races, whose place is to be filled in: the team tells it, the race does not."""
    keys = pa.array(np.arange(NUM_TEAMS))
    results = {"result": np.arange(NUM_RESULTS), "team": team_of, "race": race_of, "place": place}
    results["at"] = pa.array(DAY * day_of, pa.timestamp("ns"))
    tables = {
        "teams": pa.table({"team": keys}),
        "races": pa.table({"race": keys}),
        "results": pa.table(results),
    }
    schema: dict[str, Any] = {name: {"pkey": name[:-1], "fkeys": {}} for name in ("teams", "races")}
    schema["results"] = {"pkey": "result", "time_col": "at", "fkeys": {"team": "teams", "race": "races"}}
    words = {
        "name": "place", "kind": "autocomplete", "task_type": "regression", "entity_table": "results",
        "target_col": "place", "val_timestamp": "1970-04-01", "test_timestamp": "1970-06-01",
    }  # fmt: skip
    database = Database.load(tables, {"name": "league", "tables": schema})
    return TrainingData.prepare(Task.load(database, words), recipe("changes"))


def test_trees_that_fill_in_a_column_begin_with_the_past_labels_that_tell_most() -> None:
    """A row has no labels of its own before: those of rows of the same team tell its place."""
    data = league(place_of)
    target = TreeTarget.of(data)
    assert target is not None
    assert target.column.startswith("team -> teams, results by team")
    for split in ("train", "val"):
        expected = []
        for node in data.seeds[split].node - data.task.database.offsets["results"]:
            known = place_of[(team_of == team_of[node]) & (day_of < day_of[node])][-12:]
            expected.append(known.mean() if len(known) else data.output.median)  # type: ignore[union-attr]
        start = target.start(data.columns(split), data.column_names)
        # Sums over two links are of whole numbers, so that these means are rounded.
        np.testing.assert_allclose(start, target.learned(np.array(expected)), atol=5e-3)


@pytest.mark.parametrize(("since", "split"), [(91, "train"), (120, "val")])
def test_later_labels_change_neither_where_trees_begin_nor_by_which_column(since: int, split: Any) -> None:
    """From a day on the race tells all places. No trees begin otherwise before that day, by one bit."""
    data, other = league(place_of), league(np.where(day_of >= since, 10.0 * race_of, place_of))
    target, again = TreeTarget.of(data), TreeTarget.of(other)
    assert target is not None
    assert target == again
    is_before = data.seeds[split].time < since * DAY
    assert is_before.any()
    starts = [target.start(each.columns(split), each.column_names)[is_before] for each in (data, other)]
    assert starts[0].tobytes() == starts[1].tobytes()


@pytest.mark.parametrize(("target", "past_labels"), [("changes", False), ("logarithms", True)])
def test_without_past_labels_trees_begin_with_nothing(task: Task, target: str, past_labels: bool) -> None:
    data = TrainingData.prepare(task, recipe(target, past_labels))
    told = TreeTarget.of(data)
    assert told is not None
    assert told.start(data.columns("val"), data.column_names) is None
    assert (MEAN_PAST_LABEL in data.column_names) is past_labels


def test_other_types_have_values_alone(task: Task) -> None:
    binary = Task.from_sql(task.full_database, **KINDS["binary_classification"])
    assert TreeTarget.of(TrainingData.prepare(binary, recipe("changes"))) is None
    assert TreeTarget.of(TrainingData.prepare(task, recipe("values"))) is None


@pytest.mark.parametrize("target", ["values", "logarithms", "changes"])
def test_what_is_learned_is_kept(task: Task, target: str, tmp_path: Path) -> None:
    model = fit(task, recipe=recipe(target), runs=tmp_path, listener=Heard())
    again = load(model.folder)
    assert network_of(again).target == network_of(model).target
    kept = model.run.predictions("test")
    assert asked_again(again, task.full_database, kept).equals(kept)


def test_answers_are_what_trees_add_to_where_they_begin(task: Task) -> None:
    data = TrainingData.prepare(task, recipe("changes"))
    fitted = Trees.fit(data)
    assert fitted is not None
    trees, matrix = fitted.model, data.columns("val")
    raw = trees._booster.predict(matrix, raw_score=True)
    start = trees.target.start(matrix, trees.names)
    np.testing.assert_allclose(trees.raw(matrix)[:, 0], trees.target.standardised(raw + start))
    added = trees.contributions(matrix)  # of columns, beside the mean answer of the trees
    base = trees._booster.predict(matrix, pred_contrib=True)[:, -1]
    np.testing.assert_allclose(added.sum(2)[:, 0] + trees.target.standardised(base), trees.raw(matrix)[:, 0])
    past = added[:, 0, trees.names.index(MEAN_PAST_LABEL)]
    assert np.corrcoef(past, start)[0, 1] > 0.5


def test_auto_has_trees_of_every_target(task: Task, tmp_path: Path) -> None:
    model = fit(task, "auto", runs=tmp_path, listener=Heard(), threads=1, time_limit=20, epochs=1)
    targets = {m.name: m.model.target for m in network_of(model).members if m.architecture == "lightgbm"}
    # The first answer, what linked rows tell, and all columns.
    assert list(targets)[:3] == ["plain trees", "trees on own rows", "trees"]
    assert targets["trees"] is None
    assert not targets["trees on logarithms"].begins
    assert targets["trees on changes"].begins
