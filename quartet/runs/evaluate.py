"""Evaluation: how good the predictions of a model are, beside those of the rules that need no model.

This is the one place where the vault with the test labels is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.text import Text

from quartet.config import Protocol
from quartet.drawing import Bin, reliability_svg, rendered
from quartet.errors import QuartetError, UsageError
from quartet.evaluation import (
    Hits,
    LabelFigures,
    Measure,
    Miss,
    calibration_bins,
    confusion,
    difference,
    fit_rules,
    hits,
    label_figures,
    main_metric,
    measures,
    misses,
)
from quartet.features import FeatureTable
from quartet.findings import warning
from quartet.listener import SILENT, Listener
from quartet.machine import intact
from quartet.runs.checkpoint import Checkpoint, mean_thresholds
from quartet.runs.ranking import judged, list_length
from quartet.runs.run import Run, member_logits
from quartet.runs.show import MEMBER, evaluation_grid, labels_grid, pools_grid
from quartet.runs.sure import Judged, check_shares, judge, say, sures_of
from quartet.tasks import Links, Seeds, Split, Task, TaskType, tell_alone
from quartet.times import DAY, show_length
from quartet.training import View, held, wait_limit

if TYPE_CHECKING:
    import pandas as pd

Scores = NDArray[np.float64]
# Too good to be true: a great score that misses less than this part of what the best rule misses to 1; or an error,
# which has no scale of its own, of less than this part of the rule's.
_GREAT, _OF_SCORE, _OF_ERROR = 0.95, 0.4, 0.2


@dataclass(frozen=True)
class EvaluationRow:
    """One line of the comparison: the model, a member of it, or a rule."""

    name: str
    measures: Mapping[str, Measure]

    @property
    def is_member(self) -> bool:
        return self.name.startswith(MEMBER)

    @property
    def plain_name(self) -> str:
        """Returns the name without what marks a member."""
        return self.name.removeprefix(MEMBER)


@dataclass(frozen=True)
class Evaluation:
    """The predictions of a model on one split, under one protocol, with rules beside them. Prints as a table.

    `bins` are predictions of like size, `hits` what came true among the highest (of yes or no), `misses` how far off
    values were (of a number), `confusion` which classes were taken for which, `labels` how each label of many is found,
    and `pools` which part of the items that came true each pool of candidates had (of lists). `sure` tells how often
    intervals or sets held on test.
    """

    task: str
    split: Split
    protocol: Protocol
    num_rows: int
    rows: tuple[EvaluationRow, ...]
    bins: tuple[Bin, ...] = ()
    warnings: tuple[str, ...] = ()
    hits: tuple[Hits, ...] = ()
    misses: tuple[Miss, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()
    labels: tuple[LabelFigures, ...] = ()
    sure: Judged | None = None
    k: int = 0  # of lists, how long they are
    pools: Mapping[str, float] = field(default_factory=dict)  # of candidates, and the recall of each

    def __str__(self) -> str:
        return rendered(self.grid())

    __repr__ = __str__

    def grid(self, members: bool = True) -> Any:
        """Returns the figures of the model, of its members if these are wanted, and of the rules."""
        title = f"{self.task}, {self.split} ({self.protocol}), {self.num_rows:,} rows"
        title += f", lists of {self.k}" if self.k else ""
        shown = [row for row in self.rows if members or not row.is_member]
        told = list(self.sure.lines("intervals" if self.misses else "sets")) if self.sure else []
        grid = evaluation_grid(title, [(row.name, row.measures) for row in shown], self.warnings, told)
        more: list[Any] = [Text(), labels_grid(self.labels)] if self.labels else []
        more += [pools_grid(self.pools)] if self.pools else []
        return Group(grid, *more) if more else grid

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> Evaluation:
        """Returns the evaluation that `to_dict` wrote; one of an earlier version lacks what it did not count."""
        rows = tuple(
            EvaluationRow(row["name"], {name: Measure(**told) for name, told in row["measures"].items()})
            for row in content["rows"]
        )
        parts: dict[str, Any] = {
            name: tuple(kind(**told) for told in content.get(name, ())) for name, kind in _PARTS.items()
        }
        table = tuple(map(tuple, content.get("confusion", ())))
        parts["sure"] = Judged.from_dict(content["sure"]) if content.get("sure") else None
        return Evaluation(
            **{**content, "rows": rows, "warnings": tuple(content["warnings"]), "confusion": table, **parts}
        )

    def to_pandas(self) -> pd.DataFrame:
        """Returns one row for each model or rule, with each measure and the ends of its interval as columns."""
        import pandas as pd

        lines = []
        for row in self.rows:
            line: dict[str, Any] = {"model": row.name}
            for name, measure in row.measures.items():
                line |= {name: measure.value, f"{name}_low": measure.low, f"{name}_high": measure.high}
            lines.append(line)
        return pd.DataFrame(lines)

    def keep(self, run: Run) -> None:
        """Writes the figures into a run's folder, with a picture of the calibration where there is one."""
        run.write(evaluation_file(self.split, self.protocol), self.to_dict())
        if self.bins:
            picture = reliability_svg(self.bins, "predicted and came true")
            run.write_text(f"calibration-{self.split}-{self.protocol}.svg", picture)


