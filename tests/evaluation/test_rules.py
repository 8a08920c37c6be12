"""Rules from past labels: what is known when, by hand, by a twin, and by what must go unnoticed (P6).

The labels of the drawing, of a task with a horizon of 10 days (validation from day 60, test from day 80):

    day    0    10    20    30    40    50  | 60    70  | 80
    ann    1     1     0     1     0     0  |  1     1  |
    bob                1                    |  0     0  |
    cleo                                    |  1        |

Train: 1 1 0 1 0 0 1, so 4 of 7 are positive. A label is known 10 days after its day.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.database import Database
from quartet.errors import TaskError, UsageError
from quartet.evaluation import measures
from quartet.evaluation.rules import Constant, PastLabels, entity_mean, last_labels
from quartet.tasks import Seeds, Task
from tests.evaluation.small import DRAWN, NAMES, Label, asked, label_task, labelled
from tests.shared import shared_data
from tests.shop import day
from tests.strategies import examples

SHARE = 4 / 7


def test_the_constant_is_the_share_of_positive_training_labels() -> None:
    constant = Constant.fit(label_task(DRAWN))
    assert constant.predict(asked(("ann", 0), ("dan", 99))).tolist() == [SHARE, SHARE]


def test_the_constant_of_numbers_is_the_median() -> None:
    task = label_task([("ann", 0, 1.0), ("ann", 10, 2.0), ("ann", 20, 9.0), ("ann", 60, 100.0)], "regression")
    assert Constant.fit(task).predict(asked(("bob", 0))).tolist() == [2.0]


def test_the_constant_of_classes_is_the_share_of_each() -> None:
    labels = [
        ("ann", 0, "red"),
        ("ann", 10, "blue"),
        ("ann", 20, "red"),
        ("bob", 20, "red"),
        ("ann", 60, "blue"),
    ]
    task = label_task(labels, "multiclass_classification")
    assert task.classes == ["blue", "red"]
    assert Constant.fit(task).predict(asked(("bob", 0), ("bob", 1))).tolist() == [[0.25, 0.75]] * 2
    mean = entity_mean(task).predict(asked(("ann", 30), ("bob", 30), ("bob", 29)))
    assert mean.tolist() == [[1 / 3, 2 / 3], [0.0, 1.0], [0.25, 0.75]]


@pytest.mark.parametrize(
    ("who", "number", "expected"),
    [
        ("ann", 0, SHARE),  # nothing is known yet
        ("ann", 9, SHARE),
        ("ann", 10, 1.0),  # the label of day 0, at the very time at which it closes
        ("ann", 30, 2 / 3),  # 1 1 0
        ("ann", 65, 1 / 2),  # all of train, none of validation
        ("ann", 70, 4 / 7),  # and the first label of validation
        ("ann", 200, 5 / 8),
        ("bob", 80, 1 / 3),
        ("cleo", 69, SHARE),
        ("cleo", 70, 1.0),
        ("dan", 200, SHARE),
    ],
)
def test_the_mean_of_known_labels(who: str, number: int, expected: float) -> None:
    assert entity_mean(label_task(DRAWN)).predict(asked((who, number))).tolist() == [expected]


def test_a_label_is_known_when_its_window_closes_not_before() -> None:
    rule = entity_mean(label_task(DRAWN))
    for shift, expected in ((-1, SHARE), (0, 1.0), (1, 1.0)):
        seeds = Seeds(np.array([0]), np.array([day(10) + shift]), None)
        assert rule.predict(seeds).tolist() == [expected]


def test_a_label_without_a_horizon_is_not_known_at_its_own_time() -> None:
    """Or every training seed would be given its own label."""
    task = label_task([("ann", 0, 5.0), ("ann", 10, 7.0), ("bob", 0, 9.0), ("bob", 65, 1.0)], "regression", 0)
    mean = entity_mean(task).predict(asked(("ann", 0), ("ann", 10), ("ann", 11)))
    assert mean.tolist() == [7.0, 5.0, 6.0]  # the median, the first, the mean of both


def test_only_the_last_twelve_count_and_are_smoothed() -> None:
    """Fourteen labels 0 0 1 ... 1: the last twelve are 1, and k labels of the share 12/16 stand beside them."""
    labels = [("ann", number, int(number > 1)) for number in range(14)]
    labels += [("bob", 0, 0), ("bob", 1, 0), ("ann", 60, 1), ("bob", 60, 0)]
    rule = last_labels(label_task(labels))
    k = rule.num_pseudo
    expected = [(12 + k * 0.75) / (12 + k), k * 0.75 / (2 + k), 0.75]
    assert rule.predict(asked(("ann", 30), ("bob", 30), ("cleo", 30))).tolist() == pytest.approx(
        expected, rel=1e-15
    )


def test_validation_decides_how_much_is_smoothed() -> None:
    """People who stay as they were want little smoothing; people who change at will want much."""
    train = [(name, 0, float(10 * place)) for place, name in enumerate(NAMES)]
    stays = [(name, 60, y) for name, _, y in train]
    turns = [(name, 60, 30.0 - y) for name, _, y in train]
    assert last_labels(label_task(train + stays, "regression")).num_pseudo == 2.0
    assert last_labels(label_task(train + turns, "regression")).num_pseudo == 8.0


def test_one_class_in_validation_selects_nothing() -> None:
    labels = [("ann", 0, 1), ("bob", 0, 0), ("ann", 60, 0), ("bob", 60, 0)]
    said = (
        r"^error\[L06\] no model can be selected by the roc_auc of validation: n/a \(only class 0 in 2 rows\)"
    )
    with pytest.raises(TaskError, match=said):
        last_labels(label_task(labels))


def test_more_labels_can_be_given() -> None:
    """The labels of test, in the rolling protocol: each counts from the day on which it closes."""
    rule = entity_mean(label_task(DRAWN))
    more = rule.knowing(labelled(("dan", 80, 1), ("dan", 90, 0)))
    seeds = asked(("dan", 89), ("dan", 90), ("dan", 100), ("ann", 200))
    assert more.predict(seeds).tolist() == [SHARE, 1.0, 0.5, 5 / 8]
    assert rule.predict(seeds).tolist() == [SHARE, SHARE, SHARE, 5 / 8]


def test_a_clamped_seed_looks_from_the_test_cut_off() -> None:
    """Even if it is given the labels of test, it knows none of them."""
    labels = [*DRAWN, ("dan", 80, 1), ("dan", 90, 0)]
    task = label_task(labels)
    rule = entity_mean(task).knowing(labelled(("dan", 80, 1), ("dan", 90, 0)))
    assert rule.predict(task.under("clamped").asked_seeds("test")).tolist() == [SHARE, SHARE]
    assert rule.predict(task.under("rolling").asked_seeds("test")).tolist() == [SHARE, 1.0]


def test_recommendations_have_no_mean() -> None:
    task = Task.load(Database.load(shared_data("rel-f1")), "driver-circuit-compete")
    said = r'^error\[C01\] there are no metrics for tasks of type "recommendation"'
    with pytest.raises(UsageError, match=said):
        Constant.fit(task)


# --- a twin, and P6 -------------------------------------------------------------------------------

HORIZON = 10
labels_drawn = st.lists(
    st.tuples(st.sampled_from(NAMES[:3]), st.integers(0, 60), st.sampled_from([0.1, 0.7, -3.3, 1e9])),
    min_size=1,
    max_size=30,
    unique_by=lambda label: label[:2],
)
seeds_drawn = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 80)), min_size=1, max_size=8)
TASK = label_task([("ann", 0, 0.3), ("ann", 60, 1.0)], "regression", HORIZON)


def rule_knowing(labels: list[Label], most: int | None, num_pseudo: float) -> PastLabels:
    return PastLabels.of("rule", TASK, labelled(*labels), most, num_pseudo, np.array([0.25]))


def plain_mean(labels: list[Label], who: str, number: int, most: int | None, num_pseudo: float) -> float:
    seen = [y for name, at, y in sorted(labels) if name == who and at + HORIZON <= number][-(most or 10**9) :]
    weight = len(seen) + num_pseudo
    return (sum(seen) + num_pseudo * 0.25) / weight if weight else 0.25


@given(labels_drawn, seeds_drawn, st.sampled_from([None, 1, 3]), st.sampled_from([0.0, 2.0]))
def test_rules_equal_their_plain_twin(
    labels: list[Label], seeds: list[tuple[str, int]], most: int | None, num_pseudo: float
) -> None:
    expected = [plain_mean(labels, *seed, most, num_pseudo) for seed in seeds]
    found = rule_knowing(labels, most, num_pseudo).predict(asked(*seeds))
    assert found.tolist() == pytest.approx(expected, rel=1e-12)


def scrambled(labels: list[Label], number: int, rng: random.Random) -> list[Label]:
    """The labels with those that are not closed on a day changed, moved, taken out, or joined by others."""
    closed = [label for label in labels if label[1] + HORIZON <= number]
    taken = {(name, at) for name, at, _ in closed}
    others: dict[tuple[str, int], float] = {}
    for _ in range(rng.randrange(12)):
        pair = rng.choice(NAMES), number - HORIZON + rng.randrange(1, 50)
        if pair not in taken:
            others[pair] = rng.choice([0.1, -1e12, 5.0])
    return closed + [(name, at, y) for (name, at), y in others.items()]


@examples(100)
@given(
    labels_drawn,
    seeds_drawn,
    st.sampled_from([None, 1, 12]),
    st.sampled_from([0.0, 2.0]),
    st.integers(0, 2**32),
)
def test_labels_that_are_not_closed_go_unnoticed(
    labels: list[Label], seeds: list[tuple[str, int]], most: int | None, num_pseudo: float, rng_seed: int
) -> None:
    """P6, to the last bit, for the latest seed and all before it; the order of labels does not matter either."""
    rng = random.Random(rng_seed)
    others = scrambled(labels, max(number for _, number in seeds), rng)
    rng.shuffle(others)
    found = rule_knowing(labels, most, num_pseudo).predict(asked(*seeds))
    if others:
        assert rule_knowing(others, most, num_pseudo).predict(asked(*seeds)).tolist() == found.tolist()


def test_a_new_label_is_noticed() -> None:
    """So the test above compares something."""
    means = entity_mean(label_task(DRAWN)).predict(asked(*[("ann", number) for number in range(0, 100, 10)]))
    assert means.tolist() == [SHARE, 1, 1, 2 / 3, 3 / 4, 3 / 5, 1 / 2, 4 / 7, 5 / 8, 5 / 8]


# --- rel-f1 ---------------------------------------------------------------------------------------

# The rule of the last 12 labels on test, frozen and rolling: ROC-AUC, or mean absolute error.
PUBLISHED = {
    "driver-dnf": (0.701, 0.819, 0.01),
    "driver-top3": (0.465, 0.880, 0.01),
    "driver-position": (3.94, 3.02, 0.05),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_last_labels_of_drivers(name: str) -> None:
    task = Task.load(Database.load(shared_data("rel-f1")), name)
    frozen, rolling, tolerance = PUBLISHED[name]
    rule, target = last_labels(task), task.vault.open("compare with the published figures")
    test = task.seeds("test")

    def main(rule: PastLabels, protocol: str) -> float | None:
        scores = rule.predict(task.under(protocol).asked_seeds("test"))  # type: ignore[arg-type]
        return next(iter(measures(task.spec.type, target, scores, num_resamples=0).values())).value  # type: ignore[arg-type]

    assert rule.num_pseudo == 2.0
    assert main(rule, "frozen") == pytest.approx(frozen, abs=tolerance)
    assert main(rule.knowing(Seeds(test.node, test.time, target)), "rolling") == pytest.approx(
        rolling, abs=tolerance
    )
    assert main(rule, "rolling") == main(rule, "frozen")  # no label of test, no difference
