"""Evaluation: how good the predictions of a run are, beside the rows that a trivial rule would give.

This is the one place where the vault with the test labels is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from quartet.config import Protocol
from quartet.contexts import protocol_seeds
from quartet.drawing import Bin, reliability_svg
from quartet.evaluation import Measure, calibration_bins, fit_baselines, knowing, main_metric, measures
from quartet.features import FeatureTable
from quartet.findings import Finding
from quartet.runs.ensemble import Ensemble
from quartet.runs.predict import Predictor, Question
from quartet.runs.run import Run, evaluation_name
from quartet.tasks import Seeds, Split, Task
from quartet.training import recipe_task

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """One line of the comparison."""

    name: str
    measures: Mapping[str, Measure]


@dataclass(frozen=True)
class Evaluation:
    """The predictions of a model on one split, under one protocol, with trivial rows beside them."""

    task: str
    split: Split
    protocol: Protocol
    num_rows: int
    rows: tuple[Row, ...]
    bins: tuple[Bin, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def evaluate_run(
    run: Run,
    task: Task,
    split: Split = "test",
    protocol: Protocol | None = None,
    report: Callable[[Finding], None] = lambda _: None,
) -> Evaluation:
    """How good a run's predictions are, with every trivial row beside them."""
    return evaluate_runs([run], task, split, protocol, report)


def evaluate_runs(
    runs: Sequence[Run],
    task: Task,
    split: Split = "test",
    protocol: Protocol | None = None,
    report: Callable[[Finding], None] = lambda _: None,
    with_rules: bool = True,
) -> Evaluation:
    """How good the mean of some runs' scores is, with each of them and every trivial row beside it.

    The protocol is that of the first run unless one is given; with one run its scores are the mean.
    """
    protocol = protocol or runs[0].recipe.protocol
    members = Ensemble.load(*(run.folder for run in runs)).members
    names = ", ".join(run.folder.name for run in runs)
    labels = task.vault.open(f"evaluate {names}") if split == "test" else task.seeds(split).target
    target = np.asarray(labels)
    views = {run.recipe.past_labels: recipe_task(task, run.recipe, protocol) for run in runs}

    @lru_cache(maxsize=1)  # of one run for its scores and the rules; of many, not all in memory at once
    def question(member: Predictor) -> Question:
        view = views[member.checkpoint.recipe.past_labels]
        features = FeatureTable.encode(view.database, member.checkpoint.statistics)
        return Question(view.database, features, protocol_seeds(view, split, protocol))

    found = [  # what a run kept or, under another protocol than it was trained with, live scores
        _kept_scores(run, split)
        if protocol == run.recipe.protocol
        else member.checkpoint.output.scores(member.ask(question(member)))
        for run, member in zip(runs, members, strict=True)
    ]
    scores = _named(runs, found)
    model = next(iter(scores))
    # The rules know what some member knows: with history, all labels that the database tells.
    has_history, task = max(views.items())
    seeds = protocol_seeds(task, split, protocol)
    if with_rules:
        knowing_most = next(
            member for member in members if member.checkpoint.recipe.past_labels == has_history
        )
        closing = replace(seeds, target=labels) if protocol == "rolling" else None
        scores |= _rule_scores(task, question(knowing_most), closing, report)
    train = np.asarray(task.seeds("train").target) if task.spec.type == "regression" else None
    measured = tuple(
        Row(name, measures(task.spec.type, target, score, entity=seeds.node, train_target=train))
        for name, score in scores.items()
    )
    bins = _bins(target, scores[model]) if task.spec.type == "binary_classification" else ()
    return Evaluation(task.name, split, protocol, len(target), measured, bins)


def _rule_scores(
    task: Task, question: Question, closing: Seeds | None, report: Callable[[Finding], None]
) -> dict[str, Scores]:
    """What the trivial rules answer to a question.

    `closing`: with labels that are known once their windows have closed, under `rolling` those of the split itself.
    """
    rows, left_out = fit_baselines(task, question.features)
    for finding in left_out:
        report(finding)
    if closing is not None:
        rows = knowing(rows, closing)
    return {row.name: row.predict(question.seeds) for row in rows}


def score_on_test(run: Run, task: Task) -> tuple[str, float]:
    """The task's main metric on test by the run's own predictions, and its name; without trivial rows."""
    target = np.asarray(task.vault.open(f"score {run.folder.name}"))
    metric = main_metric(task.spec.type)
    found = measures(task.spec.type, target, _kept_scores(run, "test"), num_resamples=0)[metric].value
    return metric, float("nan") if found is None else found


def keep_evaluation(run: Run, found: Evaluation) -> None:
    """Writes what was found into the run's folder, with a picture of the calibration where there is one."""
    run.write(evaluation_name(found.split, found.protocol), found.to_dict())
    if found.bins:
        picture = run.folder / f"calibration-{found.split}-{found.protocol}.svg"
        picture.write_text(reliability_svg(found.bins, "said and came true"), encoding="utf-8")


def _named(runs: Sequence[Run], members: Sequence[Scores]) -> dict[str, Scores]:
    """The mean of the members' scores and, if there are several, each of them, by the names of their rows."""
    recipes = [run.recipe for run in runs]
    if len(runs) == 1:
        return {recipes[0].model.architecture: members[0]}
    found = {f"mean of {len(runs)} runs": np.mean(members, axis=0)}
    for number, (recipe, scores) in enumerate(zip(recipes, members, strict=True), 1):
        history = ", history" if recipe.past_labels else ""
        found[f"{number}: {recipe.model.architecture}{history}, random seed {recipe.rng_seed}"] = scores
    return found


def _kept_scores(run: Run, split: Split) -> Scores:
    kept = pq.read_table(run.folder / "predictions" / f"{split}.parquet")
    if "score" in kept.column_names:
        return np.asarray(kept["score"])
    names = [name for name in kept.column_names if name.startswith("score_")]
    return np.stack([np.asarray(kept[name]) for name in names], 1)


def _bins(labels: NDArray[Any], score: Scores) -> tuple[Bin, ...]:
    """Predictions of like size in groups, from the lowest scores to the highest: those of the calibration error."""
    found = zip(*calibration_bins(labels, score), strict=True)
    return tuple(Bin(float(said / rows), float(came / rows), int(rows)) for rows, said, came in found if rows)
