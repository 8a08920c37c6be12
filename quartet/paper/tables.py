"""What people see of a study: its tables in the terminal, and the same as Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.console import Group, RenderableType
from rich.text import Text

from quartet.drawing.terminal import new_grid
from quartet.errors import printable
from quartet.paper.arms import (
    ABLATION,
    ARCHETYPES,
    CAPACITY,
    LATENTS,
    LAYERS,
    REFERENCE,
    SAMPLERS,
    Result,
    Study,
    capacity_arm,
    sampler_arm,
)
from quartet.paper.numbers import NUM_SEEDS, paper_beside, paper_changes, paper_selected
from quartet.paper.statistics import Comparison, Split, Spread, best_of, comparisons

CHOSEN, BEST_ON_TEST, CLEAR, NOTHING = "●", "○", "*", "–"
_SPLITS: tuple[Split, Split] = ("validation", "test")
_SPREAD = "± is the standard deviation over runs with different random seeds."
_PAIRED = (
    "Differences are of runs with the same random seed, n pairs; in brackets is their 95 % Student interval. Better or "
    "worse is said where it excludes 0: each by itself, so of twenty arms that change nothing about one is called so."
)
_PAPER = f"The paper's figures are of {NUM_SEEDS} random seeds, by its own recipe."


@dataclass(frozen=True)
class Sheet:
    """A table whose first column names the rows, with notes below it."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: tuple[str, ...] = ()


def study_view(study: Study, results: Sequence[Result]) -> RenderableType:
    """The tables of a study for the terminal: one for each task, of what is there so far."""
    return sheets_view(*study_sheets(study, results))


def study_markdown(study: Study, results: Sequence[Result]) -> str:
    """The same tables as Markdown."""
    return sheets_markdown(*study_sheets(study, results))


def sheets_view(sheets: Sequence[Sheet], legend: Sequence[str]) -> RenderableType:
    return Group(*map(_grid, sheets), *map(_note, legend))


def sheets_markdown(sheets: Sequence[Sheet], legend: Sequence[str]) -> str:
    return "\n".join([*map(_markdown, sheets), *(f"{_plain(line)}\n" for line in legend)])


def study_sheets(study: Study, results: Sequence[Result]) -> tuple[list[Sheet], list[str]]:
    """The tables of a study, and what is to be known to read them."""
    compared = comparisons(study, results)
    if not compared:
        return [], [f"The study {study} has no results yet."]
    sheets = [_SHEETS[study](one) for one in compared]
    if study == "ablation":
        sheets.append(_overview(compared))
    has_paper = any(paper_beside(one, "test") for one in compared)
    paired = [] if study == "capacity" else [_PAIRED]
    return sheets, [_SPREAD, *paired, *([_PAPER] if has_paper else [])]


# --- what stands in the tables --------------------------------------------------------------------


def _main(compared: Comparison) -> Sheet:
    """The arms against QUARTET, what the paper says of them, and what they cost."""
    reference, papers = REFERENCE["main"], paper_beside(compared, "test")
    costs = ("runs", "parameters", "min a run", "peak GB")
    rows = [
        (
            arm,
            *(_spread(compared, compared.spread(arm, split)) for split in _SPLITS),
            _against(compared, arm, reference),
            _spread(compared, papers.get(arm)),
            *_costs(list(compared.runs[arm].values())),
        )
        for arm in compared.arms
    ]
    columns = ("", *_SPLITS, f"test − {reference}", "paper's test", *costs)
    return Sheet(_title(compared), columns, rows, _selected_note(compared) if papers else ())


def _selected_note(compared: Comparison) -> tuple[str, ...]:
    selected = paper_selected(compared.dataset, compared.task)
    if selected is None:
        return ()
    return (
        f"The paper's {REFERENCE['main']} is the best cell of its capacity grid on test; the one that is best on "
        f"validation has {selected:.4f}.",
    )


def _costs(runs: Sequence[Result]) -> tuple[str, ...]:
    """Runs, parameters, minutes a run and the highest peak of memory."""
    minutes = fmean(run.seconds for run in runs) / 60
    peak = max(run.peak_bytes for run in runs) / 1e9
    return str(len(runs)), f"{runs[-1].num_parameters:,}", f"{minutes:.1f}", f"{peak:.2f}"


