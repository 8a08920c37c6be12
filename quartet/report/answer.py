"""The answer in words: what was asked, how good the model is, and what it costs. Every figure is one of the run's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from quartet.drawing import hits_svg, reliability_svg
from quartet.evaluation import Measure
from quartet.runs import Evaluation, TrainedModel
from quartet.tasks import TaskSpec
from quartet.times import show_length
from quartet.training import duration

# What each metric says, for somebody who has never heard of it.
METRICS = {
    "roc_auc": (
        "Ranking (AUC)",
        "how often one that came true is scored above one that did not; chance is 0.5",
    ),
    "average_precision": (
        "Precision",
        "the share that came true among the highest scored, averaged; 1 is perfect",
    ),
    "log_loss": ("Log loss", "how surprised somebody who trusts the scores is by what came; 0 is perfect"),
    "brier": ("Brier score", "the mean squared gap of score and outcome; 0 is perfect"),
    "calibration_error": (
        "Calibration error",
        "how far scores lie from the share that came true; 0 is perfect",
    ),
    "mae": ("Mean error (MAE)", "how far predictions are off on average, in units of the target"),
    "rmse": ("Root mean square (RMSE)", "the same, with large errors counting more"),
    "r2": ("Explained (R²)", "the share of the differences among targets that is explained; 1 is perfect"),
    "nmae": ("Relative error", "the mean error over the spread of the targets in training"),
    "accuracy": ("Right (accuracy)", "the share of rows whose class was right"),
    "macro_f1": (
        "Macro F1",
        "how well classes are found, rare ones counting as much as common ones; 1 is perfect",
    ),
    "mrr": ("Rank (MRR)", "the mean of 1 over the place of the right class among all by score; 1 is perfect"),
    "top_5": ("Among five", "the share of rows whose class is among the five most probable"),
    "macro_ap": ("Precision, by label", "average precision of each label, rare ones counting the same"),
    "micro_ap": ("Precision, of all", "average precision of all labels as one, common ones counting most"),
    "macro_auc": ("Ranking, by label", "AUC of each label, rare ones counting the same; chance is 0.5"),
    "micro_auc": ("Ranking, of all", "AUC of all labels as one; chance is 0.5"),
    "map": ("Order (MAP)", "the precision at each item that came, over the list; 1 is a perfect list"),
    "recall": ("Found (recall)", "which part of the items that came is in the list"),
    "ndcg": ("Gain (NDCG)", "how high the items that came stand in the list; 1 is a perfect list"),
    "coverage": ("Coverage", "which part of all items is in some list"),
    "label_log_loss": (
        "Log loss",
        "how surprised somebody who trusts the scores is by each label; 0 is perfect",
    ),
}
MEMBERS = {
    "plain trees": "boosted trees on counts, means and sums over one and four horizons of rows one link away",
    "trees on near rows": "boosted trees on all columns of rows one link away",
    "trees": "boosted trees on counts, means and sums over all linked rows, and on what happens everywhere",
    "trees on own rows": "the same without what happens everywhere",
    "trees on logarithms": "trees that learn the logarithm of the target",
    "trees on changes": "trees that learn the change since earlier labels",
    "tower": "a small neural network on the columns of the trees",
    "quartet": "a graph transformer, which reads the rows around each entity",
}
RULES = {
    "constant": "the same for everyone: what was usual in training",
    "entity mean": "the mean of what came for the same entity before",
    "last 12 labels": "the same over its last 12 outcomes",
    "last 12 of the same": "what came for the last 12 rows that name the same row",
    "most popular lately": "the same list for everyone: what most had of late",
    "own past by recency": "what the same source had before, the latest first",
    "own past by count": "the same, the commonest first",
    "latest of": "what rows with this in common had, the latest first",
    "commonest of": "the same, the commonest first",
    "random": "any items that exist",
    "LightGBM on counts": "boosted trees on the entity's own cells and counts of linked rows",
}
PROTOCOLS = {
    "rolling": "each prediction sees all rows up to its own time, as in use",
    "frozen": "the database ends where test begins, as in published figures",
    "clamped": "the database ends where test begins, and all are asked as of then",
}
_SPLITS = {"test": "test", "val": "validation", "train": "training"}
_TOPS = (10, 20, 50, 100)


@dataclass(frozen=True)
class Line:
    """A figure in large letters, and what it says."""

    figure: str
    words: str


def question(spec: TaskSpec) -> str:
    """Returns what was asked, in the words of the task's file or, where it has none, in ours."""
    if spec.description:
        return spec.description
    ahead = f" in the {show_length(spec.horizon).removeprefix('1 ')} that follows" if spec.horizon else ""
    what = spec.facts.question.format(target=spec.target_col, ahead=ahead)
    return f"For each row of {spec.entity_table}: {what}"


