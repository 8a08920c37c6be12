"""The verb `quartet report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quartet.cli.options import DeviceName, SchemaFile, Threads


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN", help="A run folder; of several of one task, they are compared on a board."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The page to write.")] = Path(
        "report.html"
    ),
    source: Annotated[
        str | None, typer.Option(help="The database (default: the one it was trained on).")
    ] = None,
    schema: SchemaFile = None,
    at: Annotated[
        str | None, typer.Option(help="The time of the predictions (default: the data's last).")
    ] = None,
    evaluate: Annotated[
        bool, typer.Option("--evaluate", help="Judge a run on test first, if it has not been judged there.")
    ] = False,
    device: DeviceName = "auto",
    threads: Threads = None,
) -> None:
    """Write one page about a run for people: how good it is, its data, why, whom it is about, and how it was made.

    - `quartet report runs/latest` writes report.html, one file that needs no network; open it in a browser.

    - A run that has been evaluated is shown by its test figures, any other by those of validation.

    - `quartet report runs/a runs/b` compares runs of one task, with paired intervals.
    """
    from quartet.drawing import say
    from quartet.machine import use_threads
    from quartet.runs import Ensemble

    use_threads(threads)
    model = Ensemble(*runs)
    task = model.record.reopen(model.record.open(source, schema))
    path = model.report(out, task, at=at, evaluate=evaluate, device=device)
    say(f"Wrote {path} ({path.stat().st_size / 1000:,.0f} kB)")
