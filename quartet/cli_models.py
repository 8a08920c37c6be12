"""The verbs of models: train, evaluate, predict."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from quartet.errors import UsageError
from quartet.printable import printable

if TYPE_CHECKING:
    import pyarrow as pa

    from quartet.findings import Finding
    from quartet.run import Run

models = typer.Typer()

Source = Annotated[str, typer.Argument(metavar="SRC", help="A folder, file, URL, RelBench name, or `demo`.")]
SchemaFile = Annotated[
    Path | None, typer.Option("--schema", help="YAML file that confirms or corrects keys, links and times.")
]
TaskName = Annotated[
    str, typer.Argument(metavar="TASK", help="A task stored with the database, or a task's YAML file.")
]
RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run folder; `runs/latest` is the newest one.")
]


@models.command()
def train(
    source: Source,
    task: TaskName,
    schema: SchemaFile = None,
    preset: Annotated[
        Literal["small", "paper", "paper-val"],
        typer.Option(
            help="small: minutes on two cores. paper: its settings for the task. paper-val: by validation."
        ),
    ] = "small",
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="Change any field of the recipe, e.g. `width=128`."
        ),
    ] = None,
    time_limit: Annotated[float | None, typer.Option(help="Stop training after so many seconds.")] = None,
    runs: Annotated[Path, typer.Option(help="Where run folders are made.")] = Path("runs"),
    resume: Annotated[Path | None, typer.Option(help="Go on with an interrupted run.")] = None,
    threads: Annotated[int | None, typer.Option(help="Cores to use (default: those that are free).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Train a model of a task; keep the best on validation, with its scores, in a run folder."""
    from quartet.config import changes_from_text
    from quartet.database.database import Database
    from quartet.recipe import Recipe
    from quartet.run import Run, train_run
    from quartet.tasks import Task
    from quartet.tasks.task import check_labels
    from quartet.threads import use_threads
    from quartet.train import Epoch, new_model, prepare

    use_threads(threads)
    database = Database.load(source, schema)
    loaded = Task.load(database, task)
    for finding in check_labels(loaded):
        say(str(finding))
    changes = changes_from_text(change or []) | ({"time_limit": time_limit} if time_limit else {})
    run = Run.open(resume) if resume else None
    recipe = run.recipe if run else Recipe.load(preset, f"{database.schema.name}/{loaded.name}", **changes)
    material = prepare(loaded, recipe, report=report)
    run = run or Run.create(runs, loaded, recipe, source, task)
    run.check_task(loaded)
    out = Output(json)
    out.begin(material, recipe, new_model(material, recipe), preset, run)

    def told(epoch: Epoch) -> None:
        out.epoch(epoch, material.metric, recipe.epochs)

    with stop_on_signal() as must_stop:
        trainer = train_run(run, material, recipe, told, must_stop=must_stop)
    if trainer is None:
        say(f"Stopped. Go on with: quartet train {source} {task} --resume {run.folder}")
        raise typer.Exit(130)
    out.end(run, trainer.progress.best_epoch, trainer.progress.best, material.metric)


