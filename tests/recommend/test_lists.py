"""Metrics of ranked lists: against plain twins, RelBench's own, and exact laws."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from quartet.errors import TaskError
from quartet.evaluation import NO_ITEM, Lists, average_precisions, check_selectable, fused, list_measures
from quartet.recommend import rows
from quartet.recommend.recommender import rule_scores
from quartet.recommend.rows import reciprocal_ranks
from quartet.tasks import Links, Seeds


def random_lists(rng: np.random.Generator, num_seeds: int = 40, k: int = 6) -> tuple[Lists, Links]:
    items = np.stack([rng.permutation(12)[:k] for _ in range(num_seeds)])
    items[rng.random(num_seeds) < 0.2, k - 2 :] = NO_ITEM
    wanted = [np.sort(rng.permutation(12)[: rng.integers(0, 9)]) for _ in range(num_seeds)]
    offsets = np.concatenate([[0], np.cumsum([len(own) for own in wanted])])
    return Lists(items, np.zeros(items.shape)), Links(offsets, np.concatenate(wanted).astype(np.int64))


def twin(lists: Lists, target: Links, k: int) -> dict[str, float]:
    """Each metric by its definition, one list after the other."""
    precision, recall, gain = [], [], []
    for number, row in enumerate(lists.items[:, :k].tolist()):
        wanted = set(target.nodes[target.offsets[number] : target.offsets[number + 1]].tolist())
        if not wanted:
            continue
        hits, total, discounted = 0, 0.0, 0.0
        for place, item in enumerate(row, 1):
            if item in wanted:
                hits += 1
                total += hits / place
                discounted += 1 / math.log2(place + 1)
        best = sum(1 / math.log2(place + 1) for place in range(1, min(len(wanted), k) + 1))
        precision.append(total / min(len(wanted), k))
        recall.append(hits / len(wanted))
        gain.append(discounted / best)
    return {"map": np.mean(precision), "recall": np.mean(recall), "ndcg": np.mean(gain)}


@pytest.mark.parametrize("k", [1, 3, 6])
@pytest.mark.parametrize("rng_seed", range(5))
def test_metrics_are_those_of_their_definitions(rng_seed: int, k: int) -> None:
    lists, target = random_lists(np.random.default_rng(rng_seed))
    found = list_measures(target, lists, k, np.arange(len(lists)), 12, num_resamples=50)
    for name, value in twin(lists, target, k).items():
        assert found[name].value == pytest.approx(value, abs=1e-12)
        assert found[name].low <= found[name].value <= found[name].high  # type: ignore[operator]
    assert average_precisions(target, lists, k).mean() == found["map"].value
    assert found["coverage"].value == len(set(lists.items[:, :k].ravel().tolist()) - {NO_ITEM}) / 12


@pytest.mark.parametrize("rng_seed", range(3))
def test_map_is_relbench_s(rng_seed: int) -> None:
    metrics = pytest.importorskip("relbench.metrics")
    lists, target = random_lists(np.random.default_rng(rng_seed))
    told = metrics.map(lists.hits(target).astype(int), np.diff(target.offsets))
    assert average_precisions(target, lists, lists.items.shape[1]).mean() == pytest.approx(told, abs=1e-12)


def test_intervals_are_over_sources() -> None:
    """Rows of one source are no independent witnesses: the same rows of few sources have a wider interval."""
    lists, target = random_lists(np.random.default_rng(0), num_seeds=200)
    widths = []
    for entity in (np.arange(200), np.arange(200) // 40):
        measure = list_measures(target, lists, 6, entity, 12)["map"]
        widths.append(measure.high - measure.low)  # type: ignore[operator]
    assert list_measures(target, lists, 6, np.zeros(200, np.int64), 12)["map"].low is None
    assert widths[0] != widths[1]


def test_lists_are_ordered_by_score_and_then_by_their_tie() -> None:
    seed, item = np.array([0, 0, 0, 2, 0]), np.array([5, 6, 7, 5, 8])
    lists = Lists.of(seed, item, np.array([1.0, 3.0, 1.0, 0.0, 1.0]), np.array([3, 0, 1, 0, 2]), 3, 3)
    assert lists.items.tolist() == [[6, 7, 8], [NO_ITEM] * 3, [5, NO_ITEM, NO_ITEM]]
    assert np.isnan(lists.scores[1]).all()


@pytest.mark.parametrize("apart", [1e-6, 2.4e-7])
def test_rules_ask_popularity_only_of_equal_ones(apart: float) -> None:
    """The popular item is last by recency, however little later the others are; of the two equal ones it decides."""
    names = ("item events in 1 horizons", "own: last", "own: times")
    rows = [[9, 1 + apart, 1], [1, 1, 1], [5, 1, 1], [8, np.nan, 0], [7, np.nan, 0], [7, np.nan, 0]]
    moment: Any = SimpleNamespace(past=SimpleNamespace(main=SimpleNamespace(name="own"), is_link=False))
    rules = rule_scores(moment, names, np.array(rows, np.float32))
    seed, item = np.zeros(6, np.int64), np.array([3, 4, 5, 6, 8, 7])
    ranks = {name: reciprocal_ranks(seed, *order, item) for name, order in rules.items()}
    orders = {name: item[np.argsort(-rank)].tolist() for name, rank in ranks.items()}
    assert orders["own past by recency"] == [5, 4, 3, 6, 7, 8]
    assert orders["own past by count"] == [3, 5, 4, 6, 7, 8]
    assert orders["most popular lately"] == [3, 6, 7, 8, 5, 4]


@pytest.mark.parametrize("k", [1, 3, 50])
@pytest.mark.parametrize("rng_seed", range(4))
def test_precisions_of_pairs_are_those_of_their_lists(
    rng_seed: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With equal scores, sources without pairs, without items, and items that are no candidates."""
    monkeypatch.setattr(rows, "_MOST_COMPARED", 40)
    rng, num_seeds = np.random.default_rng(rng_seed), 30
    key = np.flatnonzero(rng.random(num_seeds * 20) < 0.4)
    seed, item, score = key // 20, key % 20, rng.integers(0, 6, len(key)).astype(np.float64)
    wanted = [np.flatnonzero(rng.random(20) < 0.15 * (place % 4)) for place in range(num_seeds)]
    target = Links(np.concatenate([[0], np.cumsum([len(own) for own in wanted])]), np.concatenate(wanted))
    label = np.array([i in wanted[s] for s, i in zip(seed, item, strict=True)])
    pairs = rows.PairRows(seed, item, np.zeros((len(key), 0), np.float32), label, label, label)
    seeds = Seeds(np.arange(num_seeds), np.zeros(num_seeds, np.int64), target)
    lists = Lists.of(seed, item, score, item, num_seeds, k)
    expected = average_precisions(target, lists, k)
    assert pairs.precisions(score, seeds, k) == pytest.approx(expected, abs=1e-12)


def test_lists_of_several_models_are_fused_by_place() -> None:
    one = Lists(np.array([[1, 2, NO_ITEM]]), np.zeros((1, 3)))
    other = Lists(np.array([[2, 3, 1]]), np.zeros((1, 3)))
    key = np.arange(4)
    assert fused([one, other], 2, key).items.tolist() == [[2, 1]]
    assert fused([one, one], 3, key).items.tolist() == [[1, 2, NO_ITEM]]
    level = [Lists(np.array([row]), np.zeros((1, 2))) for row in ([1, 2], [2, 1])]
    assert fused(level, 2, key).items.tolist() == [[1, 2]]
    assert fused(level, 2, -key).items.tolist() == [[2, 1]]


def test_validation_without_any_item_selects_no_model() -> None:
    with pytest.raises(TaskError, match=r"L06.*no rows with items"):
        check_selectable("recommendation", Links(np.zeros(3, np.int64), np.empty(0, np.int64)))
