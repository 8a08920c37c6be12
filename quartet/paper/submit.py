"""Submissions: finished runs of a task as files for the RelBench board, read back before they are put in place.

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
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from quartet.errors import TaskError, UsageError, examples
from quartet.evaluation import higher_is_better
from quartet.findings import note, warning
from quartet.listener import SILENT, Listener
from quartet.machine import new_file, new_folder
from quartet.paper.board import (
    PREDICTED,
    BoardTask,
    damaged,
    list_cells,
    read_predictions,
    to_pairs,
    write_predictions,
)
from quartet.runs import Checkpoint, Run, evaluation_file
from quartet.tasks import Split, Task, TaskRecord

_FACTS = "submission.json"
_TOLERANCE = 1e-6  # relative, between two versions of a library that measure the same predictions


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
    columns: list[str]  # entity, time, prediction
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
    runs: tuple[RunFigures, ...]
    mean: dict[str, float]
    std: dict[str, float | None]  # with n - 1; None for a single run
    chosen: int  # the place of the run whose test predictions go to the board
    sha256: dict[str, str]


def write_submission(
    runs: Sequence[Run], task: Task, folder: Path, listener: Listener = SILENT
) -> Submission:
    """Writes a task's files into `folder`, beside those of other tasks: all of them, read back, or nothing."""
    board = BoardTask.of(task)
    _check_runs(runs, task)
    _tell_rules(board, runs[0], listener)
    with new_folder(folder / board.stem) as aside, new_file(folder / f"{board.stem}.csv") as fresh:
        figures = []
        for place, run in enumerate(runs):
            for split in PREDICTED:
                _write_run(run, split, board, aside / _file_name(place, split))
            val = board.measure(read_predictions(aside / _file_name(place, "val"), board, "val"))
            figures.append(RunFigures(run.folder.name, run.recipe.rng_seed, val, _test_metric(run, board)))
        recipe = runs[0].recipe
        submission = Submission(
            **board.facts(),
            **_run_facts(figures, board.metric),
            protocol=recipe.protocol,
            time_rule=recipe.sampling.time_rule,
            recipe={name: value for name, value in recipe.to_dict().items() if name != "rng_seed"},
            quartet=runs[0].read("environment.json")["packages"]["quartet-rdl"],
            num_parameters=Checkpoint.load(runs[0].model_folder).model.num_parameters,
            runs=tuple(figures),
            sha256=_digests(aside),
        )
        (aside / _FACTS).write_text(json.dumps(asdict(submission), indent=1) + "\n", encoding="utf-8")
        shutil.copyfile(aside / _file_name(submission.chosen, "test"), fresh)
        return _read_back(fresh, aside, board)


def check_submission(folder: Path, task: Task) -> Submission:
    """Returns the submission of a task that stands in `folder`, once it was read back; an error says what is wrong."""
    board = BoardTask.of(task)
    file, behind = folder / f"{board.stem}.csv", folder / board.stem
    for path in (file, behind / _FACTS):
        if not path.is_file():
            raise UsageError(
                "B05", f'"{folder}" has no {path.relative_to(folder)}', "write it with `quartet submit`"
            )
    return _read_back(file, behind, board)


def summary(submission: Submission) -> str:
    """Returns the figures of a submission, for people."""
    figures = (
        f"  {r.run}  rng_seed {r.rng_seed}  val {r.val:.4f}  test {r.test:.4f}" for r in submission.runs
    )
    means = []
    for split in PREDICTED:
        std = submission.std[split]
        means.append(f"{split} {submission.mean[split]:.4f}" + ("" if std is None else f" ± {std:.4f}"))
    chosen = submission.runs[submission.chosen].run
    return "\n".join(
        [
            f"{submission.dataset}/{submission.task}: {submission.metric}",
            f"  {submission.protocol}, rows whose time is {submission.time_rule} that of prediction",
            *figures,
            f"  mean of {len(submission.runs)}  {'  '.join(means)}",
            f"  to the board: the {submission.num_rows['test']:,} test rows of {chosen}, best on validation",
        ]
    )


# --- the runs -------------------------------------------------------------------------------------


def _check_runs(runs: Sequence[Run], task: Task) -> None:
    """Raises an error unless these are finished runs of the task that chance alone tells apart."""
    for run in runs:
        if not run.is_done:
            fix = f"quartet train SRC TASK --resume {run.folder}"
            raise UsageError("B02", f"the run {run.folder.name} is not finished", fix)
        run.task.check_same(TaskRecord.of(task), run.folder)
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


