"""The verb `quartet serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quartet.cli.options import DeviceName, SchemaFile
from quartet.errors import ResourceError


def serve(
    model: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or the model folder in it.")],
    source: Annotated[
        str, typer.Option("--database", metavar="SRC", help="A folder, file, URL, RelBench name, or `demo`.")
    ],
    schema: SchemaFile = None,
    host: Annotated[
        str, typer.Option(help="Where to listen. Others than this machine need the token in QUARTET_TOKEN.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    journal: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where new rows are kept (default: rows.journal in RUN)."),
    ] = None,
    watch: Annotated[
        float | None,
        typer.Option(
            min=0.1, metavar="SECONDS", help="Look so often whether the source has grown, and read it again."
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that one answer may take.")] = 30.0,
    in_flight: Annotated[
        int, typer.Option(min=1, help="Questions that may wait; more are told to come back.")
    ] = 64,
    device: DeviceName = "auto",
) -> None:
    """Answer questions over HTTP, by a model that stays warm and rows that may still come.

    - `quartet serve runs/latest --database demo` listens on http://127.0.0.1:8000, with a page for people.

    - `curl -d '{"entities": [3]}' -H 'content-type: application/json' http://127.0.0.1:8000/predict` asks.

    - `POST /rows` adds rows, which count at once and are kept; `/openapi.json` describes everything.
    """
    import os

    token = os.environ.pop("QUARTET_TOKEN", "")  # no process begun from here needs to know it
    try:
        from quartet.serve import Journal, Limits, Server, Service, check_token
    except ModuleNotFoundError as error:
        what = f"a service needs the package {error.name}, which is not installed"
        raise ResourceError("R01", what, 'pip install "quartet-rdl[serve]"') from None
    from quartet.machine import use_threads
    from quartet.runs import load

    check_token(host, token)
    use_threads(1)  # of a small batch, more threads wait for each other
    trained = load(model)
    kept = Journal(journal or (trained.folder if trained.members[0][1] else model) / "rows.journal")
    limits = Limits(seconds=timeout, in_flight=in_flight)
    service = Service(trained, lambda: trained.record.open(source, schema), kept, limits, device)
    Server(service, host, port, token, None if watch is None else (source, watch)).run()
