"""The verb `quartet task`."""

from __future__ import annotations

from typing import Annotated

import typer

from quartet.cli.options import DropEarly, SchemaFile, Source, TaskName, Views, open_database


def task(
    source: Source,
    name: TaskName,
    schema: SchemaFile = None,
    views: Views = False,
    regenerate: Annotated[
        bool, typer.Option(help="Make the labels again from the database instead of reading stored ones.")
    ] = False,
    drop_early: DropEarly = False,
) -> None:
    """Show a task: rows and labels of each split, seeds without history, and what looks like a leak."""
    database = open_database(source, schema, views)
    from quartet.cli.views.task import task_view
    from quartet.drawing import console
    from quartet.graph import TemporalGraph
    from quartet.tasks import Task

    loaded = Task.load(database, name, regenerate, "drop" if drop_early else "error")
    console().print(task_view(loaded, TemporalGraph.build(loaded.database)))
