"""Submissions: finished runs of a task as files for the RelBench board, validated before they are put in place.

    FOLDER/rel-f1__driver-top3.csv    the board's file: test predictions of the run that is best on validation
    FOLDER/rel-f1__driver-top3/       what stands behind it; the tools of the board pass over it
      submission.json                 task, data, protocol, recipe, metrics of every run, checksums
      run-0-val.csv, run-0-test.csv   the predictions of each run

Test labels are never read here: test metrics are those that `quartet evaluate` wrote.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from quartet.errors import TaskError, UsageError, examples
from quartet.evaluation import higher_is_better
from quartet.findings import Finding, note, warning
from quartet.machine import new_file, new_folder
from quartet.paper.board import (
    SPLITS,
    BoardTask,
    board_tasks,
    damaged,
    read_predictions,
    to_pairs,
    write_predictions,
)
from quartet.runs import Run, evaluation_name, load_checkpoint
from quartet.tasks import Split, Task

FORMAT = 1
FACTS = "submission.json"
_TOLERANCE = 1e-6  # relative, between two programs that measure the same predictions


@dataclass(frozen=True)
class RunFigures:
    """One run: the randomness that tells it apart, and the board's metric on each split."""

    run: str
    rng_seed: int
    val: float
    test: float


@dataclass(frozen=True)
class Submission:
    """The content of `submission.json`: these fields and no others, so that no label can hide in it."""

    format: int
    dataset: str
    task: str
    task_type: str
    columns: list[str]
    metric: str
    num_rows: dict[str, int]
    fingerprint: str
    cut_offs: dict[str, int]
    in_context: bool
    protocol: str
    time_rule: str
    recipe: dict[str, Any]
    quartet: str | None  # the version that trained
    num_parameters: int
    evaluators: dict[str, str]
    runs: tuple[RunFigures, ...]
    mean: dict[str, float]
    std: dict[str, float | None]  # with n - 1; None for a single run
    chosen: int  # the place of the run whose test predictions go to the board
    sha256: dict[str, str]


def write_submission(
    runs: Sequence[Run], task: Task, folder: Path, report: Callable[[Finding], None] = lambda _: None
) -> Submission:
    """What was written to `folder`, whole and validated, beside the files of other tasks; else nothing is."""
    board = BoardTask.of(task)
    _check_runs(runs, task)
    for finding in _findings(board, runs[0]):
        report(finding)
    with new_folder(folder / board.file_stem) as aside, new_file(folder / f"{board.file_stem}.csv") as fresh:
        for place, run in enumerate(runs):
            for split in SPLITS:
                _copy_predictions(run, split, board, aside / _file_name(place, split))
        submission = _submission(board, runs, aside)
        (aside / FACTS).write_text(json.dumps(asdict(submission), indent=1) + "\n", encoding="utf-8")
        shutil.copyfile(aside / _file_name(submission.chosen, "test"), fresh)
        return _checked(fresh, aside, board)


def check_submission(folder: Path, task: Task) -> Submission:
    """The submission of a task that stands in `folder`, once it was validated; an error says what is wrong."""
    board = BoardTask.of(task)
    file, behind = folder / f"{board.file_stem}.csv", folder / board.file_stem
    for path in (file, behind / FACTS):
        if not path.is_file():
            raise UsageError(
                "B05", f'"{folder}" has no {path.relative_to(folder)}', "write it with `quartet submit`"
            )
    return _checked(file, behind, board)


def summary(submission: Submission) -> str:
    """The figures of a submission, for people."""
    said = submission
    judges = ", ".join(f"{split} by {name}" for split, name in said.evaluators.items())
    means = "  ".join(_mean_text(said, split) for split in SPLITS)
    chosen = said.runs[said.chosen].run
    return "\n".join(
        [
            f"{said.dataset}/{said.task}: {said.metric}, {judges}",
            f"  {said.protocol}, rows whose time is {said.time_rule} that of prediction",
            *(f"  {r.run}  rng_seed {r.rng_seed}  val {r.val:.4f}  test {r.test:.4f}" for r in said.runs),
            f"  mean of {len(said.runs)}  {means}",
            f"  to the board: the {said.num_rows['test']:,} test rows of {chosen}, best on validation",
        ]
    )


