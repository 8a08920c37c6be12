"""The verb `quartet inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quartet.cli.options import Json, SchemaFile, Source, Views, open_database, write_picture


def inspect(
    source: Source,
    schema: SchemaFile = None,
    views: Views = False,
    write_schema: Annotated[
        Path | None, typer.Option(help="Write the schema as found, guesses marked, for you to correct.")
    ] = None,
    draw: Annotated[Path | None, typer.Option(help="Draw the schema as an SVG picture.")] = None,
    json: Json = False,
) -> None:
    """Show the tables, keys, links, times and problems of a database, and what was inferred."""
    database = open_database(source, schema, views)
    from quartet.cli.views.database import database_view
    from quartet.database import hide_passwords, schema_yaml
    from quartet.drawing import console, say
    from quartet.features import describe

    if json:
        from json import dumps

        print(dumps(describe(database), indent=1))
    else:
        console().print(database_view(database))
    if write_schema is not None:
        write_schema.parent.mkdir(parents=True, exist_ok=True)
        write_schema.write_text(schema_yaml(database), encoding="utf-8")
        where = f"{hide_passwords(source)} --schema {write_schema}"
        say(f"Wrote {write_schema}. Correct it, then: quartet inspect {where}")
    if draw is not None:
        from quartet.drawing import schema_svg

        write_picture(draw, schema_svg(database), "the schema")
