"""The verbs of studies: the paper's tables and figures, made again on any task."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from quartet.cli.models import SchemaFile, Source, say
from quartet.paper import Study

if TYPE_CHECKING:
    from quartet.paper import Job, Plan, Result

study = typer.Typer(no_args_is_help=True, help="Make the paper's tables and figures again, on any task.")

TaskNames = Annotated[
    list[str], typer.Argument(metavar="TASK...", help="Tasks stored with the database, or YAML files.")
]
Preset = Annotated[
    Literal["small", "paper", "paper-val"], typer.Option(help="The recipe that every arm starts from.")
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Change a field of the recipe for every arm."),
]
Seeds = Annotated[int, typer.Option(min=1, help="Random seeds of each arm, the same ones for all arms.")]
Budget = Annotated[
    str | None,
    typer.Option(
        help="Begin no training that would end after so long, e.g. `2h`. Started again, it goes on."
    ),
]
Folder = Annotated[Path, typer.Option(help="Where results, tables and figures are kept.")]
Processes = Annotated[
    int | None,
    typer.Option("--jobs", min=1, help="Trainings side by side, a core each (default: all cores)."),
]
OnlyShow = Annotated[bool, typer.Option("--show", help="Train nothing; show what is there.")]


_TRAINED: dict[Study, str] = {
    "main": "QUARTET against RelGT, RelGT with CRW, HGT, RGP, GraphSAGE and LightGBM on relational features.",
    "sampler": "RelGT with its own sampler BFS2 against RelGT with causal random walks, over 1, 4 and 8 layers.",
    "ablation": "QUARTET without one of its parts at a time: the nine columns of the paper's Table 2.",
    "capacity": "Latents against archetypes: the grid of the paper's appendix A.3.4, selected on validation.",
}


def _add(name: Study, text: str) -> None:
    """Makes a verb of a study whose arms are trained."""

    def verb(
        source: Source,
        tasks: TaskNames,
        schema: SchemaFile = None,
        preset: Preset = "small",
        change: Changes = None,
        seeds: Seeds = 3,
        budget: Budget = None,
        folder: Folder = Path("studies"),
        processes: Processes = None,
        show: OnlyShow = False,
    ) -> None:
        from quartet.config import changes_from_text
        from quartet.paper import Plan
        from quartet.times import parse_length

        seconds = parse_length(budget, "--budget") / 10**9 if budget else float("inf")
        where = None if schema is None else str(schema)
        changes = changes_from_text(change or [])
        plan = Plan(name, source, where, tuple(tasks), preset, changes, seeds, folder)
        _carry_out(plan, 0 if show else processes or len(os.sched_getaffinity(0)), seconds)

    study.command(name, help=text)(verb)


for _name, _text in _TRAINED.items():
    _add(_name, _text)


def _carry_out(plan: Plan, processes: int, seconds: float) -> None:
    """Trains what is missing in so many processes, then shows and writes what is there."""
    from quartet.paper import jobs_of, results_of, run_study

    jobs, failed = jobs_of(plan), []
    if processes:
        say(f"{len(jobs)} trainings, {len(results_of(plan, jobs))} of them done before")
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: no child is left behind
        failed = run_study(plan, jobs, processes, seconds, _told)
    _show(plan, jobs)
    for failure in failed:
        say(f"Failed: {failure.job.task}, {failure.job.arm}: {failure.reason}")
    if failed:
        raise typer.Exit(1)


@study.command()
def efficiency(
    source: Source,
    tasks: TaskNames,
    schema: SchemaFile = None,
    preset: Preset = "small",
    change: Changes = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each model, turn by turn; medians count.")] = 3,
    folder: Folder = Path("studies"),
) -> None:
    """What QUARTET costs beside RelGT, as published and here: time, memory, cache and parameters."""
    from quartet.config import changes_from_text
    from quartet.database import Database
    from quartet.drawing.terminal import console
    from quartet.machine import use_threads
    from quartet.paper import LEGEND, efficiency_sheet, efficiency_study, sheets_markdown, sheets_view
    from quartet.tasks import Task

    use_threads(1)
    database, sheets = Database.load(source, schema), []
    settings = " ".join([f"preset {preset}", *(change or [])])
    for path in tasks:
        task = Task.load(database, path)
        costs = efficiency_study(task, preset, changes_from_text(change or []), steps, say)
        sheets.append(efficiency_sheet(database.schema.name, task.name, settings, costs))
    console().print(sheets_view(sheets, LEGEND))
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / "-".join(["efficiency", database.schema.name, *map(_stem, tasks), preset + ".md"])
    written.write_text(sheets_markdown(sheets, LEGEND), encoding="utf-8")
    say(f"Table: {written}")


def _stem(task: str) -> str:
    """The name of a task that may be a file."""
    return Path(task).stem


def _told(result: Result) -> None:
    say(
        f"{result.task}, {result.arm}, random seed {result.rng_seed}: {result.metric} {result.validation:.4f} on "
        f"validation, {result.test:.4f} on test, {result.seconds:.0f} s"
    )


def _show(plan: Plan, jobs: list[Job]) -> None:
    from quartet.drawing.terminal import console
    from quartet.paper import results_of, study_figures, study_markdown, study_view

    results = results_of(plan, jobs)
    console().print(study_view(plan.study, results))
    name = "-".join(dict.fromkeys([plan.study, jobs[0].dataset, *(job.task for job in jobs)]))
    plan.folder.mkdir(parents=True, exist_ok=True)
    (plan.folder / f"{name}.md").write_text(study_markdown(plan.study, results), encoding="utf-8")
    for stem, svg in study_figures(plan.study, results).items():
        (plan.folder / f"{name}-{stem}.svg").write_text(svg, encoding="utf-8")
    say(f"{len(results)} of {len(jobs)} trainings are done. Table and figures: {plan.folder}/{name}*")