def _mean_text(submission: Submission, split: str) -> str:
    std = submission.std[split]
    return f"{split} {submission.mean[split]:.4f}" + ("" if std is None else f" ± {std:.4f}")


# --- from runs ------------------------------------------------------------------------------------


def _check_runs(runs: Sequence[Run], task: Task) -> None:
    """Whether these are finished runs of the task that chance alone tells apart."""
    for run in runs:
        if not run.is_done:
            fix = f"quartet train SRC TASK --resume {run.folder}"
            raise UsageError("B02", f"the run {run.folder.name} is not finished", fix)
        run.check_task(task)
        if run.recipe.changed(rng_seed=0) != runs[0].recipe.changed(rng_seed=0):
            raise UsageError(
                "B02",
                f"{run.folder.name} has another recipe than {runs[0].folder.name}: they are not one method",
                "give runs that differ in rng_seed alone",
            )
    drawn = [run.recipe.rng_seed for run in runs]
    if not runs or len(set(drawn)) < len(drawn):
        raise UsageError(
            "B02",
            f"{len(runs)} runs with rng_seed {examples(drawn, 10)}, where each must have its own",
            "give every run once, trained with its own `--set rng_seed=`",
        )


def _findings(board: BoardTask, run: Run) -> list[Finding]:
    """What the board's rules say about these runs, which no reader of the files could see."""
    found = []
    if run.recipe.sampling.time_rule != "<":
        text = (
            f"the model saw rows of the very time of prediction (time_rule {run.recipe.sampling.time_rule}); "
            "the board's rules allow only rows strictly before it"
        )
        fix = "train with `--set 'time_rule=<'`"
        found.append(warning("B10", board.full_name, text, len(board.pairs["test"]), fix))
    ranked = board_tasks()
    if ranked is not None and board.full_name not in ranked:
        text = f"{board.full_name} is not among the {len(ranked)} tasks that the board ranks"
        found.append(note("B11", board.full_name, text))
    return found


def _copy_predictions(run: Run, split: Split, board: BoardTask, path: Path) -> None:
    """Writes the rows that the run kept; whether they are the task's is found when the file is read."""
    kept = run.folder / "predictions" / f"{split}.parquet"
    if not kept.is_file():
        raise UsageError("B02", f"{run.folder.name} has no predictions/{kept.name}", "train it again")
    table = pq.read_table(kept)
    pairs = to_pairs(table.column(0).to_pylist(), np.asarray(table["time"].cast(pa.int64())))
    write_predictions(path, board.columns, pairs, table["score"].to_pylist())


def _submission(board: BoardTask, runs: Sequence[Run], folder: Path) -> Submission:
    first, recipe = runs[0], runs[0].recipe
    figures = [_figures(board, run, place, folder) for place, run in enumerate(runs)]
    return Submission(
        **_task_facts(board),
        **_run_facts(figures, board.metric),
        protocol=recipe.protocol,
        time_rule=recipe.sampling.time_rule,
        recipe={name: value for name, value in recipe.to_dict().items() if name != "rng_seed"},
        quartet=first.read("environment.json")["packages"]["quartet-rdl"],
        num_parameters=load_checkpoint(first.model_folder).model.num_parameters,
        evaluators={"val": board.judge.name, "test": f"quartet, {_evaluation_name(first)}"},
        runs=tuple(figures),
        sha256=_digests(folder),
    )


def _task_facts(board: BoardTask) -> dict[str, Any]:
    """What a submission says of its task, and a reader finds again in the task."""
    splits = board.task.splits
    return {
        "format": FORMAT,
        "dataset": board.dataset,
        "task": board.task.name,
        "task_type": board.task.spec.type,
        "columns": list(board.columns),
        "metric": board.metric,
        "num_rows": {split: len(pairs) for split, pairs in board.pairs.items()},
        "fingerprint": board.task.visible_database.fingerprint,
        "cut_offs": {"val": splits.val, "test": splits.test},
        "in_context": False,  # the board's word for a method that did not train on this database
    }


def _run_facts(figures: Sequence[RunFigures], metric: str) -> dict[str, Any]:
    """What follows from the figures of the runs; of equally good ones the first is chosen."""
    values = {split: [getattr(run, split) for run in figures] for split in SPLITS}
    best = max(values["val"]) if higher_is_better(metric) else min(values["val"])
    return {
        "mean": {split: float(np.mean(v)) for split, v in values.items()},
        "std": {split: float(np.std(v, ddof=1)) if len(v) > 1 else None for split, v in values.items()},
        "chosen": values["val"].index(best),
    }


