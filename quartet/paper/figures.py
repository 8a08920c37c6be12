"""Studies as pictures: arms with their intervals, samplers, what each part is worth, and learning curves."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from quartet.drawing import INK, LINE, MARK, PALE, Point, ends, ticks
from quartet.errors import printable
from quartet.paper.arms import ABLATION, LAYERS, REFERENCE, SAMPLERS, Result, Study, sampler_arm
from quartet.paper.numbers import paper_beside, paper_changes
from quartet.paper.statistics import Comparison, comparisons
from quartet.paper.tables import CHOSEN, CLEAR, NOTHING

WIDTH, PANEL = 720, 360
_GREY, _ORANGE = "#6b7280", "#f2c894"
_WORSE, _BETTER = (178, 24, 43), (33, 102, 172)  # red and blue that colour-blind readers tell apart
_STRONGEST = 10.0  # percent: beyond it colours do not get deeper
_CHANCE = {"roc_auc": 0.5}  # where bars begin, if none is below it


def study_figures(study: Study, results: Sequence[Result]) -> dict[str, str]:
    """File name stem -> SVG: the study's own picture of all tasks, and the learning curves of each task."""
    compared = [one for one in comparisons(study, results) if one.spreads("test")]
    if not compared:
        return {}
    stem, draw = _PICTURES[study]
    found = {stem: draw(compared)}
    for one in compared:
        if any(_histories(one, arm) for arm in one.arms):
            found[_new_stem(f"curves-{one.task}", found)] = learning_svg(one)
    return found


def _new_stem(name: str, taken: dict[str, str]) -> str:
    """A stem that any file system takes and that no other picture has."""
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:60]
    return next(s for s in (stem, *(f"{stem}-{n}" for n in range(2, len(taken) + 3))) if s not in taken)


# --- what pictures are made of --------------------------------------------------------------------


@dataclass(frozen=True)
class Frame:
    """A rectangle of the page, and the ranges of values that it shows."""

    left: float
    top: float
    width: float
    height: float
    x_range: Point = (0.0, 1.0)
    y_range: Point = (0.0, 1.0)

    def x(self, value: float) -> float:
        low, high = self.x_range
        return self.left + (value - low) / (high - low) * self.width

    def y(self, value: float) -> float:
        low, high = self.y_range
        return self.top + self.height - (value - low) / (high - low) * self.height

    def x_axis(self) -> Iterator[str]:
        bottom = self.top + self.height
        for value in ticks(*self.x_range):
            yield _line(self.x(value), self.top, self.x(value), bottom, PALE)
            yield _text(self.x(value), bottom + 13, f"{value:g}", "middle", 10)

    def y_axis(self) -> Iterator[str]:
        for value in ticks(*self.y_range):
            yield _line(self.left, self.y(value), self.left + self.width, self.y(value), PALE)
            yield _text(self.left - 5, self.y(value) + 4, f"{value:g}", "end", 10)


def _page(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" font-family="system-ui, sans-serif" font-size="11">'
        f"<title>{_escaped(title)}</title>"
        f'<rect width="{width:g}" height="{height:g}" fill="white"/>' + "".join(parts) + "</svg>\n"
    )


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 11, fill: str = INK) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{fill}">'
        f"{_escaped(text)}</text>"
    )


def _escaped(text: str) -> str:
    return html.escape(printable(text))


def _line(x1: float, y1: float, x2: float, y2: float, stroke: str, width: float = 1) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" stroke-width="{width:g}"/>'


def _dot(x: float, y: float, radius: float, fill: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}"/>'


def _hollow(x: float, y: float) -> str:
    """The mark of the paper's figures."""
    return (
        f'<path d="M{x - 5:.1f},{y:.1f} l5,-5 l5,5 l-5,5 z" fill="white" stroke="{MARK}" stroke-width="1.5"/>'
    )


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _rounded(value: float, compared: Comparison) -> str:
    return f"{value:.{min(3, compared.digits)}f}"


def _name(compared: Comparison) -> str:
    return _short(f"{compared.dataset}/{compared.task}", 26)


def _arrow(compared: Comparison) -> str:
    return "↑" if compared.higher_is_better else "↓"


def _heading(compared: Comparison, what: str) -> str:
    return f"{_name(compared)}: {what} {compared.metric} {_arrow(compared)}"


