"""The one dialect of SVG in which every picture is drawn. Nothing in it can run, whatever the data hold."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

from quartet.errors import printable

INK, PALE, LINE, MARK, GREY = "#111827", "#d1d5db", "#1f6f8b", "#c2410c", "#6b7280"
Point = tuple[float, float]


def page(
    width: float, height: float, parts: Iterable[str], font_size: int = 11, title: str = "", about: str = ""
) -> str:
    """Returns a whole picture on a white ground; `title` and `about` are read to those who cannot see it."""
    size = f'width="{width:g}" height="{height:g}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width:g} {height:g}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="{font_size}">'
    )
    told = [f"<{tag}>{_plain(words)}</{tag}>" for tag, words in (("title", title), ("desc", about)) if words]
    return "\n".join([head, *told, f'<rect {size} fill="white"/>', *parts, "</svg>"]) + "\n"


def hinted(part: str, hint: object) -> str:
    """Returns a shape that tells something when it is pointed at."""
    return f"<g><title>{_plain(hint)}</title>{part}</g>"


def text(x: float, y: float, content: object, anchor: str = "start", most: int = 200, **style: object) -> str:
    """Returns one line of text, cut after `most` letters; `style` are SVG attributes with _ for -."""
    given = {"fill": INK, "text-anchor": anchor, **style}
    return f'<text x="{x:.1f}" y="{y:.1f}"{_attributes(given)}>{_plain(content, most)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, stroke: str = PALE, width: float = 1) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{stroke}" stroke-width="{width:g}"/>'


def polyline(points: Sequence[Point], stroke: str = LINE, width: float = 2, dash: str = "") -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{path}" fill="none" stroke="{stroke}" stroke-width="{width:g}"{dashes}/>'


def rect(x: float, y: float, width: float, height: float, fill: str, **style: object) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {place} fill="{fill}"{_attributes(style)}/>'


def dot(x: float, y: float, radius: float = 4, fill: str = MARK, **style: object) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}"{_attributes(style)}/>'


def ends(values: Sequence[float]) -> tuple[float, float]:
    """Returns the smallest and the largest value, apart even if they are equal or there are none."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    apart = max(0.5, abs(low) * 1e-6)
    return (low, high) if high > low else (low - apart, high + apart)


def ticks(low: float, high: float) -> list[float]:
    """Returns about four round numbers between two values."""
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 5)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _plain(content: object, most: int = 400) -> str:
    shown = printable(content)
    return html.escape(shown if len(shown) <= most else shown[: most - 1] + "…")


def _attributes(style: dict[str, object]) -> str:
    return "".join(f' {name.replace("_", "-")}="{html.escape(str(value))}"' for name, value in style.items())
