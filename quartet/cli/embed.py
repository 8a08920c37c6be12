"""The verb `quartet embed`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quartet.cli.options import DeviceName, Json, SchemaFile, Source, Threads


def embed(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A run folder, or the model folder in it.")],
    source: Source,
    schema: SchemaFile = None,
    at: Annotated[str | None, typer.Option(help="The time (default: the data's last).")] = None,
    neighbours: Annotated[int, typer.Option(min=0, help="How many look-alikes of each; 0 for none.")] = 10,
    segments: Annotated[int, typer.Option(min=0, help="How many segments, at most; 0 for none.")] = 8,
    asked: Annotated[
        bool, typer.Option("--asked", help="Only those whom the task asks about then, not all who are known.")
    ] = False,
    entities: Annotated[
        str | None, typer.Option(help="Keys with commas between: show the look-alikes of these.")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            "--to",
            metavar="FILE|DATABASE#TABLE",
            help="Write vectors, look-alikes and segments: `like.parquet` and two files beside it, or "
            "`shop.sqlite#like` and two tables beside it. Rows of the same model and time are replaced.",
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="Label rows that are known by now, as for `quartet predict`."),
    ] = None,
    device: DeviceName = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Turn every entity into a vector as the model reads it at a time; find look-alikes and segments.

    - `quartet embed runs/latest SRC` shows segments, each with what its members have in common.

    - `--entities c4,c142` shows whom these are most like.

    - `--out like.parquet` writes all of it to files, `--to shop.sqlite#like` into tables of a database.
    """
    from quartet.database import hide_passwords
    from quartet.drawing import console, say
    from quartet.machine import use_threads
    from quartet.runs import embedding_writer, load
    from quartet.tasks import read_labels

    write = embedding_writer(out) if out is not None else None  # refused before the work
    use_threads(threads)
    keys = [key.strip() for key in (entities or "").split(",") if key.strip()]
    known = None if labels is None else read_labels(labels)
    trained = load(model)
    live = trained.on(trained.record.open(source, schema), labels=known, device=device)
    found = live.embed(at, neighbours=neighbours, segments=segments, everyone=not asked)
    if json:
        from json import dumps

        alike = found.alike(keys).to_pylist() if keys else []
        told = {"task": trained.record.name, "segments": found.segments.to_pylist(), "look_alikes": alike}
        print(dumps(told, default=str))
    else:
        console().print(found.grid(keys))
    if write is not None:
        places = ", ".join(map(hide_passwords, write(found)))
        say(f"Wrote {len(found):,} vectors to {places}")
