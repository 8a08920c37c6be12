"""The verb `quartet ask`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from quartet.cli.options import (
    DeviceName,
    DropEarly,
    Hide,
    Keep,
    ModelName,
    PoolClasses,
    QueryName,
    QueryText,
    QueryType,
    SchemaFile,
    Source,
    TestTime,
    Threads,
    ValTime,
    Views,
    Windows,
    open_database,
    query_words,
    stop_on_signal,
)  # fmt: skip


def ask(
    source: Source,
    text: QueryText,
    schema: SchemaFile = None,
    views: Views = False,
    time_limit: Annotated[str, typer.Option(metavar="LENGTH", help="How long to train, e.g. `20m`.")] = "5m",
    model: ModelName = None,
    at: Annotated[str | None, typer.Option(help="The time of prediction (default: the data's last).")] = None,
    top: Annotated[
        int,
        typer.Option(
            min=1,
            help="Show so many of the highest scores; of recommendations, so many items of each. --out has all.",
        ),
    ] = 10,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|DATABASE#TABLE",
            help="Write all scores to a .parquet or .csv file, or into a table: `shop.sqlite#scores`.",
        ),
    ] = None,
    name: QueryName = None,
    task_type: QueryType = None,
    windows: Windows = None,
    val: ValTime = None,
    test: TestTime = None,
    hide: Hide = None,
    keep: Keep = None,
    pool_classes: PoolClasses = None,
    runs: Annotated[Path, typer.Option(help="Where run folders are made.")] = Path("runs"),
    drop_early: DropEarly = False,
    device: DeviceName = "auto",
    threads: Threads = None,
) -> None:
    """Answer a predictive query: read the database, check the labels, train, evaluate, and predict for now.

    - `quartet ask shop.sqlite "PREDICT COUNT(orders.*, 0, 30, days) = 0 FOR EACH customers.id"` is the whole way.

    - `--time-limit 1m` trains for a minute. The run stays in `runs/`, for `quartet predict` and `quartet evaluate`.
    """
    from quartet.cli.views.query import query_view
    from quartet.config import changes_from_text
    from quartet.database import hide_passwords
    from quartet.drawing import console, is_quiet, say
    from quartet.errors import Stopped
    from quartet.runs import TrainingView, fit, prediction_writer
    from quartet.tasks import read_query, selected_keys
    from quartet.times import parse_instant

    write = prediction_writer(out) if out is not None else None  # what cannot be is refused before the work
    moment = None if at is None else parse_instant(at, "the asked time")
    limit = changes_from_text([f"time_limit={time_limit}"])
    given = query_words(name, task_type, windows, val, test, hide, keep, pool_classes)
    database = open_database(source, schema, views)
    say(repr(database))
    reading = read_query(text, database, given)
    task = database.query(text, on_early_seed="drop" if drop_early else "error", **given)
    console().print(query_view(reading, task, windows))
    keys = None
    if reading.selected and database.span is not None:
        keys, num_unknown = selected_keys(reading, database.span[1] if moment is None else moment)
        if num_unknown:
            say(f"{num_unknown:,} of those who are asked for are not known then, and left out.")
    listener = TrainingView(is_quiet(), told=task.check())
    with stop_on_signal() as must_stop:
        listener.should_stop = must_stop  # type: ignore[method-assign]
        try:
            trained = fit(task, model, runs=runs, device=device, listener=listener, threads=threads, **limit)
        except Stopped as stopped:
            raise typer.Exit(stopped.exit_code) from None
        finally:
            listener.close()
    console().print(trained.evaluate(task, device=device).grid(members=False))  # training has shown these
    scores = trained.on(database, device=device).predict(keys, moment)
    console().print(scores.grid(top))
    if write is not None and out is not None:
        write(scores)
        say(f"Wrote {len(scores):,} scores to {hide_passwords(out)}")
    again = [str(trained.folder), hide_passwords(source), *(["--schema", str(schema)] if schema else [])]
    say(
        f"The run is in {trained.folder}. Ask again, also about newer data: quartet predict {shlex.join(again)}"
    )