def _figures(board: BoardTask, run: Run, place: int, folder: Path) -> RunFigures:
    scores = read_predictions(folder / _file_name(place, "val"), board, "val")
    test = _test_metric(run, board)
    return RunFigures(run.folder.name, run.recipe.rng_seed, board.judge.measure(scores), test)


def _test_metric(run: Run, board: BoardTask) -> float:
    """The metric that `quartet evaluate` found on test."""
    name, fix = _evaluation_name(run), f"quartet evaluate {run.folder}"
    if not (run.folder / name).is_file():
        raise UsageError("B03", f"the test metric of {run.folder.name} is unknown: there is no {name}", fix)
    said = run.read(name)
    if said["num_rows"] != len(board.pairs["test"]):
        raise UsageError(
            "B03", f"{name} of {run.folder.name} judges {said['num_rows']:,} rows, not those of the task", fix
        )
    model = run.recipe.model.architecture
    measure = next(row["measures"] for row in said["rows"] if row["name"] == model)[board.metric]
    if measure["value"] is None:
        raise TaskError(
            "L06", f"the test {board.metric} is n/a ({measure['undefined']})", "move the cut-offs"
        )
    return float(measure["value"])


def _evaluation_name(run: Run) -> str:
    return evaluation_name("test", run.recipe.protocol)


# --- read back ------------------------------------------------------------------------------------


def _checked(file: Path, folder: Path, board: BoardTask) -> Submission:
    """The submission, once every file of it was read and agrees with the task and with the others."""
    submission = _read_facts(folder)
    _check_facts(submission, board)
    _check_names(submission, folder)
    for place, run in enumerate(submission.runs):
        val, _ = (read_predictions(folder / _file_name(place, split), board, split) for split in SPLITS)
        if not math.isclose(board.judge.measure(val), run.val, rel_tol=_TOLERANCE):
            raise damaged("B09", f"{FACTS} gives {run.run} another validation {board.metric} than its file")
    read_predictions(file, board, "test")
    _check_sums(submission, folder, file)
    return submission


def _read_facts(folder: Path) -> Submission:
    try:
        said = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        figures = tuple(RunFigures(**run) for run in said["runs"])
        if not all(isinstance(value, float) for run in figures for value in (run.val, run.test)):
            raise TypeError("a metric is no number")
        return Submission(**said | {"runs": figures})
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise damaged("B05", f"{FACTS} is not that of a submission ({reason})") from None


def _check_facts(submission: Submission, board: BoardTask) -> None:
    if not submission.runs:
        raise damaged("B05", f"{FACTS} names no runs")
    said = asdict(submission)
    for name, value in (_task_facts(board) | _run_facts(submission.runs, board.metric)).items():
        if said[name] != value:
            raise damaged("B05", f"{FACTS} says {name} {said[name]!r}, where {value!r} is right")
    for name, allowed in {"protocol": ("frozen", "rolling"), "time_rule": ("<=", "<")}.items():
        if said[name] not in allowed:
            raise damaged("B05", f"{FACTS} says {name} {said[name]!r}, not one of {', '.join(allowed)}")


def _check_names(submission: Submission, folder: Path) -> None:
    """Exactly the files that belong there: what is too much might be labels."""
    expected = {_file_name(place, split) for place in range(len(submission.runs)) for split in SPLITS}
    found = {path.name for path in folder.iterdir()} - {FACTS}
    if found != expected:
        raise damaged(
            "B06",
            f"{len(expected - found)} files of the submission are missing {examples(sorted(expected - found))}, "
            f"{len(found - expected)} do not belong to it {examples(sorted(found - expected))}",
        )


def _check_sums(submission: Submission, folder: Path, file: Path) -> None:
    found = _digests(folder)
    if found != submission.sha256:
        raise damaged("B09", f"the prediction files are not those whose checksums stand in {FACTS}")
    if _digest(file) != found[_file_name(submission.chosen, "test")]:
        raise damaged("B09", "the board's file is not that of the run which is best on validation")


def _file_name(place: int, split: Split) -> str:
    return f"run-{place}-{split}.csv"


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: _digest(path) for path in sorted(folder.glob("*.csv"))}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
