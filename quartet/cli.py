"""The command line: one thin verb for each capability of the library."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from quartet.errors import QuartetError, UsageError

if TYPE_CHECKING:
    from quartet.database.database import Database

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
    database = _load(source, schema)
    from quartet.database.describe import describe, schema_yaml
    from quartet.show import console, database_view

    if json:
        import json as json_module

        print(json_module.dumps(describe(database), indent=1))
    else:
        console().print(database_view(database))
    if write_schema is not None:
        write_schema.parent.mkdir(parents=True, exist_ok=True)
        write_schema.write_text(schema_yaml(database), encoding="utf-8")
        _say(f"Wrote {write_schema}. Correct it, then: quartet inspect {source} --schema {write_schema}")
    if draw is not None:
        from quartet.draw import schema_svg

        draw.parent.mkdir(parents=True, exist_ok=True)
        draw.write_text(schema_svg(database), encoding="utf-8")
        _say(f"Drew the schema: {draw}")


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
    database = _load(source, schema)
    from quartet.graph import TemporalGraph
    from quartet.show import console, task_view
    from quartet.tasks import Task, lint

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
    database = _load(source, schema)
    from quartet.export import write_relbench

    write_relbench(database, folder)
    _say(f"Wrote {database.num_rows:,} rows of {len(database.tables)} tables to {folder}")


def _load(source: str, schema: Path | None) -> Database:
    _spare_pandas()
    from quartet.database.database import Database

    return Database.load(source, schema)


def _spare_pandas() -> None:
    """Lets Arrow look for pandas in vain: at its first list it would import it, for a third of a second.

    It looks once, and again only when it is given a frame.
    """
    if "pandas" not in sys.modules:
        import pyarrow

        sys.meta_path.insert(0, no_pandas := _NoPandas())
        pyarrow.array([])
        sys.meta_path.remove(no_pandas)


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def _say(text: str) -> None:
    """Tells people something beside the result: names in it cannot give orders to a terminal."""
    print("".join(letter if letter.isprintable() else "�" for letter in text), file=sys.stderr)


def main() -> None:
    """Runs the command; an error of ours is one line and an exit code, not a traceback."""
    try:
        app()
    except QuartetError as error:
        _fail(error)
    except OSError as error:
        where = f'"{error.filename}": ' if error.filename else ""
        _fail(
            UsageError("C09", f"{where}{error.strerror or error}", "check the path and what you may do there")
        )


def _fail(error: QuartetError) -> NoReturn:
    _say(str(error))
    sys.exit(error.exit_code)
