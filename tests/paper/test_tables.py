"""The tables of a study, cell by cell, and names that could break them."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from quartet.paper import STUDIES, Result, StudyName, sheets_markdown, sheets_view, study_sheets
from tests.paper.results import result, results
from tests.strategies import examples


def shown(study: StudyName, rows: list[Result]) -> str:
    out = io.StringIO()
    Console(file=out, width=200).print(sheets_view(*study_sheets(study, rows)))
    return out.getvalue()


def markdown(study: StudyName, rows: list[Result]) -> str:
    return sheets_markdown(*study_sheets(study, rows))


def test_the_main_table_cell_by_cell() -> None:
    rows = [
        *results("QUARTET", [0.80, 0.82, 0.84], validation=0.85),
        *results("RelGT", [0.78, 0.79, 0.83], peak_bytes=None),
        result("HGT", 1, 0.70),
        result("LightGBM", 9, 0.75),
    ]
    (sheet,), legend = study_sheets("main", rows)
    assert sheet.title == "rel-f1/driver-top3: roc_auc ↑ (study main, preset small, frozen, data 01234567)"
    assert sheet.columns == (
        "", "validation", "test", "test − QUARTET", "paper's test", "runs", "parameters", "min a run", "peak GB",
    )  # fmt: skip
    cost = ("1,234,567", "1.5")
    assert sheet.rows == [
        ("QUARTET", "0.8500 ± 0.0000", "0.8200 ± 0.0200", "reference", "0.8517 ± 0.0156", "3", *cost, "1.50"),
        (
            "RelGT", "0.5000 ± 0.0000", "0.8000 ± 0.0265", "−0.0200 [−0.0448, +0.0048] n=3 unclear",
            "0.8067 ± 0.0402", "3", *cost, "–",
        ),
        ("HGT", "0.5000", "0.7000", "−0.1200 n=1", "0.7384 ± 0.0574", "1", *cost, "1.50"),
        ("LightGBM", "0.5000", "0.7500", "–", "–", "1", *cost, "1.50"),
    ]  # fmt: skip
    assert "0.8427" in sheet.notes[0]  # the paper's model, as validation selects it
    assert len(legend) == 3


def test_the_sampler_table_marks_what_validation_selects() -> None:
    rows = [
        result("BFS2, L=1", 0, 0.70, 0.71, study="sampler"),
        result("BFS2, L=4", 0, 0.74, 0.72, study="sampler"),
        result("BFS2, L=8", 0, 0.79, 0.70, study="sampler"),  # the best on test is not chosen
        result("CRW, L=1", 0, 0.76, 0.80, study="sampler"),
    ]
    (sheet,), _ = study_sheets("sampler", rows)
    assert sheet.rows == [
        ("BFS2, L=1", "0.7100", "0.7000", "reference", "1"),
        ("CRW, L=1", "0.8000 ●", "0.7600", "+0.0600 n=1", "1"),
        ("BFS2, L=4", "0.7200 ●", "0.7400", "reference", "1"),
        ("BFS2, L=8", "0.7000", "0.7900", "reference", "1"),
    ]
    assert "CRW, L=1 against BFS2, L=4: +0.0200 n=1" in sheet.notes[0]


def test_the_ablation_tables_have_the_papers_change_beside_ours() -> None:
    rows = [
        *results("full", [0.80, 0.80, 0.80], study="ablation"),
        *results("no local", [0.60, 0.61, 0.59], study="ablation"),
        *results("no restart", [0.81, 0.79, 0.80], study="ablation"),
    ]
    (sheet, overview), _ = study_sheets("ablation", rows)
    assert [row[3:] for row in sheet.rows] == [
        ("reference", "0.8517 ± 0.0156", "–", "3"),
        ("−25.00 [−28.11, −21.89] n=3 worse", "0.7074 ± 0.0161", "−16.9", "3"),
        ("+0.00 [−3.11, +3.11] n=3 unclear", "0.8176 ± 0.0177", "−4.0", "3"),
    ]
    none = ("–",) * 4
    assert overview.rows == [
        ("rel-f1/driver-top3 ↑", "−25.0*", "–", "–", "–", "+0.0", *none),
        ("  in the paper", "−16.9", "−7.0", "−3.5", "−8.9", "−4.0", "−4.5", "−3.7", "−1.3", "−3.2"),
    ]


@pytest.mark.parametrize(("metric", "chosen", "best"), [("roc_auc", 0, 1), ("mae", 1, 0)])
def test_the_capacity_table_marks_the_choice_and_the_temptation(metric: str, chosen: int, best: int) -> None:
    rows = [
        *results("Z=16, R=128", [0.70, 0.72], study="capacity", validation=0.80, metric=metric),
        result("Z=64, R=512", 0, 0.79, 0.75, study="capacity", metric=metric),
    ]
    (sheet,), _ = study_sheets("capacity", rows)
    assert [row[1].endswith(" ●") for row in sheet.rows] == [chosen == 0, chosen == 1]
    assert [row[2].endswith(" ○") for row in sheet.rows] == [best == 0, best == 1]
    papers = [("0.8733", "0.7855"), ("0.8715", "0.8180")] if metric == "roc_auc" else [("–", "–")] * 2
    assert [row[3:5] for row in sheet.rows] == papers


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_without_results_says_so(study: StudyName) -> None:
    other = result("QUARTET", 0, 0.5, study="sampler" if study == "main" else "main")
    assert markdown(study, [other]) == shown(study, [other]) == f"The study {study} has no results yet.\n"


def test_markdown_is_a_table_of_the_same_cells() -> None:
    rows = [*results("QUARTET", [0.8, 0.9]), *results("HGT", [0.5, 0.61])]
    (sheet,), _ = study_sheets("main", rows)
    lines = [line for line in markdown("main", rows).splitlines() if line.startswith("|")]
    assert lines == [
        f"| {' | '.join(cells)} |" for cells in (sheet.columns, ("---", *("---:",) * 8), *sheet.rows)
    ]


@pytest.mark.parametrize("study", STUDIES)
def test_the_terminal_shows_every_cell(study: StudyName) -> None:
    rows = [
        result(arm.name, seed, 0.7 + 0.01 * seed, 0.6, study=study)
        for arm in STUDIES[study]
        for seed in range(2)
    ]
    text = " ".join(shown(study, rows).split())
    sheets, legend = study_sheets(study, rows)
    for cell in [*legend, *(cell for sheet in sheets for row in sheet.rows for cell in row)]:
        assert " ".join(cell.split()) in text


@given(st.text(max_size=20), st.text(max_size=20))
@examples(30)
def test_no_name_breaks_a_table(task: str, arm: str) -> None:
    """P29: names are shown, never obeyed; each row of the Markdown stays one row with all its cells."""
    rows = [result("QUARTET", 0, 0.5, task=task), result(arm, 0, 0.6, task=task)]
    lines = [line for line in markdown("main", rows).splitlines() if line.startswith("|")]
    assert all(len(line.replace("\\\\", "").replace("\\|", "").split("|")) == 11 for line in lines)
    assert len(lines) == (3 if arm == "QUARTET" else 4)
    assert "\x1b" not in shown("main", rows)


def test_marks_of_markdown_in_names_are_escaped() -> None:
    text = markdown("main", [result("[x](http://y) <b> | `*_", 0, 0.5)])
    assert "| [x]\\(http://y) \\<b\\> \\| \\`\\*\\_ |" in text
