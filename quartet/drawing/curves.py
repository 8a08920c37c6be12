"""Curves as pictures: loss and validation by epoch, and how often predictions came true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from quartet.drawing import svg
from quartet.drawing.svg import Point

_WIDTH, _HEIGHT, _MARGIN = 360, 240, 48


class EpochLine(Protocol):
    """The part of an epoch that is drawn."""

    @property
    def number(self) -> int: ...
    @property
    def loss(self) -> float: ...
    @property
    def validation(self) -> float: ...
    @property
    def is_best(self) -> bool: ...


@dataclass(frozen=True)
class Bin:
    """Predictions of like size: what was predicted on average, how often it came true, and of how many."""

    predicted: float
    came_true: float
    count: int


def curves_svg(epochs: Sequence[EpochLine], metric: str) -> str:
    """Draws training loss and the validation metric side by side, with a mark at the chosen epoch."""
    loss = [(epoch.number + 1.0, epoch.loss) for epoch in epochs]
    value = [(epoch.number + 1.0, epoch.validation) for epoch in epochs]
    mark = [(epoch.number + 1.0, epoch.validation) for epoch in epochs if epoch.is_best][-1:]
    parts = [
        *_panel(0, "training loss", "epoch", loss),
        *_panel(1, f"validation {metric}", "epoch", value, mark),
    ]
    about = "".join(f"The best epoch was {x:g}, with {y:.4f} on validation." for x, y in mark)
    return svg.page(2 * _WIDTH, _HEIGHT, parts, title="Training loss and validation by epoch", about=about)


def reliability_svg(bins: Sequence[Bin], title: str) -> str:
    """Draws predicted against observed rates; predictions on the diagonal can be taken at their word."""
    points = [(bin.predicted, bin.came_true) for bin in bins]
    most = max([1e-9, *(max(point) for point in points)])
    low = min([0.0, *(min(point) for point in points)])
    hints = [f"predicted {b.predicted:.3g}, came {b.came_true:.3g}, of {b.count:,}" for b in bins]
    parts = _panel(0, title, "predicted", points, points, [(low, low), (most, most)], hints)
    return svg.page(_WIDTH, _HEIGHT, parts, title=title, about="; ".join(hints))


def hits_svg(counts: Sequence[tuple[int, float]], title: str) -> str:
    """Draws how much of what came true is among ever more of the highest scored; the diagonal is chance."""
    rows, true = counts[-1] if counts else (0, 0.0)
    shares = [(100 * count / max(rows, 1), 100 * came / max(true, 1e-9)) for count, came in counts]
    hints = [
        f"the highest {count:,}: {came:,.0f} came true, {count * true / max(rows, 1):,.0f} by chance"
        for count, came in counts
    ]
    parts = _panel(
        0, title, "% of all, the highest scored first", shares, (), [(0.0, 0.0), (100.0, 100.0)], hints
    )
    tenths = [
        hint for (share, _), hint in zip(shares, hints, strict=True) if share and not round(share, 6) % 10
    ]
    return svg.page(_WIDTH, _HEIGHT, parts, title=title, about="; ".join(tenths))


def steps_svg(labels: Sequence[str], values: Sequence[float], title: str) -> str:
    """Draws a value for each of some labels, in their order, at equal distances; its title stands beside it."""
    points = [(float(place), value) for place, value in enumerate(values)]
    hints = [f"{label}: {value:.4g}" for label, value in zip(labels, values, strict=True)]
    parts = _panel(0, "", "", points, points, hints=hints, x_ticks=labels)
    return svg.page(_WIDTH, _HEIGHT, parts, title=title, about="; ".join(hints))


def _panel(
    number: int,
    title: str,
    x_label: str,
    points: Sequence[Point],
    marks: Sequence[Point] = (),
    guide: Sequence[Point] = (),
    hints: Sequence[str] = (),
    x_ticks: Sequence[str] = (),
) -> list[str]:
    """Returns a frame with a line; the points tell their `hints` when they are pointed at, and may have a name each."""
    left, right = _WIDTH * number + _MARGIN, _WIDTH * (number + 1) - 16
    top, bottom = 34 if title else 12, _HEIGHT - 34
    x_low, x_high = svg.ends([x for x, _ in (*points, *guide)])
    y_low, y_high = svg.ends([y for _, y in (*points, *guide)])

    def at(point: Point) -> Point:
        x = left + (point[0] - x_low) / (x_high - x_low) * (right - left)
        return x, bottom - (point[1] - y_low) / (y_high - y_low) * (bottom - top)

    parts = [svg.text(left, 20, title, most=52, font_size=13), svg.text(right, _HEIGHT - 6, x_label, "end")]
    for value in svg.ticks(y_low, y_high):
        _, y = at((x_low, value))
        parts += [svg.line(left, y, right, y), svg.text(left - 6, y + 4, f"{value:g}", "end")]
    few = max(1, -(-len(x_ticks) // 5))
    named = [(float(place), name) for place, name in enumerate(x_ticks) if place % few == 0]
    for value, name in named or [(value, f"{value:g}") for value in svg.ticks(x_low, x_high)]:
        parts.append(svg.text(at((value, y_low))[0], bottom + 14, name, "middle", most=14))
    parts += [svg.polyline([*map(at, guide)], svg.PALE), svg.polyline([*map(at, points)])]
    parts += [svg.dot(*at(mark)) for mark in marks]
    return parts + [
        svg.hinted(svg.rect(at(point)[0] - 4, top, 8, bottom - top, "transparent"), hint)
        for point, hint in zip(points, hints, strict=bool(hints))
    ]
