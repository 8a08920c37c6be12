"""What people see of runs: how a training goes, how good a model is, and its predictions."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Group, RenderableType
from rich.progress import TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid
from rich.text import Text

from quartet.drawing import as_shown, cell, console, new_bar, new_grid, say
from quartet.evaluation import LabelFigures, Measure, main_metric, measures
from quartet.findings import Finding
from quartet.listener import Listener
from quartet.tasks import KNOWN_LABELS, SPLITS, balance
from quartet.times import show_instant
from quartet.training import Epoch, Fitted, Member, Training, TrainingData, duration

_SECONDS_BETWEEN_LINES = 30.0
_WORTH_A_LINE = 2.0  # seconds of work that is over
_MOST_LABELS = 30  # in a table for people

MEMBER = "- "  # before the name of a member of a model, among the rows of an evaluation


class ProgressView(Listener):
    """Work as people follow it: findings as lines; in a terminal a bar for long work, in a pipe a line at its end."""

    def __init__(self, is_quiet: bool = False, told: Iterable[Finding] = ()) -> None:
        self.is_quiet, self.told = is_quiet, frozenset(told)  # what was shown before is not told again
        self._bars: dict[str, tuple[Any, TaskID, float, list[int]]] = {}

    def finding(self, finding: Finding) -> None:
        say(str(finding))

    def noticed(self, findings: Iterable[Finding]) -> None:
        for finding in as_shown(finding for finding in findings if finding not in self.told):
            self.finding(finding)

    def progress(self, what: str, done: int, total: int) -> None:
        if self.is_quiet:
            return
        if what not in self._bars:
            bar = new_bar(TimeRemainingColumn())
            bar.start()
            self._bars[what] = (bar, bar.add_task(what, total=total), time.perf_counter(), [0])
        bar, work, begin, count = self._bars[what]
        bar.advance(work, done)
        count[0] += done
        if count[0] >= total:
            del self._bars[what]
            bar.stop()
            seconds = time.perf_counter() - begin
            if bar.disable and seconds > _WORTH_A_LINE:
                say(f"{what}: {total:,} in {seconds:.1f} s")


class TrainingView(ProgressView):
    """A training as people follow it: what it will take, then a line for each epoch.

    Below them, in a terminal, is a bar of the epoch under way; elsewhere a long epoch has a line now and then.
    """

    training: Training | None = None
    _has_begun = False

    def begin(self, training: Training) -> None:
        self.training = training
        if self.is_quiet:
            return
        grid, about = new_grid("", "", " "), [] if self._has_begun else _task_lines(training.data)
        self._has_begun = True
        for name, text in [*about, *training.lines()]:
            grid.add_row(cell(name, "dim"), cell(text))
        console().print(Group(grid, Text()))
        self._line_at = time.perf_counter()
        if training.bar() is not None:
            self._bar = new_bar(TextColumn("{task.fields[note]}"))
            self._work = self._bar.add_task("", note="")
            self._tell()
            self._bar.start()

    def step(self, num_seeds: int) -> None:  # noqa: ARG002 (the training knows)
        self._tell()

    def epoch(self, epoch: Epoch) -> None:
        assert self.training is not None
        if not self.is_quiet:
            print(self.training.epoch_line(epoch), flush=True)
            self._line_at = time.perf_counter()
            self._tell()

    def turned(self, dial: Any) -> None:
        if not self.is_quiet:
            console().print(dial_grid(dial))

    def member(self, member: Member, fitted: Fitted) -> None:
        self.close()
        if not self.is_quiet:
            metric = self.training.data.metric if self.training else ""
            print(
                f"{member.name}, random seed {member.rng_seed}: validation {metric} {member.validation:.4f} in "
                f"{duration(member.seconds)}; all so far {fitted.best.validation:.4f}",
                flush=True,
            )

    def end(self, fitted: Fitted, folder: Path) -> None:
        assert self.training is not None
        self.close()
        metric = self.training.data.metric
        if fitted.model.members and not self.is_quiet:
            console().print(leaderboard_grid(fitted, self.training.data))
        print(
            f"Best: {fitted.chosen}, validation {metric} {fitted.best.validation:.4f}. Everything is in {folder}"
        )

    def close(self) -> None:
        if getattr(self, "_bar", None) is not None:
            self._bar.stop()

    def _tell(self) -> None:
        """Brings the bar up to date, or writes a line if the last one is long ago."""
        state = self.training.bar() if self.training and not self.is_quiet else None
        if state is None:
            return
        label, done, total, note = state
        self._bar.update(self._work, description=label, completed=done, total=total, note=note)
        if self._bar.disable and time.perf_counter() - self._line_at >= _SECONDS_BETWEEN_LINES:
            self._line_at = time.perf_counter()
            say(f"{label}  {done:,} seeds, {note}")


def dial_grid(dial: Any) -> RenderableType:
    """Returns what was tried before training, what each choice brought and costs, and which was taken."""
    names = (f"validation {dial.metric}", "to the best", "train", "score", "alone", "memory")
    grid = new_grid("Trials", "", *names, "", right=names)
    for trial in dial.trials:
        style = "bold" if trial.verdict == "chosen" else ""
        learned = ("–", "–")
        if trial.value is not None:
            learned = (f"{trial.value:.4f}", f"{trial.difference:+.4f} ± {trial.noise:.4f}")
        told = (
            *learned, f"{trial.train_ms:.2f} ms",
            f"{trial.score_ms:.2f} ms", f"{trial.latency_ms:.0f} ms", f"{trial.num_bytes / 1e6:,.0f} MB",
        )  # fmt: skip
        grid.add_row(
            cell(trial.name, "cyan"), *(cell(text, style) for text in told), cell(trial.verdict, style)
        )
    line = f"Chosen: {dial.chosen} ({dial.why})"
    if not dial.trials:
        return cell(line)
    return Group(grid, cell(f"{line}, after {duration(dial.seconds)} of trials"))


class JsonTraining(Listener):
    """A training as programs follow it: one JSON object a line on standard output, findings on the error output."""

    def finding(self, finding: Finding) -> None:
        say(str(finding))

    def turned(self, dial: Any) -> None:
        self._line(event="dial", **dial.to_dict())

    def begin(self, training: Training) -> None:
        self.metric = training.data.metric
        self._line(event="begin", recipe=training.data.recipe.to_dict())

    def epoch(self, epoch: Epoch) -> None:
        self._line(event="epoch", metric=self.metric, **asdict(epoch))

    def member(self, member: Member, fitted: Fitted) -> None:  # noqa: ARG002
        self._line(event="member", metric=self.metric, **asdict(replace(member, model=None)))

    def end(self, fitted: Fitted, folder: Path) -> None:
        best = {"best_epoch": fitted.best.number, "metric": self.metric, "validation": fitted.best.validation}
        self._line(event="end", run=str(folder), parameters=fitted.model.num_parameters, **best)

    def _line(self, **content: Any) -> None:
        print(json.dumps(content), flush=True)


def _task_lines(data: TrainingData) -> list[tuple[str, str]]:
    """Returns what a training is about, whatever its model."""
    task, recipe, spec = data.task, data.recipe, data.task.spec
    val, test = show_instant(task.splits.val), show_instant(task.splits.test)
    counts = [len(task.seeds(split)) for split in SPLITS]
    lines = [
        ("task", f"{task.name}: {spec.type.replace('_', ' ')} of {spec.entity_table}, by {main_metric(spec.type)}"),
        ("splits", f"train to {val}, validation to {test}, then test ({recipe.protocol})"),
        ("seeds", "{:,} train, {:,} validation, {:,} test".format(*counts)),
        ("labels", f"{balance(data.labels('train'))} in training"),
    ]  # fmt: skip
    if recipe.past_labels:
        lines.append(("past labels", f"{task.database[KNOWN_LABELS].num_rows:,} rows"))
    return lines


def leaderboard_grid(fitted: Fitted, data: TrainingData) -> Grid:
    """Returns the members of a portfolio, the best on validation first, with what each weighs and took."""
    kind, entity = data.task.spec.type, data.seeds["val"].node
    rows = []
    for member, weight, logits in zip(
        fitted.model.members, fitted.model.weights, fitted.validation or (), strict=True
    ):
        scores = data.output.scores(logits)
        rows.append((measures(kind, data.labels("val"), scores, entity=entity)[data.metric], member, weight))
    rows.sort(key=lambda row: (row[0].value or 0.0) * (-1 if row[0].higher_is_better else 1))
    grid = new_grid("Members", "", f"validation {data.metric}", "weight", "time", right=("weight", "time"))
    for measure, member, weight in rows:
        name = f"{member.name}, random seed {member.rng_seed}"
        grid.add_row(cell(name, "cyan"), cell(measure), cell(f"{weight:.0%}"), cell(duration(member.seconds)))
    return grid


def evaluation_grid(
    title: str,
    rows: Sequence[tuple[str, Mapping[str, Measure]]],
    warnings: Sequence[str] = (),
    lines: Sequence[str] = (),
) -> RenderableType:
    """Returns the model and the rules, each measure with its interval; the best of each in bold; then lines."""
    first = rows[0][1]
    grid = new_grid(title, "", *(f"{m.name} {'↑' if m.higher_is_better else '↓'}" for m in first.values()))
    for name, own in rows:
        cells = []
        for measure in first:
            values = [other[measure].value for _, other in rows]
            known = [value for value in values if value is not None]
            choose = max if own[measure].higher_is_better else min
            is_best = bool(known) and own[measure].value == choose(known)
            cells.append(Text(str(own[measure]), style="bold" if is_best else ""))
        grid.add_row(cell(name, "cyan"), *cells)
    below = [*(cell(text) for text in lines), *(cell(text, "yellow") for text in warnings)]
    return Group(grid, *below) if below else grid


def labels_grid(labels: Sequence[LabelFigures]) -> Grid:
    """Returns how well each label is found, the commonest first; of very many, not all."""
    names = ("rows", "average precision", "auc", "threshold", "precision", "recall")
    title = (
        "Labels"
        if len(labels) <= _MOST_LABELS
        else f"Labels, the commonest {_MOST_LABELS} of {len(labels):,}"
    )
    grid = new_grid(title, "", *names, right=names)
    for one in sorted(labels, key=lambda one: -one.count)[:_MOST_LABELS]:
        figures = (one.average_precision, one.roc_auc, one.threshold, one.precision, one.recall)
        texts = ("–" if figure is None else f"{figure:.3f}" for figure in figures)
        grid.add_row(cell(one.name, "cyan"), f"{one.count:,}", *texts)
    return grid


def pools_grid(recalls: Mapping[str, float]) -> Grid:
    """Returns the pools of candidates, each with the part of the items that came true which it had."""
    grid = new_grid("Candidates", "", "recall", right=("recall",))
    for name, recall in recalls.items():
        grid.add_row(cell(name, "cyan"), cell(f"{recall:.4f}"))
    return grid


def predictions_grid(table: pa.Table, num_all: int) -> Grid:
    """Returns predictions that come first among so many, in their order."""
    title = f"{num_all:,} prediction{'' if num_all == 1 else 's'}"
    by_score = "score" in table.column_names and "rank" not in table.column_names
    if 0 < table.num_rows < num_all:
        title += f", the {'highest' if by_score else 'first'} {table.num_rows:,}"
    right = tuple(name for name in table.column_names if name != "name")
    grid = new_grid(title, *table.column_names, right=right)
    for row in table.to_pylist():
        grid.add_row(*(cell(_shown(value)) for value in row.values()))
    return grid


def _shown(value: Any) -> Any:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:.4f}" if isinstance(value, float) else "–" if value is None else value
