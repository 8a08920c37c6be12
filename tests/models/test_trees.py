"""The model lightgbm: which trees are kept, what they do not notice, fitting them again, and what ends them early."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest

from quartet.config import Protocol
from quartet.database import Database
from quartet.errors import UsageError
from quartet.evaluation import main_metric, measures
from quartet.models.boosting import Boosting, Rows, Watch, inner_cutoff
from quartet.models.trees import Trees
from quartet.runs import TrainedModel, fit, load
from quartet.tasks import Split, Task
from quartet.training import TrainingData
from tests.tasks.small import DAY, START, small_shop
from tests.trained import KINDS, TREES, Heard, asked_again, churn, from_labels, network_of, plain


@pytest.fixture(scope="module")
def tasks() -> dict[str, Task]:
    database = small_shop(city=[("Bonn", "Köln", "Lyon")[k % 3] for k in range(40)])
    return {kind: Task.from_sql(database, **fields) for kind, fields in KINDS.items()}


@pytest.fixture(scope="module")
def models(tasks: dict[str, Task], tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrainedModel]:
    runs = tmp_path_factory.mktemp("runs")
    return {kind: fit(task, recipe=TREES, runs=runs, listener=Heard()) for kind, task in tasks.items()}


def kept_scores(model: TrainedModel, split: Split) -> np.ndarray[Any, Any]:
    table = model.run.predictions(split)
    names = [name for name in table.column_names if name.startswith("score")]
    scores = np.column_stack([np.asarray(table[name]) for name in names])
    return scores if len(names) > 1 else scores[:, 0]


def made_by(boosting: Boosting) -> Callable[[str], Trees]:
    """Trees of their text, with what else a fitting knows of them."""
    names, num_outputs = boosting.data.column_names, boosting.data.output.num_outputs
    return lambda text: Trees(names, num_outputs, text, target=boosting.target)


# --- what is kept -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_there_is_one_epoch_with_the_figures_of_the_kept_scores(
    kind: str, models: dict[str, TrainedModel], tasks: dict[str, Task]
) -> None:
    model, task = models[kind], tasks[kind]
    (epoch,) = model.run.epochs()
    labels = np.asarray(task.seeds("val").target)
    expected = measures(task.spec.type, labels, kept_scores(model, "val"), num_resamples=0)
    assert epoch.validation == model.validation == expected[main_metric(task.spec.type)].value
    assert epoch.is_best
    assert 0 < epoch.loss < 2
    assert {path.name for path in model.run.model_folder.iterdir()} == {
        "model.json", "trees.txt", "trees.json", "features.json", "features.safetensors", "drift.json",
        "sure.safetensors", "checksums.json",
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_live_predictions_are_the_kept_ones(
    kind: str, models: dict[str, TrainedModel], tasks: dict[str, Task]
) -> None:
    kept = models[kind].run.predictions("test")
    assert asked_again(load(models[kind].folder), tasks[kind].full_database, kept).equals(kept)


def test_a_loaded_model_has_the_trees_that_were_kept(
    models: dict[str, TrainedModel], tasks: dict[str, Task]
) -> None:
    kind = "multiclass_classification"
    trees: Trees = network_of(load(models[kind].folder))
    assert trees.num_outputs == 3
    assert trees.num_trees % 3 == 0
    assert trees.num_trees == trees._booster.num_trees() > 0
    leaves = trees._booster.trees_to_dataframe().groupby("tree_index").size()  # splits and leaves
    assert trees.num_parameters == leaves.sum()
    assert trees.names == TrainingData.prepare(tasks[kind], TREES).readable_columns


def test_the_same_trees_come_out_twice(tasks: dict[str, Task]) -> None:
    def text(rng_seed: int) -> str:
        fitted = Trees.fit(TrainingData.prepare(tasks["regression"], TREES.changed(rng_seed=rng_seed)))
        assert fitted is not None
        return str(fitted.model.text)

    assert text(0) == text(0) != text(1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_learns(kind: str, models: dict[str, TrainedModel]) -> None:
    """Beside the constant, on test; and the rules that stand beside a network stand beside it."""
    rows = models[kind].evaluate(listener=Heard()).rows
    assert [row.name for row in rows[:2]] == ["lightgbm", "constant"]
    assert len(rows) > 2
    metric = {"regression": "mae"}.get(kind, "log_loss")
    model, constant = (row.measures[metric].value for row in rows[:2])
    assert model is not None
    assert constant is not None
    assert model < constant


# --- the future -------------------------------------------------------------------------------------


def grown(database: Database, after: int) -> Database:
    """The shop with other orders after a time, and a customer more."""
    customers, orders = database["customers"].data, database["orders"].data
    past = orders.filter(pa.array(database["orders"].known_at <= after))
    new = pa.table(
        {
            "order": np.arange(10**6, 10**6 + 50),
            "customer": ["C00", "C07", "C99", "C39", "C20"] * 10,
            "bought": pa.array(after + 1 + np.arange(50) * DAY, pa.timestamp("ns")),
            "amount": np.linspace(1e3, 1e6, 50),
        }
    )
    more = pa.Table.from_pylist([{"customer": "C99", "age": 33, "city": "Bonn"}]).cast(customers.schema)
    tables = {
        "customers": pa.concat_tables([more, customers]),
        "orders": pa.concat_tables([new.cast(orders.schema), past]),
    }
    return Database.build(tables, database.schema)


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_do_not_notice_the_future(
    kind: str, models: dict[str, TrainedModel], tasks: dict[str, Task]
) -> None:
    time = START + 200 * DAY
    database = tasks[kind].full_database
    other = grown(database, time)
    assert other.num_rows != database.num_rows
    names = [f"C{k:02d}" for k in range(40)]
    lives = [models[kind].on(one, listener=Heard()) for one in (database, other)]
    before, after = (plain(live.predict(names, time)) for live in lives)
    assert after.equals(before)
    later = [plain(live.predict(names, time + 40 * DAY)) for live in lives]
    assert not later[0].equals(later[1])
    assert len(lives[1].predict(["C99"], time)) == 1


def test_many_seeds_are_asked_some_at_a_time_with_the_same_bits(
    models: dict[str, TrainedModel], tasks: dict[str, Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    live, heard = models["regression"].on(tasks["regression"].full_database, listener=Heard()), Heard()
    together = plain(live.predict(at="2023-09-01", everyone=True))
    monkeypatch.setattr("quartet.training.data._ROWS_AT_ONCE", 15)
    assert plain(live.predict(at="2023-09-01", everyone=True, listener=heard)).equals(together)
    assert heard.work == {"scores": [(15, 40), (15, 40), (10, 40)]}


# --- fitting them again -----------------------------------------------------------------------------


def relabelled(task: Task) -> Task:
    """The same task from its labels, those of validation changed: classes change places, numbers their sign."""
    rows = task.label_rows("val")
    target = rows["churned"].to_numpy()
    other = -target if task.spec.type == "regression" else target.max() - target
    return from_labels(
        task, val=rows.set_column(rows.column_names.index("churned"), "churned", pa.array(other))
    )


@pytest.fixture(scope="module")
def refitted(tasks: dict[str, Task], tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrainedModel]:
    """Trees of one random seed that were fitted again, and that were not."""
    task, runs = tasks["binary_classification"], tmp_path_factory.mktemp("refitted")
    return {
        refit: fit(task, recipe=TREES.changed(refit=refit), runs=runs, listener=Heard())
        for refit in ("always", "never")
    }


def test_scores_of_validation_are_those_of_trees_that_have_not_seen_its_labels(
    refitted: dict[str, TrainedModel], tasks: dict[str, Task]
) -> None:
    """And so is the calibration; scores of test are those of the trees that have."""
    again, never = refitted["always"], refitted["never"]
    assert (network_of(again).is_refit, network_of(never).is_refit) == (True, False)
    assert network_of(again).num_rounds == network_of(never).num_rounds
    kept = again.run.predictions("val")
    assert kept.equals(never.run.predictions("val"))  # scores and calibrated ones
    assert again.members[0][0].calibration == never.members[0][0].calibration
    assert again.validation == never.validation
    database = tasks["binary_classification"].full_database
    live = asked_again(load(again.folder), database, kept)
    assert not live["score"].equals(kept["score"])  # of the trees that know the answers
    assert asked_again(load(never.folder), database, kept).equals(kept)
    tests = [model.run.predictions("test") for model in (again, never)]
    assert not tests[0]["score"].equals(tests[1]["score"])


def test_trees_that_were_led_astray_are_not_taken(
    tasks: dict[str, Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has seen the labels of validation and tells them worse than before is no better model of what comes."""
    grow = Boosting.grow

    def astray(self: Boosting, train: Any, stop: Any = None, **how: Any) -> str:
        if stop is None:
            train = replace(train, labels=1 - train.labels)
        return grow(self, train, stop, **how)

    monkeypatch.setattr(Boosting, "grow", astray)
    model = fit(
        tasks["binary_classification"], recipe=TREES.changed(refit="always"), runs=tmp_path, listener=Heard()
    )
    assert not network_of(model).is_refit


