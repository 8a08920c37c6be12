"""The verb `tune`."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quartet.cli.options import (
    Changes,
    Json,
    ModelName,
    On,
    Preset,
    ProtocolName,
    SchemaFile,
    Source,
    TaskName,
)
from quartet.cli.study import Folder, Jobs, check_on, seconds, stopping

if TYPE_CHECKING:
    from quartet.paper import Search, Trial


def tune(
    source: Source,
    task: TaskName,
    schema: SchemaFile = None,
    model: ModelName = None,
    preset: Preset = "small",
    protocol: ProtocolName = None,
    trials: Annotated[int, typer.Option(min=1, help="How many recipes to train in both stages.")] = 20,
    budget: Annotated[
        str,
        typer.Option(
            metavar="LENGTH", help="The time for this call, e.g. `1h` or `90 min`. The next one goes on."
        ),
    ] = "1h",
    change: Changes = None,
    folder: Folder = Path("studies"),
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where the best recipe is written (default: FOLDER/TASK-MODEL.toml)."
        ),
    ] = None,
    jobs: Jobs = None,
    on: On = None,
    json: Json = False,
) -> None:
    """Search for a task's best recipe on validation: first the local parameters, then capacity.

    As in the paper, QUARTET's local parameters are found on RelGT with its contexts, which trains faster.

    - `quartet tune demo plane-idle --trials 20 --budget 1h` writes the best recipe as TOML.

    - `--set FIELD=VALUE` fixes a field, which is then not searched.

    - Ctrl-C stops; the same command goes on, and so does a second one after the time was over.

    - Then `quartet train demo plane-idle --preset studies/plane-idle-quartet.toml` trains it.
    """
    from quartet.config import changes_from_text
    from quartet.database import hide_passwords
    from quartet.drawing import say
    from quartet.errors import DataError, UsageError
    from quartet.machine import usable_cores
    from quartet.paper import Search
    from quartet.tasks import check_labels

    limit = seconds(budget)
    check_on(on, jobs)
    if out is not None and out.suffix != ".toml":
        raise UsageError("C02", f'the best recipe cannot be written as "{out}"', "name a .toml file")
    changes = changes_from_text(change or []) | ({"protocol": protocol} if protocol else {})
    search = Search.of(source, task, folder, schema, preset, model, trials, **changes)
    for finding in check_labels(search.task):
        say(str(finding))
    path = out or folder / f"{search.task.name}-{search.grids.model}.toml"
    with search.study.lock():
        for trial in search.trials:
            _show_trial(search, trial, json)
        try:
            with stopping():
                for trial in search.run(jobs or usable_cores(), limit, on=on):
                    _show_trial(search, trial, json)
        finally:
            _finish(search, path, json)
    done = search.trials
    if done and all(trial.problem for trial in done):
        raise DataError(
            "C12",
            f"none of {len(done)} trials could be trained; the last: {done[-1].problem}",
            "lower learning_rate, or batch_size where memory is short",
        )
    if len(done) < sum(search.allowed):
        say(f"The budget of {budget} is over. The same command goes on.")
    if search.best is not None:
        where = [
            hide_passwords(source),
            task,
            *(["--schema", str(schema)] if schema else []),
            "--preset",
            str(path),
        ]
        say(f"Train it: quartet train {shlex.join(where)}")


def _show_trial(search: Search, trial: Trial, is_json: bool) -> None:
    """Prints one line for a trial: for people, or an object for programs."""
    from quartet.errors import printable
    from quartet.paper import shown

    if is_json:
        print(dumps({"event": "trial", "metric": search.metric, **asdict(trial)}), flush=True)
        return
    figure = f"{search.metric} {trial.validation:.4f}" if trial.validation is not None else trial.problem
    line = f"trial {trial.number + 1:>3}/{sum(search.allowed)}  {trial.stage:<8}  {shown(trial.values)}  {figure}"
    print(printable(f"{line}  {trial.epochs} epochs, {trial.seconds:.1f} s"), flush=True)


def _finish(search: Search, path: Path, is_json: bool) -> None:
    """Writes the best recipe so far, and shows all trials."""
    from quartet.drawing import console, say
    from quartet.machine import new_file
    from quartet.paper import sheets_view

    best = search.best
    if best is not None:
        with new_file(path) as fresh:
            fresh.write_text(search.to_toml(best), encoding="utf-8")
    if is_json:
        number, validation = (best.number, best.validation) if best else (None, None)
        recipe = str(path) if best else None
        print(dumps({"event": "end", "best": number, "validation": validation, "recipe": recipe}))
        return
    console().print(sheets_view([search.sheet()]))
    if best is not None:
        say(f"Best: trial {best.number + 1}, {search.metric} {best.validation:.4f}. Its recipe is in {path}")