def _panels(
    compared: Sequence[Comparison],
    height: float,
    draw: Callable[[Comparison, float, float], Iterator[str]],
    title: str,
    legend: Sequence[str],
) -> str:
    """A page with a panel for each task, two beside each other, and the lines of the legend below them."""
    parts: list[str] = []
    for place, one in enumerate(compared):
        parts += draw(one, PANEL * (place % 2), height * (place // 2))
    below = height * ((len(compared) + 1) // 2)
    parts += [_text(12, below + 14 * (n + 1), line, fill=_GREY) for n, line in enumerate(legend)]
    return _page(PANEL * min(2, len(compared)), below + 14 * len(legend) + 10, title, parts)


# --- the pictures ---------------------------------------------------------------------------------


def dots_svg(compared: Sequence[Comparison]) -> str:
    """Each arm on test: its runs, their mean with its interval, and the paper's figure as a hollow mark."""
    rows = max(len(one.arms) for one in compared)
    legend = [
        "large dot: mean over random seeds; bar: its 95 % interval",
        "small dots: single runs; hollow diamond: the paper",
    ]
    if compared[0].study == "capacity":
        legend.append(f"{CHOSEN} selected by validation")
    return _panels(compared, 66 + 22 * rows, _dots, f"Study {compared[0].study}: test by arm", legend)


def _dots(compared: Comparison, left: float, top: float) -> Iterator[str]:
    arms, papers = list(compared.spreads("test")), paper_beside(compared, "test")
    shown = {arm: list(compared.values(arm, "test").values()) for arm in arms}
    ends = [end for spread in compared.spreads("test").values() for end in spread.interval or ()]
    every = [
        *ends,
        *(papers[arm].mean for arm in arms if arm in papers),
        *(v for values in shown.values() for v in values),
    ]
    frame = Frame(left + 110, top + 30, PANEL - 110 - 74, 22 * len(arms) + 6, _wider(every))
    yield _text(left + 12, top + 20, _heading(compared, "test"), size=13)
    yield from frame.x_axis()
    chosen = compared.best(arms, "validation") if compared.study == "capacity" else None
    for place, arm in enumerate(arms):
        label = _short(arm, 16) + (f" {CHOSEN}" if arm == chosen else "")
        yield from _dots_row(compared, arm, label, frame, frame.top + 22 * place + 14)


def _dots_row(compared: Comparison, arm: str, label: str, frame: Frame, y: float) -> Iterator[str]:
    spread, paper = compared.spread(arm, "test"), paper_beside(compared, "test").get(arm)
    assert spread is not None
    yield _text(frame.left - 8, y + 4, label, "end")
    yield _text(
        frame.left + frame.width + 8, y + 4, f"{_rounded(spread.mean, compared)}, n={spread.n}", size=10
    )
    if spread.interval:
        low, high = map(frame.x, spread.interval)
        yield _line(low, y, high, y, LINE, 2)
    for value in compared.values(arm, "test").values():
        yield _dot(frame.x(value), y, 2, _GREY)
    yield _dot(frame.x(spread.mean), y, 4.5, LINE)
    if paper:
        yield _hollow(frame.x(paper.mean), y)


def _wider(values: Sequence[float]) -> Point:
    """The ends of some values with a little room at both sides."""
    low, high = ends(values)
    room = 0.05 * (high - low)
    return low - room, high + room


def bars_svg(compared: Sequence[Comparison]) -> str:
    """The two samplers beside each other for each number of layers, with standard deviations."""
    legend = [
        "bars: mean over n random seeds",
        "error bars: standard deviation",
        f"{CHOSEN} the layers that validation selects for this sampler",
    ]
    return _panels(compared, 262, _bars, "RelGT with BFS2 and with CRW, by layers", legend)


def _bars(compared: Comparison, left: float, top: float) -> Iterator[str]:
    spreads = compared.spreads("test")
    tops = [spread.mean + (spread.sd or 0) for spread in spreads.values()]
    lows = [spread.mean - (spread.sd or 0) for spread in spreads.values()]
    floor = _CHANCE.get(compared.metric, 0.0)
    floor = floor if min(lows) >= floor else min(0.0, *lows)
    frame = Frame(left + 48, top + 34, PANEL - 64, 160, y_range=(floor, _wider([floor, *tops])[1]))
    yield _text(left + 12, top + 20, _heading(compared, "test"), size=13)
    yield from frame.y_axis()
    group = frame.width / len(LAYERS)
    for place, layers in enumerate(LAYERS):
        middle = frame.left + group * (place + 0.5)
        yield _text(middle, frame.top + frame.height + 46, f"L={layers}", "middle")
        for x, sampler in zip((middle - 24, middle + 24), SAMPLERS, strict=True):
            yield from _bar(compared, sampler, layers, x, frame)


def _bar(compared: Comparison, sampler: str, layers: int, middle: float, frame: Frame) -> Iterator[str]:
    arms = [sampler_arm(sampler, other) for other in LAYERS]
    arm, bottom = sampler_arm(sampler, layers), frame.top + frame.height
    spread = compared.spread(arm, "test")
    mark = f"{CHOSEN} " if arm == compared.best(arms, "validation") else ""
    yield _text(middle, bottom + 14, mark + sampler, "middle", 10)
    yield _text(middle, bottom + 28, f"n={spread.n}" if spread else NOTHING, "middle", 10, _GREY)
    if spread is None:
        return
    y, fill = frame.y(spread.mean), LINE if sampler == "CRW" else _ORANGE
    yield (
        f'<rect x="{middle - 20:.1f}" y="{y:.1f}" width="40" height="{bottom - y:.1f}" fill="{fill}" '
        f'stroke="{INK}"/>'
    )
    yield from _error_bar(
        middle, frame.y(spread.mean - (spread.sd or 0)), frame.y(spread.mean + (spread.sd or 0))
    )
    yield _text(
        middle, frame.y(spread.mean + (spread.sd or 0)) - 4, _rounded(spread.mean, compared), "middle", 10
    )


def _error_bar(x: float, low: float, high: float) -> Iterator[str]:
    if low != high:
        yield _line(x, low, x, high, INK, 1.5)
        yield from (_line(x - 5, y, x + 5, y, INK, 1.5) for y in (low, high))


def heat_svg(compared: Sequence[Comparison]) -> str:
    """The paper's Table 2: what each part is worth, ours above the paper's; red is worse, blue better."""
    arms = [arm.name for arm in ABLATION if arm.name != REFERENCE["ablation"]]
    parts = [_text(12, 20, "Change of test against the full model, %", size=13)]
    for column, arm in enumerate(arms):
        words = arm.split()
        parts += [
            _text(_heat_x(column), 66 - 12 * (len(words) - 1 - n), word, "middle", 9)
            for n, word in enumerate(words)
        ]
    top = 74.0
    for one in compared:
        parts += _heat_rows(one, arms, top)
        top += 26 * (2 if paper_changes(one) else 1) + 8
    parts.append(
        _text(
            12,
            top + 10,
            f"red: worse than the full model, blue: better, deepest from {_STRONGEST:g} %",
            fill=_GREY,
        )
    )
    parts.append(
        _text(12, top + 24, f"{CLEAR} the 95 % interval of the paired differences excludes 0", fill=_GREY)
    )
    return _page(WIDTH, top + 34, "Ablation: change of test against the full model", parts)


def _heat_x(column: int) -> float:
    return 186 + 58 * column + 29


def _heat_rows(compared: Comparison, arms: Sequence[str], top: float) -> Iterator[str]:
    """A row of our changes, and one of the paper's if it has them."""
    changes, papers = (
        {arm: compared.change(arm, REFERENCE["ablation"]) for arm in arms},
        paper_changes(compared),
    )
    direction = 1 if compared.higher_is_better else -1
    yield _text(12, top + 17, f"{_name(compared)} {_arrow(compared)}")
    for column, change in enumerate(changes.values()):
        mark = CLEAR if change and compared.verdict(change) != "unclear" else ""
        yield from _heat_cell(column, top, change.mean if change else None, mark, direction)
    if papers:
        yield _text(178, top + 43, "paper", "end", fill=_GREY)
        for column, arm in enumerate(arms):
            yield from _heat_cell(column, top + 26, papers[arm], "", direction)


def _heat_cell(column: int, top: float, percent: float | None, mark: str, direction: int) -> Iterator[str]:
    """A cell with its number; `direction` is 1 where more is better, else −1."""
    fill, ink = _heat_colours((percent or 0.0) * direction)
    x = _heat_x(column)
    yield f'<rect x="{x - 28.5:g}" y="{top:g}" width="57" height="25" fill="{fill}" stroke="{PALE}"/>'
    text = NOTHING if percent is None else f"{percent:+.1f}".replace("-", "−") + mark
    yield _text(x, top + 17, text, "middle", fill=ink)


def _heat_colours(gain: float) -> tuple[str, str]:
    """The colour of a cell, from white to full, and of the text in it."""
    share = min(1.0, abs(gain) / _STRONGEST)
    full = _BETTER if gain > 0 else _WORSE
    red, green, blue = (round(255 + (part - 255) * share) for part in full)
    return f"#{red:02x}{green:02x}{blue:02x}", "white" if share > 0.8 else INK


def learning_svg(compared: Comparison) -> str:
    """Validation by epoch, a panel for each arm: the mean over random seeds thick, each run thin."""
    told = {arm: _histories(compared, arm) for arm in compared.arms}
    told = {arm: lines for arm, lines in told.items() if lines}
    every = _wider([value for lines in told.values() for line in lines for value in line])
    name = REFERENCE.get(compared.study)
    reference = _mean_line(told[name]) if name in told else []
    parts = [_text(12, 20, _heading(compared, "validation"), size=13)]
    for place, (arm, lines) in enumerate(told.items()):
        longest = max(map(len, lines))
        frame = Frame(
            44 + 180 * (place % 4), 50 + 140 * (place // 4), 130, 90, ends([1.0, float(longest)]), every
        )
        parts += _learning_panel(compared, arm, lines, reference, frame)
    bottom = 50 + 140 * ((len(told) + 3) // 4)
    legend = "by epoch; thick: mean over random seeds; thin: each run; dot: the epoch that was selected"
    legend += f"; dashed: {name}" if reference else ""
    parts.append(_text(12, bottom, legend, fill=_GREY))
    return _page(WIDTH, bottom + 14, f"Learning curves: {compared.dataset}/{compared.task}", parts)


def _histories(compared: Comparison, arm: str) -> list[tuple[float, ...]]:
    """The runs by random seed; one with an epoch whose metric is undefined cannot be drawn."""
    told = [run.history for _, run in sorted(compared.runs.get(arm, {}).items())]
    return [line for line in told if line and all(map(math.isfinite, line))]


def _mean_line(lines: Sequence[Sequence[float]]) -> list[float]:
    """The mean of the runs at each epoch that all of them have reached."""
    return [fmean(values) for values in zip(*lines, strict=False)]


def _learning_panel(
    compared: Comparison, arm: str, lines: Sequence[Sequence[float]], reference: Sequence[float], frame: Frame
) -> Iterator[str]:
    yield _text(frame.left, frame.top - 8, f"{_short(arm, 18)}, n={len(lines)}")
    yield from frame.y_axis()
    yield _text(frame.left, frame.top + frame.height + 14, f"{frame.x_range[0]:g}", "middle", 10)
    yield _text(
        frame.left + frame.width, frame.top + frame.height + 14, f"{frame.x_range[1]:g}", "middle", 10
    )
    best = max if compared.higher_is_better else min
    for line in lines:
        yield _polyline(line, frame, LINE, 0.8)
    if reference and arm != REFERENCE.get(compared.study):
        yield _polyline(reference, frame, _GREY, 1.5, dash="4,3")
    yield _polyline(_mean_line(lines), frame, LINE, 2.5)
    for line in lines:
        yield _dot(frame.x(line.index(best(line)) + 1), frame.y(best(line)), 2.5, MARK)


def _polyline(line: Sequence[float], frame: Frame, stroke: str, width: float, dash: str = "") -> str:
    """A line through the epochs that the frame has room for."""
    points = " ".join(
        f"{frame.x(epoch):.1f},{frame.y(value):.1f}"
        for epoch, value in enumerate(line, 1)
        if epoch <= frame.x_range[1]
    )
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{points}" fill="none" stroke="{stroke}" stroke-width="{width:g}"{dashed}/>'


_PICTURES: dict[Study, tuple[str, Callable[[Sequence[Comparison]], str]]] = {
    "main": ("dots", dots_svg),
    "sampler": ("bars", bars_svg),
    "ablation": ("heat", heat_svg),
    "capacity": ("dots", dots_svg),
}
