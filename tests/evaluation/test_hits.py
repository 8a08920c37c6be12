"""Plain counts of what scores are worth: hits among the highest, misses, confusions, and paired differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.evaluation import confusion, difference, hits, main_metric, measures, misses
from tests.strategies import examples

rows = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5)), min_size=1, max_size=60)


@examples(100)
@given(rows, st.randoms(use_true_random=False))
def test_hits_are_those_of_the_best_rows(drawn: list[tuple[int, int]], random: object) -> None:
    """Of equal scores each order is as likely: hits are the mean over all of them, whatever the order of the rows."""
    target, score = np.array([y for y, _ in drawn]), np.array([s / 5 for _, s in drawn])
    found = hits(target, score)
    assert (found[0].count, found[0].came_true) == (0, 0.0)
    assert (found[-1].count, found[-1].came_true) == (len(target), pytest.approx(target.sum()))
    for each in found:
        expected, left = 0.0, each.count
        for value in sorted(set(score.tolist()), reverse=True):
            same = target[score == value]
            expected += same.mean() * min(left, len(same))
            left -= min(left, len(same))
        assert each.came_true == pytest.approx(expected)
    random.shuffle(drawn)  # type: ignore[attr-defined]
    again = hits(np.array([y for y, _ in drawn]), np.array([s / 5 for _, s in drawn]))
    assert [each.count for each in again] == [each.count for each in found]
    assert [e.came_true for e in again] == pytest.approx([e.came_true for e in found])


def test_round_numbers_are_among_them() -> None:
    counts = {each.count for each in hits(np.arange(3334) % 2, np.arange(3334.0))}
    assert {0, 10, 20, 50, 100, 200, 500, 1000, 3334} <= counts
    assert hits(np.empty(0, np.int64), np.empty(0))[-1].came_true == 0.0


def test_misses_hold_so_many_rows() -> None:
    rng = np.random.default_rng(0)
    target, score = rng.normal(size=(2, 101))
    for miss in misses(target, score):
        assert (np.abs(target - score) <= miss.error).mean() >= miss.percent / 100
        assert (np.abs(target - score) < miss.error).mean() <= miss.percent / 100
    assert misses(np.empty(0), np.empty(0)) == ()


def test_confusions_count_every_row_once() -> None:
    target = np.array([0, 0, 1, 2, 2, 2])
    guess = np.array([0, 1, 1, 2, 0, 2])
    counts = confusion(target, np.eye(3)[guess])
    assert counts == ((1, 1, 0), (0, 1, 0), (1, 0, 2))


@pytest.mark.parametrize("kind", ["binary_classification", "regression"])
def test_a_difference_is_paired(kind: str) -> None:
    """It is that of the metrics; turned round it changes its sign, and of equal scores it is 0 without doubt."""
    rng = np.random.default_rng(1)
    target, entity = rng.integers(0, 2, 200), np.arange(200) // 4
    one, other = (np.clip(target + rng.normal(0, spread, 200), 0, 1) for spread in (0.5, 0.9))
    found, turned = (difference(kind, target, *pair, entity) for pair in ((one, other), (other, one)))  # type: ignore[arg-type]
    alone = [measures(kind, target, s, entity=entity)[main_metric(kind)] for s in (one, other)]  # type: ignore[arg-type]
    assert found.value == pytest.approx(alone[0].value - alone[1].value)
    assert (found.low, found.high) == pytest.approx((-turned.high, -turned.low))
    assert found.low < found.value < found.high
    width = alone[0].high - alone[0].low + alone[1].high - alone[1].low
    assert found.high - found.low < width  # what is hard for both cancels out
    same = difference(kind, target, one, one, entity)  # type: ignore[arg-type]
    assert (same.value, same.low, same.high) == (0.0, 0.0, 0.0)
