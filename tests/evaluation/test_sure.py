"""How sure: limits are those of their definition, hold as often as they say, and know nothing before its time."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from quartet.causal import TimeRule, visible
from quartet.evaluation import Sure, disagreement, in_sets, surest
from quartet.evaluation.sure import limit

COVERAGES = ("0.5", "0.7", "0.8", "0.9", "0.95", "0.99")
Floats = NDArray[np.float64]


def kept(misfit: Floats, time: NDArray[np.int64], lag: int = 1, kind: str = "regression") -> Sure:
    """What is kept of rows of these misfits, whose labels are known so much later."""
    none = np.zeros(len(misfit), np.int64)
    return Sure(kind, misfit, time, time + lag, none, len(misfit))  # type: ignore[arg-type]


@pytest.mark.parametrize("coverage", COVERAGES)
def test_the_limit_is_the_row_that_its_definition_names(coverage: str) -> None:
    rng = np.random.default_rng(0)
    for count in range(120):
        misfit = rng.permutation(count).astype(np.float64)
        place = math.ceil((count + 1) * Fraction(coverage))
        expected = float(place - 1) if place <= count else math.inf
        assert limit(misfit, np.ones(count), float(coverage)) == expected


WEIGHTED = st.tuples(st.integers(0, 9), st.sampled_from([0.125, 0.25, 0.5, 1.0]))


@given(st.lists(WEIGHTED, max_size=40), st.sampled_from(COVERAGES))
def test_a_weighted_limit_is_the_least_that_holds_enough(
    rows: list[tuple[int, float]], coverage: str
) -> None:
    total = sum((Fraction(weight) for _, weight in rows), Fraction(1))
    enough = [
        value for value in range(10)
        if sum(Fraction(weight) for own, weight in rows if own <= value) >= Fraction(coverage) * total
    ]  # fmt: skip
    misfit, weight = (np.array([row[place] for row in rows], np.float64) for place in (0, 1))
    assert limit(misfit, weight, float(coverage)) == min(enough, default=math.inf)


def test_of_exchangeable_rows_as_many_hold_as_promised() -> None:
    """A new row is held with the chance ceil((n + 1) c) / (n + 1): six deviations are no accident."""
    rng, draws = np.random.default_rng(0), 20_000
    for count, coverage in ((9, 0.9), (30, 0.9), (99, 0.8)):
        rows = rng.exponential(size=(draws, count + 1))
        held = np.mean([row[-1] <= limit(row[:-1], np.ones(count), coverage) for row in rows])
        exact = math.ceil(round((count + 1) * coverage, 9)) / (count + 1)
        assert exact >= coverage
        assert abs(held - exact) < 6 * math.sqrt(exact * (1 - exact) / draws)


def drawn(count: int, rng_seed: int) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Labels, predictions and times of numbers whose errors grow with them."""
    rng = np.random.default_rng(rng_seed)
    score = rng.uniform(1, 10, count)
    return score + score * rng.normal(size=count), score, np.sort(rng.integers(0, 10, count))


def test_intervals_of_numbers_hold_as_often_as_promised_and_are_narrow_where_errors_are_small() -> None:
    held = []
    for rng_seed in range(30):
        target, score, time = drawn(400, 2 * rng_seed)
        sure = Sure.fit("regression", target, score, time + 1, time, np.arange(400))
        assert sure.by == "value"
        after, then, _ = drawn(400, 2 * rng_seed + 1)
        ends = sure.interval(then, np.full(400, 99), 0.9)
        held.append(np.mean((ends[:, 0] <= after) & (after <= ends[:, 1])))
        width = ends[:, 1] - ends[:, 0]
        assert width[then < 3].mean() < width[then > 8].mean() / 2
    assert 0.885 < np.mean(held) < 0.925


def test_the_size_of_errors_is_read_from_what_makes_intervals_narrow() -> None:
    rng = np.random.default_rng(0)
    score, hint, time = rng.normal(size=1000), rng.uniform(1, 9, 1000), np.arange(1000) // 100
    told = [score + size * rng.normal(size=1000) for size in (hint, np.ones(1000))]
    found = [Sure.fit("regression", y, score, time + 1, time, time, {"hint": hint}) for y in told]
    assert [sure.by for sure in found] == ["hint", "nothing"]
    ends = found[0].interval(np.zeros(2), np.full(2, 99), 0.9, {"hint": np.array([1.0, 9.0])})
    assert ends[1, 1] > 3 * ends[0, 1]


