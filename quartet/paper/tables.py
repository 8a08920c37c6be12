"""The tables of a study, in the terminal and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.console import Group, RenderableType
from rich.text import Text

from quartet.drawing import cell, new_grid
from quartet.errors import printable
from quartet.paper.arms import ABLATED, FULL, StudyName, reference_arm
from quartet.paper.numbers import NUM_SEEDS, paper_beside, paper_changes, paper_selected
from quartet.paper.results import Result
from quartet.paper.statistics import Comparison, Measured, Spread, comparisons

CHOSEN, BEST_ON_TEST, CLEAR, NOTHING = "●", "○", "*", "–"
_SPLITS: tuple[Measured, Measured] = ("validation", "test")
_SPREAD = "± is the standard deviation over runs with different random seeds."
_PAIRED = (
    "Differences are between runs with the same random seed, n pairs; in brackets is their 95 % Student interval. An "
    "arm is called better or worse where it excludes 0. Each is judged by itself: of twenty arms that change nothing, "
    "about one is called so."
)
_PAPER = f"The paper's figures are of {NUM_SEEDS} random seeds, by its own recipe."


@dataclass(frozen=True)
class Sheet:
    """A table whose first column names the rows, with notes below it."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: tuple[str, ...] = ()


def study_sheets(study: StudyName, results: Sequence[Result]) -> tuple[list[Sheet], list[str]]:
    """Returns the tables of a study, one for each task, and what one must know to read them."""
    compared = comparisons(study, results)
    if not compared:
        return [], [f"The study {study} has no results yet."]
    sheets = [_arms_sheet(one) for one in compared]
    if study == "ablation":
        sheets.append(_overview(compared))
    has_paper = any(paper_beside(one, "test") for one in compared)
    paired = [] if study == "capacity" else [_PAIRED]
    return sheets, [_SPREAD, *paired, *([_PAPER] if has_paper else [])]


# --- in the terminal and as Markdown --------------------------------------------------------------


def sheets_view(sheets: Sequence[Sheet], legend: Sequence[str] = ()) -> RenderableType:
    """Returns tables for the terminal, in which any name is shown as it is."""
    parts: list[RenderableType] = []
    for sheet in sheets:
        grid = new_grid("", *sheet.columns, right=sheet.columns[1:])
        for row in sheet.rows:
            grid.add_row(*map(cell, row))
        notes = (cell(note, "dim") for note in sheet.notes)
        parts += [cell(sheet.title, "bold"), grid, *notes, Text()]
    return Group(*parts, *(cell(line, "dim") for line in legend))


def sheets_markdown(sheets: Sequence[Sheet], legend: Sequence[str] = ()) -> str:
    """Returns the same tables as Markdown, in which no name can be taken for a mark."""
    lines: list[str] = []
    for sheet in sheets:
        head = [sheet.columns, ("---", *("---:" for _ in sheet.columns[1:]))]
        table = [f"| {' | '.join(map(_plain, row))} |" for row in [*head, *sheet.rows]]
        notes = (f"{_plain(note)}\n" for note in sheet.notes)
        lines += [f"### {_plain(sheet.title)}", "", *table, "", *notes]
    return "\n".join([*lines, *(f"{_plain(line)}\n" for line in legend)])


def _plain(text: str) -> str:
    return re.sub(r"([\\`*_<>|~&$]|(?<=\])\()", r"\\\1", printable(text))


# --- the tables -----------------------------------------------------------------------------------


def _arms_sheet(compared: Comparison) -> Sheet:
    """Returns the arms of a study on one task: their figures, differences, the paper's figures, and costs."""
    columns = _columns(compared)
    rows = [(arm, *(cell_of(arm) for cell_of in columns.values())) for arm in compared.shown]
    title = (
        f"{compared.name}: {compared.metric} {compared.arrow} (study {compared.study}, preset {compared.preset}, "
        f"{compared.protocol}, data {compared.fingerprint[:8]})"
    )
    return Sheet(title, ("", *columns), rows, tuple(_notes(compared)))


