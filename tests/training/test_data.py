"""What models read: contexts live as from the cache, parts built once, and nothing that was not asked for."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from quartet.contexts import Context
from quartet.features import FeatureTable, RelationalColumns
from quartet.graph import TemporalGraph
from quartet.models.tower import TowerAlone
from quartet.tasks import SPLITS, Seeds, Task
from quartet.training import TrainingData, View
from tests.tasks.small import CHURN, small_shop
from tests.trained import TINY, TREES, Heard, churn


def same(one: Context, other: Context) -> bool:
    names = [each.name for each in fields(one)]
    return all(np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True) for name in names)


@pytest.mark.parametrize("protocol", ["frozen", "rolling"])
def test_contexts_are_the_same_live_sampled_and_from_the_cache(protocol: str, tmp_path: Path) -> None:
    recipe, task = TINY.changed(protocol=protocol), churn(num_eval_timestamps=2)
    data, again = (TrainingData.prepare(task, recipe, tmp_path) for _ in range(2))
    for split in SPLITS:
        first = data.context(split)
        assert data.context(split) is first
        assert same(again.context(split), first)
        assert first.columns.shape == (len(data.seeds[split]), len(data.column_names))
        view = View(task.under(protocol).database, data.features, task.spec, recipe)
        (live,) = view.contexts(data.seeds[split], data.column_names)
        assert same(live, first)
        for names in ((), data.column_names):
            (kept,) = data.view.contexts(data.seeds[split], names)
            assert kept is first


def test_test_labels_stay_in_the_vault(tmp_path: Path) -> None:
    task = churn()
    data = TrainingData.prepare(task, TINY, tmp_path)
    assert [len(data.context(split)) for split in SPLITS] == [len(task.seeds(split)) for split in SPLITS]
    assert data.seeds["test"].target is None
    assert task.vault.openings == []
    assert data.metric == "roc_auc"


def test_features_know_nothing_after_the_train_cut_off(tmp_path: Path) -> None:
    task = churn()
    data = TrainingData.prepare(task, TINY, tmp_path)
    early = FeatureTable.fit(task.database.upto(task.splits.val), task.splits.val)
    waited = data.features.statistics.longest_wait
    assert waited is not None  # of training seeds, which are known by then
    assert data.features.statistics.to_dict() == early.waiting(waited).statistics.to_dict()


def test_trees_wait_for_no_graph_and_networks_for_no_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("nobody asked for it")

    with monkeypatch.context() as patched:
        patched.setattr(TemporalGraph, "build", refuse)
        assert TrainingData.prepare(churn(), TREES, tmp_path).view.columns.of_seeds(churn().seeds("val"))
    with monkeypatch.context() as patched:
        patched.setattr(RelationalColumns, "of", refuse)
        assert len(TrainingData.prepare(churn(), TINY.changed(tower=0), tmp_path).context("val"))


def test_some_columns_are_those_among_all(tmp_path: Path) -> None:
    """In the order in which they are asked for, whether they were made before or are made now."""
    data = TrainingData.prepare(churn(), TINY, tmp_path)
    some = (data.column_names[7], data.column_names[2], data.column_names[5])
    changed = data.changed(TINY.changed(rng_seed=1), some)
    assert changed.column_names == some
    for split in SPLITS:
        whole = data.columns(split)
        assert changed.columns(split).tobytes() == whole[:, [7, 2, 5]].tobytes()
        again = Seeds(data.seeds[split].node, data.seeds[split].time, None)
        assert changed.view.matrix(again, some).tobytes() == whole[:, [7, 2, 5]].tobytes()


def test_columns_that_training_cannot_afford_are_read_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Validation has one time, training many: what a model learned without it is asked without it."""
    whole = TrainingData.prepare(churn(), TINY, tmp_path).column_names
    monkeypatch.setattr("quartet.features.aggregates._MOST_COMPARED", 100)  # two times of forty customers
    data = TrainingData.prepare(churn(), TINY, tmp_path)
    monkeypatch.setattr("quartet.features.blocks.PlaceBlock.fill", None)
    assert data.column_names == tuple(
        name for name in whole if ", place among " not in name and ", gap " not in name
    )
    assert len(data.column_names) < len(whole)
    assert {data.columns(split).shape[1] for split in SPLITS} == {len(data.column_names)}


def test_fewer_seeds_are_some_of_all(tmp_path: Path) -> None:
    """With their own labels, columns and contexts, the same each time, whether columns were made before or not."""
    data = TrainingData.prepare(churn(), TINY, tmp_path)
    before = data.fewer(train=50)
    columns, context = data.columns("train"), data.context("train")
    some = data.fewer(train=50)
    mask = some.some["train"]
    assert mask.sum() == len(some.seeds["train"]) == 50 < len(data.seeds["train"])
    assert some.seeds["val"] is data.seeds["val"]
    np.testing.assert_array_equal(before.some["train"], mask)
    np.testing.assert_array_equal(some.labels("train"), data.labels("train")[mask])
    for fewer in (before, some):
        assert fewer.columns("train").tobytes() == columns[mask].tobytes()
        np.testing.assert_array_equal(fewer.context("train").seed_node, context.seed_node[mask])
    again = some.fewer(train=20)
    assert mask[again.some["train"]].all()
    np.testing.assert_array_equal(again.labels("train"), data.labels("train")[again.some["train"]])
    assert data.fewer(train=10**6) is data


def test_a_network_of_fewer_seeds_has_the_shape_of_one_that_sees_all(tmp_path: Path) -> None:
    """It may go on from one that did, however few codes its own seeds have."""
    shop = small_shop(town=[f"town {number % 10}" for number in range(40)])
    data = TrainingData.prepare(Task.from_sql(shop, **CHURN), TINY, tmp_path)
    data.columns("train")
    few = data.fewer(train=1)
    (name,) = data.highest_codes
    assert few.columns("train")[0, few.column_names.index(name)] < data.highest_codes[name]
    one, other = (TowerAlone.new(each, TINY.changed(architecture="tower")) for each in (data, few))
    other.readout.load_state_dict(one.readout.state_dict())


def test_a_listener_follows_the_sampling(tmp_path: Path) -> None:
    heard = Heard()
    data = TrainingData.prepare(churn(), TINY, tmp_path, heard)
    data.context("train")
    ((what, told),) = heard.work.items()
    total = len(churn().seeds("train"))
    assert "train" in what
    assert sum(done for done, _ in told) == total
    assert {of for _, of in told} == {total}
    TrainingData.prepare(churn(), TINY, tmp_path, heard).context("train")  # from the cache: nothing to follow
    assert heard.work == {what: told}


def test_rows_that_labels_add_are_reported(tmp_path: Path) -> None:
    """Findings about the table of known labels, not again those about the database."""
    heard = Heard()
    task = Task.from_sql(small_shop(), **CHURN)
    TrainingData.prepare(task, TINY.changed(past_labels=True), tmp_path, heard)
    assert set(heard.findings).isdisjoint(task.full_database.findings)
