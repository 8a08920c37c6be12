"""Explanations in the terminal: the answer first, then parts, reasons, rows and known cases, on one screen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from quartet.drawing import cell, new_grid
from quartet.times import show_instant

if TYPE_CHECKING:
    from quartet.explain.result import Explanation, GlobalView

_BAR = 12  # letters of the longest bar
_MOST = 5  # lines of each kind


def explanation_view(told: Explanation, most: int = _MOST) -> RenderableType:
    """Returns one entity's explanation for the terminal."""
    who = f"{told.name} ({told.key})" if told.name else told.key
    score, base = (show_score(value, told.is_chance) for value in (told.score, told.base))
    what = f" for {told.predicted}" if told.predicted else ""
    direction = "above" if told.score > told.base else "below"
    lines: list[RenderableType] = [
        cell(
            f"{who} at {show_instant(told.time)}: {score}{what}, {direction} the {base} of an average case",
            "bold",
        )
    ]
    if told.task:
        lines.append(cell(told.task, "dim"))
    parts = [(part.words, part.effect) for part in told.parts]
    lines.append(_effects("what moved it", parts, most + 2, told.is_chance))
    columns = [
        (c.sentence + (f" (with {c.count - 1} more on the same)" if c.name and c.count > 1 else ""), c.effect)
        for c in told.columns
        if c.name
    ]
    rows = [(r.sentence, r.effect) for r in told.rows]
    for title, effects, nothing in (
        ("cells and aggregates", columns, "no cell or aggregate moved it"),
        (
            "rows: what the score would lack without them",
            rows,
            "no row alone, and no group of rows, moved it",
        ),
    ):
        seen = [effect for effect in effects if _shown(effect[1], told.is_chance).strip("+-0. p")]
        if seen:
            lines.append(_effects(title, seen, most, told.is_chance))
        elif effects:
            lines.append(cell(f"{nothing} noticeably", "dim"))
    if told.lookalikes:
        grid = new_grid(
            "known cases most like it",
            "key",
            "name",
            "asked at",
            "what happened",
            "likeness",
            right=("likeness",),
        )
        for case in told.lookalikes[:most]:
            grid.add_row(
                cell(case.key),
                cell(case.name),
                cell(show_instant(case.time)),
                cell(case.outcome),
                cell(f"{case.likeness:.2f}"),
            )
        lines.append(grid)
    if told.archetype:
        lines.append(cell(f"to the network it is {told.archetype}"))
    lines += [cell(f"what would change it: {change.words}") for change in told.changes[:most]]
    return Group(*lines)


def global_view_text(told: GlobalView, most: int = 8) -> RenderableType:
    """Returns what a model uses, for the terminal."""
    lines: list[RenderableType] = [
        cell(
            f"what the model uses: how far each moves the score, up or down, on average over {told.num_seeds:,} cases "
            "of validation",
            "bold",
        )
    ]
    if told.task:
        lines.append(cell(told.task, "dim"))
    for title in ("parts", "columns", "tables", "links", "spans"):
        uses = getattr(told, title)
        if uses:
            lines.append(
                _effects(title, [(use.words, use.effect) for use in uses], most, told.is_chance, signed=False)
            )
    for curve in told.curves:
        steps = ", ".join(
            f"{label}: {show_score(score, told.is_chance)}"
            for label, score in zip(curve.labels, curve.scores, strict=True)
        )
        lines.append(cell(f"{curve.words} → mean score: {steps}"))
    return Group(*lines)


def show_score(value: float, is_chance: bool) -> str:
    return f"{value:.1%}" if is_chance else f"{value:.4g}"


def _shown(effect: float, is_chance: bool, signed: bool = True, digits: int = 3) -> str:
    """Returns an effect in percentage points, or as a value with so many decimals; nothing is "0", without a sign."""
    value = f"{100 * effect:+.1f}" if is_chance else f"{effect:+.{digits}f}"
    value = value if signed and value.strip("+-0.") else value[1:]
    return f"{value} pp" if is_chance else value


def _effects(
    title: str, effects: list[tuple[str, float]], most: int, is_chance: bool, signed: bool = True
) -> Grid:
    """Returns bars of the strongest effects; those that would be written as 0 are left to one line in the end."""
    ordered = sorted(effects, key=lambda effect: -abs(effect[1]))[:most]
    longest = max((abs(effect) for _, effect in ordered), default=0.0) or 1.0
    digits = max(0, 2 - math.floor(math.log10(longest)))
    grid = new_grid(title, "effect", "", "", right=("effect",))
    faint = []
    for words, effect in ordered:
        shown = _shown(effect, is_chance, signed, digits)
        if not shown.strip("+-0. p"):
            faint.append(words)
            continue
        bar = "█" * max(1, round(_BAR * abs(effect) / longest))
        grid.add_row(cell(shown), Text(bar, style="green" if effect > 0 else "red"), cell(words))
    if faint:
        grid.add_row(
            cell(_shown(0.0, is_chance, digits=digits), "dim"), Text(""), cell("; ".join(faint), "dim")
        )
    return grid