def _columns(compared: Comparison) -> dict[str, Callable[[str], str]]:
    """Returns the cell of an arm by the title of its column."""
    papers, changes = {split: paper_beside(compared, split) for split in _SPLITS}, paper_changes(compared)
    best_on_test = compared.best(compared.spreads("test")) if compared.study == "capacity" else None
    marks: dict[Measured, tuple[str, list[str | None]]] = {
        "validation": (CHOSEN, [*compared.selected]),
        "test": (BEST_ON_TEST, [best_on_test]),
    }

    def figure(split: Measured) -> Callable[[str], str]:
        mark, marked = marks[split]
        return lambda arm: (
            _figure(compared, compared.spread(arm, split)) + (f" {mark}" if arm in marked else "")
        )

    def paper_figure(split: Measured) -> Callable[[str], str]:
        return lambda arm: _figure(compared, papers[split].get(arm))

    def peak(arm: str) -> str:
        peaks = [run.peak_bytes for run in compared.runs[arm].values() if run.peak_bytes is not None]
        return f"{max(peaks) / 1e9:.2f}" if peaks else NOTHING

    ours = {"validation": figure("validation"), "test": figure("test")}
    runs = {"runs": lambda arm: str(len(compared.runs[arm]))}
    by_study: dict[StudyName, dict[str, Callable[[str], str]]] = {
        "main": {
            "test − QUARTET": lambda arm: _against(compared, arm),
            "paper's test": paper_figure("test"),
            **runs,
            "parameters": lambda arm: f"{list(compared.runs[arm].values())[-1].num_parameters:,}",
            "min a run": lambda arm: f"{fmean(run.seconds for run in compared.runs[arm].values()) / 60:.1f}",
            "peak GB": peak,
        },
        "sampler": {"test − BFS2": lambda arm: _against(compared, arm), **runs},
        "ablation": {
            "change of test against full, %": lambda arm: _against(compared, arm, in_percent=True),
            "paper's test": paper_figure("test"),
            "paper's change, %": lambda arm: signed(changes.get(arm), 1),
            **runs,
        },
        "choices": {
            f"{split} − reference": lambda arm, split=split: _against(compared, arm, split=split)
            for split in _SPLITS
        }
        | runs,
        "capacity": {f"paper's {split}": paper_figure(split) for split in _SPLITS} | runs,
    }
    return ours | by_study[compared.study]


def _notes(compared: Comparison) -> Iterator[str]:
    """Yields what a table says beside its cells: above all, what validation selects."""
    if compared.study == "main" and paper_beside(compared, "test"):
        yield (
            "The paper's QUARTET is the best cell of its capacity grid on test; the one that is best on validation "
            f"has {paper_selected(compared.dataset, compared.task):.4f}."
        )
    if selected := compared.selected:
        reached = [f"{arm}: test {_figure(compared, compared.spread(arm, 'test'))}" for arm in selected]
        if len(selected) == 2:
            reached.append(
                f"{selected[1]} against {selected[0]}: {_against(compared, selected[1], selected[0])}"
            )
        yield f"{CHOSEN} selected by validation. {'; '.join(reached)}."
    if compared.study == "sampler" and len(compared.shown) < len(compared.arms):
        yield (
            f"Of {len(compared.arms)} settings that were tried with the first random seed, the best of each sampler "
            "and depth on validation; the selected ones have all random seeds."
        )
    if compared.study == "choices":
        yield "Validation decides: test stands beside it and chooses nothing."
    if compared.study == "capacity":
        yield f"{BEST_ON_TEST} best on test, which is not a choice."


def _overview(compared: Sequence[Comparison]) -> Sheet:
    """Returns the paper's Table 2: the changes of all tasks, ours above the paper's."""
    rows = []
    for one in compared:
        rows.append((f"{one.name} {one.arrow}", *(shown_change(one, arm) for arm in ABLATED)))
        if papers := paper_changes(one):
            rows.append(("  in the paper", *(signed(papers[arm], 1) for arm in ABLATED)))
    note = f"{CLEAR} the 95 % interval of the paired differences excludes 0."
    return Sheet("Change of test against the full model, %", ("", *ABLATED), rows, (note,))


# --- cells ----------------------------------------------------------------------------------------


def _figure(compared: Comparison, spread: Spread | None) -> str:
    """Returns `0.8517 ± 0.0156`; a figure without a standard deviation stands alone."""
    if spread is None:
        return NOTHING
    digits = compared.digits
    return f"{spread.mean:.{digits}f}" + ("" if spread.sd is None else f" ± {spread.sd:.{digits}f}")


def _against(
    compared: Comparison,
    arm: str,
    other: str | None = None,
    in_percent: bool = False,
    split: Measured = "test",
) -> str:
    """Returns `−0.0123 [−0.0200, −0.0046] n=3 worse`: a paired difference and its verdict."""
    reference = other or reference_arm(compared.study, arm) or arm
    if arm == reference:
        return "reference"
    difference = compared.change(arm, reference) if in_percent else compared.difference(arm, reference, split)
    if difference is None:
        return NOTHING
    digits = 2 if in_percent else compared.digits
    mean = signed(difference.mean, digits)
    if difference.interval is None:
        return f"{mean} n=1"
    low, high = (signed(end, digits) for end in difference.interval)
    return f"{mean} [{low}, {high}] n={difference.n} {compared.verdict(difference)}"


def shown_change(compared: Comparison, arm: str) -> str:
    """Returns `−3.5*`: the change of test in percent of the full model's, with a mark where it is clear."""
    change = compared.change(arm, FULL)
    if change is None:
        return NOTHING
    return signed(change.mean, 1) + (CLEAR if compared.verdict(change) != "unclear" else "")


def signed(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:+.{digits}f}".replace("-", "−")
