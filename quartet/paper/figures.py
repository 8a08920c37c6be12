"""The figures of a study: arms with their intervals, what each part is worth, and learning curves."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from quartet.drawing import svg
from quartet.evaluation import higher_is_better
from quartet.paper.arms import ABLATED, FULL, StudyName, reference_arm
from quartet.paper.numbers import paper_beside, paper_changes
from quartet.paper.results import Result
from quartet.paper.statistics import Comparison, comparisons
from quartet.paper.tables import CHOSEN, CLEAR, shown_change, signed

_WIDTH, _PANEL, _ROW = 720, 360, 22
_WORSE, _BETTER = (178, 24, 43), (33, 102, 172)  # red and blue that colour-blind readers tell apart
_STRONGEST = 10.0  # percent: beyond it colours do not get deeper


def study_figures(study: StudyName, results: Sequence[Result]) -> dict[str, str]:
    """Returns file stem -> SVG: one figure of all tasks, and the learning curves of each task."""
    compared = [one for one in comparisons(study, results) if one.spreads("test")]
    if not compared:
        return {}
    figures = {"heat": _heat_svg(compared)} if study == "ablation" else {"dots": _dots_svg(compared)}
    for one in compared:
        if any(_curves(one, arm) for arm in one.shown):
            name = re.sub(r"[^A-Za-z0-9_-]+", "-", f"curves-{one.task}")[:60]  # any file system takes it
            stems = (name, *(f"{name}-{number}" for number in range(2, len(figures) + 3)))
            figures[next(stem for stem in stems if stem not in figures)] = _learning_svg(one)
    return figures


# --- SVG ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Axes:
    """A rectangle of the page, and the ranges of values that it shows."""

    left: float
    top: float
    width: float
    height: float
    x_range: svg.Point = (0.0, 1.0)
    y_range: svg.Point = (0.0, 1.0)

    def x(self, value: float) -> float:
        low, high = self.x_range
        return self.left + (value - low) / (high - low) * self.width

    def y(self, value: float) -> float:
        low, high = self.y_range
        return self.top + self.height - (value - low) / (high - low) * self.height

    def curve(self, values: Sequence[float], stroke: str, width: float, dash: str = "") -> str:
        """Returns a line through the epochs that there is room for."""
        epochs = [pair for pair in enumerate(values, 1) if pair[0] <= self.x_range[1]]
        return svg.polyline([(self.x(epoch), self.y(value)) for epoch, value in epochs], stroke, width, dash)


def _page(height: float, parts: Sequence[str], legend: Sequence[str], width: float = _WIDTH) -> str:
    """Returns a page with the lines of a legend below everything else."""
    lines = [svg.text(12, height + 14 * (n + 1), line, fill=svg.GREY) for n, line in enumerate(legend)]
    return svg.page(width, height + 14 * len(legend) + 10, [*parts, *lines])


def _wider(values: Sequence[float]) -> svg.Point:
    """Returns the ends of some values with a little room at both sides."""
    low, high = svg.ends(values)
    room = 0.05 * (high - low)
    return low - room, high + room


def _heading(compared: Comparison, what: str) -> str:
    name = compared.name if len(compared.name) <= 26 else compared.name[:25] + "…"
    return f"{name}: {what} {compared.metric} {compared.arrow}"


# --- the figures ----------------------------------------------------------------------------------


def _dots_svg(compared: Sequence[Comparison]) -> str:
    """Returns each arm on test: its runs, their mean with its interval, and the paper's figure as a hollow mark."""
    height = 66 + _ROW * max(len(one.shown) for one in compared)
    parts: list[str] = []
    for place, one in enumerate(compared):
        parts += _dots(one, _PANEL * (place % 2), height * (place // 2))
    legend = [
        "large dot: mean over random seeds; bar: its 95 % interval",
        "small dots: single runs; hollow diamond: the paper",
        *([f"{CHOSEN} selected by validation"] if compared[0].selected else []),
    ]
    return _page(height * ((len(compared) + 1) // 2), parts, legend, _PANEL * min(2, len(compared)))


def _dots(compared: Comparison, left: float, top: float) -> Iterator[str]:
    tests, papers = compared.spreads("test"), paper_beside(compared, "test")
    spreads = {arm: tests[arm] for arm in compared.shown if arm in tests}
    runs = {arm: list(compared.values(arm, "test").values()) for arm in spreads}
    shown = [end for spread in spreads.values() for end in spread.interval or ()]
    shown += [papers[arm].mean for arm in spreads if arm in papers]
    shown += [value for values in runs.values() for value in values]
    axes = _Axes(left + 110, top + 30, _PANEL - 184, _ROW * len(spreads) + 6, _wider(shown))
    yield svg.text(left + 12, top + 20, _heading(compared, "test"), font_size=13)
    for value in svg.ticks(*axes.x_range):
        yield svg.line(axes.x(value), axes.top, axes.x(value), axes.top + axes.height, svg.PALE)
        yield svg.text(axes.x(value), axes.top + axes.height + 13, f"{value:g}", "middle", font_size=10)
    chosen = compared.selected
    for place, (arm, spread) in enumerate(spreads.items()):
        y = axes.top + _ROW * place + 14
        yield svg.text(axes.left - 8, y + 4, arm + (f" {CHOSEN}" if arm in chosen else ""), "end", most=18)
        mean = f"{spread.mean:.{min(3, compared.digits)}f}, n={spread.n}"
        yield svg.text(axes.left + axes.width + 8, y + 4, mean, font_size=10)
        if spread.interval:
            yield svg.line(axes.x(spread.interval[0]), y, axes.x(spread.interval[1]), y, svg.LINE, 2)
        yield from (svg.dot(axes.x(value), y, 2, svg.GREY) for value in runs[arm])
        yield svg.dot(axes.x(spread.mean), y, 4.5, svg.LINE)
        if arm in papers:
            x = axes.x(papers[arm].mean) - 5
            yield f'<path d="M{x:.1f},{y:.1f} l5,-5 l5,5 l-5,5 z" fill="white" stroke="{svg.MARK}" stroke-width="1.5"/>'


def _heat_svg(compared: Sequence[Comparison]) -> str:
    """Returns the paper's Table 2: what each part is worth, ours above the paper's; red is worse, blue better."""
    parts = [svg.text(12, 20, "Change of test against the full model, %", font_size=13)]
    for column, arm in enumerate(ABLATED):
        words = arm.split()
        for place, word in enumerate(words):
            parts.append(
                svg.text(215 + 58 * column, 66 - 12 * (len(words) - 1 - place), word, "middle", font_size=9)
            )
    top = 74.0
    for one in compared:
        direction = 1 if higher_is_better(one.metric) else -1
        changes = {arm: one.change(arm, FULL) for arm in ABLATED}
        ours = {arm: change.mean if change else None for arm, change in changes.items()}
        parts.append(svg.text(12, top + 17, f"{one.name} {one.arrow}", most=28))
        parts += _heat_row(top, direction, ours, [shown_change(one, arm) for arm in ABLATED])
        if papers := paper_changes(one):
            top += 26
            parts.append(svg.text(178, top + 17, "paper", "end", fill=svg.GREY))
            parts += _heat_row(top, direction, papers, [signed(papers[arm], 1) for arm in ABLATED])
        top += 34
    legend = (
        f"red: worse than the full model, blue: better, deepest from {_STRONGEST:g} %",
        f"{CLEAR} the 95 % interval of the paired differences excludes 0",
    )
    return _page(top, parts, legend)


def _heat_row(
    top: float, direction: int, percent: dict[str, float] | dict[str, float | None], texts: Sequence[str]
) -> Iterator[str]:
    """Yields cells from white to full colour; `direction` is 1 where more is better, else −1."""
    for column, (arm, text) in enumerate(zip(ABLATED, texts, strict=True)):
        gain = (percent[arm] or 0.0) * direction
        strength = min(1.0, abs(gain) / _STRONGEST)
        full = _BETTER if gain > 0 else _WORSE
        fill = "#" + "".join(f"{round(255 + (part - 255) * strength):02x}" for part in full)
        x = 215 + 58 * column
        yield svg.rect(x - 28.5, top, 57, 25, fill, stroke=svg.PALE)
        yield svg.text(x, top + 17, text, "middle", fill="white" if strength > 0.8 else svg.INK)


def _learning_svg(compared: Comparison) -> str:
    """Returns validation by epoch, a panel for each arm: the mean over random seeds thick, each run thin."""
    every = {arm: lines for arm in compared.shown if (lines := _curves(compared, arm))}
    y_range = _wider([value for lines in every.values() for line in lines for value in line])
    name = reference_arm(compared.study, compared.arms[0])
    reference = _mean_line(every[name]) if name in every else []
    parts = [svg.text(12, 20, _heading(compared, "validation"), font_size=13)]
    for place, (arm, lines) in enumerate(every.items()):
        x_range = svg.ends([1.0, float(max(map(len, lines)))])
        axes = _Axes(44 + 180 * (place % 4), 50 + 140 * (place // 4), 130, 90, x_range, y_range)
        parts += _learning_panel(compared, arm, lines, [] if arm == name else reference, axes)
    legend = "by epoch; thick: mean over random seeds; thin: each run; dot: the epoch that was selected"
    legend += f"; dashed: {name}" if reference else ""
    height = 36 + 140 * ((len(every) + 3) // 4)
    return _page(height, parts, [legend])


def _learning_panel(
    compared: Comparison, arm: str, lines: Sequence[Sequence[float]], reference: Sequence[float], axes: _Axes
) -> Iterator[str]:
    best, bottom = max if higher_is_better(compared.metric) else min, axes.top + axes.height
    yield svg.text(axes.left, axes.top - 8, f"{arm}, n={len(lines)}", most=24)
    for value in svg.ticks(*axes.y_range):
        yield svg.line(axes.left, axes.y(value), axes.left + axes.width, axes.y(value), svg.PALE)
        yield svg.text(axes.left - 5, axes.y(value) + 4, f"{value:g}", "end", font_size=10)
    for epoch in axes.x_range:
        yield svg.text(axes.x(epoch), bottom + 14, f"{epoch:g}", "middle", font_size=10)
    yield from (axes.curve(line, svg.LINE, 0.8) for line in lines)
    if reference:
        yield axes.curve(reference, svg.GREY, 1.5, dash="4,3")
    yield axes.curve(_mean_line(lines), svg.LINE, 2.5)
    for line in lines:
        yield svg.dot(axes.x(line.index(best(line)) + 1), axes.y(best(line)), 2.5, svg.MARK)


def _curves(compared: Comparison, arm: str) -> list[tuple[float, ...]]:
    """Returns the runs by random seed; one with an epoch whose metric is undefined cannot be drawn."""
    curves = [run.curve for _, run in sorted(compared.runs.get(arm, {}).items())]
    return [curve for curve in curves if curve and all(map(math.isfinite, curve))]


def _mean_line(lines: Sequence[Sequence[float]]) -> list[float]:
    """Returns the mean of the runs at each epoch that all of them have reached."""
    return [fmean(values) for values in zip(*lines, strict=False)]
