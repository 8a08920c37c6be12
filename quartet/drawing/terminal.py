"""The terminal: grids for results and bars for progress; colours for people, wide plain lines in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from io import StringIO

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table as Grid
from rich.text import Text

from quartet.errors import printable
from quartet.findings import Finding, grouped

_PLAIN_WIDTH = 150
_verbosity = 0


def console() -> Console:
    """Returns the standard output for people: coloured in a terminal, with wide plain lines in a pipe."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)


def set_verbosity(level: int) -> None:
    """Sets how much is told beside results and errors: -1 nothing, 0 the usual, 1 also how long things take."""
    global _verbosity
    _verbosity = level


def is_quiet() -> bool:
    return _verbosity < 0


def as_shown(findings: Iterable[Finding]) -> list[Finding]:
    """Returns findings as they are shown: many of one code as one, unless people want to know more."""
    return list(findings) if _verbosity > 0 else grouped(findings)


def say(text: str, verbose: bool = False) -> None:
    """Tells people something beside the result, on the error output; `verbose`: only those who want to know more."""
    if _verbosity >= int(verbose):
        print(printable(text), file=sys.stderr)


def rendered(renderable: RenderableType) -> str:
    """Returns a grid as plain text, for `print` and notebooks."""
    out = Console(file=StringIO(), highlight=False, width=_PLAIN_WIDTH, no_color=True)
    out.print(renderable)
    text: str = out.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


def new_bar(*columns: ProgressColumn) -> ProgressBar:
    """Returns a bar on the error output, below all that is printed meanwhile, gone when done; only in a terminal."""
    out = Console(stderr=True, highlight=False)
    return ProgressBar(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *columns,
        console=out,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # what goes to a file or a pipe is not ours to move
        disable=not out.is_terminal,
    )


def new_grid(title: str, *columns: str, right: tuple[str, ...] = ()) -> Grid:
    """Returns an empty table without lines; the columns named in `right` are aligned to the right."""
    grid = Grid(
        title=cell(title) if title else None,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=None,
        pad_edge=False,
    )
    for name in columns:
        grid.add_column(cell(name), justify="right" if name in right else "left", overflow="fold")
    return grid


def cell(text: object, style: str = "") -> Text:
    """Returns a cell that shows any value as it is: names may hold brackets, quotes or control letters."""
    return Text(printable(text), style=style)
