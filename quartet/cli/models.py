"""The verbs of models: train, evaluate, predict."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from quartet.config import Architecture
from quartet.errors import UsageError, printable

if TYPE_CHECKING:
    import pyarrow as pa

    from quartet.cli.views.training import TrainingView
    from quartet.config import Recipe
    from quartet.findings import Finding
    from quartet.models import Boosted, Boosting
    from quartet.runs import Run
    from quartet.tasks import Task
    from quartet.training import Epoch, Trainer

models = typer.Typer()

Source = Annotated[str, typer.Argument(metavar="SRC", help="A folder, file, URL, RelBench name, or `demo`.")]
SchemaFile = Annotated[
    Path | None, typer.Option("--schema", help="YAML file that confirms or corrects keys, links and times.")
]
TaskName = Annotated[
    str, typer.Argument(metavar="TASK", help="A task stored with the database, or a task's YAML file.")
]
History = Annotated[
    bool,
    typer.Option(
        "--history", help="Labels that are already known become rows of the database, for all models alike."
    ),
]


@models.command()
def train(
    context: typer.Context,
    source: Source,
    task: TaskName,
    schema: SchemaFile = None,
    model: Annotated[
        Architecture | None,
        typer.Option(
            help="quartet (the default); relgt, rgp, hgt, sage: networks to compare it with; lightgbm: trees on "
            "counts and means of the rows around."
        ),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            help="small: minutes on two cores. paper: its settings for the task. paper-val: those that validation "
            "selects. Or a recipe's .toml file, as `quartet tune` writes it."
        ),
    ] = "small",
    history: History = False,
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
    """Train a model of a task; keep the best on validation, with its scores, in a run folder.

    - `quartet train demo plane-idle` trains by the preset `small`, minutes on two cores.

    - `--set epochs=5 --set width=32` changes the recipe, `--time-limit 600` ends it early.

    - `--history` lets the model see the past labels of an entity, each once its window has closed.

    - `--model lightgbm` takes seconds and no contexts: a good first answer, and a bar for the others to pass.

    - Ctrl-C saves and stops; `--resume runs/latest` goes on as if it had not been stopped.

    - Then `quartet evaluate runs/latest` measures it, `quartet predict runs/latest SRC` uses it.
    """
    from quartet.config import Recipe, changes_from_text
    from quartet.database import Database
    from quartet.drawing.terminal import terminal_bar
    from quartet.machine import all_processes, free_cores, use_threads
    from quartet.runs import Run, train_run
    from quartet.tasks import Task, check_labels, past_label_findings
    from quartet.training import prepare

    changes = changes_from_text(change or []) | ({"time_limit": time_limit} if time_limit else {})
    changes |= {"history": True} if history else {}
    run = _unfinished(resume, changes) if resume else None
    processes = context.with_resource(all_processes())
    context.with_resource(processes.first_speaks())
    use_threads(threads or max(1, free_cores() // processes.num_sharing_memory))
    database = Database.load(source, schema)
    loaded = Task.load(database, task)
    for finding in check_labels(loaded):
        say(str(finding))
    named = f"{database.schema.name}/{loaded.name}"
    recipe = run.recipe if run else Recipe.load(preset, named, model, **changes)
    if recipe.past_labels:
        for finding in past_label_findings(loaded.spec):
            say(str(finding))
    words = [source, task, *(["--schema", str(schema)] if schema else [])]

    def opened() -> Run:
        return run or Run.create(runs, loaded, recipe, source, task)

    if recipe.model.architecture == "lightgbm":
        if processes.is_first:  # trees are not fitted by several
            _boost(loaded, recipe, opened, json, words)
        return
    num_seeds = len(loaded.seeds("train")) + len(loaded.seeds("val"))
    with processes.first_alone(), terminal_bar("contexts", num_seeds) as progress:
        material = prepare(loaded, recipe, report=report, progress=progress)
    run = processes.from_first(opened)
    run.check_task(loaded)
    with _output(run, "as it began" if resume else preset, json) as out, stop_on_signal() as must_stop:
        done = train_run(
            run, material, recipe, out.epoch, out.step, must_stop, on_begin=out.begin, processes=processes
        )
    if done is None:
        _stopped(words, run)
    out.end()


def _boost(task: Task, recipe: Recipe, opened: Callable[[], Run], is_json: bool, words: list[str]) -> None:
    """Fits the model lightgbm, and shows how good it is."""
    from quartet.models import prepare_boosting
    from quartet.runs import train_boosted

    boosting = prepare_boosting(task, recipe)
    run = opened()
    run.check_task(task)
    with _output(run, "", is_json) as out, stop_on_signal() as must_stop:
        out.begin_boosting(boosting, recipe)
        model = train_boosted(run, boosting, recipe, out.boosted, must_stop)
    if model is None:
        _stopped(words, run)
    out.end_boosting(model)


def _stopped(words: list[str], run: Run) -> NoReturn:
    say(f"Stopped. Go on with: quartet train {shlex.join([*words, '--resume', str(run.folder)])}")
    raise typer.Exit(130)


def _unfinished(folder: Path, changes: dict[str, Any]) -> Run:
    """The run to go on with: one that is not done, by the recipe with which it began."""
    from quartet.runs import Run

    run = Run.open(folder)
    if changes:
        names = ", ".join(changes)
        raise UsageError(
            "C02",
            f"a run goes on by the recipe with which it began, not with another {names}",
            "start a new run",
        )
    if run.is_done:
        raise UsageError("C02", f"{run.folder} is done", f"quartet evaluate {shlex.quote(str(run.folder))}")
    return run


def _output(run: Run, preset: str, is_json: bool) -> TrainingView | JsonLines:
    from quartet.cli.views.training import TrainingView

    return JsonLines(run) if is_json else TrainingView(run, preset)


@models.command()
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
    protocol: Annotated[
        Literal["frozen", "rolling"] | None,
        typer.Option(help="frozen: the database ends at the test cut-off; rolling: at each seed's time."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Measure a run's predictions, with intervals, beside the rows that trivial rules would give.

    - `quartet evaluate runs/a runs/b runs/c` measures the mean of three runs of one task, and each of them.
    """
    from quartet.cli.views.training import evaluation_view
    from quartet.drawing.terminal import console
    from quartet.runs import evaluate_runs, keep_evaluation

    opened, task = _with_task(runs, source, schema)
    for run in opened:
        run.check_task(task)
    found = evaluate_runs(opened, task, split, protocol, report)
    if len(opened) == 1:  # what several have found together belongs to none of them
        keep_evaluation(opened[0], found)
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
            help="Label rows that are known by now, as .parquet or .csv: for a model with history of a task that has a "
            "label table of its own."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the scores to a .parquet or .csv file.")] = None,
    threads: Annotated[int | None, typer.Option(help="Cores to use (default: those that are free).")] = None,
) -> None:
    """Score entities of a database, which may have grown since training, at a time."""
    from quartet.cli.views.training import scores_view
    from quartet.database import Database
    from quartet.drawing.terminal import console, progress_bar
    from quartet.machine import use_threads
    from quartet.runs import Ensemble
    from quartet.tasks import read_labels

    write = _writer(out) if out else None
    use_threads(threads)
    ensemble = Ensemble.load(model, *(also or ()))
    known = None if labels is None else read_labels(labels)
    questions = ensemble.questions(Database.load(source, schema), _entities(entities), at, report, known)
    with progress_bar("scores", sum(len(question.seeds) for question in questions)) as progress:
        scores = ensemble.score(questions, progress)
    if write is None:
        console().print(scores_view(scores))
        return
    write(scores)
    say(f"Wrote {scores.num_rows:,} scores to {out}")


