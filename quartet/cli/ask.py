"""The verb `quartet ask`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quartet.cli.options import (
    DeviceName,
    DropEarly,
    ModelName,
    QueryText,
    SchemaFile,
    Source,
    Threads,
    open_database,
    stop_on_signal,
)


def ask(
    source: Source,
    text: QueryText,
    schema: SchemaFile = None,
    time_limit: Annotated[str, typer.Option(metavar="LENGTH", help="How long to train, e.g. `20m`.")] = "5m",
    model: ModelName = None,
    at: Annotated[str | None, typer.Option(help="The time of prediction (default: the data's last).")] = None,
    out: Annotated[Path | None, typer.Option(help="Write all scores to a .parquet or .csv file.")] = None,
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
    from quartet.drawing import console, is_quiet, say
    from quartet.errors import Stopped
    from quartet.runs import TrainingView, fit, prediction_writer
    from quartet.tasks import read_query, selected_keys

    if out is not None:
        prediction_writer(out)  # a kind of file that cannot be written is refused before the work
    limit = changes_from_text([f"time_limit={time_limit}"])
    database = open_database(source, schema)
    say(repr(database))
    reading = read_query(text, database)
    task = database.query(text, on_early_seed="drop" if drop_early else "error")
    console().print(query_view(reading, task))
    listener = TrainingView(is_quiet())
    with stop_on_signal() as must_stop:
        listener.should_stop = must_stop  # type: ignore[method-assign]
        try:
            trained = fit(task, model, runs=runs, device=device, listener=listener, threads=threads, **limit)
        except Stopped as stopped:
            raise typer.Exit(stopped.exit_code) from None
        finally:
            listener.close()
    console().print(trained.evaluate(task, device=device).grid())
    scores = trained.on(database, device=device).predict(selected_keys(reading, task.full_database), at)
    print(scores)
    if out is not None:
        scores.write(out)
        say(f"Wrote {len(scores):,} scores to {out}")
    say(f"The run is in {trained.folder}: quartet predict {trained.folder} {source}")