def test_columns_gain_by_trees_that_have_not_seen_validation(refitted: dict[str, TrainedModel]) -> None:
    """Just after fitting, when others choose columns by it."""
    again, never = (network_of(refitted[refit]) for refit in ("always", "never"))
    assert again.text != never.text
    assert again.gains == never.gains


def test_whether_they_were_fitted_again_is_kept(refitted: dict[str, TrainedModel]) -> None:
    for refit, model in refitted.items():
        facts = json.loads((model.run.model_folder / "trees.json").read_text())
        assert facts["is_refit"] is network_of(load(model.folder)).is_refit is (refit == "always")


@pytest.mark.parametrize("protocol", get_args(Protocol))
def test_validation_is_judged_by_the_scores_of_then(
    protocol: Protocol, refitted: dict[str, TrainedModel]
) -> None:
    """Under every protocol: of validation all of them ask the same, and a live answer would know the labels."""
    model = load(refitted["always"].folder)
    labels = np.asarray(refitted["always"].task.seeds("val").target)
    shown = model.evaluate(
        refitted["always"].task, split="val", protocol=protocol, rules=False, listener=Heard()
    )
    expected = measures("binary_classification", labels, kept_scores(model, "val"), num_resamples=0)
    for metric in ("roc_auc", "log_loss"):
        assert shown.rows[0].measures[metric].value == expected[metric].value