@models.command()
def submit(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Finished runs of one task, each with its own rng_seed."),
    ],
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The board's folder; other tasks may be in it.")
    ],
    source: Annotated[
        str | None, typer.Option(help="The database (default: the one they were trained on).")
    ] = None,
    schema: SchemaFile = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing: validate again what stands in the folder.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of lines.")] = False,
) -> None:
    """Write a task's files for the RelBench board, and read them back as strictly as it does."""
    from dataclasses import asdict

    from quartet.paper import check_submission, summary, write_submission

    opened, task = _with_task(runs, source, schema)
    found = check_submission(out, task) if check else write_submission(opened, task, out, report)
    if json:
        import json as json_module

        print(json_module.dumps(asdict(found)))
    else:
        print("\n".join(printable(line) for line in summary(found).splitlines()))
    say(f"Valid. Once all tasks of a board are there: python -m relbench.submit {out}")


def _with_task(folders: list[Path], source: str | None, schema: Path | None) -> tuple[list[Run], Task]:
    """Runs, and the task of the first, over the database that it was trained on or another."""
    from quartet.database import Database
    from quartet.runs import Run
    from quartet.tasks import Task

    runs = [Run.open(folder) for folder in folders]
    facts = runs[0].read("task.json")
    return runs, Task.load(Database.load(source or facts["source"], schema), facts["path"])