def best_rule(evaluation: Evaluation) -> tuple[str, dict[str, Measure]] | None:
    """Returns the rule that needs no model with the best main metric."""
    metric = next(iter(evaluation.rows[0].measures))
    sign = 1 if evaluation.rows[0].measures[metric].higher_is_better else -1
    rules = [row for row in evaluation.rows[1:] if not row.is_member]
    known = [row for row in rules if row.measures[metric].value is not None]
    best = max(known, key=lambda row: sign * (row.measures[metric].value or 0), default=None)
    return (best.name, dict(best.measures)) if best else None


def verdict(evaluation: Evaluation) -> str:
    """Returns in a sentence whether the model is better than the best rule, as far as the interval tells."""
    metric, own = next(iter(evaluation.rows[0].measures.items()))
    rule = best_rule(evaluation)
    if rule is None or own.value is None or own.low is None or own.high is None:
        return ""
    name, beside = rule[0], rule[1][metric].value or 0.0
    words = f"the best simple rule (“{name}”, {number(beside)})"
    worst, best = (own.low, own.high) if own.higher_is_better else (-own.high, -own.low)
    rival = beside if own.higher_is_better else -beside
    if worst > rival:
        return f"It is clearly better than {words}."
    return f"It is worse than {words}." if best < rival else f"It is not clearly better than {words}."


def headlines(evaluation: Evaluation) -> list[Line]:
    """Returns how good the model is, in figures and words for everybody."""
    metric, own = next(iter(evaluation.rows[0].measures.items()))
    rule = best_rule(evaluation)
    beside = rule[1][metric].value if rule else None
    lines = []
    if evaluation.hits:
        rows, true = evaluation.hits[-1].count, evaluation.hits[-1].came_true
        told = [each for each in evaluation.hits if each.count in _TOPS and 3 * each.count <= rows]
        for each in told[-1:]:
            chance = each.count * true / rows
            words = f"of the highest scored came true; by chance it would be {chance:.0f}"
            lines.append(Line(f"{each.came_true:.0f} of {each.count}", words))
    if metric == "roc_auc" and own.value is not None:
        words = "pairs are in the right order: the one that came true above the one that did not"
        words += f"; by the best simple rule {100 * beside:.0f}" if beside is not None else ""
        lines.append(Line(f"{100 * own.value:.0f} of 100", words))
    if metric == "mae" and own.value is not None:
        words = "is how far predictions are off on average, in units of the target"
        words += f"; those of the best simple rule by {short(beside)}" if beside is not None else ""
        lines += [Line(short(own.value), words)]
        shares = {
            50: "half of the predictions are off by less than this",
            90: "nine in ten are off by less than this",
        }
        lines += [
            Line(short(miss.error), shares[miss.percent])
            for miss in evaluation.misses
            if miss.percent in shares
        ]
    found = evaluation.rows[0].measures.get("recall") if metric == "map" else None
    if found is not None and found.value is not None:
        words = f"items that came are among the first {evaluation.k} of their lists"
        by_rule = rule[1]["recall"].value if rule else None
        words += f"; by the best simple rule {100 * by_rule:.0f}" if by_rule is not None else ""
        lines.append(Line(f"{100 * found.value:.0f} of 100", words))
    if metric == "accuracy" and own.value is not None:
        words = "were of the class that was predicted"
        words += f"; by the best rule {100 * beside:.0f}" if beside is not None else ""
        lines.append(Line(f"{100 * own.value:.0f} of 100", words))
    return lines


def tops(evaluation: Evaluation) -> list[tuple[int, float, float, float | None]]:
    """Returns for some counts of the highest scored: how many came true, how many by chance, and the factor."""
    if not evaluation.hits:
        return []
    rows, true = evaluation.hits[-1].count, evaluation.hits[-1].came_true
    wanted = {round(rows * share) for share in (0.1, 0.2, 0.5)} | {10, 100, rows}
    found = []
    for each in evaluation.hits:
        chance = each.count * true / rows if rows else 0.0
        if each.count in wanted and each.count:
            found.append((each.count, each.came_true, chance, each.came_true / chance if chance else None))
    return found


