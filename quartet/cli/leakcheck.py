"""The verb `quartet leakcheck`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quartet.cli.options import SchemaFile, Source, TaskName, Views, open_database


def leakcheck(
    source: Source,
    name: TaskName,
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN]...", help="Trained models; without, every model of the box is tried."),
    ] = None,
    schema: SchemaFile = None,
    views: Views = False,
    times: Annotated[int, typer.Option(min=1, help="At how many times.")] = 3,
    seeds: Annotated[int, typer.Option(min=1, help="About how many entities at each.")] = 50,
    rng_seed: Annotated[int, typer.Option(min=0, help="Which rows and what is done to them.")] = 0,
) -> None:
    """Try whether anything that comes after a time t changes what is known, read or predicted at t.

    Rows after t are taken away, scrambled and invented; labels, features, contexts and predictions must come out with
    the same bits. The exit code is 1 if one differs. What no such trial can show, such as a column that is filled in
    later, is looked for as `quartet task` does.
    """
    from quartet.cli.views.leakcheck import leaks_view
    from quartet.drawing import console
    from quartet.runs import ProgressView, load
    from quartet.runs import leakcheck as check

    trained = [load(run) for run in runs or []]
    models = [checkpoint for model in trained for checkpoint, _ in model.members]
    database = trained[0].record.open(source, schema) if trained else open_database(source, schema, views)
    listener = ProgressView()
    report = check(database.task(name), models, times, seeds, rng_seed, listener)
    listener.close()
    console().print(leaks_view(report))
    if report.num_differences:
        raise typer.Exit(1)