_MOST_CLASSES = 200  # of which it is told which were taken for which
_PARTS: dict[str, Any] = {"bins": Bin, "hits": Hits, "misses": Miss, "labels": LabelFigures}


def kept_evaluations(run: Run) -> list[Evaluation]:
    """Returns the evaluations that a run has kept: of test before validation, under its own protocol before others."""
    found = []
    for split in ("test", "val"):
        own = evaluation_file(split, run.recipe.protocol)
        paths = run.folder.glob(evaluation_file(split, "*"))
        for path in sorted(paths, key=lambda path: (path.name != own, path.name)):
            told = run.read(path.name)
            with intact(path, "evaluate again"):
                found.append(Evaluation.from_dict(told))
                if found[-1].split != split or not found[-1].rows or not found[-1].rows[0].measures:
                    raise ValueError(f"it has no figures of {split}")
    return found


def evaluation_file(split: str, protocol: str) -> str:
    return f"evaluation-{split}-{protocol}.json"


def evaluate(
    members: Sequence[tuple[Checkpoint, Run | None]],
    task: Task,
    split: Split = "test",
    protocol: Protocol | None = None,
    with_rules: bool = True,
    listener: Listener = SILENT,
    coverage: float | None = None,
    abstain: float = 0.0,
) -> Evaluation:
    """Returns how good the mean of some models' scores is, with each of them and every rule beside it.

    The protocol is that of the first unless one is given. Scores are those that a run kept or, under another protocol
    than it was trained with, live ones. Intervals and sets are judged on test: validation is what they rest on. Under
    the rolling protocol a label of test counts for those that are asked once its window has closed.
    """
    nominal = check_shares(coverage, abstain)
    checkpoints = [checkpoint for checkpoint, _ in members]
    sures = sures_of(checkpoints, coverage is not None or abstain > 0) if split == "test" else []
    protocol = task.under(protocol or members[0][0].recipe.protocol).protocol
    names = ", ".join(run.folder.name if run else checkpoint.task.name for checkpoint, run in members)
    labels = task.vault.open(f"evaluate {names}") if split == "test" else task.seeds(split).target
    tasks = {c.recipe.past_labels: task.under(protocol, c.recipe.past_labels) for c, _ in members}

    @lru_cache(maxsize=1)  # of one model for its scores and the rules; of many, not all in memory at once
    def view_of(checkpoint: Checkpoint) -> View:
        database = tasks[checkpoint.recipe.past_labels].database
        features = FeatureTable.encode(database, checkpoint.statistics)
        return View(database, features, checkpoint.task.spec, checkpoint.recipe)

    if isinstance(labels, Links):
        asked = task.under(protocol).asked_seeds(split)
        figures, recalls = judged(checkpoints, view_of, task, asked, labels, with_rules, listener)
        lines = tuple(EvaluationRow(name, own) for name, own in figures)
        k = list_length(task.spec)
        return Evaluation(task.name, split, protocol, len(labels), lines, k=k, pools=recalls)
    target = np.asarray(labels)

    def scores_of(checkpoint: Checkpoint, run: Run | None) -> tuple[Scores, list[Scores]]:
        """Returns the scores of a model, and of each member of a portfolio."""
        if run is not None and (split == "val" or protocol == checkpoint.recipe.protocol):
            return run.kept_scores(split, task), run.kept_members(split)
        seeds, model = tasks[checkpoint.recipe.past_labels].asked_seeds(split), checkpoint.model
        if split == "val" and model.is_refit:
            text = "the model has seen the labels of validation; its scores from before are in its run"
            raise UsageError("C10", text, "load the run folder, not the model in it")
        each = member_logits(model, view_of(checkpoint), seeds, listener)
        return checkpoint.scores(model.blend(each)), [checkpoint.scores(own) for own in each if model.members]

    found = [scores_of(*member) for member in members]
    scores = _named([c for c, _ in members], [whole for whole, _ in found])
    model = next(iter(scores))
    if len(members) == 1:
        inside = zip(members[0][0].model.members, found[0][1], strict=True)
        scores |= {f"{MEMBER}{member.name}, random seed {member.rng_seed}": own for member, own in inside}
    # The rules know what some member knows: with past labels, all labels that the database tells.
    has_past_labels, task = max(tasks.items())
    seeds = task.asked_seeds(split)
    num_models = len(scores)
    if with_rules:
        knowing_most = next(c for c, _ in members if c.recipe.past_labels == has_past_labels)
        rules = fit_rules(task, view_of(knowing_most).features)
        if protocol == "rolling":  # a label of the split itself is known once its window has closed
            rules = [rule.knowing(replace(seeds, target=labels)) for rule in rules]
        scores |= {rule.name: rule.predict(seeds) for rule in rules}
    sure = None
    if sures:
        spec, time = task.spec, task.seeds(split).time
        every = [whole for whole, _ in found]
        hints = [c.hints(each) for c, (_, each) in zip(checkpoints, found, strict=True)]
        as_of = np.minimum(time, task.splits.test)
        if protocol == "rolling":
            as_of, known_at = time, spec.known_at(time)
            told = zip(sures, checkpoints, every, hints, strict=True)
            sures = [one.knowing(target, c.probabilities(x), time, known_at, h) for one, c, x, h in told]
        said = say(checkpoints, sures, every, hints, as_of, nominal)
        sure = judge(spec.type, said, target, scores[model], time, task.seeds(split).node, abstain)
    train = np.asarray(task.seeds("train").target) if task.spec.facts.is_number else None
    rows = tuple(
        EvaluationRow(name, measures(task.spec.type, target, score, entity=seeds.node, train_target=train))
        for name, score in scores.items()
    )
    warnings = [too_good(task, rows[0], rows[num_models:], members[0][0].model)]
    return Evaluation(
        task.name,
        split,
        protocol,
        len(target),
        rows,
        warnings=tuple(filter(None, [*warnings, *_unseen(task, split), _held(task, seeds, members[0][0])])),
        **_DETAILS[task.spec.type](target, scores[model], checkpoints),
        sure=sure,
    )


