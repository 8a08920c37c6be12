"""The card of a model: how it was made, by what it was chosen, and where it is weak; and several runs on a board."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from quartet.drawing import curves_svg
from quartet.evaluation import main_metric, measures
from quartet.findings import Finding, Level, grouped
from quartet.graph import TemporalGraph
from quartet.registry import MODELS
from quartet.report.answer import METRICS, PROTOCOLS, number, training_seconds, verdict
from quartet.report.data import sentence
from quartet.runs import Evaluation, TrainedModel, paired
from quartet.tasks import Split, Task
from quartet.training import duration

_FEW_RESAMPLES = 300
_GAP = 0.05  # of mean score and share that came true, from which on it is worth a sentence


def card_part(
    model: TrainedModel, task: Task, evaluation: Evaluation, findings: Iterable[Finding]
) -> dict[str, Any]:
    """Returns the section for those who must answer for the model."""
    (checkpoint, _), run, record = model.members[0], model.run, model.record
    recipe, metric = model.recipe, main_metric(record.type)
    machine = run.environment
    members = [
        (member.name, member.rng_seed, number(member.validation), f"{weight:.0%}", duration(member.seconds))
        for member, weight in zip(
            checkpoint.model.members,
            getattr(checkpoint.model, "weights", ()) if checkpoint.model.members else (),
            strict=True,
        )
    ]
    epochs = run.epochs()
    facts = [
        ("Model", f"{recipe.model.architecture}: {MODELS[recipe.model.architecture].help}"),
        ("Size", checkpoint.model.summary),
        ("Chosen by", f"{metric} on validation, {number(checkpoint.validation)}"),
        (
            "Then",
            "fitted further to training and validation"
            if checkpoint.model.is_refit
            else "kept as it was chosen",
        ),
        ("Protocol", f"{recipe.protocol}: {PROTOCOLS.get(recipe.protocol, '')}"),
        ("Past labels", "read where they are known by then" if recipe.past_labels else "not read"),
        ("Random seed", str(recipe.rng_seed)),
        ("Run", run.folder.name),
        ("Data fingerprint", record.fingerprint),
        ("Machine", f"{machine['platform']}, Python {machine['python']}"),
        ("Versions", ", ".join(f"{name} {told}" for name, told in machine["packages"].items() if told)),
    ]
    return {
        "facts": facts,
        "members": members,
        "recipe": [(name, _shown(value)) for name, value in recipe.to_dict().items()],
        "curves": Markup(curves_svg(epochs, metric) if len(epochs) > 1 else ""),
        "limits": limits(model, evaluation, findings),
        "failures": failures(model, task),
        "metric": METRICS.get(metric, (metric, ""))[0],
    }


def limits(model: TrainedModel, evaluation: Evaluation, findings: Iterable[Finding]) -> list[str]:
    """Returns what to keep in mind, the gravest first."""
    told = [*evaluation.warnings]
    if evaluation.split != "test":
        told.append("It has not been judged on test: validation, by which it was chosen, flatters it.")
    if (judged := verdict(evaluation)) and "clearly better" not in judged.replace("not clearly", ""):
        told.append(judged)
    told += [f"{sentence(f.message)}." for f in grouped(findings) if f.level is Level.WARNING]
    bins = evaluation.bins
    if bins and evaluation.hits:
        rows = sum(each.count for each in bins)
        said = sum(each.count * each.predicted for each in bins) / rows
        came = sum(each.count * each.came_true for each in bins) / rows
        if abs(said - came) > _GAP:
            way = "low" if said < came else "high"
            told.append(f"Scores ran too {way}: {said:.0%} were predicted on average, {came:.0%} came true.")
    if sure := evaluation.sure:
        least = min(sure.windows, key=lambda window: window.coverage)
        told.append(
            f"What was to hold in {sure.nominal:.0%} of cases held in {sure.coverage.value:.1%} on test, "
            f"and in {least.coverage:.0%} of those from {least.since} on, when it was least."
        )
    if model.members[0][0].calibration is not None:
        told.append("Probabilities were calibrated on validation; where the world changes, they drift first.")
    told.append("It tells what is likely, not what would happen if something were changed.")
    return told


def failures(model: TrainedModel, task: Task) -> list[tuple[str, int, Any]]:
    """Returns how good the model is on validation for those with little and with much history; not of lists."""
    if task.spec.type == "recommendation":
        return []
    seeds, scores = task.seeds("val"), model.run.kept_scores("val", task)
    links, target = (
        TemporalGraph.build(task.visible_database).degrees(seeds.node, seeds.time),
        np.asarray(seeds.target),
    )
    if not len(links):
        return []
    low, high = (int(np.quantile(links, share)) for share in (1 / 3, 2 / 3))
    groups = {
        f"at most {low:,} linked rows": links <= low,
        f"{low + 1:,} to {high:,} linked rows": (links > low) & (links <= high),
        f"more than {high:,} linked rows": links > high,
    }
    found, kind = [], task.spec.type
    for name, which in groups.items():
        if which.any() and not which.all():
            own = measures(
                kind, target[which], scores[which], entity=seeds.node[which], num_resamples=_FEW_RESAMPLES
            )
            found.append((name, int(which.sum()), own[main_metric(kind)]))
    return found


def board_part(
    models: Sequence[TrainedModel], task: Task, evaluations: Sequence[Sequence[Evaluation]]
) -> dict[str, Any]:
    """Returns several runs of one task, the best on validation first, each beside the first by a paired interval.

    They are compared on test where each of them has been judged there under one protocol, else on validation.
    """
    metric = main_metric(task.spec.type)
    test = [next((each for each in own if each.split == "test"), None) for own in evaluations]
    on_test = all(test) and len({each.protocol for each in test if each}) == 1
    on_test = on_test and all(
        each and each.protocol == m.recipe.protocol for each, m in zip(test, models, strict=True)
    )
    split: Split = "test" if on_test else "val"
    differences = paired([model.run for model in models], task, split)
    rows = []
    for model, judged, gap in zip(models, test, differences, strict=True):
        rows.append(
            {
                "run": model.folder.name,
                "model": model.recipe.model.architecture,
                "summary": model.members[0][0].model.summary,
                "rng_seed": model.recipe.rng_seed,
                "validation": model.validation,
                "test": judged.rows[0].measures[metric] if judged else None,
                "difference": gap,
                "seconds": training_seconds(model),
            }
        )
    return {
        "rows": rows,
        "metric": METRICS.get(metric, (metric, ""))[0],
        "split": "test" if on_test else "validation",
        "higher_is_better": differences[0].higher_is_better,
    }


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
