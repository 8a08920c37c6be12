"""Statistics of studies by hand, and the paper's figures by its own tables."""

from __future__ import annotations

import math

import numpy as np
import pytest

from quartet.paper import STUDIES, Result, StudyName
from quartet.paper.numbers import (
    paper,
    paper_beside,
    paper_changes,
    paper_means,
    paper_ratios,
    paper_selected,
)
from quartet.paper.statistics import Comparison, Spread, comparisons, student_quantile
from tests.paper.results import result, results

TASKS = [
    ("rel-amazon", "item-churn"), ("rel-amazon", "user-churn"), ("rel-avito", "user-clicks"),
    ("rel-avito", "user-visits"), ("rel-event", "user-ignore"), ("rel-event", "user-repeat"),
    ("rel-f1", "driver-dnf"), ("rel-f1", "driver-top3"), ("rel-hm", "user-churn"), ("rel-stack", "user-badge"),
    ("rel-stack", "user-engagement"), ("rel-trial", "study-outcome"),
]  # fmt: skip


def only(rows: list[Result], study: StudyName = "main") -> Comparison:
    (compared,) = comparisons(study, rows)
    return compared


# --- statistics -----------------------------------------------------------------------------------


def test_student_quantiles_are_those_of_scipy() -> None:
    t = pytest.importorskip("scipy.stats").t
    for degrees in [*range(1, 40), 99, 100, 1000, 1001]:
        assert student_quantile(degrees) == pytest.approx(t.ppf(0.975, degrees), rel=1e-10)


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(1, 12.7062), (2, 4.3027), (30, 2.0423), (31, 2.0395), (100, 1.9840)]
)
def test_student_quantiles_are_those_of_the_books(degrees: int, quantile: float) -> None:
    assert student_quantile(degrees) == pytest.approx(quantile, abs=5e-5)


def test_a_spread_has_a_deviation_and_an_interval_from_two_values_on() -> None:
    assert Spread.of([]) is None
    one, three = Spread.of([0.7]), Spread.of([1.0, 2.0, 3.0])
    assert one == Spread(0.7, None, 1)
    assert one.interval is None
    assert three == Spread(2.0, 1.0, 3)
    half = 4.302653 / math.sqrt(3)
    assert three.interval == pytest.approx((2 - half, 2 + half), rel=1e-6)


def test_differences_are_paired_by_random_seed() -> None:
    """Seeds differ by 0.1, arms by 0.01: what is constant within a pair is no noise. Unpaired seeds are left out."""
    rows = [
        *results("QUARTET", [0.5, 0.6, 0.7]),
        result("RelGT", 2, 0.69),
        result("RelGT", 0, 0.49),
        result("RelGT", 7, 0.99),
    ]
    difference = only(rows).difference("RelGT", "QUARTET")
    assert difference is not None
    assert (difference.n, difference.mean) == (2, pytest.approx(-0.01))
    assert difference.sd == pytest.approx(0, abs=1e-12)
    assert only(rows).verdict(difference) == "worse"


def test_without_a_shared_random_seed_there_is_no_difference() -> None:
    compared = only([result("QUARTET", 0, 0.5), result("RelGT", 1, 0.6)])
    assert compared.difference("RelGT", "QUARTET") is None
    assert compared.change("RelGT", "QUARTET") is None
    assert compared.difference("HGT", "QUARTET") is None


@pytest.mark.parametrize(
    ("metric", "differences", "verdict"),
    [
        ("roc_auc", [0.02, 0.03, 0.025], "better"),
        ("roc_auc", [-0.02, -0.03, -0.025], "worse"),
        ("mae", [0.02, 0.03, 0.025], "worse"),
        ("mae", [-0.02, -0.03, -0.025], "better"),
        ("roc_auc", [0.02, 0.03, -0.01], "unclear"),
        ("roc_auc", [0.02], "unclear"),
        ("roc_auc", [0.0, 0.0], "unclear"),
    ],
)
def test_a_difference_is_clear_only_if_its_interval_excludes_zero(
    metric: str, differences: list[float], verdict: str
) -> None:
    difference = Spread.of(differences)
    assert difference is not None
    assert only([result("QUARTET", 0, 0.5, metric=metric)]).verdict(difference) == verdict


