"""Pictures, all of them SVG."""

from quartet.drawing.context import seed_svg
from quartet.drawing.curves import INK, LINE, MARK, PALE, Bin, Point, curves_svg, ends, reliability_svg, ticks
from quartet.drawing.schema import schema_svg

__all__ = [
    "INK",
    "LINE",
    "MARK",
    "PALE",
    "Bin",
    "Point",
    "curves_svg",
    "ends",
    "reliability_svg",
    "schema_svg",
    "seed_svg",
    "ticks",
]