@models.command()
def evaluate(
    run: RunFolder,
    source: Annotated[
        str | None, typer.Option(help="The database (default: the one it was trained on).")
    ] = None,
    schema: SchemaFile = None,
    split: Annotated[Literal["val", "test"], typer.Option(help="Which rows to judge by.")] = "test",
    protocol: Annotated[
        Literal["frozen", "rolling"] | None,
        typer.Option(help="frozen: the database ends at the test cut-off; rolling: at each seed's time."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Measure a run's predictions, with intervals, beside the rows that trivial rules would give."""
    from quartet.database.database import Database
    from quartet.draw_curves import reliability_svg
    from quartet.evaluate import evaluate_run
    from quartet.run import Run
    from quartet.show import console
    from quartet.show_training import evaluation_view
    from quartet.tasks import Task

    opened = Run.open(run)
    facts = opened.read("task.json")
    task = Task.load(Database.load(source or facts["source"], schema), facts["path"])
    opened.check_task(task)
    found = evaluate_run(opened, task, split, protocol, report)
    opened.write(f"evaluation-{found.split}-{found.protocol}.json", found.to_dict())
    if found.bins:
        picture = opened.folder / f"calibration-{found.split}-{found.protocol}.svg"
        picture.write_text(reliability_svg(found.bins, "said and came true"), encoding="utf-8")
    if json:
        import json as json_module

        print(json_module.dumps(found.to_dict()))
    else:
        console().print(evaluation_view(found))


@models.command()
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
    out: Annotated[Path | None, typer.Option(help="Write the scores to a .parquet or .csv file.")] = None,
    threads: Annotated[int | None, typer.Option(help="Cores to use (default: those that are free).")] = None,
) -> None:
    """Score entities of a database, which may have grown since training, at a time."""
    from quartet.database.database import Database
    from quartet.predict import Predictor
    from quartet.show import console
    from quartet.show_training import scores_view
    from quartet.threads import use_threads

    use_threads(threads)
    predictor = Predictor.load(model)
    database = Database.load(source, schema)
    scores = predictor.predict(database, _entities(entities), at, report=report)
    if out is None:
        console().print(scores_view(scores))
        return
    _write(scores, out)
    say(f"Wrote {scores.num_rows:,} scores to {out}")


def _entities(text: str | None) -> list[str] | None:
    if text is None:
        return None
    path = Path(text)
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else text.split(",")
    return [line.strip() for line in lines if line.strip()]


def _write(scores: pa.Table, path: Path) -> None:
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    from quartet.files import new_file

    writers = {".parquet": pq.write_table, ".csv": csv.write_csv}
    if path.suffix not in writers:
        raise UsageError(
            "C02", f'scores cannot be written as "{path.suffix}"', "name a .parquet or .csv file"
        )
    with new_file(path) as fresh:
        writers[path.suffix](scores, fresh)


class Output:
    """What a training run tells: tables and lines for people, or one JSON object a line."""

    def __init__(self, is_json: bool) -> None:
        self.is_json = is_json

    def begin(self, material: Any, recipe: Any, model: Any, preset: str, run: Run) -> None:
        from quartet.show import console
        from quartet.show_training import material_view, num_parameters

        if self.is_json:
            self._line(
                event="begin", run=str(run.folder), recipe=recipe.to_dict(), parameters=num_parameters(model)
            )
        else:
            console().print(material_view(material, recipe, model, preset))

    def epoch(self, epoch: Any, metric: str, num_epochs: int) -> None:
        from dataclasses import asdict

        from quartet.show_training import epoch_line

        if self.is_json:
            self._line(event="epoch", metric=metric, **asdict(epoch))
        else:
            print(epoch_line(epoch, metric, num_epochs), flush=True)

    def end(self, run: Run, best_epoch: int, best: float | None, metric: str) -> None:
        if self.is_json:
            self._line(
                event="end", run=str(run.folder), best_epoch=best_epoch, metric=metric, validation=best
            )
        else:
            print(
                f"Best: epoch {best_epoch + 1}, validation {metric} {best:.4f}. Everything is in {run.folder}"
            )

    def _line(self, **content: Any) -> None:
        import json

        print(json.dumps(content), flush=True)


@contextmanager
def stop_on_signal() -> Iterator[Any]:
    """Tells whether Ctrl-C or SIGTERM has asked to stop; a second one ends the process at once."""
    asked = []

    def ask(number: int, _: Any) -> None:
        asked.append(number)
        say("Stopping after this step …")
        signal.signal(number, before[number])

    before: dict[int, Any] = {
        number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def say(text: str) -> None:
    """Tells people something beside the result: names in it cannot give orders to a terminal."""
    print(printable(text), file=sys.stderr)


def report(finding: Finding) -> None:
    say(str(finding))
