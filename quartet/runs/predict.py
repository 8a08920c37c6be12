"""Predictions: the answers of a model to seeds, and a trained model asked about any database of its kind.

Validation, evaluation and live prediction all go through `answers`, so they are the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.contexts import Progress, sample
from quartet.database import Database, KeyColumn, Table
from quartet.errors import TaskError, TimeError, UsageError, examples
from quartet.evaluation import Calibration
from quartet.features import FeatureTable, RelationalColumns
from quartet.findings import Finding
from quartet.graph import TemporalGraph
from quartet.models import Boosted
from quartet.runs.checkpoint import Checkpoint, load_checkpoint
from quartet.tasks import Seeds, early_text
from quartet.times import STATIC, parse_instant, to_arrow
from quartet.tokens import Tokenizer
from quartet.training.answers import AT_ONCE, answers


@dataclass(frozen=True, eq=False)
class Question:
    """What a model is asked: seeds of a database that it can read."""

    database: Database
    features: FeatureTable
    seeds: Seeds


@dataclass(frozen=True, eq=False)
class Predictor:
    """A trained model, ready to be asked."""

    checkpoint: Checkpoint

    @staticmethod
    def load(folder: str | Path) -> Predictor:
        """The model of a run folder or of a model folder."""
        path = Path(folder)
        return Predictor(load_checkpoint(path / "model" if (path / "model").is_dir() else path))

    @property
    def entity_table(self) -> str:
        return str(self.checkpoint.task["entity_table"])

    def predict(
        self,
        database: Database,
        entities: Sequence[Any] | None = None,
        at: str | int | Sequence[str | int] | None = None,
        progress: Progress = lambda _: None,
        report: Callable[[Finding], None] = lambda _: None,
        labels: pa.Table | None = None,
    ) -> pa.Table:
        """Scores for entities at times: one row for each, with its key, its time, `score` and `calibrated`.

        `entities` are keys of the entity table (all that are known then, if none are given); `at` is one time
        or one for each entity (the last time of the database, if none is given). Contexts are sampled live.

        A model that was trained with `history` sees the labels that are known by then: the task's SQL or column tells
        them from the database. For a task with a label table of its own `labels` are the rows known so far.
        """
        return self.score(self.question(database, entities, at, report, labels), progress)

    def question(
        self,
        database: Database,
        entities: Sequence[Any] | None = None,
        at: str | int | Sequence[str | int] | None = None,
        report: Callable[[Finding], None] = lambda _: None,
        labels: pa.Table | None = None,
    ) -> Question:
        """Seeds of a database, which may have grown since training; an error names what the model cannot read."""
        given = self.checkpoint.view(database)
        seen = given
        if self.checkpoint.recipe.past_labels:
            self.checkpoint.check_structure(given)  # before the task's SQL fails by what has changed
            seen = self.checkpoint.view_with_history(
                database, int(_times(given, at).max(initial=STATIC)), labels
            )
        features = FeatureTable.encode(seen, self.checkpoint.statistics)
        self.checkpoint.check_structure(given)
        for finding in (*seen.findings[len(given.findings) :], *features.findings):
            report(finding)
        return Question(seen, features, _seeds(seen, seen[self.entity_table], entities, at))

    def score(self, question: Question, progress: Progress = lambda _: None) -> pa.Table:
        """The answers to a question as a table; `progress` is told how many more seeds are done."""
        table = question.database[self.entity_table]
        return self.scored(table, question.database, question.seeds, self.ask(question, progress))

    def ask(self, question: Question, progress: Progress = lambda _: None) -> NDArray[np.float64]:
        """The (S, outputs) answers to all seeds, some at a time: memory does not grow with their number."""
        model, recipe, seeds = self.checkpoint.model, self.checkpoint.recipe, question.seeds
        if isinstance(model, Boosted):
            rule = recipe.sampling.time_rule
            columns = RelationalColumns.of(question.database, self.entity_table, question.features, rule)
            return model.answers(columns, seeds, progress)
        graph = TemporalGraph.build(question.database)
        tokenizer = Tokenizer(graph, question.features)
        found = [np.empty((0, model.schema.num_outputs))]
        for first in range(0, len(seeds), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            asked = Seeds(seeds.node[some], seeds.time[some], None)
            context = sample(graph, asked, recipe.sampling, torch.get_num_threads())
            found.append(answers(model, tokenizer, context, recipe.precision, progress))
        return np.concatenate(found)

    def scored(self, table: Table, database: Database, seeds: Seeds, answer: NDArray[np.float64]) -> pa.Table:
        """Answers as a table that people and programs can read."""
        scores = self.checkpoint.output.scores(answer)
        rows = seeds.node - database.offsets[table.name]
        key = table.primary_key[0] if table.primary_key else "row"
        columns = {
            key: table.data[key].take(pa.array(rows)) if table.primary_key else pa.array(rows),
            "time": to_arrow(seeds.time),
        }
        classes = self.checkpoint.task.get("classes")
        said = None if classes else self.checkpoint.facts.get("calibration")
        calibrated = Calibration(**said)(answer[:, 0]) if said else None
        return pa.table(columns | score_columns(scores, classes, calibrated))


def score_columns(
    scores: NDArray[np.float64], classes: Sequence[Any] | None, calibrated: NDArray[np.float64] | None
) -> dict[str, pa.Array]:
    """What is said of each seed: its score, also calibrated where that is known, or the best class and all scores."""
    if classes:
        best = pa.array([classes[place] for place in scores.argmax(1)])
        return {"predicted": best} | {
            f"score_{c}": pa.array(scores[:, place]) for place, c in enumerate(classes)
        }
    found = {"score": pa.array(scores)}
    return found if calibrated is None else found | {"calibrated": pa.array(calibrated)}


def _seeds(
    database: Database,
    table: Table,
    entities: Sequence[Any] | None,
    at: str | int | Sequence[str | int] | None,
) -> Seeds:
    if entities is None and isinstance(at, (list, tuple)):
        raise UsageError("C02", "several times were given, but no entities", "give one entity for each time")
    instants = _times(database, at)
    if entities is None:
        rows = np.flatnonzero(visible(table.known_at, np.full(table.num_rows, instants[0])))
        instants = np.full(len(rows), instants[0])
    else:
        rows = _rows(table, list(entities))
        if len(instants) not in (1, len(rows)):
            raise UsageError(
                "C02", f"{len(rows):,} entities and {len(instants):,} times", "give one time, or one for each"
            )
        instants = np.broadcast_to(instants, len(rows)).copy()
    _check_known(table, rows, instants)
    return Seeds(rows + database.offsets[table.name], instants, None)


def _times(database: Database, at: str | int | Sequence[str | int] | None) -> NDArray[np.int64]:
    """The asked times; if none are asked, the last one of the database."""
    if at is None:
        if database.span is None:
            raise UsageError("C02", "no time was given, and the database has none", "say at which time")
        at = database.span[1]
    times = [at] if isinstance(at, (str, int)) else list(at)
    return np.array(
        [parse_instant(t, "the asked time") if isinstance(t, str) else int(t) for t in times], np.int64
    )


def _rows(table: Table, entities: list[Any]) -> NDArray[np.int64]:
    if len(table.primary_key) != 1:
        raise TaskError("L11", f'the rows of "{table.name}" have no single key by which to name them')
    known = table.data[table.primary_key[0]].type
    try:
        wanted = pa.chunked_array([pa.array(entities).cast(known)])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise TaskError(
            "S08",
            f"keys of {table.name} are {known}, asked about {examples(entities)}",
            "give keys of that type",
        ) from None
    rows = table.key_map.rows([KeyColumn.of(wanted, "entities")])
    unknown = [entities[place] for place in np.flatnonzero(rows < 0)]
    if unknown:
        raise TaskError(
            "L11",
            f'{len(unknown):,} of {len(entities):,} entities are not in "{table.name}" {examples(unknown)}',
            "remove them, or add their rows",
        )
    return rows


def _check_known(table: Table, rows: NDArray[np.int64], times: NDArray[np.int64]) -> None:
    early = ~visible(table.known_at[rows], times)
    if early.any():
        text = early_text(table, rows, times, early)
        raise TimeError("T05", text, "ask at later times, or leave them out")