@pytest.mark.parametrize("kind", ["regression", "binary_classification", "multiclass_classification"])
def test_what_holds_more_often_holds_more(kind: str) -> None:
    rng = np.random.default_rng(0)
    time, many = np.arange(300) // 30, np.full(50, 99)
    if kind == "regression":
        score = rng.normal(size=300)
        sure = Sure.fit(kind, score + rng.normal(size=300), score, time + 1, time, time)
        wider = [sure.interval(score[:50], many, coverage) for coverage in (0.5, 0.8, 0.9, 0.97)]
        for one, other in pairwise(wider):
            assert (other[:, 0] <= one[:, 0]).all()
            assert (one[:, 1] <= other[:, 1]).all()
        return
    num_classes = 2 if kind == "binary_classification" else 4
    chance = rng.dirichlet(np.ones(num_classes), 300)
    target = np.array([rng.choice(num_classes, p=row) for row in chance])
    sure = Sure.fit(kind, target, chance, time + 1, time, time)  # type: ignore[arg-type]
    groups = 2 if num_classes == 2 else 1
    limits = [sure.limits(many, groups, coverage) for coverage in (0.5, 0.8, 0.9, 0.97)]
    sets = [in_sets(chance[:50], each) for each in limits]
    for one, other in pairwise(sets):
        assert (one <= other).all()
    for each, own in zip(limits, sets, strict=True):
        likeliest = np.eye(num_classes, dtype=bool)[chance[:50].argmax(1)]
        assert np.array_equal(own, likeliest | (1 - chance[:50] <= each))
    assert sets[0].sum() < sets[-1].sum()


def test_both_answers_are_held_often_enough_although_one_is_rare() -> None:
    rng = np.random.default_rng(0)
    logit = rng.normal(-3, 1.5, 40_000)
    chance = 1 / (1 + np.exp(-logit))
    target = (rng.random(40_000) < chance).astype(np.int64)
    both, time = np.stack([1 - chance, chance], 1), np.zeros(20_000, np.int64)
    sure = Sure.fit(
        "binary_classification", target[:20_000], both[:20_000], time + 1, time, np.arange(20_000)
    )
    held = in_sets(both[20_000:], sure.limits(time + 1, 2))[np.arange(20_000), target[20_000:]]
    assert target.mean() < 0.15
    assert abs(held[target[20_000:] == 1].mean() - 0.9) < 0.02
    assert held[target[20_000:] == 0].mean() > 0.88  # more, because the likeliest is always in the set


def test_a_class_that_the_model_does_not_know_is_never_held() -> None:
    chance, time = np.full((20, 2), 0.5), np.arange(20)
    target = np.where(np.arange(20) < 3, [7, -1, 2][0], 0)
    sure = Sure.fit("multiclass_classification", target, chance, time + 1, time, time)
    assert np.isinf(sure.misfit).sum() == 3
    assert sure.limits(np.array([99]), coverage=0.8)[0, 0] == 0.5
    assert sure.limits(np.array([99]), coverage=0.9)[0, 0] == math.inf


def test_too_few_labels_promise_nothing() -> None:
    sure = kept(np.arange(8.0), np.zeros(8, np.int64))
    assert sure.limits(np.array([5]), coverage=0.9)[0, 0] == math.inf
    assert sure.limits(np.array([5]), coverage=0.8)[0, 0] == 7.0
    assert sure.interval(np.zeros(1), np.array([5]), 0.9).tolist() == [[-math.inf, math.inf]]
    assert replace(sure, floor=0.0).interval(np.ones(1), np.array([5]), 0.9).tolist() == [[0.0, math.inf]]


@pytest.mark.parametrize("rule", ["<=", "<"])
@pytest.mark.parametrize("groups", [1, 2])
def test_labels_that_are_not_known_yet_change_no_bit(groups: int, rule: TimeRule) -> None:
    """Half of all labels get another value, later or earlier; those known by then stay, and so does the limit."""
    rng = np.random.default_rng(0)
    kind = "regression" if groups == 1 else "binary_classification"
    time = np.sort(rng.integers(0, 60, 900))
    known_at = time + rng.integers(1, 9, 900)
    none = rng.integers(0, groups, 900)
    sure = Sure(kind, rng.exponential(size=900), time, known_at, none, 300, rule=rule)  # type: ignore[arg-type]
    for moment in range(5, 70, 12):
        at, late = np.array([moment]), ~visible(known_at, moment, rule)
        expected = [sure.limits(at, groups, coverage) for coverage in (0.7, 0.9)]
        misfit = np.where(late, rng.exponential(9, 900), sure.misfit)
        other = np.where(late, rng.integers(0, groups, 900), none)
        later = np.where(late, known_at + rng.integers(0, 5, 900), known_at)
        parts = [each[~late] for each in (sure.misfit, time, known_at, none)]
        for changed in (
            replace(sure, misfit=misfit, group=other),
            replace(sure, known_at=later),
            Sure(kind, *parts, 300, rule=rule),  # type: ignore[arg-type]
        ):
            found = [changed.limits(at, groups, coverage) for coverage in (0.7, 0.9)]
            assert np.array_equal(found, expected)


def plain_limit(rows: list[tuple[float, int]], life: float, coverage: float) -> float:
    """The limit of (misfit, known_at), each of which weighs half as much for every `life` rows that came later."""
    weighted = [(own, 0.5 ** (sum(other > at for _, other in rows) / life)) for own, at in rows]
    enough = coverage * (sum(weight for _, weight in weighted) + 1) - 1e-9
    found = [v for v, _ in weighted if sum(weight for own, weight in weighted if own <= v) >= enough]
    return min(found, default=math.inf)


