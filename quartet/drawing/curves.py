"""Curves as a picture: loss and validation by epoch, and how often what was said came true."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

WIDTH, HEIGHT, MARGIN = 360, 240, 48
INK, PALE, LINE, MARK = "#111827", "#d1d5db", "#1f6f8b", "#c2410c"

Point = tuple[float, float]


class EpochLine(Protocol):
    """What is drawn of an epoch."""

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
    """Predictions of like size: what was said on average, what came true, and of how many."""

    said: float
    came: float
    count: int


def curves_svg(history: Sequence[EpochLine], metric: str) -> str:
    """Training loss and the validation metric, side by side; the chosen epoch is marked."""
    loss = [(line.number + 1.0, line.loss) for line in history]
    value = [(line.number + 1.0, line.validation) for line in history]
    mark = [(line.number + 1.0, line.validation) for line in history if line.is_best][-1:]
    panels = [
        _panel(0, "training loss", "epoch", loss),
        _panel(1, f"validation {metric}", "epoch", value, marks=mark),
    ]
    return _page(panels)


def reliability_svg(bins: Sequence[Bin], title: str) -> str:
    """What was said against what came true; the diagonal is a forecaster one can take at their word."""
    points = [(bin.said, bin.came) for bin in bins]
    ends = [0.0, max([1e-9, *(max(point) for point in points)])]
    diagonal = [(end, end) for end in ends]
    return _page([_panel(0, title, "said", points, marks=points, guide=diagonal)])


def _page(panels: Sequence[str]) -> str:
    width = WIDTH * len(panels)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT}" '
        f'viewBox="0 0 {width} {HEIGHT}" font-family="system-ui, sans-serif" font-size="11">'
        f'<rect width="{width}" height="{HEIGHT}" fill="white"/>' + "".join(panels) + "</svg>\n"
    )


def _panel(
    place: int,
    title: str,
    x_label: str,
    points: Sequence[Point],
    marks: Sequence[Point] = (),
    guide: Sequence[Point] = (),
) -> str:
    left, right = WIDTH * place + MARGIN, WIDTH * (place + 1) - 16
    top, bottom = 34, HEIGHT - 34
    every = [*points, *guide]
    x_low, x_high = ends([x for x, _ in every])
    y_low, y_high = ends([y for _, y in every])

    def at(point: Point) -> str:
        x = left + (point[0] - x_low) / (x_high - x_low) * (right - left)
        y = bottom - (point[1] - y_low) / (y_high - y_low) * (bottom - top)
        return f"{x:.1f},{y:.1f}"

    parts = [
        f'<text x="{left}" y="20" fill="{INK}" font-size="13">{html.escape(title)}</text>',
        f'<text x="{right}" y="{HEIGHT - 6}" fill="{INK}" text-anchor="end">{html.escape(x_label)}</text>',
    ]
    for value in ticks(y_low, y_high):
        y = at((x_low, value)).split(",")[1]
        parts.append(f'<line x1="{left}" y1="{y}" x2="{right}" y2="{y}" stroke="{PALE}"/>')
        parts.append(f'<text x="{left - 6}" y="{y}" dy="4" text-anchor="end" fill="{INK}">{value:g}</text>')
    for value in ticks(x_low, x_high):
        x = at((value, y_low)).split(",")[0]
        parts.append(f'<text x="{x}" y="{bottom + 14}" text-anchor="middle" fill="{INK}">{value:g}</text>')
    for line, colour in ((guide, PALE), (points, LINE)):
        path = " ".join(at(point) for point in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for mark in marks:
        x, y = at(mark).split(",")
        parts.append(f'<circle cx="{x}" cy="{y}" r="4" fill="{MARK}"/>')
    return "".join(parts)


def ends(values: Sequence[float]) -> tuple[float, float]:
    """The smallest and the largest value, apart even if they are equal or there are none."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def ticks(low: float, high: float) -> list[float]:
    """About four round numbers between two values."""
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 5)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]
