"""What is said of a study: statistics by hand, the paper's figures by its own tables, tables cell by cell."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from quartet.paper import Result, Study, study_markdown, study_view
from quartet.paper.arms import STUDIES
from quartet.paper.numbers import RATIOS, paper, paper_beside, paper_changes, paper_ratios, paper_selected
from quartet.paper.statistics import Comparison, Spread, comparisons, student_quantile
from quartet.paper.tables import study_sheets
from tests.strategies import examples

TASKS = [
    ("rel-amazon", "item-churn"), ("rel-amazon", "user-churn"), ("rel-avito", "user-clicks"),
    ("rel-avito", "user-visits"), ("rel-event", "user-ignore"), ("rel-event", "user-repeat"),
    ("rel-f1", "driver-dnf"), ("rel-f1", "driver-top3"), ("rel-hm", "user-churn"), ("rel-stack", "user-badge"),
    ("rel-stack", "user-engagement"), ("rel-trial", "study-outcome"),
]  # fmt: skip


def run(
    arm: str,
    rng_seed: int,
    test: float,
    validation: float = 0.5,
    study: Study = "main",
    dataset: str = "rel-f1",
    task: str = "driver-top3",
    metric: str = "roc_auc",
    preset: str = "small",
    history: tuple[float, ...] = (),
) -> Result:
    return Result(
        key="", study=study, dataset=dataset, task=task, arm=arm, rng_seed=rng_seed, metric=metric,
        protocol="frozen", validation=validation, test=test, history=history, seconds=90.0,
        peak_bytes=1_500_000_000, num_parameters=1_234_567, preset=preset, fingerprint="0123456789", recipe={},
    )  # fmt: skip


def runs(arm: str, tests: Iterable[float], **words: object) -> list[Result]:
    return [run(arm, rng_seed, test, **words) for rng_seed, test in enumerate(tests)]  # type: ignore[arg-type]


def only(results: list[Result], study: Study = "main") -> Comparison:
    (found,) = comparisons(study, results)
    return found


def shown(study: Study, results: list[Result]) -> str:
    out = io.StringIO()
    Console(file=out, width=200).print(study_view(study, results))
    return out.getvalue()


# --- statistics -----------------------------------------------------------------------------------


@pytest.mark.parametrize("degrees", range(1, 31))
def test_student_quantiles_hold_95_percent(degrees: int) -> None:
    quantile = student_quantile(degrees)
    at = np.linspace(0, quantile, 20_001)
    density = (1 + at**2 / degrees) ** (-(degrees + 1) / 2)
    density *= math.gamma((degrees + 1) / 2) / math.gamma(degrees / 2) / math.sqrt(degrees * math.pi)
    assert 2 * np.trapezoid(density, at) == pytest.approx(0.95, abs=6e-5)


def test_beyond_thirty_degrees_the_quantile_is_the_normal_one() -> None:
    assert (student_quantile(31), student_quantile(10_000)) == (1.960, 1.960)


def test_a_spread_has_a_deviation_and_an_interval_from_two_values_on() -> None:
    assert Spread.of([]) is None
    one, three = Spread.of([0.7]), Spread.of([1.0, 2.0, 3.0])
    assert one == Spread(0.7, None, 1)
    assert one.interval is None
    assert three == Spread(2.0, 1.0, 3)
    assert three.interval == pytest.approx((2 - 4.303 / math.sqrt(3), 2 + 4.303 / math.sqrt(3)))
    assert three.times(-2) == Spread(-4.0, 2.0, 3)


def test_differences_are_paired_by_random_seed() -> None:
    """Seeds differ by 0.1, arms by 0.01: what is constant within a pair is no noise. Unpaired seeds are left out."""
    results = [
        *runs("QUARTET", [0.5, 0.6, 0.7]),
        run("RelGT", 2, 0.69),
        run("RelGT", 0, 0.49),
        run("RelGT", 7, 0.99),
    ]
    difference = only(results).difference("RelGT", "QUARTET")
    assert difference is not None
    assert (difference.n, difference.mean) == (2, pytest.approx(-0.01))
    assert difference.sd == pytest.approx(0, abs=1e-12)
    assert only(results).verdict(difference) == "worse"


def test_without_a_shared_random_seed_there_is_no_difference() -> None:
    compared = only([run("QUARTET", 0, 0.5), run("RelGT", 1, 0.6)])
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
    assert only([run("QUARTET", 0, 0.5, metric=metric)]).verdict(difference) == verdict


def test_the_interval_of_a_difference_is_known_by_hand() -> None:
    compared = only([*runs("QUARTET", [0.5, 0.5]), *runs("RelGT", [0.51, 0.53])])
    difference = compared.difference("RelGT", "QUARTET")
    assert difference is not None
    assert difference.interval == pytest.approx((0.02 - 12.706 * 0.01, 0.02 + 12.706 * 0.01), abs=1e-9)
    change = compared.change("RelGT", "QUARTET")
    assert change is not None
    assert (change.mean, change.sd) == (pytest.approx(4.0), pytest.approx(2 * math.sqrt(2)))


def test_a_change_is_in_percent_of_the_reference_over_the_shared_random_seeds() -> None:
    compared = only([*runs("QUARTET", [0.5, 0.9]), run("RelGT", 0, 0.45)])
    change = compared.change("RelGT", "QUARTET")
    assert change is not None
    assert change.mean == pytest.approx(-10.0)


def test_runs_are_compared_only_within_one_task_metric_preset_and_study() -> None:
    results = [
        run("QUARTET", 0, 0.5),
        run("QUARTET", 0, 0.6, preset="paper"),
        run("full", 0, 0.7, study="ablation"),
    ]
    results += [run("QUARTET", 0, 0.8, task="driver-dnf"), run("QUARTET", 0, 0.9, metric="mae")]
    found = [
        (one.task, one.preset, one.metric, one.values("QUARTET", "test"))
        for one in comparisons("main", results)
    ]
    assert found == [
        ("driver-top3", "small", "roc_auc", {0: 0.5}),
        ("driver-top3", "paper", "roc_auc", {0: 0.6}),
        ("driver-dnf", "small", "roc_auc", {0: 0.8}),
        ("driver-top3", "small", "mae", {0: 0.9}),
    ]


def test_of_two_runs_with_one_random_seed_the_later_counts() -> None:
    assert only([run("QUARTET", 0, 0.5), run("QUARTET", 0, 0.6)]).values("QUARTET", "test") == {0: 0.6}


def test_a_run_whose_metric_is_undefined_has_no_figure() -> None:
    compared = only([run("QUARTET", 0, math.nan), run("QUARTET", 1, 0.6), run("RelGT", 0, math.nan)])
    assert compared.spread("QUARTET", "test") == Spread(0.6, None, 1)
    assert compared.spread("RelGT", "test") is None
    assert compared.best(["RelGT", "QUARTET"], "test") == "QUARTET"


@pytest.mark.parametrize(("metric", "best"), [("roc_auc", "RelGT"), ("mae", "HGT")])
def test_the_best_arm_is_that_of_the_metrics_direction(metric: str, best: str) -> None:
    results = [run(arm, 0, value, metric=metric) for arm, value in (("HGT", 0.5), ("RelGT", 0.6))]
    assert only(results).best(["HGT", "RelGT"], "test") == best


def test_arms_stand_in_the_order_of_the_study_and_unknown_ones_last() -> None:
    results = [run(arm, 0, 0.5) for arm in ("older arm", "HGT", "QUARTET")]
    assert only(results).arms == ["QUARTET", "HGT", "older arm"]


@pytest.mark.parametrize(("value", "digits"), [(0.85, 4), (9.4, 4), (39.1, 3), (390.0, 2), (123456.0, 0)])
def test_large_figures_have_fewer_decimals(value: float, digits: int) -> None:
    assert only([run("QUARTET", 0, value)]).digits == digits


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
        paper_changes(only([run("full", 0, 0.5, study="ablation", dataset=dataset, task=task)], "ablation"))
        for dataset, task in TASKS
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
    assert tuple(own) == RATIOS


def test_the_papers_model_as_validation_selects_it() -> None:
    """Six of its twelve reported figures are not the best cell on validation."""
    selected = {
        task: paper_selected(*task) for task in TASKS if paper_selected(*task) != paper_of(*task)["QUARTET"]
    }
    assert selected == {
        ("rel-amazon", "user-churn"): 0.6995,
        ("rel-avito", "user-clicks"): 0.6268,
        ("rel-event", "user-repeat"): 0.7387,
        ("rel-f1", "driver-dnf"): 0.6798,
        ("rel-f1", "driver-top3"): 0.8427,
        ("rel-trial", "study-outcome"): 0.7015,
    }


def paper_of(dataset: str, task: str) -> dict[str, float]:
    return {arm: spread.mean for arm, spread in paper("main", dataset, task, "test").items()}


def test_single_figures_of_the_paper() -> None:
    assert paper("main", "rel-f1", "driver-top3", "test")["RGP"] == Spread(0.7815, 0.0415, 4)
    assert paper("main", "rel-f1", "driver-dnf", "validation")["RelGT"] == Spread(0.8029, 0.0086, 4)
    assert paper("ablation", "rel-event", "user-repeat", "test")["no hub truncation"] == Spread(
        0.678, 0.1072, 4
    )
    assert paper("capacity", "rel-f1", "driver-dnf", "validation")["Z=16, R=512"] == Spread(0.804, None, 4)


def test_the_paper_is_silent_where_it_has_no_figure() -> None:
    assert paper("main", "rel-f1", "driver-position", "test") == {}
    assert paper("sampler", "rel-f1", "driver-top3", "test") == {}
    assert paper_beside(only([run("QUARTET", 0, 0.5, metric="mae")]), "test") == {}
    assert paper_changes(only([run("QUARTET", 0, 0.5, task="new")])) == {}


# --- tables ---------------------------------------------------------------------------------------


def test_the_main_table_cell_by_cell() -> None:
    results = [
        *runs("QUARTET", [0.80, 0.82, 0.84], validation=0.85),
        *runs("RelGT", [0.78, 0.79, 0.83]),
        run("HGT", 1, 0.70),
        run("LightGBM", 9, 0.75),
    ]
    (sheet,), legend = study_sheets("main", results)
    assert sheet.title == "rel-f1/driver-top3: roc_auc ↑ (study main, preset small, frozen, data 01234567)"
    assert sheet.columns == (
        "", "validation", "test", "test − QUARTET", "paper's test", "runs", "parameters", "min a run", "peak GB",
    )  # fmt: skip
    cost = ("1,234,567", "1.5", "1.50")
    assert sheet.rows == [
        ("QUARTET", "0.8500 ± 0.0000", "0.8200 ± 0.0200", "reference", "0.8517 ± 0.0156", "3", *cost),
        (
            "RelGT", "0.5000 ± 0.0000", "0.8000 ± 0.0265", "−0.0200 [−0.0448, +0.0048] n=3 unclear",
            "0.8067 ± 0.0402", "3", *cost,
        ),
        ("HGT", "0.5000", "0.7000", "−0.1200 n=1", "0.7384 ± 0.0574", "1", *cost),
        ("LightGBM", "0.5000", "0.7500", "–", "–", "1", *cost),
    ]  # fmt: skip
    assert legend == [
        "± is the standard deviation over runs with different random seeds.",
        "Differences are of runs with the same random seed, n pairs; in brackets is their 95 % Student interval. "
        "Better or worse is said where it excludes 0: each by itself, so of twenty arms that change nothing about "
        "one is called so.",
        "The paper's figures are of 4 random seeds, by its own recipe.",
    ]


def test_the_sampler_table_names_what_validation_selects() -> None:
    results = [
        run("BFS2, L=1", 0, 0.70, 0.71, "sampler"),
        run("BFS2, L=4", 0, 0.74, 0.72, "sampler"),
        run("BFS2, L=8", 0, 0.79, 0.70, "sampler"),  # the best on test is not chosen
        run("CRW, L=1", 0, 0.76, 0.80, "sampler"),
    ]
    (sheet,), _ = study_sheets("sampler", results)
    assert sheet.rows == [
        ("L=1", "0.7100", "0.7000", "1", "0.8000 ●", "0.7600", "1", "+0.0600 n=1"),
        ("L=4", "0.7200 ●", "0.7400", "1", "–", "–", "0", "–"),
        ("L=8", "0.7000", "0.7900", "1", "–", "–", "0", "–"),
    ]
    assert sheet.notes == (
        "● selected by validation. BFS2, L=4: test 0.7400; CRW, L=1: test 0.7600; "
        "CRW, L=1 against BFS2, L=4: +0.0200 n=1.",
    )


def test_the_ablation_tables_have_the_papers_change_beside_ours() -> None:
    results = [
        *runs("full", [0.80, 0.80, 0.80], study="ablation"),
        *runs("no local", [0.60, 0.61, 0.59], study="ablation"),
        *runs("no restart", [0.81, 0.79, 0.80], study="ablation"),
    ]
    (sheet, overview), _ = study_sheets("ablation", results)
    assert [row[3] for row in sheet.rows] == [
        "reference",
        "−25.00 [−28.11, −21.89] n=3 worse",
        "+0.00 [−3.11, +3.11] n=3 unclear",
    ]
    assert [row[4:] for row in sheet.rows] == [
        ("0.8517 ± 0.0156", "–", "3"),
        ("0.7074 ± 0.0161", "−16.9", "3"),
        ("0.8176 ± 0.0177", "−4.0", "3"),
    ]
    none = ("–",) * 4
    assert overview.rows == [
        ("rel-f1/driver-top3 ↑", "−25.0*", "–", "–", "–", "+0.0", *none),
        ("  in the paper", "−16.9", "−7.0", "−3.5", "−8.9", "−4.0", "−4.5", "−3.7", "−1.3", "−3.2"),
    ]


def test_the_capacity_table_marks_the_choice_and_the_temptation() -> None:
    results = [
        *runs("Z=16, R=128", [0.70, 0.72], study="capacity", validation=0.80),
        run("Z=64, R=512", 0, 0.79, 0.75, "capacity"),
    ]
    (sheet,), _ = study_sheets("capacity", results)
    assert sheet.rows[0] == ("Z=16 validation", "0.8000 ± 0.0000 ●", "–", "–", "0.8733", "0.8756", "0.8835 ●")
    assert sheet.rows[1][:4] == ("Z=16 test", "0.7100 ± 0.0141 n=2", "–", "–")
    assert sheet.rows[5] == (
        "Z=64 test", "–", "–", "0.7900 n=1 ○", "0.8188 n=4", "0.8517 n=4 ○", "0.8180 n=4",
    )  # fmt: skip
    assert sheet.notes == (
        "● selected by validation; ○ best on test, which is not a choice.",
        "Of 2 of 9 cells validation selects Z=16, R=128: test 0.7100 ± 0.0141; "
        "best on test, not a choice: Z=64, R=512, 0.7900.",
        "Of the paper's 9 cells validation selects Z=16, R=512: test 0.8427; "
        "best on test, not a choice: Z=64, R=256, 0.8517.",
    )


def test_where_less_is_better_the_smallest_cell_is_selected() -> None:
    results = [
        run(arm, 0, value, value, "capacity", metric="mae")
        for arm, value in (("Z=16, R=128", 4.0), ("Z=32, R=128", 3.0))
    ]
    (sheet,), _ = study_sheets("capacity", results)
    assert (
        sheet.notes[1] == "Of 2 of 9 cells validation selects Z=32, R=128: test 3.0000; the best on test too."
    )
    assert sheet.title.startswith("rel-f1/driver-top3: mae ↓")


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_without_results_says_so(study: Study) -> None:
    other = run("QUARTET", 0, 0.5, study="sampler" if study == "main" else "main")
    assert study_markdown(study, [other]) == f"The study {study} has no results yet.\n"
    assert shown(study, [other]) == f"The study {study} has no results yet.\n"


def test_markdown_is_a_table_of_the_same_cells() -> None:
    text = study_markdown("main", [*runs("QUARTET", [0.8, 0.9]), *runs("HGT", [0.5, 0.61])])
    assert text.splitlines()[:6] == [
        "### rel-f1/driver-top3: roc\\_auc ↑ (study main, preset small, frozen, data 01234567)",
        "",
        "|  | validation | test | test − QUARTET | paper's test | runs | parameters | min a run | peak GB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| QUARTET | 0.5000 ± 0.0000 | 0.8500 ± 0.0707 | reference | 0.8517 ± 0.0156 | 2 | 1,234,567 | 1.5 | 1.50 |",
        "| HGT | 0.5000 ± 0.0000 | 0.5550 ± 0.0778 | −0.2950 [−0.3585, −0.2315] n=2 worse | 0.7384 ± 0.0574 | 2 "
        "| 1,234,567 | 1.5 | 1.50 |",
    ]


@pytest.mark.parametrize("study", STUDIES)
def test_the_terminal_shows_every_cell(study: Study) -> None:
    results = [
        run(arm.name, seed, 0.7 + 0.01 * seed, 0.6, study) for arm in STUDIES[study] for seed in range(2)
    ]
    text = " ".join(shown(study, results).split())
    sheets, legend = study_sheets(study, results)
    for cell in [*legend, *(cell for sheet in sheets for row in sheet.rows for cell in row)]:
        assert " ".join(cell.split()) in text


@given(st.text(max_size=20), st.text(max_size=20))
@examples(50)
def test_no_name_breaks_a_table(task: str, arm: str) -> None:
    """P29: names are shown, never obeyed; each row of the Markdown stays one row with all its cells."""
    results = [run("QUARTET", 0, 0.5, task=task), run(arm, 0, 0.6, task=task)]
    rows = [line for line in study_markdown("main", results).splitlines() if line.startswith("|")]
    assert all(len(row.replace("\\\\", "").replace("\\|", "").split("|")) == 11 for row in rows)
    assert len(rows) == (3 if arm == "QUARTET" else 4)
    assert "\x1b" not in shown("main", results)


def test_marks_of_markdown_in_names_are_escaped() -> None:
    text = study_markdown("main", [run("[x](http://y) <b> | `*_", 0, 0.5)])
    assert "| [x]\\(http://y) \\<b\\> \\| \\`\\*\\_ |" in text
