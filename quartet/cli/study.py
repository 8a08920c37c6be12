"""The verbs of studies: the paper's tables and figures, made again on any task."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quartet.cli.options import Changes, On, Preset, ProtocolName, SchemaFile, Source, open_database

if TYPE_CHECKING:
    from quartet.paper import Sheet, StudyName

study = typer.Typer(no_args_is_help=True, help="Make the paper's tables and figures again, on any task.")

TaskNames = Annotated[
    list[str], typer.Argument(metavar="TASK...", help="Tasks stored with the database, or YAML files.")
]
Budget = Annotated[
    str | None,
    typer.Option(
        metavar="LENGTH", help="Begin no training that would end after so long, e.g. `2h`. Started again, it goes on."
    ),
]  # fmt: skip
Folder = Annotated[Path, typer.Option(help="Where results, tables and figures are kept.")]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", min=1, help="Trainings side by side, a core each (default: all cores)."),
]

_TRAINED: dict[StudyName, str] = {
    "main": "QUARTET against RelGT, HGT, RGP and GraphSAGE as published, with CRW, and LightGBM on relational columns.",
    "sampler": "RelGT with its own sampler BFS2 against RelGT with CRW, each tuned: layers, dropout, weight decay.",
    "ablation": "QUARTET without one of its parts at a time: the nine columns of the paper's Table 2.",
    "capacity": "Latents against archetypes: the grid of the paper's appendix A.3.4, selected on validation.",
    "choices": "What the paper leaves open, tried both ways: look-alikes, seeds without history, time rule, mix.",
}


def _add(name: StudyName, text: str) -> None:
    """Adds the verb of a study whose arms are trained."""

    def verb(
        source: Source,
        tasks: TaskNames,
        schema: SchemaFile = None,
        preset: Preset = "small",
        protocol: ProtocolName = None,
        change: Changes = None,
        seeds: Annotated[
            int, typer.Option(min=1, help="Random seeds of each arm, the same ones for all arms.")
        ] = 3,
        budget: Budget = None,
        folder: Folder = Path("studies"),
        jobs: Jobs = None,
        on: On = None,
        show: Annotated[bool, typer.Option("--show", help="Train nothing; show what is there.")] = False,
    ) -> None:
        from quartet.config import changes_from_text
        from quartet.drawing import say
        from quartet.paper import Study, arms_of, chosen_jobs, first_jobs, study_figures, study_sheets

        check_on(on, jobs)
        limit, changes = seconds(budget), changes_from_text(change or [])
        changes |= {"protocol": protocol} if protocol else {}
        study = Study(name, source, tuple(tasks), folder, schema, preset, changes, tuple(range(seeds)))
        every, begin = study.jobs(arms_of(name, changes)), monotonic()
        first = first_jobs(study, every)
        has_failed = False if show else _train(study, first, jobs, limit, on)
        planned = chosen_jobs(study, every)  # more than the first only where validation has chosen something
        if not show and len(planned) > len(first):
            has_failed |= _train(study, planned, jobs, limit - (monotonic() - begin), on)
        results, stem = study.results(planned), study.file_stem
        _show(*study_sheets(name, results), folder / f"{stem}.md")
        for kind, picture in study_figures(name, results).items():
            (folder / f"{stem}-{kind}.svg").write_text(picture, encoding="utf-8")
        say(f"{len(results)} of {len(planned)} trainings are done. Table and figures: {folder / stem}*")
        if has_failed:
            raise typer.Exit(1)

    study.command(name, help=text)(verb)


for _name, _text in _TRAINED.items():
    _add(_name, _text)


def _train(study: Any, planned: list[Any], jobs: int | None, limit: float, on: str | None) -> bool:
    """Trains what is missing and tells of each outcome; returns whether something has failed."""
    from quartet.drawing import say
    from quartet.machine import usable_cores
    from quartet.paper import Failure, run_study

    has_failed = False
    say(f"{len(planned)} trainings, {len(study.results(planned))} of them done before")
    with study.lock(), stopping():
        for outcome in run_study(study, planned, jobs or usable_cores(), limit, on=on):
            if isinstance(outcome, Failure):
                has_failed = True
                say(f"Failed: {outcome.job.task}, {outcome.job.arm}: {outcome.reason}")
            else:
                say(
                    f"{outcome.task}, {outcome.arm}, random seed {outcome.rng_seed}: {outcome.metric} "
                    f"{outcome.validation:.4f} on validation, {outcome.test:.4f} on test, {outcome.seconds:.0f} s"
                )
    return has_failed


@study.command()
def connectivity(
    source: Source,
    tasks: TaskNames,
    schema: SchemaFile = None,
    change: Changes = None,
    folder: Folder = Path("studies"),
) -> None:
    """CRW against BFS2: how well the contexts of all training seeds hang together."""
    from quartet.config import SamplingConfig, changes_from_text
    from quartet.drawing import say
    from quartet.paper import connectivity_sheet, connectivity_study, connectivity_svg, dataset_name
    from quartet.runs import ProgressView

    config = SamplingConfig().changed(**changes_from_text(change or []))
    database, rows = open_database(source, schema), []
    loaded = [database.task(name) for name in tasks]
    for task in loaded:
        rows += connectivity_study(task, config, ProgressView())
    stem = "-".join(["connectivity", dataset_name(loaded[0]), *(task.name for task in loaded)])
    _show([connectivity_sheet(rows)], (), folder / f"{stem}.md")
    (folder / f"{stem}.svg").write_text(connectivity_svg(rows), encoding="utf-8")
    say(f"Table and figure: {folder / stem}*")


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
    """QUARTET's costs beside RelGT's, as published and here: time, memory, cache and parameters."""
    from quartet.config import changes_from_text
    from quartet.drawing import say
    from quartet.machine import use_threads
    from quartet.paper import EFFICIENCY_LEGEND, dataset_name, efficiency_sheet, efficiency_study
    from quartet.runs import ProgressView

    use_threads(1)
    database = open_database(source, schema)
    loaded = [database.task(name) for name in tasks]
    settings, sheets = " ".join([f"preset {Path(preset).stem}", *(change or [])]), []
    for task in loaded:
        costs = efficiency_study(task, preset, changes_from_text(change or []), steps, ProgressView())
        sheets.append(efficiency_sheet(task, settings, costs))
    names = [dataset_name(loaded[0]), *(task.name for task in loaded), Path(preset).stem]
    path = folder / f"{'-'.join(['efficiency', *names])}.md"
    _show(sheets, EFFICIENCY_LEGEND, path)
    say(f"Table: {path}")


def _show(sheets: list[Sheet], legend: Any, path: Path) -> None:
    """Prints tables, and writes them to a file as Markdown."""
    from quartet.drawing import console
    from quartet.paper import sheets_markdown, sheets_view

    console().print(sheets_view(sheets, legend))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(sheets_markdown(sheets, legend), encoding="utf-8")


def seconds(budget: str | None) -> float:
    """Returns the seconds of a length of time; without one, there is no end."""
    from quartet.times import SECOND, parse_length

    return parse_length(budget, "--budget") / SECOND if budget else float("inf")


def check_on(on: str | None, jobs: int | None) -> None:
    """Refuses who cannot train, before any work."""
    from quartet.errors import UsageError
    from quartet.machine import Place

    Place.parse(on)
    if on is not None and jobs is not None:
        raise UsageError("C02", "--jobs and --on both say who trains", "leave one of them out: --on local:4")


@contextmanager
def stopping() -> Iterator[None]:
    """Makes Ctrl-C and SIGTERM end the trainings under way, and then the command with exit code 130."""
    from quartet.drawing import say

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        say("Stopped. The same command goes on.")
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)