def test_without_its_run_a_model_that_has_seen_validation_is_not_judged_by_it(
    refitted: dict[str, TrainedModel],
) -> None:
    again, never = (load(model.run.model_folder) for model in refitted.values())
    task = refitted["always"].task
    with pytest.raises(UsageError, match=r"C10.*has seen the labels of validation"):
        again.evaluate(task, split="val", rules=False, listener=Heard())
    assert again.evaluate(task, rules=False, listener=Heard()).num_rows
    live = never.evaluate(task, split="val", rules=False, listener=Heard())
    assert live == refitted["never"].evaluate(split="val", rules=False, listener=Heard())


@pytest.mark.parametrize("kind", ["binary_classification", "regression"])
def test_other_labels_of_validation_change_its_scores_by_the_number_of_rounds_alone(
    kind: str, tasks: dict[str, Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many rounds the same bits, while trees that are fitted again have learned from them."""
    asked = count(1)
    monkeypatch.setattr(
        Boosting, "is_grown", property(lambda _: not next(asked) % 10)
    )  # after ten rounds each
    monkeypatch.setattr(Watch, "best_round", 10)
    one, other = (
        fit(task, recipe=TREES.changed(refit="always"), runs=tmp_path, listener=Heard())
        for task in (tasks[kind], relabelled(tasks[kind]))
    )
    assert network_of(one).num_rounds == network_of(other).num_rounds == 10
    assert kept_scores(one, "val").tobytes() == kept_scores(other, "val").tobytes()
    assert kept_scores(one, "test").tobytes() != kept_scores(other, "test").tobytes()


@pytest.fixture(scope="module")
def late() -> TrainingData:
    """Four times of validation, and labels that are known 15 days after their window of 10 days has closed."""
    cutoffs = {"val_timestamp": "2023-07-01", "test_timestamp": "2023-09-01"}
    task = churn(num_eval_timestamps=4, known_after="15 days", **cutoffs)
    return TrainingData.prepare(task, TREES.changed(refit="auto"))


def test_the_earlier_cut_off_has_no_labels_but_those_known_by_then(
    late: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trees are tried as of an earlier day: with labels whose windows had closed, and no row of validation."""
    grown: list[tuple[Rows, Rows | None]] = []
    grow = Boosting.grow

    def watched(self: Boosting, train: Rows, stop: Rows | None = None, **options: Any) -> str:
        grown.append((train, stop))
        return grow(self, train, stop, **options)

    monkeypatch.setattr(Boosting, "grow", watched)
    boosting = Boosting(late)
    boosting.should_refit(boosting.rows("train"), Heard(), made_by(boosting))
    times = late.seeds["train"].time
    first = np.unique(times)[-4]  # as many times as validation has
    (before, after), (again, nothing) = grown
    assert after is not None
    assert nothing is None
    known = [place for place, moment in enumerate(times.tolist()) if moment + 25 * DAY <= first]
    later = [place for place, moment in enumerate(times.tolist()) if moment >= first]
    assert 0 < len(known) < len(times) - len(later)  # some labels were not known yet
    assert before.places.tolist() == known
    assert after.places.tolist() == later
    assert again.places.tolist() == known + later
    np.testing.assert_array_equal(again.labels, late.labels("train")[known + later])


def test_the_earlier_cut_off_takes_at_most_a_quarter_of_the_times() -> None:
    times = np.repeat(np.arange(8), 3)
    assert [inner_cutoff(times, np.arange(number)) for number in (1, 2, 3, 8)] == [7, 6, 6, 6]
    assert inner_cutoff(np.array([5, 5]), np.arange(3)) == 5


@pytest.mark.parametrize("kind", ["binary_classification", "regression"])
def test_they_are_fitted_again_if_that_was_better_then(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether more is better or less."""
    task = Task.from_sql(small_shop(), **(KINDS[kind] | {"num_eval_timestamps": 4}))
    data = TrainingData.prepare(task, TREES.changed(refit="auto"))
    boosting = Boosting(data)
    train, val = boosting.rows("train"), boosting.rows("val")
    good = boosting.grow(val, rounds=30)
    bad = boosting.grow(Rows(val.places, val.labels[::-1].copy()), rounds=30)

    def should_refit(*texts: str) -> bool:
        left: Iterator[str] = iter(texts)
        monkeypatch.setattr(Boosting, "grow", lambda *_, **__: next(left))
        return boosting.should_refit(train, Heard(), made_by(boosting))

    assert should_refit(bad, good)
    assert not should_refit(good, bad)
    assert not should_refit(good, good)


def test_few_rows_or_little_time_leave_no_trial(
    late: TrainingData, tasks: dict[str, Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few rows tell nothing; where time is short they are fitted again without it, until time is over."""
    monkeypatch.setattr(Boosting, "grow", None)
    few = TrainingData.prepare(tasks["binary_classification"], TREES.changed(refit="auto"))
    assert len(np.unique(few.seeds["val"].time)) == 1  # fewer than a hundred customers
    boosting = Boosting(few)
    assert not boosting.should_refit(boosting.rows("train"), Heard(), made_by(boosting))
    limited = late.changed(late.recipe.changed(time_limit=100.0), late.column_names)
    for seconds, is_refit in ((10, True), (200, False)):
        boosting = Boosting(limited)
        boosting.begin = time.perf_counter() - seconds
        assert boosting.should_refit(boosting.rows("train"), Heard(), made_by(boosting)) is is_refit


# --- what they tell ---------------------------------------------------------------------------------


def test_gains_are_those_of_lightgbm(models: dict[str, TrainedModel]) -> None:
    trees: Trees = network_of(models["multiclass_classification"])
    gains = np.array(list(trees.gains.values()))
    expected = trees._booster.feature_importance("gain")
    np.testing.assert_allclose(gains, expected / expected.sum(), rtol=1e-4)
    assert tuple(trees.gains) == trees.names
    assert trees.leading_columns[0].startswith(f'"{trees.names[gains.argmax()]}" (')


def test_trees_of_random_thresholds_are_others(tasks: dict[str, Task]) -> None:
    def text(is_extra: bool) -> str:
        recipe = TREES.changed(refit="never", extra_trees=is_extra)
        fitted = Trees.fit(TrainingData.prepare(tasks["binary_classification"], recipe))
        assert fitted is not None
        return str(fitted.model.text)

    assert text(True) == text(True) != text(False)


# --- what ends a training early ---------------------------------------------------------------------


def test_a_time_limit_keeps_what_there_is(tasks: dict[str, Task], tmp_path: Path) -> None:
    recipe = TREES.changed(time_limit=1e-9)
    model = fit(tasks["binary_classification"], recipe=recipe, runs=tmp_path, listener=Heard())
    assert network_of(model).num_trees == 1
    assert not network_of(model).is_refit


@pytest.mark.parametrize(
    ("limit", "faster"), [(None, 1.0), (1e9, 1.0), (5.09 + 0.01 * 200, 2.0), (5.09 + 0.01 * 10, 4.0)]
)
def test_trees_learn_faster_where_few_rounds_fit(
    limit: float | None, faster: float, late: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round takes a hundredth of a second; 400 should fit. It is judged once, and holds for trees grown again."""
    boosting = Boosting(late.changed(late.recipe.changed(time_limit=limit, refit="never"), late.column_names))
    spent = [5.0]  # until the first round is over
    monkeypatch.setattr("quartet.models.trees.time.perf_counter", lambda: boosting.begin + spent[0])
    assert boosting.hasten(1) == 1.0
    spent[0] = 5.09
    assert boosting.hasten(9) == 1.0
    assert boosting.hasten(10) == pytest.approx(faster, rel=1e-6)
    assert boosting.haste == pytest.approx(faster, rel=1e-6)
    assert boosting.hasten(11) == 1.0


def test_a_learning_rate_is_changed_for_the_rounds_that_follow(late: TrainingData) -> None:
    """The first ten trees are those of a patient training, the others are not; training rows stop nothing."""

    def leaves(haste: float) -> list[str]:
        boosting = Boosting(late)
        boosting.hasten = lambda n: haste if n == 10 else 1.0  # type: ignore[method-assign]
        rows = boosting.rows("train")
        text = boosting.grow(rows, rows, rounds=12)
        return [line for line in text.splitlines() if line.startswith("leaf_value=")]

    patient, hasty = leaves(1.0), leaves(4.0)
    assert len(patient) > 10
    assert patient[:10] == hasty[:10]
    assert patient[10] != hasty[10]


def test_trees_that_are_grown_again_are_patient_as_long(late: TrainingData) -> None:
    """Where classes are rare, a high rate leads astray from the first round on: nothing stops trees grown again."""

    def leaves(haste: float) -> list[str]:
        boosting = Boosting(late)
        boosting.haste = haste
        text = boosting.grow(boosting.rows("train"), rounds=12)
        return [line for line in text.splitlines() if line.startswith("leaf_value=")]

    patient, hasty = leaves(1.0), leaves(4.0)
    assert len(patient) == 12
    assert patient[:10] == hasty[:10]
    assert patient[10] != hasty[10]


@pytest.mark.parametrize(("refit", "part"), [("never", 1.0), ("auto", 0.55), ("always", 0.55)])
def test_time_is_left_for_growing_trees_again(
    refit: str, part: float, late: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    boosting = Boosting(late.changed(late.recipe.changed(time_limit=100, refit=refit), late.column_names))
    for seconds in (100 * part - 1, 100 * part + 1):
        monkeypatch.setattr("quartet.models.trees.time.perf_counter", lambda s=seconds: boosting.begin + s)
        assert boosting.is_grown is (seconds > 100 * part)
        assert boosting.is_over is (seconds > 100)
