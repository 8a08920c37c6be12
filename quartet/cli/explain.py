"""The verb `quartet explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from quartet.cli.options import DeviceName, SchemaFile, Source, Threads
from quartet.errors import UsageError


def explain(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A run folder, or the model folder in it.")],
    source: Source,
    schema: SchemaFile = None,
    entity: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Whose score is explained. May be repeated (default: the highest)."),
    ] = None,
    at: Annotated[str | None, typer.Option(help="The time of prediction (default: the data's last).")] = None,
    view: Annotated[
        bool, typer.Option("--global", help="Show what the model uses over all of validation instead.")
    ] = False,
    also: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            metavar="MODEL",
            help="Another model of the same task: scores are means. May be repeated.",
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="Label rows that are known by now, for a task that has a label table of its own."),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Lines of each kind (default: 5); with --out, explain so many of the highest scores alone.",
        ),
    ] = None,
    rows: Annotated[
        bool | None,
        typer.Option(
            "--rows/--no-rows",
            help="Whether rows are taken away one by one, about a second for each entity (default: for one entity).",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Write everything as .json, or a row for each entity as .csv or .parquet."
        ),
    ] = None,
    device: DeviceName = "auto",
    threads: Threads = None,
) -> None:
    """Say why entities have their scores, or what a model uses at all; in words, and in numbers that add up.

    - `quartet explain runs/latest SRC --entity c42` shows parts, cells, rows, known cases, and what would change it.

    - `--out why.csv` writes the reasons of all whom the task asks about; `--top 100` of the hundred highest alone.

    - Of lists it shows why their first three items are there: pools, members, and pair columns.

    - `--global` shows which parts, columns, tables, links and spans of time the model uses.
    """
    from quartet.cli.views.explain import explanations_view
    from quartet.drawing import console, say
    from quartet.explain import explain as explain_entities
    from quartet.explain import explanation_writer, global_view
    from quartet.machine import use_threads
    from quartet.runs import load
    from quartet.tasks import read_labels

    write = explanation_writer(out) if out is not None else None
    use_threads(threads)
    if view and entity:
        raise UsageError(
            "C02", "--global is about all seeds, and --entity about one", "leave one of them out"
        )
    trained = load(model, *(also or ()))
    database = trained.record.open(source, schema)
    if view:
        told = global_view(trained, database, device=device)
        if write is None:
            console().print(told.grid(top or 8))
        else:
            write(told)
            say(f"Wrote what the model uses to {out}")
        return
    is_list = trained.record.type == "recommendation"
    live = trained.on(database, labels=None if labels is None else read_labels(labels), device=device)
    keys: list[Any] | None = list(entity or ()) or None
    if is_list:
        if keys is None and write is None:
            keys = live.predict(None, at, top=1).table[0].to_pylist()[:1]
        listed = live.explain(keys, at)
        if write is None:
            console().print(explanations_view(listed, top or 5))
            return
        write(listed)
        say(f"Wrote why {len(listed):,} items are listed to {out}")
        return
    if keys is None and (write is None or top is not None):
        keys = live.predict(None, at).top(top if write is not None else 1).table[0].to_pylist()
    is_one = keys is not None and len(keys) == 1
    explained = explain_entities(live, keys, at, rows=is_one if rows is None else rows)
    if write is None:
        console().print(explanations_view(explained, top or 5))
        return
    write(explained)
    say(f"Wrote {len(explained):,} explanations to {out}")