def _sampler(compared: Comparison) -> Sheet:
    """The samplers beside each other for each number of layers, with the layers that validation selects."""
    chosen = {name: compared.best([sampler_arm(name, n) for n in LAYERS], "validation") for name in SAMPLERS}
    rows = []
    for layers in LAYERS:
        arms = [sampler_arm(name, layers) for name in SAMPLERS]
        cells = [cell for arm in arms for cell in _sampler_cells(compared, arm, arm in chosen.values())]
        rows.append((f"L={layers}", *cells, _against(compared, arms[1], arms[0])))
    columns = ("layers", *(f"{name} {what}" for name in SAMPLERS for what in (*_SPLITS, "runs")))
    note = f"{CHOSEN} selected by validation. {_chosen_layers(compared, chosen)}"
    return Sheet(_title(compared), (*columns, "CRW − BFS2 on test"), rows, (note,))


def _sampler_cells(compared: Comparison, arm: str, is_chosen: bool) -> list[str]:
    validation, test = (_spread(compared, compared.spread(arm, split)) for split in _SPLITS)
    return [_marked(validation, CHOSEN if is_chosen else ""), test, str(len(compared.runs.get(arm, {})))]


def _chosen_layers(compared: Comparison, chosen: dict[str, str | None]) -> str:
    """The test figure of what was selected, and how the two differ."""
    arms = [arm for arm in chosen.values() if arm]
    told = [f"{arm}: test {_spread(compared, compared.spread(arm, 'test'))}" for arm in arms]
    if len(arms) == 2:
        told.append(f"{arms[1]} against {arms[0]}: {_against(compared, arms[1], arms[0])}")
    return "; ".join(told) + "."


def _ablation(compared: Comparison) -> Sheet:
    """What the model loses without each part, beside what it loses in the paper."""
    reference, papers = REFERENCE["ablation"], paper_beside(compared, "test")
    changes = paper_changes(compared)
    rows = [
        (
            arm,
            *(_spread(compared, compared.spread(arm, split)) for split in _SPLITS),
            _against(compared, arm, reference, in_percent=True),
            _spread(compared, papers.get(arm)),
            _signed(changes[arm], 1) if arm in changes else NOTHING,
            str(len(compared.runs[arm])),
        )
        for arm in compared.arms
    ]
    columns = (
        "",
        *_SPLITS,
        f"change of test against {reference}, %",
        "paper's test",
        "paper's change, %",
        "runs",
    )
    return Sheet(_title(compared), columns, rows)


def _overview(compared: Sequence[Comparison]) -> Sheet:
    """The paper's Table 2: the changes of all tasks, ours above the paper's."""
    arms = [arm.name for arm in ABLATION if arm.name != REFERENCE["ablation"]]
    rows = []
    for one in compared:
        name, papers = f"{one.dataset}/{one.task} {_arrow(one)}", paper_changes(one)
        rows.append((name, *(_change(one, arm) for arm in arms)))
        if papers:
            rows.append(("  in the paper", *(_signed(papers[arm], 1) for arm in arms)))
    note = f"{CLEAR} the 95 % interval of the paired differences excludes 0."
    return Sheet("Change of test against the full model, %", ("", *arms), rows, (note,))


def _change(compared: Comparison, arm: str) -> str:
    change = compared.change(arm, REFERENCE["ablation"])
    if change is None:
        return NOTHING
    return _signed(change.mean, 1) + (CLEAR if compared.verdict(change) != "unclear" else "")


def _capacity(compared: Comparison) -> Sheet:
    """The grid of latents and archetypes, and the paper's beside it; what validation selects, and what test would."""
    ours = {split: compared.spreads(split) for split in _SPLITS}
    papers = {split: paper_beside(compared, split) for split in _SPLITS}
    grids = [("", ours), *([("paper's ", papers)] if papers["test"] else [])]
    columns = ("", *(f"{whose}R={archetypes}" for whose, _ in grids for archetypes in ARCHETYPES))
    rows = [
        (
            f"Z={latents} {split}",
            *(
                _capacity_cell(compared, grid, split, capacity_arm(latents, n))
                for _, grid in grids
                for n in ARCHETYPES
            ),
        )
        for latents in LATENTS
        for split in _SPLITS
    ]
    marks = f"{CHOSEN} selected by validation; {BEST_ON_TEST} best on test, which is not a choice."
    notes = [_choice(compared, grid, whose) for whose, grid in grids]
    return Sheet(_title(compared), columns, rows, (marks, *notes))


