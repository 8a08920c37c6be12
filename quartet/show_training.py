"""What people see of a run: what it was asked, a line for each epoch, and how the result compares."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from rich.console import Group, RenderableType
from rich.text import Text

from quartet.evaluate import Evaluation, Row
from quartet.metrics import Measure
from quartet.nn.model import Quartet
from quartet.printable import printable
from quartet.recipe import Recipe
from quartet.show import new_grid, no_history
from quartet.tasks.vault import balance
from quartet.times import show_instant
from quartet.train import Epoch, Material


def material_view(material: Material, recipe: Recipe, model: Quartet, preset: str) -> RenderableType:
    """The first lines of a run: what was inferred and what it will cost."""
    task, spec = material.task, material.task.spec
    train, val = material.contexts["train"], material.contexts["val"]
    grid = new_grid("", "", " ")
    alone = no_history(material.graph, task.seeds("train"))
    per_epoch = min(len(train), recipe.seeds_per_epoch or len(train))
    ends = [show_instant(end) for end in (task.splits.val, task.splits.test)]
    rows = [
        ("task", f"{task.name}: {spec.type.replace('_', ' ')} of {spec.entity_table}, by {material.metric}"),
        ("splits", f"train to {ends[0]}, validation to {ends[1]}, then test ({recipe.protocol})"),
        ("seeds", f"{len(train):,} train, {len(val):,} validation, {len(task.seeds('test')):,} test"),
        ("labels", f"{balance(material.labels['train'])} in training"),
        ("no history", f"{int(alone.sum()):,} training seeds ({alone.mean():.1%})"),
        ("context", f"{np.diff(train.local_start).mean():.0f} distinct rows a seed"),
        ("model", f"{num_parameters(model) / 1e6:.2f} M parameters, width {recipe.model.width}, {preset}"),
        ("epochs", f"{recipe.epochs} of {per_epoch:,} seeds, in batches of {recipe.batch_size}"),
    ]
    for name, text in rows:
        grid.add_row(Text(name, style="dim"), Text(text))
    return Group(grid, Text())


def num_parameters(model: Quartet) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def epoch_line(epoch: Epoch, metric: str, num_epochs: int) -> str:
    return (
        f"epoch {epoch.number + 1:>3}/{num_epochs}  loss {epoch.loss:.4f}  validation {metric} {epoch.validation:.4f}"
        f"{' *' if epoch.is_best else '  '}  {epoch.seconds:.1f} s + {epoch.validation_seconds:.1f} s"
    )


def evaluation_view(evaluation: Evaluation) -> RenderableType:
    """The model and the trivial rows, each measure with its interval; the best of each in bold."""
    first = evaluation.rows[0].measures
    title = f"{evaluation.task}, {evaluation.split} ({evaluation.protocol}), {evaluation.num_rows:,} rows"
    grid = new_grid(title, "", *(_arrow(measure) for measure in first.values()))
    for row in evaluation.rows:
        cells = [
            Text(str(row.measures[name]), style="bold" if _is_best(row, name, evaluation) else "")
            for name in first
        ]
        grid.add_row(Text(row.name, style="cyan"), *cells)
    return grid


def _arrow(measure: Measure) -> str:
    return f"{measure.name} {'↑' if measure.higher_is_better else '↓'}"


def _is_best(row: Row, name: str, evaluation: Evaluation) -> bool:
    values = [other.measures[name].value for other in evaluation.rows]
    known = [value for value in values if value is not None]
    if not known:
        return False
    best = max(known) if row.measures[name].higher_is_better else min(known)
    return row.measures[name].value == best


def scores_view(scores: pa.Table, most: int = 20) -> RenderableType:
    """The first scores, highest first."""
    by = "score" if "score" in scores.column_names else scores.column_names[0]
    ordered = scores.sort_by([(by, "descending")]) if by == "score" else scores
    grid = new_grid(
        f"{scores.num_rows:,} predictions", *scores.column_names, right=tuple(scores.column_names)
    )
    for row in ordered.slice(0, most).to_pylist():
        grid.add_row(*(_cell(value) for value in row.values()))
    return grid


def _cell(value: object) -> Text:
    text = f"{value:.4f}" if isinstance(value, float) else str(value)
    return Text(printable(text))
