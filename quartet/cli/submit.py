"""The verb `quartet submit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quartet.cli.options import Json, SchemaFile


def submit(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Finished runs of one task, each with its own rng_seed."),
    ],
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The board's folder; other tasks may be in it.")
    ],
    source: Annotated[
        str | None, typer.Option(help="The database (default: the one they were trained on).")
    ] = None,
    schema: SchemaFile = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing: validate again what stands in the folder.")
    ] = False,
    json: Json = False,
) -> None:
    """Write a task's files for the RelBench board, and read them back as strictly as it does."""
    from dataclasses import asdict

    from quartet.drawing import say
    from quartet.errors import printable
    from quartet.paper import check_submission, summary, write_submission
    from quartet.runs import ProgressView, Run

    opened = [Run.open(folder) for folder in runs]
    record = opened[0].task
    task = record.reopen(record.open(source, schema))
    submission = check_submission(out, task) if check else write_submission(opened, task, out, ProgressView())
    if json:
        from json import dumps

        print(dumps(asdict(submission)))
    else:
        print("\n".join(printable(line) for line in summary(submission).splitlines()))
    say(f"Valid. Once all tasks of a board are there: python -m relbench.submit {out}")