def test_limits_are_those_of_a_plain_twin() -> None:
    """At each moment, the age of misfits is that which would have told best what is known then, before it came."""
    rng = np.random.default_rng(3)
    time = np.repeat(np.arange(0, 80, 8), 12)
    misfit, known_at = rng.exponential(size=120) * (1 + time / 20), time + 10
    sure = Sure("regression", misfit, time, known_at, np.zeros(120, np.int64), 100)
    lives = [math.inf, 200.0, 100.0, 50.0]  # shorter ones are too short for 100 rows

    def said(moment: int, life: float, coverage: float) -> float:
        known = [(own, at) for own, at in zip(misfit, known_at, strict=True) if at <= moment]
        return plain_limit(known, life, coverage)

    asked, expected, chosen = np.arange(0, 100, 5), [], set()
    for moment in asked.tolist():
        losses = np.zeros(len(lives))
        for own, at, label in zip(misfit, time, known_at, strict=True):
            before = (
                np.array([said(int(at), life, 0.9) for life in lives])
                if label <= moment
                else np.array([math.inf])
            )
            if np.isfinite(before).all():
                losses += np.maximum(0.9 * (own - before), 0.1 * (before - own))
        best = lives[int(losses.argmin())]
        chosen.add(best)
        expected.append(said(moment, best, 0.8))
    assert len(chosen) > 1
    assert sure.limits(asked, coverage=0.8)[:, 0].tolist() == expected


def test_a_label_counts_from_the_moment_on_that_it_is_known() -> None:
    sure = kept(np.array([*np.arange(9.0), *np.arange(100.0, 119.0)]), np.repeat([0, 10], [9, 19]), lag=5)
    at = sure.limits(np.array([4, 5, 14, 15]))[:, 0]
    assert at.tolist() == [math.inf, 8.0, 8.0, 117.0]
    after = replace(sure, rule="<").limits(np.array([5, 6, 15, 16]))[:, 0]
    assert after.tolist() == [math.inf, 8.0, 8.0, 117.0]


def test_a_label_that_sql_makes_again_is_as_far_off_as_one_that_was_kept() -> None:
    """The one is told as float32, because the last bits of a sum depend on the order of its rows."""
    label, score = np.random.default_rng(0).exponential(size=(2, 99))
    sure = kept(np.zeros(0), np.zeros(0, np.int64))
    assert np.array_equal(sure.misfits(label, score), sure.misfits(label.astype(np.float32), score))


def test_limits_follow_errors_that_have_grown() -> None:
    """Once errors are thrice as large, what validation says holds too seldom; with labels that come in, it recovers."""
    rng = np.random.default_rng(0)
    before, after = np.abs(rng.normal(size=1000)), 3 * np.abs(rng.normal(size=4000))
    time = np.arange(1000) // 100
    later = 10 + np.arange(4000) // 100
    sure = Sure.fit("regression", before, np.zeros(1000), time + 1, time, time)
    alone = after <= sure.interval(np.zeros(4000), later, 0.9)[:, 1]
    knowing = sure.knowing(after, np.zeros(4000), later, later + 1)
    rolling = after <= knowing.interval(np.zeros(4000), later, 0.9)[:, 1]
    assert alone.mean() < 0.5
    assert alone[:100].mean() == rolling[:100].mean()  # nothing is known yet
    assert rolling[1000:].mean() > 0.85


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30), st.floats(0, 0.99))
def test_those_left_out_are_less_sure_than_all_others(sureness: list[int], share: float) -> None:
    values = np.array(sureness, np.float64)
    stay = surest(values, share)
    assert stay.any()
    assert (~stay).sum() <= share * len(values) + 1e-6
    assert (~stay).sum() == 0 or values[~stay].max() < values[stay].min()
    more = values <= values[stay].min()  # the next ones would be too many
    assert more.sum() > math.floor(share * len(values) + 1e-9)


def test_members_disagree_as_they_weigh() -> None:
    each = [np.array([1.0, 2.0]), np.array([3.0, 2.0]), np.array([99.0, -5.0])]
    assert disagreement(each, (0.5, 0.5, 0.0)).tolist() == [1.0, 0.0]


def test_it_is_read_as_it_was_written() -> None:
    target, score, time = drawn(300, 0)
    sure = Sure.fit("regression", target, score, time + 1, time, time, floor=0.0)
    again = Sure.from_arrays("regression", sure.by, sure.to_arrays())
    assert Sure.from_arrays("regression", sure.by, sure.to_arrays(), "<").rule == "<"
    asked = score[:9], np.arange(9), 0.8
    assert np.array_equal(again.interval(*asked), sure.interval(*asked))
    with pytest.raises(ValueError, match="fit together"):
        Sure.from_arrays("regression", sure.by, sure.to_arrays() | {"time": time[:5]})