def _entities(text: str | None) -> list[str] | None:
    if text is None:
        return None
    lines = Path(text).read_text(encoding="utf-8").splitlines() if _is_file(text) else text.split(",")
    return [line.strip() for line in lines if line.strip()]


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except OSError:  # longer than the name of any file
        return False


def _writer(path: Path) -> Callable[[pa.Table], None]:
    """What writes scores to a file; of which kind it can be is said before the work, not after it."""
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    from quartet.machine import new_file

    writers = {".parquet": pq.write_table, ".csv": csv.write_csv}
    if path.suffix not in writers:
        raise UsageError(
            "C02", f'scores cannot be written as "{path.suffix}"', "name a .parquet or .csv file"
        )

    def write(scores: pa.Table) -> None:
        with new_file(path) as fresh:
            writers[path.suffix](scores, fresh)

    return write


class JsonLines:
    """A run as programs follow it: one JSON object a line, and nothing else."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(self, *_: object) -> None: ...

    def begin(self, trainer: Trainer) -> None:
        self.trainer, recipe = trainer, trainer.recipe.to_dict()
        parameters = trainer.model.num_parameters
        self._line(event="begin", run=str(self.run.folder), recipe=recipe, parameters=parameters)

    def begin_boosting(self, boosting: Boosting, recipe: Recipe) -> None:
        self.metric = boosting.metric
        self._line(event="begin", run=str(self.run.folder), recipe=recipe.to_dict())

    def boosted(self, epoch: Epoch) -> None:
        from dataclasses import asdict

        self.best = epoch.validation
        self._line(event="epoch", metric=self.metric, **asdict(epoch))

    def end_boosting(self, model: Boosted) -> None:
        best = {"trees": model.num_trees, "metric": self.metric, "validation": self.best}
        self._line(event="end", run=str(self.run.folder), **best)

    def step(self, num_seeds: int) -> None: ...

    def epoch(self, epoch: Epoch) -> None:
        from dataclasses import asdict

        self._line(event="epoch", metric=self.trainer.material.metric, **asdict(epoch))

    def end(self) -> None:
        progress, metric = self.trainer.progress, self.trainer.material.metric
        best = {"best_epoch": progress.best_epoch, "metric": metric, "validation": progress.best}
        self._line(event="end", run=str(self.run.folder), **best)

    def _line(self, **content: Any) -> None:
        import json

        print(json.dumps(content), flush=True)


@contextmanager
def stop_on_signal() -> Iterator[Any]:
    """Tells whether Ctrl-C or SIGTERM has asked to stop; a second one ends the process at once."""
    asked = []

    def ask(number: int, _: Any) -> None:
        asked.append(number)
        # Straight to the terminal: whoever prints just now may hold a lock, and would be waited for forever.
        os.write(2, "\nStopping after this step …\n".encode())
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