def test_the_interval_of_a_difference_is_known_by_hand() -> None:
    compared = only([*results("QUARTET", [0.5, 0.5]), *results("RelGT", [0.51, 0.53])])
    difference, change = compared.difference("RelGT", "QUARTET"), compared.change("RelGT", "QUARTET")
    assert difference is not None
    assert difference.interval == pytest.approx((0.02 - 0.127062, 0.02 + 0.127062), abs=1e-6)
    assert change is not None
    assert (change.mean, change.sd) == (pytest.approx(4.0), pytest.approx(2 * math.sqrt(2)))


def test_a_change_is_in_percent_of_the_reference_over_the_shared_random_seeds() -> None:
    compared = only([*results("QUARTET", [0.5, 0.9]), result("RelGT", 0, 0.45)])
    change = compared.change("RelGT", "QUARTET")
    assert change is not None
    assert change.mean == pytest.approx(-10.0)


def test_runs_are_compared_only_within_one_task_metric_preset_and_study() -> None:
    rows = [
        result("QUARTET", 0, 0.5),
        result("QUARTET", 0, 0.6, preset="paper"),
        result("full", 0, 0.7, study="ablation"),
        result("QUARTET", 0, 0.8, task="driver-dnf"),
        result("QUARTET", 0, 0.9, metric="mae"),
    ]
    compared = [
        (one.task, one.preset, one.metric, one.values("QUARTET", "test")) for one in comparisons("main", rows)
    ]
    assert compared == [
        ("driver-top3", "small", "roc_auc", {0: 0.5}),
        ("driver-top3", "paper", "roc_auc", {0: 0.6}),
        ("driver-dnf", "small", "roc_auc", {0: 0.8}),
        ("driver-top3", "small", "mae", {0: 0.9}),
    ]


def test_of_two_runs_with_one_random_seed_the_later_counts() -> None:
    rows = [result("QUARTET", 0, 0.5), result("QUARTET", 0, 0.6)]
    assert only(rows).values("QUARTET", "test") == {0: 0.6}


def test_a_run_whose_metric_is_undefined_has_no_figure() -> None:
    compared = only([result("QUARTET", 0, math.nan), result("QUARTET", 1, 0.6), result("RelGT", 0, math.nan)])
    assert compared.spreads("test") == {"QUARTET": Spread(0.6, None, 1)}


@pytest.mark.parametrize(("metric", "best"), [("roc_auc", "RelGT"), ("mae", "HGT")])
def test_the_best_arm_is_that_of_the_metrics_direction(metric: str, best: str) -> None:
    compared = only([result(arm, 0, value, metric=metric) for arm, value in (("HGT", 0.5), ("RelGT", 0.6))])
    assert compared.best(compared.spreads("test")) == best
    assert compared.selected == []  # the main study leaves no choice


def test_validation_selects_one_capacity_and_the_layers_of_each_sampler() -> None:
    capacity = [("Z=16, R=128", 0.9, 0.5), ("Z=32, R=128", 0.7, 0.6)]
    rows = [result(arm, 0, test, validation, study="capacity") for arm, test, validation in capacity]
    assert only(rows, "capacity").selected == ["Z=32, R=128"]
    sampler = [("BFS2, L=1", 0.7, 0.71), ("BFS2, L=4", 0.6, 0.72), ("CRW, L=8", 0.5, 0.1)]
    rows = [result(arm, 0, test, validation, study="sampler") for arm, test, validation in sampler]
    assert only(rows, "sampler").selected == ["BFS2, L=4", "CRW, L=8"]


def test_arms_stand_in_the_order_of_the_study_and_unknown_ones_last() -> None:
    rows = [result(arm, 0, 0.5) for arm in ("older arm", "HGT", "QUARTET")]
    assert only(rows).arms == ["QUARTET", "HGT", "older arm"]


@pytest.mark.parametrize(("value", "digits"), [(0.85, 4), (9.4, 4), (39.1, 3), (390.0, 2), (123456.0, 0)])
def test_large_figures_have_fewer_decimals(value: float, digits: int) -> None:
    assert only([result("QUARTET", 0, value)]).digits == digits


