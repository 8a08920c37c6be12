"""The verb `quartet convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quartet.cli.options import SchemaFile, Source, Views, open_database


def convert(
    source: Source,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write.")],
    schema: SchemaFile = None,
    views: Views = False,
) -> None:
    """Write a database as a RelBench-format folder."""
    database = open_database(source, schema, views)
    from quartet.drawing import say
    from quartet.tasks import write_relbench

    write_relbench(database, folder)
    say(f"Wrote {database.num_rows:,} rows of {len(database.tables)} tables to {folder}")
