"""LiveModel: a trained model bound to a database. Graph and features are built once, then it is asked many times.

Contexts are sampled live, with the bits of the cached ones. The database may have grown since training: new rows,
new entities, new categories. What the model cannot read is an error that names it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.database import Database, KeyColumn, Table
from quartet.errors import TaskError, TimeError, UsageError, examples
from quartet.evaluation import Sure, surest
from quartet.features import FeatureTable, kept_features
from quartet.findings import Finding, note
from quartet.listener import SILENT, Listener
from quartet.machine import Store, as_path, store_findings
from quartet.runs.checkpoint import DISAGREEMENT, Checkpoint
from quartet.runs.drift import drift_finding, held_findings, time_findings
from quartet.runs.embed import Embeddings, embed
from quartet.runs.predictions import Predictions, headline, prediction_table
from quartet.runs.ranking import list_length, list_table, ranked, short_lists
from quartet.runs.scoring import Shards, predict_to
from quartet.runs.sure import Hints, Judged, Said, check_shares, say, sures_of
from quartet.tasks import EVERYONE, Population, Seeds, early_text, population_at
from quartet.times import NEVER, STATIC, parse_instant, show_length
from quartet.training import View, graph_of

Times = str | int | date | Sequence[str | int | date]
_MOST_SURES = 8  # numbers of closed windows for which that is kept
_MOST_CASES = 2000  # that are scored to know how far off the model was since it was trained
_KIND, _VERSION = (
    "answers",
    1,
)  # of what is kept of these: raise it when networks or trees read rows otherwise


@dataclass(frozen=True, eq=False)
class Asked:
    """Rows of the entity table, each at a time, in words, and whether they are all those whom the task asks about."""

    rows: NDArray[np.int64]
    times: NDArray[np.int64]
    headline: str
    is_population: bool
    findings: tuple[Finding, ...]


class LiveModel:
    """A model, or several whose scores are averaged, bound to a database."""

    def __init__(
        self,
        members: Sequence[Checkpoint],
        database: Database,
        labels: pa.Table | None = None,
        device: str = "cpu",
        listener: Listener = SILENT,
        quality: str = "",
        name: str = "",
        judged: Judged | None = None,
        before: LiveModel | None = None,
    ) -> None:
        if not isinstance(database, Database):
            raise UsageError(
                "C02",
                f"a model is bound to a database, got {type(database).__name__}",
                "open it first: quartet.open(source)",
            )
        for member in members:
            database = member.task.with_entities(database)
        self.members, self.database, self.labels, self.listener = tuple(members), database, labels, listener
        self.judged, self.device = judged, device
        # What was known by when of how far off they were, by how many windows have closed since test began.
        self._sures: dict[int, tuple[int, list[Sure]]] = {}
        self.quality, self.name = quality, name or " + ".join(member.key for member in self.members)
        for member in self.members if before is None else ():
            member.model.to(device)
        self.views: list[View] = []  # of each member
        self._before = before.views if before else []  # of the model from which it has grown
        self._is_grown = before is not None
        self.explainer: Any = None  # what `explain` keeps from one question to the next
        self._upto = STATIC
        self._has_past_labels = any(member.recipe.past_labels for member in self.members)
        for member in self.members:
            if member.recipe.past_labels:  # before the task's SQL fails by what has changed
                member.task.check_structure(member.task.visible(database, tuple(member.statistics.tables)))
        if not self._has_past_labels:  # these wait for the time that is asked for
            self.bind(STATIC)

    def __repr__(self) -> str:
        models = ", ".join(member.recipe.model.architecture for member in self.members)
        return f"<LiveModel of {self.members[0].task.name} ({models}) on {self.database!r}>"

    def predict(
        self,
        entities: Sequence[Any] | None = None,
        at: Times | None = None,
        listener: Listener | None = None,
        *,
        everyone: bool = False,
        coverage: float | None = None,
        abstain: float = 0.0,
        top: int | None = None,
    ) -> Predictions:
        """Returns scores of entities at times, with intervals or sets that hold so often (`coverage`, 0.9).

        `entities` are keys of the entity table, by default those whom the task asks about then, found from rows known
        then (`population_at`); with `everyone`, all that are known. `at` is one time, or one for each entity, by
        default the last time of the database. A model with past labels sees those that are known by then: the task's
        SQL or column tells them from the database. `top` is the length of lists, by default as the task is judged by.

        Intervals and sets rest on validation and on the labels that have become known since, up to that time
        (docs/sure.md). With `abstain`, such a share of the predictions, the least sure, is left out.

        The same question has the same bits. In the company of other entities a score may differ in its last ones:
        matrix kernels round by the shape of a batch.
        """
        nominal, is_asked = check_shares(coverage, abstain), coverage is not None or abstain > 0
        sures_of(self.members, is_asked)
        asked, listener = self.asked(entities, at, everyone=everyone), listener or self.listener
        rows, times = asked.rows, asked.times
        if self.members[0].task.spec.type == "recommendation":
            return self._lists(asked, top, listener, entities is not None)
        answers = self.all_answers(rows, times, listener)
        logits = [own for own, _ in answers]
        record = self.members[0].task
        table = self.views[0].database[record.entity_table]
        findings = list(asked.findings)
        if asked.is_population:  # others are no sample of those that the task asks about
            findings += drift_finding(record.name, table.name, self.drifted(rows, times, logits))
        words, quality = asked.headline, self.quality
        sures = self.known_sures(int(times.min()) if len(times) else STATIC, listener)
        if not sures and not record.spec.facts.holds_lists:
            text = "the model keeps nothing that tells how sure it is: it is of an earlier version"
            findings.append(note("C10", record.name, text, fix="train again for intervals and sets"))
        listener.noticed(findings)
        scores, said = self.told(rows, times, answers, sures, nominal)
        if said is not None and abstain:
            stay = surest(said.sureness, abstain)
            scores = scores.filter(pa.array(stay))
            words += f"; {int((~stay).sum()):,} of {len(stay):,}, the least sure, are left out"
        if self.judged is not None and is_asked:
            quality = "; ".join([quality, *self.judged.told(nominal, abstain)])
        length = show_length(record.horizon) if record.horizon else ""
        named = entities is not None
        return Predictions(scores, words, quality, self.name, length, record.classes or (), named)

    def predict_to(
        self,
        folder: str | Path,
        entities: Sequence[Any] | None = None,
        at: Times | None = None,
        listener: Listener | None = None,
        *,
        everyone: bool = False,
        coverage: float | None = None,
        on: str | None = None,
    ) -> Shards:
        """Writes scores of entities at a time into a folder, as Parquet files of a fixed number of entities each.

        Together the files are the table of `predict`, bit by bit, whoever works: this process, or those whom `on`
        names (docs/scale.md). What is written already is not computed again, so a job that was stopped goes on.
        """
        return predict_to(self, as_path(folder, "the folder"), entities, at, listener or self.listener,
                          everyone, coverage, on)  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        """Returns what workers are sent: not who listens, nor what explanations keep."""
        return self.__dict__ | {"listener": SILENT, "explainer": None, "_sures": {}, "labels": None}

    def all_answers(
        self, rows: NDArray[np.int64], times: NDArray[np.int64], listener: Listener
    ) -> list[tuple[NDArray[np.float64], Hints]]:
        return [self._answers(number, rows, times, listener) for number in range(len(self.members))]

    def told(
        self,
        rows: NDArray[np.int64],
        times: NDArray[np.int64],
        answers: Sequence[tuple[NDArray[np.float64], Hints]],
        sures: Sequence[Sure],
        nominal: float,
    ) -> tuple[pa.Table, Said | None]:
        """Returns the table of what all members answered, and how sure they are together."""
        logits, said = [own for own, _ in answers], None
        if sures:
            own = [member.scores(x) for member, x in zip(self.members, logits, strict=True)]
            said = say(self.members, sures, own, [hints for _, hints in answers], times, nominal)
        table = self.views[0].database[self.members[0].task.entity_table]
        return prediction_table(table, rows, times, self.members, logits, said=said), said

    def _answers(
        self, number: int, rows: NDArray[np.int64], times: NDArray[np.int64], listener: Listener
    ) -> tuple[NDArray[np.float64], Hints]:
        """Returns the logits of a member, and what else tells how sure it is, if it needs that."""
        member = self.members[number]
        if member.sure is None or member.sure.by != DISAGREEMENT:
            return self.logits(number, rows, times, listener), {}
        view, model = self.views[number], member.model
        seeds = Seeds(rows + view.database.offsets[view.entity_table], times, None)
        pairs = [(own.model, weight) for own, weight in zip(model.members, model.weights, strict=True)]
        asked = [own.logits(view, seeds, listener) for own, weight in pairs if weight]
        weights = [weight for _, weight in pairs if weight]
        logits = np.sum([weight * own for weight, own in zip(weights, asked, strict=True)], axis=0)
        return logits, member.hints([member.scores(own) for own in asked], weights)

    def _kept_answers(
        self, number: int, cases: Seeds, listener: Listener
    ) -> tuple[NDArray[np.float64], Hints]:
        """Returns `_answers` of cases whose labels are known, kept from one process to the next.

        They are of this model, these rows and this version of what computes; what grows by itself is not kept.
        """
        member, view = self.members[number], self.views[number]
        store = Store.of_user() if member.digest and not self._is_grown else None
        if store is None:
            return self._answers(number, cases.node, cases.time, listener)
        told = [_VERSION, torch.__version__, np.__version__, self.device]
        told += [member.digest, view.database.fingerprint]
        arrays = (hashlib.sha256(part.tobytes()).hexdigest() for part in (cases.node, cases.time))
        digest = hashlib.sha256(json.dumps([*told, *arrays]).encode()).hexdigest()
        kept = store.read(_KIND, digest)
        if kept is None:
            logits, hints = self._answers(number, cases.node, cases.time, listener)
            store.write(_KIND, digest, {"logits": logits, **hints})
            return logits, hints
        return kept.arrays["logits"], {n: a for n, a in kept.arrays.items() if n != "logits"}

    def known_sures(self, upto: int, listener: Listener) -> list[Sure]:
        """Returns what is known at a time of how far off each member was: on validation, and since test began.

        It is the first of all that are asked, so that nothing later has a part in what is said of any.
        """
        sures, record = sures_of(self.members, False), self.members[0].task
        if any(sure.rule == "<" for sure in sures):
            upto -= 1  # what is known strictly before
        first = max(member.task.test_timestamp for member in self.members)
        if not sures or not visible(np.array(record.spec.known_at(first)), upto):
            return sures
        # Until another window closes nothing more is known, whatever the moment.
        horizon = record.horizon if record.spec.kind == "forecast" else 0
        closed = (upto - record.spec.known_at(first)) // horizon if horizon else upto
        known_by = record.spec.known_at(first) + closed * horizon if horizon else upto
        kept = self._sures.get(closed)  # once: another thread may put another dict in its place
        if kept is None:
            cases = record.known_cases(self.database, upto, self.labels)
            known_at = self.database[record.entity_table].known_at
            cases = cases.select((cases.time >= first) & visible(known_at[cases.node], cases.time))
            some = np.linspace(0, max(0, len(cases) - 1), _MOST_CASES).astype(np.int64)
            cases = cases.select(np.isin(np.arange(len(cases)), some))
            for number, member in enumerate(self.members if len(cases) else ()):
                logits, hints = self._kept_answers(number, cases, listener)
                told, target = member.probabilities(member.scores(logits)), np.asarray(cases.target)
                known = record.spec.known_at(cases.time)
                sures[number] = sures[number].knowing(target, told, cases.time, known, hints)
            self._sures = dict([*self._sures.items()][1 - _MOST_SURES :]) | {closed: (known_by, sures)}
            return sures
        return kept[1]

    def grown(self, rows: Mapping[str, pa.Table]) -> LiveModel:
        """Returns the model bound to the database with more rows (`Database.appended`); its answers have the same bits
        as those of a model that is bound to such a database anew.

        This one goes on answering by the rows it has.
        """
        database, about = self.database.appended(rows), (self.quality, self.name, self.judged)
        live = LiveModel(self.members, database, self.labels, self.device, self.listener, *about, before=self)
        pairs = [(table, self.database[name]) for name, table in database.tables.items()]
        new = np.concatenate([table.known_at[old.num_rows :] for table, old in pairs])
        is_same = all(np.array_equal(table.known_at[: old.num_rows], old.known_at) for table, old in pairs)
        # What was known by a time does not change by what comes after it.
        live._sures = {
            n: told for n, told in self._sures.items() if is_same and not visible(new, told[0]).any()
        }
        return live

    def _lists(self, asked: Asked, most: int | None, listener: Listener, named: bool) -> Predictions:
        """Returns the ranked items of sources at times."""
        view, spec = self.views[0], self.members[0].task.spec
        if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
            raise UsageError("C02", f"the length of lists is {most!r}", "give a whole number above 0")
        seeds = Seeds(asked.rows + view.database.offsets[view.entity_table], asked.times, None)
        listener.noticed(asked.findings)
        lists = ranked(self.members, self.views, seeds, list_length(spec, most), listener)
        listener.noticed(short_lists(lists, list_length(spec, most), self.members[0].task.name))
        table = list_table(view.database, spec, asked.rows, asked.times, lists)
        length = show_length(spec.horizon) if spec.horizon else ""
        return Predictions(table, asked.headline, self.quality, self.name, length, are_named=named)

    def explain(self, entities: Sequence[Any] | None = None, at: Times | None = None, **options: Any) -> Any:
        """Returns why entities have their scores, as `Explanations`: parts, cells and aggregates, rows, look-alikes.

        Who and when is said as in `predict`; `rows=False` leaves out rows, which take a moment for each entity
        (docs/explain.md). Of lists, it tells why the first `items` of each stand there, as `ListExplanations`.
        """
        # By name, because explanations are in the room above this one.
        is_list = self.members[0].task.spec.type == "recommendation"
        name = "explain_lists" if is_list else "explain"
        return getattr(import_module("quartet.explain"), name)(self, entities, at, **options)

    def embed(
        self,
        at: Times | None = None,
        *,
        neighbours: int = 10,
        segments: int = 8,
        everyone: bool = True,
        listener: Listener | None = None,
    ) -> Embeddings:
        """Returns every entity that is known at a time as a vector, with its look-alikes and the segment it is in.

        Vectors are what the networks of the model have made of an entity before they answer; a model of trees alone has
        none. Without `everyone` there are only those whom the task asks about then. A segment is told in words, by what
        its members have in common (docs/tables.md).
        """
        return embed(self, at, neighbours=neighbours, segments=segments, everyone=everyone, listener=listener)

    def asked(
        self, entities: Sequence[Any] | None = None, at: Times | None = None, *, everyone: bool = False
    ) -> Asked:
        """Returns who is asked about and when, as `predict` understands it, with the model bound up to then."""
        times = _instants(self.database, at)
        self.bind(int(times.max(initial=STATIC)))
        table = self.views[0].database[self.members[0].task.entity_table]
        population = None
        if entities is None:
            if len(times) > 1:
                raise UsageError(
                    "C02", "several times were given, but no entities", "give one entity for each time"
                )
            population = self._population(int(times[0]), everyone)
            rows = population.rows
        elif everyone:
            raise UsageError("C02", "entities are given, and everyone is asked for", "leave one of them out")
        else:
            rows = entity_rows(table, entities)
        if len(times) not in (1, len(rows)):
            raise UsageError(
                "C02", f"{len(rows):,} entities and {len(times):,} times", "give one time, or one for each"
            )
        instants, times = times, np.broadcast_to(times, len(rows)).copy()
        early = ~visible(table.known_at[rows], times)
        if early.any():
            raise TimeError(
                "T05", early_text(table, rows, times, early), "ask at later times, or leave them out"
            )
        record = self.members[0].task
        num_known = int(visible(table.known_at, int(instants[0])).sum()) if population else 0
        words = headline(record.spec, instants, len(rows), num_known, population.words if population else "")
        seeds = Seeds(rows + self.views[0].database.offsets[table.name], times, None)
        doubts = (*time_findings(record, instants), *held_findings(record, self.views[0], seeds))
        findings = (*(population.findings if population else ()), *doubts)
        return Asked(rows, times, words, population is not None and population.is_asked, findings)

    def _population(self, time: int, everyone: bool) -> Population:
        spec = self.members[0].task.spec
        if everyone:
            known = visible(self.database[spec.entity_table].known_at, time)
            return Population(np.flatnonzero(known), EVERYONE)
        is_strict = any(member.recipe.sampling.time_rule == "<" for member in self.members)
        return population_at(spec, self.database, time, "<" if is_strict else "<=")

    def drifted(
        self, rows: NDArray[np.int64], times: NDArray[np.int64], logits: Sequence[NDArray[np.float64]]
    ) -> list[str]:
        """Returns the columns in which those who are asked about are far from those of training, of all members."""
        names = []
        for member, view, own in zip(self.members, self.views, logits, strict=True):
            seeds = Seeds(rows + view.database.offsets[view.entity_table], times, None)
            names += member.drift.drifted(view, seeds, own) if member.drift else []
        return names

    def logits(
        self, member: int, rows: NDArray[np.int64], times: NDArray[np.int64], listener: Listener | None = None
    ) -> NDArray[np.float64]:
        """Returns the (S, outputs) logits of one member for rows of the entity table at times."""
        view = self.views[member]
        seeds = Seeds(rows + view.database.offsets[view.entity_table], times, None)
        return self.members[member].model.logits(view, seeds, listener or self.listener)

    def bind(self, upto: int) -> None:
        """Builds what each member reads; those that read the same share it, and past labels are made once.

        Past labels are made up to the time that is asked for, so that no later row can be in the way; once a later
        time is asked for, up to the end of the data. An earlier seed does not see the later labels: it is answered with
        the same bits.
        """
        if self.views and (upto <= self._upto or not self._has_past_labels):
            return
        if self.views and self.database.span:
            upto = max(upto, self.database.span[1])
        databases: dict[Hashable, Database] = {}
        features: dict[Hashable, FeatureTable] = {}
        views: list[View] = []
        findings: list[Finding] = []
        known = self.views or self._before
        for number, member in enumerate(self.members):
            record, order, recipe = member.task, tuple(member.statistics.tables), member.recipe
            cut_offs = (record.val_timestamp, record.test_timestamp) if recipe.past_labels else None
            shown = (order, record.spec, cut_offs)  # all that decides which rows a member sees
            if shown not in databases:
                databases[shown] = given = record.visible(self.database, order)
                if recipe.past_labels:
                    databases[shown] = record.with_past_labels(self.database, upto, self.labels, order)
                    findings += databases[shown].findings[len(given.findings) :]
            key = (shown, member.features_key)
            if key not in features:
                old = known[number:][:1]
                if old:  # what has grown is encoded and sorted only where it is new
                    before = old[0].database, old[0].features
                    features[key] = FeatureTable.encode(databases[shown], member.statistics, before)
                    graph_of(databases[shown], old[0].database)
                else:
                    features[key] = kept_features(databases[shown], member.statistics)
                if not recipe.past_labels:
                    record.check_structure(databases[shown])
                findings += features[key].findings
            view, old = View(databases[shown], features[key], record.spec, recipe), known[number:][:1]
            views.append(view.grown_from(old[0]) if old else view)
        self.listener.noticed([*findings, *store_findings()])
        self._upto, self.views, self._before = upto, views, []


def _instants(database: Database, at: Times | None) -> NDArray[np.int64]:
    """Returns the asked times; if none are asked, the last one of the database."""
    if at is None:
        if database.span is None:
            raise UsageError("C02", "no time was given, and the database has none", "say at which time")
        at = database.span[1]
    is_one = isinstance(at, (str, bytes, date, np.datetime64)) or not hasattr(at, "__iter__")
    times: Any = [at] if is_one else at
    return np.array([_instant(time) for time in times], np.int64)


def _instant(time: Any) -> int:
    if isinstance(time, (int, np.integer)) and not isinstance(time, bool) and STATIC < time < NEVER:
        return int(time)
    if isinstance(time, (str, date, np.datetime64)) or hasattr(time, "isoformat"):
        return parse_instant(str(time), "the asked time")
    raise UsageError(
        "C02", f"the asked time is {time!r}", 'give a text such as "2024-06-01", a datetime, or nanoseconds'
    )


def entity_rows(table: Table, entities: Any, or_none: bool = False) -> NDArray[np.int64]:
    """Returns the rows of entities by their keys; of an unknown one an error or, with `or_none`, -1."""
    if isinstance(entities, (str, bytes)) or not hasattr(entities, "__iter__"):
        raise UsageError("C02", f"entities are {entities!r}", "give a list of keys, also of a single one")
    keys = list(entities)
    if len(table.primary_key) != 1:
        raise TaskError("L11", f'the rows of "{table.name}" have no single key by which to name them')
    known = table.data[table.primary_key[0]].type
    try:
        wanted = pa.chunked_array([pa.array(keys).cast(known)])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OverflowError):
        raise TaskError(
            "S08", f"keys of {table.name} are {known}, asked about {examples(keys)}", "give keys of that type"
        ) from None
    rows = table.key_map.rows([KeyColumn.of(wanted, "entities")])
    unknown = [keys[place] for place in np.flatnonzero(rows < 0)]
    if unknown and not or_none:
        raise TaskError(
            "L11",
            f'{len(unknown):,} of {len(keys):,} entities are not in "{table.name}" {examples(unknown)}',
            "remove them, or add their rows",
        )
    return rows
