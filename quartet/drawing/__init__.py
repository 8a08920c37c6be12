"""What people look at: pictures in one dialect of SVG, and grids and bars in the terminal."""

from quartet.drawing import svg
from quartet.drawing.context import context_svg, seed_svg
from quartet.drawing.curves import Bin, curves_svg, hits_svg, reliability_svg, steps_svg
from quartet.drawing.schema import schema_svg
from quartet.drawing.spans import Lane, Span, bars_svg, timeline_svg
from quartet.drawing.terminal import (
    as_shown,
    cell,
    console,
    is_quiet,
    new_bar,
    new_grid,
    rendered,
    say,
    set_verbosity,
)

__all__ = [
    "Bin",
    "Lane",
    "Span",
    "as_shown",
    "bars_svg",
    "cell",
    "console",
    "context_svg",
    "curves_svg",
    "hits_svg",
    "is_quiet",
    "new_bar",
    "new_grid",
    "reliability_svg",
    "rendered",
    "say",
    "schema_svg",
    "seed_svg",
    "set_verbosity",
    "steps_svg",
    "svg",
    "timeline_svg",
]
