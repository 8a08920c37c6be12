"""The verb `quartet predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quartet.cli.options import DeviceName, SchemaFile, Source, Threads
from quartet.errors import UsageError


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A run folder, or the model folder in it.")],
    source: Source,
    schema: SchemaFile = None,
    entities: Annotated[
        str | None,
        typer.Option(
            help="Keys with commas between, or a file with one on each line (default: all entities)."
        ),
    ] = None,
    at: Annotated[str | None, typer.Option(help="The time of prediction (default: the data's last).")] = None,
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
        typer.Option(
            help="Label rows that are known by now, as .parquet or .csv: for a model with past labels of a task that "
            "has a label table of its own."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the scores to a .parquet or .csv file.")] = None,
    device: DeviceName = "auto",
    threads: Threads = None,
) -> None:
    """Score entities of a database, which may have grown since training, at a time."""
    from quartet.drawing import console, say
    from quartet.machine import use_threads
    from quartet.runs import load, prediction_writer, predictions_grid
    from quartet.tasks import read_labels

    if out is not None:
        prediction_writer(out)  # a kind of file that cannot be written is refused before the work
    use_threads(threads)
    known = None if labels is None else read_labels(labels)
    trained = load(model, *(also or ()))
    live = trained.on(trained.record.open(source, schema), labels=known, device=device)
    scores = live.predict(_entities(entities), at)
    if out is None:
        console().print(predictions_grid(scores.table))
    else:
        scores.write(out)
        say(f"Wrote {len(scores):,} scores to {out}")


def _entities(text: str | None) -> list[str] | None:
    if text is None:
        return None
    try:
        is_file = Path(text).is_file()
    except OSError:  # longer than the name of any file
        is_file = False
    if not is_file and Path(text).suffix in (".txt", ".csv"):
        raise UsageError("C09", f'there is no file "{text}" with entities', "check the path")
    lines = Path(text).read_text(encoding="utf-8").splitlines() if is_file else text.split(",")
    return [line.strip() for line in lines if line.strip()]