# --- the paper ------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_the_papers_tables_agree_with_each_other(task: tuple[str, str]) -> None:
    """The reported model is the full one of the ablation, and the best on test of the capacity grid."""
    main, ablation = paper("main", *task, "test"), paper("ablation", *task, "test")
    grid, seen = paper("capacity", *task, "test"), paper("capacity", *task, "validation")
    assert list(main) == ["QUARTET", "RelGT", "HGT", "RGP"]
    assert list(paper("main", *task, "validation")) == ["QUARTET", "RelGT", "HGT"]
    assert list(ablation) == [arm.name for arm in STUDIES["ablation"]]
    assert list(grid) == list(seen) == [arm.name for arm in STUDIES["capacity"]]
    assert main["QUARTET"] == ablation["full"]
    reported = max(grid, key=lambda arm: grid[arm].mean)
    assert grid[reported] == Spread(main["QUARTET"].mean, None, 4)
    assert seen[reported].mean == paper("main", *task, "validation")["QUARTET"].mean


def test_changes_are_those_of_the_papers_table_2() -> None:
    changes = [
        paper_changes(only([result("full", 0, 0.5, study="ablation", dataset=d, task=t)], "ablation"))
        for d, t in TASKS
    ]
    top3 = [round(change, 1) for change in changes[7].values()]
    assert top3 == [-16.9, -7.0, -3.5, -8.9, -4.0, -4.5, -3.7, -1.3, -3.2]
    average = [
        round(float(np.mean([one[arm.name] for one in changes])), 1) for arm in STUDIES["ablation"][1:]
    ]
    assert average == [-6.7, -2.2, -1.6, -1.8, -2.1, -2.0, -1.8, -1.7, -1.5]


def test_costs_have_the_papers_means() -> None:
    label, means = paper_ratios("rel-f1", "driver-top3")
    assert label == "the paper, mean of 5 other tasks"
    assert [round(mean, 2) for mean in means.values()] == [1.39, 1.43, 0.51, 2.58, 7.76, 2.23]
    label, own = paper_ratios("rel-hm", "user-churn")
    assert (label, own["cache"]) == ("the paper", 3.6)


def test_the_papers_model_as_validation_selects_it() -> None:
    """Six of its twelve reported figures are not the best cell on validation."""
    reported = {task: paper("main", *task, "test")["QUARTET"].mean for task in TASKS}
    assert {task: paper_selected(*task) for task in TASKS if paper_selected(*task) != reported[task]} == {
        ("rel-amazon", "user-churn"): 0.6995,
        ("rel-avito", "user-clicks"): 0.6268,
        ("rel-event", "user-repeat"): 0.7387,
        ("rel-f1", "driver-dnf"): 0.6798,
        ("rel-f1", "driver-top3"): 0.8427,
        ("rel-trial", "study-outcome"): 0.7015,
    }


def test_single_figures_of_the_paper() -> None:
    assert paper("main", "rel-f1", "driver-top3", "test")["RGP"] == Spread(0.7815, 0.0415, 4)
    assert paper("main", "rel-f1", "driver-dnf", "validation")["RelGT"] == Spread(0.8029, 0.0086, 4)
    ablated = paper("ablation", "rel-event", "user-repeat", "test")
    assert ablated["no hub truncation"] == Spread(0.678, 0.1072, 4)
    assert paper("capacity", "rel-f1", "driver-dnf", "validation")["Z=16, R=512"] == Spread(0.804, None, 4)
    assert paper_means("connectivity", "rel-f1", "driver-top3", "bfs") == {
        "degree": 2.97, "seed_connected": 0.949, "components": 15.5, "distinct": 164.3, "density": 0.055,
        "clustering": 0.0,
    }  # fmt: skip


def test_the_paper_is_silent_where_it_has_no_figure() -> None:
    assert paper("main", "rel-f1", "driver-position", "test") == {}
    assert paper("sampler", "rel-f1", "driver-top3", "test") == {}
    assert paper_beside(only([result("QUARTET", 0, 0.5, metric="mae")]), "test") == {}
    assert paper_changes(only([result("QUARTET", 0, 0.5, task="new")])) == {}