def _tell_rules(board: BoardTask, run: Run, listener: Listener) -> None:
    """Tells what the board's rules say about these runs, which no reader of the files could see."""
    name, rule = f"{board.dataset}/{board.task.name}", run.recipe.sampling.time_rule
    if rule != "<":
        text = (
            f"the model saw rows of the very time of prediction (time_rule {rule}); "
            "the board's rules allow only rows strictly before it"
        )
        fix = "train with `--set 'time_rule=<'`"
        listener.finding(warning("B10", name, text, len(board.pairs["test"]), fix))
    try:
        from relbench.submit import LEADERBOARD_TASKS
    except ImportError:
        return
    ranked = {task for tasks in LEADERBOARD_TASKS.values() for task in tasks}
    if name not in ranked:
        text = f"{name} is not among the {len(ranked)} tasks that the board ranks"
        listener.finding(note("B11", name, text))


def _run_facts(figures: Sequence[RunFigures], metric: str) -> dict[str, Any]:
    """Returns what follows from the figures of the runs; of equally good ones the first is chosen."""
    values = {split: [getattr(run, split) for run in figures] for split in PREDICTED}
    best = max(values["val"]) if higher_is_better(metric) else min(values["val"])
    return {
        "mean": {split: float(np.mean(v)) for split, v in values.items()},
        "std": {split: float(np.std(v, ddof=1)) if len(v) > 1 else None for split, v in values.items()},
        "chosen": values["val"].index(best),
    }


def _test_metric(run: Run, board: BoardTask) -> float:
    """Returns the metric that `quartet evaluate` found on test."""
    name, fix = evaluation_file("test", run.recipe.protocol), f"quartet evaluate {run.folder}"
    if not (run.folder / name).is_file():
        raise UsageError("B03", f"the test metric of {run.folder.name} is unknown: there is no {name}", fix)
    evaluation = run.read(name)
    if evaluation["num_rows"] != len(board.pairs["test"]):
        rows = f"{evaluation['num_rows']:,} rows"
        raise UsageError("B03", f"{name} of {run.folder.name} judges {rows}, not those of the task", fix)
    model = run.recipe.model.architecture
    measure = next(row["measures"] for row in evaluation["rows"] if row["name"] == model)[board.metric]
    if measure["value"] is None:
        raise TaskError(
            "L06", f"the test {board.metric} is n/a ({measure['undefined']})", "move the cut-offs"
        )
    return float(measure["value"])


# --- the files ------------------------------------------------------------------------------------


def _write_run(run: Run, split: Split, board: BoardTask, path: Path) -> None:
    """Writes the rows that the run kept; whether they are the task's is found when the file is read back."""
    if not (run.folder / "predictions" / f"{split}.parquet").is_file():
        raise UsageError("B02", f"{run.folder.name} has no predictions/{split}.parquet", "train it again")
    table = run.predictions(split)
    if board.task.spec.type == "recommendation":
        write_predictions(path, board.columns, board.pairs[split], list_cells(table, board.pairs[split]))
        return
    pairs = to_pairs(table.column(0).to_pylist(), np.asarray(table["time"].cast(pa.int64())))
    write_predictions(path, board.columns, pairs, table["score"].to_pylist())


def _read_back(file: Path, folder: Path, board: BoardTask) -> Submission:
    """Returns the submission, once every file of it was read and agrees with the task and with the others."""
    submission = _read_facts(folder, board)
    sums = _digests(folder)
    is_known = {*submission.sha256, _FACTS} == {path.name for path in folder.iterdir()}
    places = [(place, split) for place in range(len(submission.runs)) for split in PREDICTED]
    if not is_known or {_file_name(*place) for place in places} != set(sums):
        raise damaged("B06", f"the files beside {_FACTS} are not those of the submission")
    if sums != submission.sha256:
        raise damaged("B09", f"the prediction files are not those whose checksums stand in {_FACTS}")
    if _digest(file) != sums[_file_name(submission.chosen, "test")]:
        raise damaged("B09", "the board's file is not that of the run which is best on validation")
    for place, split in places:
        scores, run = (
            read_predictions(folder / _file_name(place, split), board, split),
            submission.runs[place],
        )
        if split == "val" and not math.isclose(board.measure(scores), run.val, rel_tol=_TOLERANCE):
            raise damaged("B09", f"{_FACTS} gives {run.run} another validation {board.metric} than its file")
    return submission


def _read_facts(folder: Path, board: BoardTask) -> Submission:
    try:
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        runs = tuple(RunFigures(**run) for run in facts["runs"])
        submission = Submission(**facts | {"runs": runs})
        expected = board.facts() | _run_facts(runs, board.metric)
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise damaged("B05", f"{_FACTS} is not that of a submission ({reason})") from None
    for name, value in expected.items():
        if facts[name] != value:
            raise damaged("B05", f"{_FACTS} says {name} {facts[name]!r}, where {value!r} is right")
    return submission


def _file_name(place: int, split: Split) -> str:
    return f"run-{place}-{split}.csv"


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: _digest(path) for path in sorted(folder.glob("*.csv"))}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
