"""Pictures of time and size: what lies when, on one axis, and bars beside their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quartet.drawing import svg
from quartet.times import DAY, show_instant

_WIDTH, _LABEL, _MARGIN = 720, 150, 16
_LANE, _SPAN, _BAR = 34, 24, 22
_STEPS = (("D", 1), ("D", 7), ("M", 1), ("M", 3), ("Y", 1), ("Y", 2), ("Y", 5), ("Y", 10), ("Y", 50))
_MOST_TICKS = 8
_BARS = 880  # how wide a picture of bars is
_NAMED, _LONGEST = 480, 82  # of the name of a bar: how wide it is, and how many letters that are


@dataclass(frozen=True)
class Lane:
    """Something counted over time: so many in each of equally long pieces of the axis."""

    name: str
    about: str
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Span:
    """A piece of time with a name; `ends` is where what was asked in it is over."""

    name: str
    about: str
    first: int
    last: int
    ends: int


def timeline_svg(low: int, high: int, lanes: Sequence[Lane], spans: Sequence[Span], title: str) -> str:
    """Draws counts over time above spans of the same axis, from one instant to another."""
    left, right = _LABEL, _WIDTH - _MARGIN
    high = max(high, low + 1)

    def at(time: int) -> float:
        return left + (time - low) / (high - low) * (right - left)

    parts, y = [], 10.0
    for lane in lanes:
        most, step = max([1, *lane.counts]), (right - left) / max(1, len(lane.counts))
        base = y + _LANE - 6
        parts += [
            svg.text(0, base - 12, lane.name, most=22),
            svg.text(0, base, lane.about, most=26, fill=svg.GREY, font_size=10),
            svg.line(left, base, right, base),
        ]
        for place, count in enumerate(lane.counts):
            tall = (_LANE - 10) * count / most
            bar = svg.rect(left + place * step + 0.5, base - tall, max(step - 1, 0.5), tall, svg.LINE)
            since = show_instant(low + (high - low) * place // len(lane.counts) // DAY * DAY)
            parts += [svg.hinted(bar, f"{lane.name}, from {since}: {count:,}")] if count else []
        y += _LANE
    y += 8 if lanes else 0
    for rank, span in enumerate(spans):
        color = (svg.GREY, svg.LINE, svg.MARK)[min(rank, 2)]
        wide, tail = max(at(span.last) - at(span.first), 2), max(at(min(span.ends, high)) - at(span.last), 0)
        bar = svg.rect(at(span.first), y, wide, 12, color, rx=2)
        window = svg.rect(at(span.first) + wide, y + 4, tail, 4, color, opacity=0.5)
        hint = f"{span.name}: {show_instant(span.first)} to {show_instant(span.last)}, {span.about}"
        parts += [
            svg.text(0, y + 10, span.name, most=22),
            svg.hinted(bar + window, hint),
        ]
        y += _SPAN
    ticks = [show_instant(tick) for tick in time_ticks(low, high)]
    short = 4 if all(t.endswith("-01-01") for t in ticks) else 7 if all(t[7:] == "-01" for t in ticks) else 10
    for tick, name in zip(time_ticks(low, high), ticks, strict=True):
        x = min(max(at(tick), left), right)
        anchor = "end" if x > right - 24 else "start" if x < left + 24 else "middle"
        parts += [
            svg.line(x, y - 2, x, y + 2, svg.GREY),
            svg.text(x, y + 14, name[:short], anchor, fill=svg.GREY),
        ]
    about = "; ".join(
        [f"{lane.name}: {lane.about}" for lane in lanes]
        + [f"{s.name} from {show_instant(s.first)} to {show_instant(s.last)}: {s.about}" for s in spans]
    )
    return svg.page(_WIDTH, y + 22, parts, title=title, about=about)


def time_ticks(low: int, high: int) -> list[int]:
    """Returns a few instants between two at which a day, month or year begins; at least the ends of a short time."""
    for unit, step in _STEPS:
        first, last = np.array([low, high], "datetime64[ns]").astype(f"datetime64[{unit}]").astype(np.int64)
        places = np.arange(first, last + 1)
        starts = (
            places[places % step == 0].astype(f"datetime64[{unit}]").astype("datetime64[ns]").astype(np.int64)
        )
        inside = [int(start) for start in starts if low <= start <= high]
        if len(inside) <= _MOST_TICKS:
            return inside if len(inside) > 1 else [low, high]
    return [low, high]


def bars_svg(rows: Sequence[tuple[str, float, str]], title: str) -> str:
    """Draws a bar for each (name, size, what is written beside it); sizes below 0 go to the left."""
    label, note, y = _NAMED, 70, 6.0
    low, high = min([0.0, *(size for _, size, _ in rows)]), max([0.0, *(size for _, size, _ in rows)])
    left, right = label + (note if low < 0 else 8), _BARS - note
    scale = (right - left) / ((high - low) or 1.0)
    zero = left - low * scale
    parts = []
    for name, size, written in rows:
        wide = max(abs(size) * scale, 1)
        start = zero if size >= 0 else zero - wide
        beside = (start + wide + 6, "start") if size >= 0 else (start - 6, "end")
        bar = svg.rect(start, y + 3, wide, 14, svg.LINE if size >= 0 else svg.MARK, rx=2)
        parts += [
            svg.hinted(svg.text(label, y + 14, name, "end", most=_LONGEST), name),
            svg.hinted(bar, f"{name}: {written}"),
            svg.text(beside[0], y + 14, written, beside[1], fill=svg.GREY),
        ]
        y += _BAR
    parts.append(svg.line(zero, 4, zero, y, svg.GREY))
    about = "; ".join(f"{name}: {written}" for name, _, written in rows)
    return svg.page(_BARS, y + 6, parts, title=title, about=about)