Figures = dict[Split, dict[str, Spread]]


def _capacity_cell(compared: Comparison, grid: Figures, split: Split, arm: str) -> str:
    """A figure with its mark, and on test with the number of its runs."""
    figure = grid[split].get(arm)
    if figure is None:
        return NOTHING
    runs = f" n={figure.n}" if split == "test" else ""
    is_best = arm == best_of(grid[split], compared.higher_is_better)
    mark = CHOSEN if split == "validation" else BEST_ON_TEST
    return _marked(_spread(compared, figure) + runs, mark if is_best else "")


def _choice(compared: Comparison, grid: Figures, whose: str) -> str:
    """The sentence on what validation selects, and what it reaches on test."""
    chosen, on_test = (best_of(grid[split], compared.higher_is_better) for split in _SPLITS)
    if chosen is None or on_test is None:
        return "No cell has a figure."
    cells = f"the paper's {len(grid['test'])}" if whose else f"{len(grid['test'])} of {len(CAPACITY)}"
    reached, best = (_spread(compared, grid["test"].get(arm)) for arm in (chosen, on_test))
    other = "the best on test too" if chosen == on_test else f"best on test, not a choice: {on_test}, {best}"
    return f"Of {cells} cells validation selects {chosen}: test {reached}; {other}."


_SHEETS: dict[Study, Callable[[Comparison], Sheet]] = {
    "main": _main,
    "sampler": _sampler,
    "ablation": _ablation,
    "capacity": _capacity,
}


# --- how it is written ----------------------------------------------------------------------------


def _title(compared: Comparison) -> str:
    """The task, its metric, and what all runs of the table share."""
    data = compared.fingerprint[:8]
    return (
        f"{compared.dataset}/{compared.task}: {compared.metric} {_arrow(compared)} "
        f"(study {compared.study}, preset {compared.preset}, {compared.protocol}, data {data})"
    )


def _arrow(compared: Comparison) -> str:
    return "↑" if compared.higher_is_better else "↓"


def _spread(compared: Comparison, spread: Spread | None) -> str:
    """`0.8517 ± 0.0156`; a figure without a standard deviation stands alone."""
    if spread is None:
        return NOTHING
    digits = compared.digits
    return f"{spread.mean:.{digits}f}" + ("" if spread.sd is None else f" ± {spread.sd:.{digits}f}")


def _against(compared: Comparison, arm: str, reference: str, in_percent: bool = False) -> str:
    """`−0.0123 [−0.0200, −0.0046] n=3 worse`: a paired difference and what it says."""
    if arm == reference:
        return "reference"
    difference = compared.change(arm, reference) if in_percent else compared.difference(arm, reference)
    if difference is None:
        return NOTHING
    digits = 2 if in_percent else compared.digits
    mean, said = _signed(difference.mean, digits), compared.verdict(difference)
    if difference.interval is None:
        return f"{mean} n=1"
    low, high = (_signed(end, digits) for end in difference.interval)
    return f"{mean} [{low}, {high}] n={difference.n} {said}"


def _signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def _marked(text: str, mark: str) -> str:
    return f"{text} {mark}".rstrip()


def _grid(sheet: Sheet) -> RenderableType:
    """A table with its notes for the terminal; any name is shown as it is."""
    grid = new_grid("", *sheet.columns, right=sheet.columns[1:])
    for row in sheet.rows:
        grid.add_row(*(Text(printable(cell)) for cell in row))
    title = Text(printable(sheet.title), style="bold")
    return Group(title, grid, *map(_note, sheet.notes), Text())


def _note(text: str) -> Text:
    return Text(printable(text), style="dim")


def _markdown(sheet: Sheet) -> str:
    """A table with its notes as Markdown; no name can be taken for a mark of it."""
    head = [sheet.columns, ("---", *("---:" for _ in sheet.columns[1:]))]
    table = [f"| {' | '.join(map(_plain, row))} |" for row in [*head, *sheet.rows]]
    return "\n".join([f"### {_plain(sheet.title)}", "", *table, "", *(f"{_plain(n)}\n" for n in sheet.notes)])


def _plain(text: str) -> str:
    return re.sub(r"([\\`*_<>|~&$]|(?<=\])\()", r"\\\1", printable(text))
