"""One page to send to a colleague: all parts of a report in one file that asks for nothing else."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import pyarrow as pa
from markupsafe import Markup

from quartet.drawing import svg
from quartet.errors import UsageError, printable
from quartet.evaluation import higher_is_better, main_metric
from quartet.explain import global_view
from quartet.features import column_words
from quartet.findings import Finding, Level
from quartet.listener import Listener
from quartet.machine import as_path, new_file
from quartet.report.answer import cost, evaluation_parts, headlines, number, question
from quartet.report.card import board_part, card_part
from quartet.report.data import data_part, sentence
from quartet.report.said import said_part
from quartet.report.who import explanations, highest, list_part, who_part
from quartet.report.why import signed, why_part
from quartet.runs import Evaluation, LiveModel, ProgressView, TrainedModel, kept_evaluations, leakcheck
from quartet.tasks import SPLITS, Task, TaskRecord
from quartet.times import NEVER
from quartet.training import duration

MOST_BYTES = 500_000
_MOST_LETTERS = 1000  # of one text
_LEAK_TIMES, _LEAK_SEEDS = 1, 20
_DOUBTS = ("D04", "T20", "T22")  # findings on the predictions themselves: drift, and times far from training
_GRAVE = ("T14", "L04", "L20", "L21", "D03")  # findings on the task: its figures may be too good
_MOST_CAUTIONS = 3
# The colours of pictures, by the names that the page's two themes give them.
_COLORS = {
    "ink": svg.INK, "pale": svg.PALE, "line": svg.LINE, "mark": svg.MARK, "grey": svg.GREY, "ground": "white",
    "panel": "#f9fafb",
}  # fmt: skip


def write_report(
    models: Sequence[TrainedModel],
    target: str | Path,
    task: Task | None = None,
    *,
    at: Any = None,
    evaluate: bool = False,
    device: str = "auto",
    listener: Listener | None = None,
) -> Path:
    """Writes a report on runs of one task, and returns its path.

    It is about the run that is best on validation; several are compared on a board. Test labels are opened by an
    evaluation alone: `evaluate` asks for one where a run has none.
    """
    path = as_path(target, "the report")
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(
            "C02", f'a report is a page, and cannot be written as "{path.suffix}"', "name an .html file"
        )
    if path.is_dir():
        raise UsageError("C02", f"{path} is a folder", "name an .html file inside it, or another one")
    if models[0].record.type == "recommendation" and len(models) > 1:
        text = f'lists of {len(models)} runs of task "{models[0].record.name}" are not compared on a page'
        raise UsageError("L07", text, "give one run; quartet evaluate RUN tells of each")
    path.parent.mkdir(parents=True, exist_ok=True)
    for model in models:
        _ = model.run.environment  # damage is told before the work
    page = fitted(gather(models, task, at, evaluate, device, listener))
    with new_file(path) as fresh:
        fresh.write_text(page, encoding="utf-8")
    return path


def gather(
    models: Sequence[TrainedModel],
    task: Task | None,
    at: Any = None,
    evaluate: bool = False,
    device: str = "auto",
    listener: Listener | None = None,
) -> dict[str, Any]:
    """Returns all that the page tells, as plain values and pictures."""
    listener = _Noticing(listener or ProgressView())
    sign = 1 if higher_is_better(main_metric(models[0].record.type)) else -1
    models = sorted(models, key=lambda model: -sign * model.validation)
    model, record = models[0], models[0].record
    now = models[0].task if task is None else task
    then = record.as_then(now, listener)
    for other in models:
        other.record.check_same(TaskRecord.of(then), other.folder)
    evaluations = [_evaluations(other, now, evaluate, device, listener) for other in models]
    shown = evaluations[0]
    findings = [*then.full_database.findings, *then.check()]
    listener.heard.clear()
    begin = time.perf_counter()
    # Past labels in a table of their own: the model cannot make them again, and they are given to it.
    is_given = record.spec.kind == "external" and model.recipe.past_labels
    given = pa.concat_tables(map(now.label_rows, SPLITS)) if is_given else None
    live = model.on(now.full_database, labels=given, device=device, listener=listener)
    predictions = live.predict(at=at)
    seconds = time.perf_counter() - begin
    # Windows of test may be over by now; until somebody has judged the run there, their labels stay untold.
    sealed = NEVER if shown[0].split == "test" else then.splits.test
    is_list = record.type == "recommendation"
    told, closely = ([], []) if is_list else explanations(live, predictions, at, sealed, listener)
    view = leaks = None
    if not is_given:
        checkpoints = [checkpoint for checkpoint, _ in model.members]
        leaks = leakcheck(then, checkpoints, _LEAK_TIMES, _LEAK_SEEDS, listener=listener)
        if not is_list:
            view = global_view(TrainedModel(model.members, then), device=device, listener=listener)
    headline = predictions.headline.removeprefix(f"{record.name}: ")
    heard = list(dict.fromkeys(listener.heard))
    doubts = [_in_words(finding, live) for finding in heard if finding.code in _DOUBTS]
    findings += [finding for finding in heard if finding.code not in _DOUBTS]
    findings = list(dict.fromkeys(findings))  # some are told of the database and of the task
    doubts = [f for f in findings if f.code in _GRAVE and f.level is Level.WARNING] + doubts
    cautions = [f"{sentence(f.message)}." for f in doubts if f.level is Level.WARNING]
    if len(cautions) > _MOST_CAUTIONS:
        more = f"There are {len(cautions) - _MOST_CAUTIONS + 1:,} more such findings, among those of the data below."
        cautions = [*cautions[: _MOST_CAUTIONS - 1], more]
    return {
        "title": record.name,
        "question": question(record.spec),
        "query": record.spec.query,
        "headline": headline[:1].upper() + headline[1:],
        "highest": "" if is_list else highest(predictions),
        "entity": record.entity_table,
        "written": date.today().isoformat(),
        "model": model.recipe.model.architecture,
        "lines": headlines(shown[0]),
        "cautions": cautions,
        "evaluations": evaluation_parts(shown, record.classes),
        "said": said_part(model.run),
        "cost": cost(model, len(predictions), seconds),
        "board": board_part(models, then, evaluations) if len(models) > 1 else None,
        "data": data_part(then, findings, leaks),
        "why": why_part(view, closely) if closely else None,
        "who": list_part(live, predictions, at, listener) if is_list else who_part(predictions, told),
        "card": card_part(model, then, shown[0], doubts),
    }


def _in_words(finding: Finding, live: LiveModel) -> Finding:
    """Returns a finding in which columns are called as people call them."""
    text = finding.message
    for view in live.views if '"' in text else ():
        for name, told in column_words(view.columns).items():
            text = text.replace(f'"{name}"', f"“{told.words}”")
    return replace(finding, message=text)


def _evaluations(
    model: TrainedModel, task: Task, evaluate: bool, device: str, listener: Listener
) -> list[Evaluation]:
    """Returns what is known of a run: its evaluations on test, the own protocol first, else that on validation."""
    kept = kept_evaluations(model.run)
    on_test = [each for each in kept if each.split == "test"]
    if evaluate:
        wanted = dict.fromkeys(
            [model.recipe.protocol, *(() if task.num_new_entities else ("rolling", "frozen"))]
        )
        absent = [each for each in wanted if each not in {one.protocol for one in on_test}]
        on_test += [model.evaluate(task, protocol=each, device=device, listener=listener) for each in absent]
        on_test.sort(key=lambda each: each.protocol != model.recipe.protocol)
    on_val = [each for each in kept if each.split == "val" and each.protocol == model.recipe.protocol]
    if not on_test and not on_val:
        on_val = [model.evaluate(task, split="val", device=device, listener=listener)]
    return on_test or on_val[:1]


class _Noticing(Listener):
    """Passes on what it hears, and remembers the findings."""

    def __init__(self, other: Listener) -> None:
        self.heard: list[Finding] = []
        self.other, self.progress = other, other.progress  # type: ignore[method-assign]

    def finding(self, finding: Finding) -> None:
        self.noticed([finding])

    def noticed(self, findings: Iterable[Finding]) -> None:
        told = list(findings)
        self.heard += told
        self.other.noticed(told)


def fitted(context: dict[str, Any]) -> str:
    """Returns the page with as many rows of predictions, and then of entities one by one, as it has room for."""
    who, why = context["who"], context["why"]
    while len((page := render(context)).encode()) > MOST_BYTES:
        if who["rows"]:
            who = {**who, "rows": who["rows"][: len(who["rows"]) * 4 // 5]}
        elif why and why["entities"]:
            why = {**why, "entities": why["entities"][:-1]}
        else:
            break
        context = {**context, "who": who, "why": why}
    return page


def render(context: dict[str, Any]) -> str:
    """Returns the page. All text is escaped; the one script in it is ours, by its digest, and nothing is fetched."""
    here = files("quartet.report")
    style, script = ((here / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    for name, color in _COLORS.items():
        style += f'svg [fill="{color}"]{{fill:var(--{name})}}svg [stroke="{color}"]{{stroke:var(--{name})}}\n'
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_inert,
    )
    environment.filters |= {"number": number, "duration": duration, "signed": signed, "sentence": sentence}
    template = environment.from_string((here / "page.html.jinja").read_text(encoding="utf-8"))
    return template.render(**context, style=Markup(style), script=Markup(script), digest=digest)


def _inert(value: Any) -> Any:
    """Returns text without control characters, cut where nobody reads on; what is marked as ours stays as it is."""
    if isinstance(value, Markup) or value is None:
        return "" if value is None else value
    text = str(value)
    return printable(text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 1] + "…")
