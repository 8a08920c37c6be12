"""The verb `quartet train`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from quartet.cli.options import (
    Changes,
    DeviceName,
    DropEarly,
    Json,
    ModelName,
    On,
    PastLabels,
    Preset,
    ProtocolName,
    SchemaFile,
    Source,
    TaskName,
    Threads,
    Views,
    open_database,
    say_if_compiling,
    stop_on_signal,
)  # fmt: skip


def train(
    source: Source,
    task: TaskName,
    schema: SchemaFile = None,
    views: Views = False,
    model: ModelName = None,
    preset: Preset = "",
    past_labels: PastLabels = False,
    drop_early: DropEarly = False,
    protocol: ProtocolName = None,
    change: Changes = None,
    time_limit: Annotated[
        str | None, typer.Option(metavar="LENGTH", help="Stop training after so long, e.g. `10m`.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTH",
            help="Instead of --time-limit: where there is time, short trials choose the network worth its cost.",
        ),
    ] = None,
    max_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="What is chosen may take so much to train, e.g. `2GB`.")
    ] = None,
    max_latency: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTH", help="What is chosen is to answer one entity in so long, e.g. `20ms`."
        ),
    ] = None,
    runs: Annotated[Path, typer.Option(help="Where run folders are made.")] = Path("runs"),
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with an interrupted run.")] = None,
    device: DeviceName = "auto",
    threads: Threads = None,
    on: On = None,
    json: Json = False,
) -> None:
    """Train a model of a task; keep the best on validation, with its scores, in a run folder.

    - `quartet train demo plane-idle` tries trees and networks for five minutes and blends them.

    - `--time-limit 20m` gives it more time, `--time-limit 1m` less.

    - `--budget 10m` first tries which network is worth its cost, shows what each brought, and trains that.

    - `--model lightgbm` takes seconds: trees alone. `--model quartet` is the network alone.

    - `--set epochs=5 --set width=32` changes the recipe.

    - `--past-labels` lets a model see the past labels of an entity, each once its window has closed; the default does
    where it can.

    - `--on local` or `--on ray` lets several processes or machines sample the contexts.

    - Ctrl-C saves and stops; `--resume runs/latest` goes on as if it had not been stopped.

    - Then `quartet evaluate runs/latest` measures it, `quartet predict runs/latest SRC` uses it,
    `quartet report runs/latest` writes a page about it.
    """
    from quartet.config import changes_from_text
    from quartet.database import hide_passwords
    from quartet.drawing import is_quiet, say
    from quartet.errors import Stopped
    from quartet.runs import JsonTraining, TrainingView, fit

    if not json:
        say_if_compiling()
    limit = [f"time_limit={time_limit}"] if time_limit is not None else []
    settings = changes_from_text([*(change or []), *limit]) | ({"past_labels": True} if past_labels else {})
    settings |= {"protocol": protocol} if protocol else {}
    loaded = open_database(source, schema, views).task(task, on_early_seed="drop" if drop_early else "error")
    listener = JsonTraining() if json else TrainingView(is_quiet())
    with stop_on_signal() as must_stop:
        listener.should_stop = must_stop  # type: ignore[method-assign]
        try:
            trained = fit(
                loaded, model, preset=preset or None, runs=runs, resume=resume, device=device, listener=listener,
                threads=threads, on=on, budget=budget, max_memory=max_memory, max_latency=max_latency, **settings,
            )  # fmt: skip
        except Stopped as stopped:
            again = [hide_passwords(source), task, *(["--schema", str(schema)] if schema else [])]
            again += [*(["--drop-early"] if drop_early else []), "--resume", str(stopped.folder)]
            say(f"Stopped. Go on with: quartet train {shlex.join(again)}")
            raise typer.Exit(stopped.exit_code) from None
        finally:
            listener.close()
    if not json:
        folder = shlex.quote(str(trained.folder))
        if trained.record.type == "recommendation":  # whose pools it tells
            say(f"How good its lists are: quartet evaluate {folder}")
        else:
            say(f"A page about it, for people: quartet report {folder} -o report.html")