def evaluation_parts(
    evaluations: Sequence[Evaluation], classes: Sequence[Any] | None
) -> list[dict[str, Any]]:
    """Returns evaluations of one split as the page shows them; those that do not differ by protocol once."""
    alike: list[list[Evaluation]] = []
    for each in evaluations:
        same = next((group for group in alike if group[0].rows == each.rows), None)
        alike.append([each]) if same is None else same.append(each)
    return [_evaluation_part(group[0], [each.protocol for each in group], classes) for group in alike]


def _evaluation_part(
    evaluation: Evaluation, protocols: Sequence[str], classes: Sequence[Any] | None
) -> dict[str, Any]:
    """Returns an evaluation: the table with the best of each metric marked, and its pictures."""
    first = evaluation.rows[0].measures
    marked = {}
    for name, measure in first.items():
        values = [row.measures[name].value for row in evaluation.rows if name in row.measures]
        known = [value for value in values if value is not None]
        marked[name] = (max if measure.higher_is_better else min)(known, default=None)
    pictures, members = (
        [],
        {row.plain_name.partition(",")[0] for row in evaluation.rows if row.is_member},
    )
    if evaluation.hits:
        counts = [(each.count, each.came_true) for each in evaluation.hits]
        about = "Going down the list from the highest score: how much of what came true is found. Grey: by chance."
        pictures.append((Markup(hits_svg(counts, "Found, % of all that came true")), about))
    if evaluation.bins:
        title = "Came true" if evaluation.hits else "Came, on average"
        about = "What was predicted, and what came. On the grey line they agree; above it, more came than predicted."
        pictures.append((Markup(reliability_svg(evaluation.bins, title)), about))
    return {
        "split": _SPLITS[evaluation.split],
        "protocols": list(protocols),
        "protocol": PROTOCOLS.get(protocols[0], ""),
        "main": next(iter(first.values())),
        "verdict": verdict(evaluation),
        "num_rows": evaluation.num_rows,
        "metrics": [(name, *METRICS.get(name, (name, "")), m.higher_is_better) for name, m in first.items()],
        "rules": [
            (row.name, about)
            for row in evaluation.rows
            for name, about in RULES.items()
            if row.name == name or row.name.startswith(f"{name} ")
        ],
        "members": [(name, about) for name, about in MEMBERS.items() if name in members],
        "rows": [
            {
                "name": row.plain_name,
                "kind": "model" if place == 0 else "member" if row.is_member else "rule",
                "cells": [
                    (m, m.value is not None and m.value == marked[name]) for name, m in row.measures.items()
                ],
            }
            for place, row in enumerate(evaluation.rows)
        ],
        "pictures": pictures,
        "tops": tops(evaluation),
        "warnings": evaluation.warnings,
        "confusion": evaluation.confusion,
        "pools": list(evaluation.pools.items()),
        "classes": [str(name) for name in classes or ()],
    }


def cost(model: TrainedModel, num_scored: int, seconds: float) -> list[tuple[str, str]]:
    """Returns what a model has cost and costs, line by line."""
    run, (checkpoint, _) = model.run, model.members[0]
    machine = run.environment
    trained = training_seconds(model)
    threads = f"{machine['threads']} of {machine['cores']} cores"
    size = sum(path.stat().st_size for path in run.model_folder.rglob("*") if path.is_file())
    lines = [("Training", f"{duration(trained)} on {threads}" if trained else f"on {threads}")]
    lines.append(("Model", f"{checkpoint.model.summary}, {size / 1e6:.1f} MB on disk"))
    if num_scored:
        lines.append(
            (
                "Predicting",
                f"{num_scored:,} scores in {duration(max(seconds, 0.1))}, reading the data included",
            )
        )
    return lines


def training_seconds(model: TrainedModel) -> float:
    """Returns the seconds that the members of a model took to train, or its epochs."""
    members = model.members[0][0].model.members
    if members:
        return float(sum(member.seconds for member in members))
    return float(sum(epoch.seconds + epoch.validation_seconds for epoch in model.run.epochs()))


def short(value: float) -> str:
    """Returns a figure with three digits, or all of its whole ones."""
    return (f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}").replace("-", "−")


def number(value: float | None, among: float | None = None) -> str:
    """Returns a figure with four decimals, fewer where it, or the largest `among` which it stands, is large."""
    if value is None:
        return "n/a"
    size = abs(value) if among is None else among
    digits = 4 if size < 10 else 2 if size < 1e4 else 0
    return f"{value:,.{digits}f}".replace("-", "−")
