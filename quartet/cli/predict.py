"""The verb `quartet predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quartet.cli.options import (
    Abstain,
    Coverage,
    DeviceName,
    Json,
    On,
    SchemaFile,
    Source,
    Threads,
    say_if_compiling,
)
from quartet.errors import UsageError


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A run folder, or the model folder in it.")],
    source: Source,
    schema: SchemaFile = None,
    entities: Annotated[
        str | None,
        typer.Option(
            help="Keys with commas between, or a file with one on each line (default: those the task asks about)."
        ),
    ] = None,
    everyone: Annotated[
        bool,
        typer.Option("--all", help="Score every entity that is known then, also those the task leaves out."),
    ] = False,
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
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Show so many of the highest scores (default: 10); with --out or --to, write these alone. Of a task "
            "with classes: so many of the most probable classes of each entity, a row each; of recommendations, so "
            "many items (default: as the task is judged by).",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            "--to",
            metavar="FILE|FOLDER|DATABASE#TABLE",
            help="Write the scores to a .parquet or .csv file, or into a table: `shop.sqlite#scores`, "
            "`postgresql://user@host/db#scores`. Rows of the same model and time are replaced; of --entities, theirs. "
            "A name without an ending is a folder, of Parquet files with 16,384 entities each; started again, it goes "
            "on.",
        ),
    ] = None,
    record: Annotated[
        bool,
        typer.Option(
            "--record",
            help="Write down what was said in the run folder, for `quartet evaluate RUN --said` once labels are known.",
        ),
    ] = False,
    on: On = None,
    coverage: Coverage = None,
    abstain: Abstain = 0.0,
    device: DeviceName = "auto",
    threads: Threads = None,
    json: Json = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every finding by itself.")] = False,
) -> None:
    """Score those whom the task asks about at a time, in a database that may have grown since training.

    - `quartet predict runs/latest SRC` asks at the data's last time, and shows the ten highest scores.

    - `--at 2024-06-01` asks at another time, from rows known then. `--entities c4,c142` asks about these alone.

    - `--top 3` shows the three most probable classes of each, where there are classes.

    - `--record` writes down what was said, in the run folder; `quartet evaluate RUN --said` judges it once labels have
    come.

    - `--out scores.csv` writes all scores to a file, `--to shop.sqlite#scores` into a table of a database.

    - `--out scores --on local` scores millions by all cores, `--on ray` by a cluster, into a folder.
    """
    from quartet.database import hide_passwords
    from quartet.drawing import console, say, set_verbosity
    from quartet.machine import use_threads
    from quartet.runs import load, prediction_writer
    from quartet.tasks import read_labels

    if verbose:
        set_verbosity(1)
    is_folder = out is not None and not Path(out).suffix and not {*"#:"} & {*out}
    if on is not None and not is_folder:
        raise UsageError("C02", "--on scores into a folder", "name one: --out scores")
    if is_folder and (top is not None or abstain):
        what = "--top" if top is not None else "--abstain"
        raise UsageError("C02", f"{what} needs all scores at once, not a folder of them", f"leave out {what}")
    write = (
        prediction_writer(out) if out is not None and not is_folder else None
    )  # what cannot be written is refused before the work
    use_threads(threads)
    if not json:
        say_if_compiling()
    known = None if labels is None else read_labels(labels)
    trained = load(model, *(also or ()))
    if record:
        _ = trained.one_run  # refused before the work
    live = trained.on(trained.record.open(source, schema), labels=known, device=device)
    if is_folder and out is not None:
        shards = live.predict_to(out, _entities(entities), at, everyone=everyone, coverage=coverage, on=on)
        told = {"task": trained.record.name, "rows": shards.num_rows, "new": shards.num_new}
        if json:
            from json import dumps

            print(dumps(told | {"files": [str(path) for path in shards.paths]}))
            return
        for line in (shards.headline, shards.quality):
            say(line)
        num_before = shards.num_rows - shards.num_new
        done = f", {num_before:,} of them before" if num_before else ""
        files = "file" if len(shards.paths) == 1 else "files"
        say(f"Wrote {shards.num_rows:,} scores{done} to {len(shards.paths):,} {files} in {out}")
        return
    scores = live.predict(
        _entities(entities), at, everyone=everyone, coverage=coverage, abstain=abstain, top=top
    )
    added = trained.keep(scores) if record else 0
    num_said = scores.num_asked
    if top is not None and scores.classes:
        scores, top = scores.best_classes(top), None
    if json:
        from json import dumps

        shown = (scores.top(top) if entities is None or top else scores).rows()
        print(dumps({"task": trained.record.name, "predictions": shown}, default=str))
    elif write is None:
        console().print(scores.grid(top or 10))
    if record:
        before = f"; {num_said - added:,} were there before" if added < num_said else ""
        say(f"Kept {added:,} predictions in {trained.folder}{before}")
    if write is None or out is None:
        return
    written = scores.top(top) if entities is None or top else scores
    write(written)
    for line in (scores.headline, scores.quality):
        say(line)
    say(f"Wrote {len(written):,} scores to {hide_passwords(out)}")


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
