"""The verb `quartet evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from quartet.cli.options import Abstain, Coverage, DeviceName, Json, ProtocolName, SchemaFile


def evaluate(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="A run folder; `runs/latest` is the newest one. Of several, the mean of their scores.",
        ),
    ],
    source: Annotated[
        str | None, typer.Option(help="The database (default: the one it was trained on).")
    ] = None,
    schema: SchemaFile = None,
    split: Annotated[Literal["val", "test"], typer.Option(help="Which rows to judge by.")] = "test",
    protocol: ProtocolName = None,
    said: Annotated[
        bool,
        typer.Option(
            "--said",
            help="Judge what the run really said (`predict --record`), by labels that are known by now in --source.",
        ),
    ] = False,
    labels: Annotated[
        Path | None,
        typer.Option(help="With --said: label rows, of a task that has a label table of its own."),
    ] = None,
    coverage: Coverage = None,
    abstain: Abstain = 0.0,
    device: DeviceName = "auto",
    json: Json = False,
) -> None:
    """Measure a run's predictions, with intervals, beside those of rules that need no model.

    - `quartet evaluate runs/a runs/b runs/c` measures the mean of three runs of one task, and each of them.

    - `quartet evaluate runs/latest --said --source shop.sqlite` measures what `quartet predict --record` wrote down,
    now that labels have come, and shows how far its inputs have drifted.
    """
    from quartet.drawing import console
    from quartet.runs import load

    model = load(*runs)
    if said:
        judgement = model.evaluate_said(model.record.open(source, schema), labels=labels, device=device)
        if json:
            from json import dumps

            print(dumps(judgement.to_dict()))
        else:
            console().print(judgement.grid())
        return
    task = model.record.reopen(model.record.open(source, schema))
    evaluation = model.evaluate(
        task, split=split, protocol=protocol, coverage=coverage, abstain=abstain, device=device
    )
    if json:
        from json import dumps

        print(dumps(evaluation.to_dict()))
    else:
        console().print(evaluation.grid())
