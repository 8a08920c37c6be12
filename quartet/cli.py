"""The command line: one thin verb for each capability of the library."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from quartet.errors import QuartetError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help=(
        "Predictions over relational databases, without leaks.\n\n"
        "SRC is a folder of .parquet/.csv files, a RelBench folder or name (`rel-f1`), a SQLite or DuckDB file, "
        "a URL such as `postgresql://user@host/db?schema=shop`, or `demo` (New York's flights of 2013).\n\n"
        "Start with `quartet inspect SRC`: it shows what was found and what was guessed. "
        "`--write-schema FILE` writes it down for you to correct, `--schema FILE` reads your corrections."
    ),
)

Source = Annotated[str, typer.Argument(metavar="SRC", help="A folder, file, URL, RelBench name, or `demo`.")]
SchemaFile = Annotated[
    Path | None,
    typer.Option("--schema", help="YAML file that confirms or corrects keys, links and times."),
]


@app.command()
def inspect(
    source: Source,
    schema: SchemaFile = None,
    write_schema: Annotated[
        Path | None,
        typer.Option(help="Write the schema as found, guesses marked, for you to correct."),
    ] = None,
    draw: Annotated[
        Path | None,
        typer.Option(help="Draw the schema as an SVG picture."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Show the tables, keys, links, times and problems of a database, and what was inferred."""
    from quartet.database.database import Database
    from quartet.database.describe import describe, schema_yaml
    from quartet.show import console, database_view

    database = Database.load(source, schema)
    out = console()
    if json:
        import json as json_module

        print(json_module.dumps(describe(database), indent=1))
    else:
        out.print(database_view(database))
    if write_schema is not None:
        write_schema.parent.mkdir(parents=True, exist_ok=True)
        write_schema.write_text(schema_yaml(database), encoding="utf-8")
        out.print(f"Wrote {write_schema}. Correct it, then: quartet inspect {source} --schema {write_schema}")
    if draw is not None:
        from quartet.draw import schema_svg

        draw.parent.mkdir(parents=True, exist_ok=True)
        draw.write_text(schema_svg(database), encoding="utf-8")
        out.print(f"Drew the schema: {draw}")


@app.command()
def task(
    source: Source,
    name: Annotated[str, typer.Argument(help="A task stored with the database, or a task's YAML file.")],
    schema: SchemaFile = None,
    regenerate: Annotated[
        bool, typer.Option(help="Make the labels again from the database instead of reading stored ones.")
    ] = False,
    drop_early: Annotated[
        bool,
        typer.Option(help="Leave out seeds whose entity is newer than the asked time, instead of failing."),
    ] = False,
) -> None:
    """Show a task: rows and labels of each split, seeds without history, and what looks like a leak."""
    from quartet.database.database import Database
    from quartet.graph import TemporalGraph
    from quartet.show import console, task_view
    from quartet.tasks import Task, lint

    database = Database.load(source, schema)
    loaded = Task.load(database, name, regenerate, "drop" if drop_early else "error")
    graph = TemporalGraph.build(loaded.database)
    console().print(task_view(loaded, graph, lint(loaded)))


@app.command()
def convert(
    source: Source,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write.")],
    schema: SchemaFile = None,
) -> None:
    """Write a database as a RelBench-format folder."""
    from quartet.database.database import Database
    from quartet.export import write_relbench
    from quartet.show import console

    database = Database.load(source, schema)
    write_relbench(database, folder)
    console().print(f"Wrote {database.num_rows:,} rows of {len(database.tables)} tables to {folder}")


def main() -> None:
    """Runs the command; an error of ours is one line and an exit code, not a traceback."""
    try:
        app()
    except QuartetError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
