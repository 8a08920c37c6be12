"""The terminal: grids for results, bars for progress; colours for people, wide plain lines in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table as Grid
from rich.text import Text

from quartet.errors import printable

PLAIN_WIDTH = 150


def console() -> Console:
    """Output for people: colours in a terminal, wide plain lines in a pipe."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=PLAIN_WIDTH)


@contextmanager
def progress_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Something to tell how many more are done: a bar in a terminal, a line at the end elsewhere."""
    begin, out = time.perf_counter(), Console(stderr=True, highlight=False)
    with terminal_bar(label, total) as told:
        yield told
    if not out.is_terminal:
        out.print(f"{label}: {total:,} in {time.perf_counter() - begin:.1f} s")


@contextmanager
def terminal_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Something to tell how many more are done: a bar in a terminal, nothing elsewhere."""
    with new_bar(TimeRemainingColumn()) as bar:
        work = bar.add_task(label, total=total)
        yield lambda done: bar.advance(work, done)


def new_bar(*columns: ProgressColumn) -> ProgressBar:
    """A bar on the error output, below all that is printed meanwhile, gone when it is done; only in a terminal."""
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
    grid = Grid(
        title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False
    )
    for name in columns:
        grid.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return grid


def cell(text: object, style: str = "") -> Text:
    """A cell that shows any value as it is: names may hold brackets, quotes or control letters."""
    return Text(printable(text), style=style)
