"""The command line: one thin verb for each capability of the library."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from quartet.cli.models import History, SchemaFile, Source, TaskName, models, say
from quartet.cli.study import study
from quartet.cli.tune import tuning
from quartet.errors import QuartetError, UsageError

if TYPE_CHECKING:
    from quartet.contexts import Estimate
    from quartet.database import Database

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

app.add_typer(models)
app.add_typer(tuning)

Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Change a sampler setting, e.g. `walk_length=5`."),
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
    from quartet.cli.views.database import database_view
    from quartet.drawing.terminal import console
    from quartet.features import describe, schema_yaml

    if json:
        import json as json_module

        print(json_module.dumps(describe(database), indent=1))
    else:
        console().print(database_view(database))
    if write_schema is not None:
        write_schema.parent.mkdir(parents=True, exist_ok=True)
        write_schema.write_text(schema_yaml(database), encoding="utf-8")
        say(f"Wrote {write_schema}. Correct it, then: quartet inspect {source} --schema {write_schema}")
    if draw is not None:
        from quartet.drawing import schema_svg

        draw.parent.mkdir(parents=True, exist_ok=True)
        draw.write_text(schema_svg(database), encoding="utf-8")
        say(f"Drew the schema: {draw}")


@app.command()
def task(
    source: Source,
    name: TaskName,
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
    from quartet.cli.views.database import task_view
    from quartet.drawing.terminal import console
    from quartet.graph import TemporalGraph
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
    from quartet.tasks import write_relbench

    write_relbench(database, folder)
    say(f"Wrote {database.num_rows:,} rows of {len(database.tables)} tables to {folder}")


@app.command()
def sample(
    source: Source,
    name: TaskName,
    schema: SchemaFile = None,
    protocol: Annotated[
        Literal["frozen", "rolling"],
        typer.Option(help="frozen: the database ends at the test cut-off; rolling: at each seed's time."),
    ] = "frozen",
    history: History = False,
    change: Changes = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for the contexts (default: in the user's cache).")
    ] = None,
    draw: Annotated[
        Path | None, typer.Option(help="Draw the context of one seed, CRW beside BFS2, as an SVG picture.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Which training seed to draw, counted from 0.")] = 0,
) -> None:
    """Gather the contexts of all seeds of a task into the cache, and show what was gathered."""
    database = _load(source, schema)
    from quartet.cli.views.contexts import samples_view
    from quartet.config import SamplingConfig, changes_from_text
    from quartet.contexts import default_cache, task_context
    from quartet.drawing.terminal import console, progress_bar
    from quartet.graph import TemporalGraph
    from quartet.tasks import SPLITS, Task

    config = SamplingConfig().changed(**changes_from_text(change or []))
    loaded = Task.load(database, name)
    loaded = loaded.with_past_labels(protocol) if history else loaded
    graph = TemporalGraph.build(loaded.database)
    folder = cache or default_cache()
    found = []
    for split in SPLITS:
        num_seeds = len(loaded.seeds(split))

        def announce(cost: Estimate, split: str = split, num_seeds: int = num_seeds) -> None:
            say(f"{split}: {num_seeds:,} seeds, about {cost.seconds:.1f} s and {cost.num_bytes / 1e6:.1f} MB")

        with progress_bar(split, num_seeds) as progress:
            found.append(
                task_context(
                    loaded, graph, config, split, protocol, folder, progress, lambda f: say(str(f)), announce
                )
            )
    console().print(samples_view(found, config))
    say(f"Contexts are in {folder}")
    if draw is not None:
        from quartet.drawing import seed_svg

        draw.parent.mkdir(parents=True, exist_ok=True)
        draw.write_text(seed_svg(loaded, graph, config, seed), encoding="utf-8")
        say(f"Drew the context of training seed {seed}: {draw}")


app.add_typer(study, name="study")


@study.command()
def connectivity(
    source: Source,
    names: Annotated[list[str], typer.Argument(metavar="TASK...", help="Tasks stored with the database.")],
    schema: SchemaFile = None,
    change: Changes = None,
) -> None:
    """CRW against BFS2: how well the contexts of all training seeds hang together."""
    database = _load(source, schema)
    from quartet.cli.views.contexts import connectivity_view
    from quartet.config import SamplingConfig, changes_from_text
    from quartet.drawing.terminal import console, progress_bar
    from quartet.paper import connectivity_study
    from quartet.tasks import Task

    config = SamplingConfig().changed(**changes_from_text(change or []))
    rows = []
    for name in names:
        loaded = Task.load(database, name)
        with progress_bar(name, 2 * len(loaded.seeds("train"))) as progress:
            rows += connectivity_study(loaded, config, progress)
    console().print(connectivity_view(rows))


def _load(source: str, schema: Path | None) -> Database:
    from quartet.database import Database

    return Database.load(source, schema)


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
    say(str(error))
    sys.exit(error.exit_code)