def _unseen(task: Task, split: Split) -> list[str]:
    """Returns what is said of rows whose class no model can know: they are among those that are judged."""
    return [str(finding) for finding in task.findings(split) if finding.code == "L30"]


def _held(task: Task, seeds: Seeds, checkpoint: Checkpoint) -> str:
    """Returns what is said of seeds that a model does not ask about at their own time."""
    spec, waited = checkpoint.task.spec, checkpoint.statistics.longest_wait
    asked = held(seeds, task.database, spec, checkpoint.recipe, waited)
    count = int((asked.time != seeds.time).sum())
    if not count or waited is None:
        return ""
    longest = wait_limit(spec, waited)
    length = show_length(longest // DAY * DAY or longest)
    text = f"{count:,} of {len(seeds):,} seeds come more than {length} after the newest row that may be seen"
    return f"{text}: asked as of then; trained with --set late_seeds=own, a model asks at their own time"


def _of_classes(target: NDArray[Any], score: Scores, members: Sequence[Checkpoint]) -> dict[str, Any]:  # noqa: ARG001
    return {"confusion": confusion(target, score) if score.shape[1] <= _MOST_CLASSES else ()}


def _of_labels(target: NDArray[Any], score: Scores, members: Sequence[Checkpoint]) -> dict[str, Any]:
    names = members[0].task.classes or ()
    return {"labels": label_figures(target, score, names, mean_thresholds(members))}


# What is counted of a model besides its measures.
_DETAILS: dict[TaskType, Callable[[NDArray[Any], Scores, Sequence[Checkpoint]], dict[str, Any]]] = {
    "binary_classification": lambda y, score, _: {"bins": _bins(y, score), "hits": hits(y, score)},
    "regression": lambda y, score, _: {"bins": _bins(y, score), "misses": misses(y, score)},
    "multiclass_classification": _of_classes,
    "multilabel_classification": _of_labels,
}


def paired(runs: Sequence[Run], task: Task, split: Split) -> list[Measure]:
    """Returns by how much the main metric of each run differs from that of the first, on the scores that they kept.

    Entities are resampled for both at once. The runs are of one task and one protocol.
    """
    names = ", ".join(run.folder.name for run in runs)
    labels = task.vault.open(f"compare {names}") if split == "test" else task.seeds(split).target
    target, entity = np.asarray(labels), task.seeds(split).node
    scores = [run.kept_scores(split, task) for run in runs]
    return [difference(task.spec.type, target, own, scores[0], entity) for own in scores]


def too_good(task: Task, model: EvaluationRow, rules: Sequence[EvaluationRow], fitted: Any) -> str:
    """Returns a warning if a model errs so much less than every rule that a leak is likelier than skill, else "".

    It names the columns that carry it: those that trees split by, else those that alone tell most.
    """
    metric = main_metric(task.spec.type)
    own, values = model.measures[metric], [row.measures[metric].value for row in rules]
    known = [value for value in values if value is not None]
    worst = own.low if own.higher_is_better else own.high
    if worst is None or own.value is None or not known:
        return ""
    best = max(known) if own.higher_is_better else min(known)
    if own.higher_is_better:  # AUC or accuracy: what is missing to 1
        is_suspicious = own.value >= _GREAT and 1 - worst < _OF_SCORE * (1 - best)
    else:
        is_suspicious = worst < _OF_ERROR * best
    if not is_suspicious:
        return ""
    columns = getattr(fitted, "leading_columns", None) or [one.words for one in tell_alone(task)[0][:3]]
    text = f"{metric} {own.value:.4f} where the best rule has {best:.4f}: a leak is likelier than so good a model"
    fix = "check whether these columns are known at t (quartet inspect, quartet task)"
    return str(warning("L25", task.name, f"{text}. It rests on {', '.join(columns)}", fix=fix))


def quality(members: Sequence[tuple[Checkpoint, Run | None]]) -> str:
    """Returns in a line how good a model was on test, beside the best rule, if it was evaluated; else on validation."""
    checkpoint, run = members[0]
    metric = main_metric(checkpoint.task.type)
    if len(members) > 1:
        values = ", ".join(f"{member.validation:.4f}" for member, _ in members)
        return f"On validation each alone had {metric} {values}"
    for split in ("test", "val"):
        kept = sorted(run.folder.glob(evaluation_file(split, "*"))) if run else []
        own = [path for path in kept if path.name == evaluation_file(split, checkpoint.recipe.protocol)]
        for path in (*own, *kept):
            try:
                told = Run(path.parent).read(path.name)
                rows = {row["name"]: Measure(**row["measures"][metric]) for row in told["rows"]}
                model, *others = rows
                rules = [
                    name for name in others if not name.startswith(MEMBER) and rows[name].value is not None
                ]
                sign = 1 if rows[model].higher_is_better else -1
                best = max(rules, key=lambda name: sign * float(rows[name].value or 0), default=None)
                beside = f'; the best rule, "{best}", had {rows[best]}' if best else ""
                where = f"{'test' if split == 'test' else 'validation'} ({told['protocol']})"
                return f"On {where} the model had {metric} {rows[model]}{beside}"
            except (QuartetError, KeyError, TypeError, ValueError):
                continue  # a file that is not as it was written tells nothing
    return f"On validation the model had {metric} {checkpoint.validation:.4f}; `quartet evaluate` judges it on test"


def kept_judgement(members: Sequence[tuple[Checkpoint, Run | None]]) -> Judged | None:
    """Returns how often what a model says of its sureness held on test, if it was evaluated."""
    run = members[0][1]
    if len(members) > 1 or run is None:
        return None
    try:
        kept = [found for found in kept_evaluations(run) if found.split == "test"]
    except (QuartetError, KeyError, TypeError, ValueError):
        return None  # a file that is not as it was written tells nothing
    return kept[0].sure if kept else None


def score_on_test(run: Run, task: Task) -> tuple[str, float]:
    """Returns the task's main metric and its value on test by the scores that a run kept; without rules."""
    target = np.asarray(task.vault.open(f"score {run.folder.name}"))
    metric = main_metric(task.spec.type)
    value = measures(task.spec.type, target, run.kept_scores("test", task), num_resamples=0)[metric].value
    return metric, float("nan") if value is None else value


def _named(members: Sequence[Checkpoint], scores: Sequence[Scores]) -> dict[str, Scores]:
    """Returns the mean of the members' scores and, if there are several, each of them, by the names of their rows."""
    if len(members) == 1:
        return {members[0].recipe.model.architecture: scores[0]}
    named = {f"mean of {len(members)} models": np.mean(scores, axis=0)}
    for number, (member, own) in enumerate(zip(members, scores, strict=True), 1):
        recipe = member.recipe
        past_labels = ", past labels" if recipe.past_labels else ""
        named[f"{number}: {recipe.model.architecture}{past_labels}, random seed {recipe.rng_seed}"] = own
    return named


def _bins(labels: NDArray[Any], score: Scores) -> tuple[Bin, ...]:
    """Returns predictions of like size in groups, from the lowest scores to the highest."""
    groups = zip(*calibration_bins(labels, score), strict=True)
    return tuple(
        Bin(float(predicted / rows), float(true / rows), round(float(rows)))
        for rows, predicted, true in groups
        if rows
    )
