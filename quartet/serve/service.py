"""Service: a model bound to a database that grows while it is asked. It knows nothing of HTTP.

Questions are answered by the binding that is there when they begin. Rows make a new binding beside it, which takes its
place in one step once they are on the disk: nobody ever sees half of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quartet.contexts import sample
from quartet.database import Database, KeyColumn, KeyMap, rows_as_read
from quartet.drawing import context_svg
from quartet.errors import QuartetError, TaskError, UsageError
from quartet.findings import Finding
from quartet.listener import Listener
from quartet.runs import LiveModel, TrainedModel, kept_evaluations, question
from quartet.serve.journal import Journal
from quartet.serve.limits import Limits
from quartet.tasks import Seeds
from quartet.times import show_instant, show_length

_SHOWN_FINDINGS = 20


@dataclass(frozen=True, eq=False)
class Binding:
    """A model on the database as it is; `version` counts how often it has grown since the service began."""

    live: LiveModel
    version: int
    num_added: int  # rows, of the journal and since

    @property
    def database(self) -> Database:
        return self.live.database


class Service:
    """A trained model, the database that it answers from, and the journal of the rows that were added to it."""

    def __init__(
        self,
        model: TrainedModel,
        read: Callable[[], Database],
        journal: Journal | None = None,
        limits: Limits | None = None,
        device: str = "auto",
    ) -> None:
        self.model, self._read, self.journal, self.limits = model, read, journal, limits or Limits()
        self._device, self._growing = device, Lock()
        self.is_ready, self._can_answer, self.num_watch_errors = False, False, 0
        self._source = self._read()
        self.bound = self._bind(self._source, 0)

    def _bind(self, source: Database, version: int) -> Binding:
        """Returns the model on a source and all rows of the journal that it does not hold itself by now."""
        live = self.model.on(source, device=self._device, listener=Listener())
        rows: dict[str, list[Mapping[str, Any]]] = {}
        for table, some in self.journal.entries() if self.journal else ():
            rows.setdefault(table, []).extend(some)
        pieces = {
            name: piece
            for name, some in rows.items()
            if (piece := _without_known(live.database, name, some)).num_rows
        }
        num_added = sum(piece.num_rows for piece in pieces.values())
        return Binding(live.grown(pieces) if pieces else live, version, num_added)

    def warm(self) -> None:
        """Answers a question before anybody asks: what is compiled or built by the first is there afterwards."""
        self._can_answer = self._warmed(self.bound) is None
        self.is_ready = True

    def _warmed(self, bound: Binding) -> QuartetError | None:
        """Returns what is wrong with the answer to a first question, if anything is."""
        table, span = bound.database[self.model.record.entity_table], bound.database.span
        if len(table.primary_key) == 1 and span is not None and table.num_rows:
            try:
                key = table.data[table.primary_key[0]][int(np.argmin(table.known_at))].as_py()
                bound.live.predict([key], span[1], Listener())
            except QuartetError as error:  # the same is said to whoever asks
                return error
        return None

    # --- questions -----------------------------------------------------------------------------------

    def predict(
        self,
        entities: Sequence[str | int] | None,
        at: str | None = None,
        explain: bool = False,
        top: int | None = None,
    ) -> dict[str, Any]:
        """Returns predictions as `LiveModel.predict` makes them: of entities, or of those whom the task asks about."""
        bound, heard, record = self.bound, _Heard(), self.model.record
        is_list = record.spec.type == "recommendation"
        scores = bound.live.predict(entities, at, heard, top=top if is_list else None)
        if not is_list and entities is None:
            scores = scores.top(top or 10)
        elif top is not None and not is_list:
            scores = scores.best_classes(top) if scores.classes else scores.top(top)
        told: dict[str, Any] = {
            "task": record.name,
            "question": scores.headline,
            "model": bound.live.name,
            "version": bound.version,
            "predictions": scores.rows(),
            "findings": heard.findings[:_SHOWN_FINDINGS],
        }
        if explain:
            keys = list(dict.fromkeys(scores.table[0].to_pylist()))
            if len(keys) > self.limits.explained:
                most = self.limits.explained
                what = f"reasons are asked for {len(keys):,} entities, at most {most:,} at once"
                raise UsageError("H07", what, "ask about fewer, or give a lower top")
            reasons = bound.live.explain(keys, at, rows=len(keys) == 1, listener=Listener())
            told["explanations"] = [each.to_dict() for each in reasons]
        return told

    def picture(self, entity: str | int, at: str | None = None) -> str:
        """Returns the rows around an entity that a network reads, as SVG."""
        live = self.bound.live
        asked = live.asked([entity], at)
        view = live.views[0]
        seeds = view.asked(Seeds(asked.rows + view.database.offsets[view.entity_table], asked.times, None))
        context = sample(view.graph, seeds, view.recipe.sampling.changed(branches=()), 1)
        words = f"{view.entity_table} {entity} at {show_instant(int(asked.times[0]))}"
        return context_svg({"rows read": (context, 0)}, view.graph.names, view.graph.offsets, words)

    def entities(self, search: str, most: int) -> list[dict[str, Any]]:
        """Returns the first entities whose key or name contains a text, whatever its case."""
        table = self.bound.database[self.model.record.entity_table]
        if len(table.primary_key) != 1:
            raise TaskError("L11", f'the rows of "{table.name}" have no single key by which to name them')
        keys, name = table.data[table.primary_key[0]], table.name_column
        columns = [keys.cast(pa.string()), *([table.data[name]] if name else [])]
        found = pa.chunked_array([np.zeros(len(keys), bool)])
        for column in columns:
            is_like = pc.match_substring(column, search, ignore_case=True)
            found = pc.or_(found, pc.fill_null(is_like, False))
        rows = pc.indices_nonzero(found)[:most]
        names = table.data[name].take(rows).to_pylist() if name else [None] * len(rows)
        return [{"entity": k, "name": n} for k, n in zip(keys.take(rows).to_pylist(), names, strict=True)]

    def about(self) -> dict[str, Any]:
        """Returns what the model predicts, how good it was, and what it reads."""
        bound, record = self.bound, self.model.record
        spec, database = record.spec, bound.database
        times = np.array([database.span[1]]) if database.span else np.empty(0, np.int64)
        tables = {
            name: {
                "rows": table.num_rows,
                "key": list(table.primary_key),
                "time": table.schema.time.column if table.schema.time else None,
                "links": {fk.label: fk.table for fk in table.schema.foreign_keys},
                "columns": {field.name: str(field.type) for field in table.data.schema},
            }
            for name, table in database.tables.items()
        }
        return {
            "name": bound.live.name,
            "task": record.name,
            "type": record.type,
            "question": question(spec, times) if len(times) else spec.name,
            "entity_table": record.entity_table,
            "horizon": show_length(record.horizon) if record.horizon else None,
            "classes": list(record.classes) if record.classes else None,
            "quality": bound.live.quality,
            "test": self._test_figures(),
            "last_time": show_instant(database.span[1]) if database.span else None,
            "fingerprint": {"model": self.model.members[0][0].key, "training_data": record.fingerprint},
            "version": bound.version,
            "rows_added": bound.num_added,
            "tables": tables,
        }

    def _test_figures(self) -> dict[str, Any] | None:
        """Returns the metrics on test that an evaluation has kept: value, and the ends of its interval."""
        run = self.model.members[0][1]
        for kept in kept_evaluations(run) if run is not None and len(self.model.members) == 1 else ():
            if kept.split == "test":
                told = kept.rows[0].measures.items()
                return {name: {"value": m.value, "low": m.low, "high": m.high} for name, m in told}
        return None

    # --- rows ----------------------------------------------------------------------------------------

    def add(self, table: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Returns once rows count in every later answer and are on the disk; rows that cannot be read are an error."""
        if self.journal is None:
            raise UsageError("H13", "this service takes no rows", "start it with --journal FILE")
        with self._growing:
            before = self.bound
            piece = rows_as_read(before.database[table], rows)
            live = before.live.grown({table: piece})
            bound = Binding(live, before.version + 1, before.num_added + len(rows))
            wrong = self._warmed(bound)
            if wrong is not None and self._can_answer:  # with these rows nobody would be answered any more
                raise wrong
            self.journal.add(table, rows)
            self.bound = bound
        known = set(before.database.findings)
        new = [finding for finding in live.database.findings if finding not in known]
        return {
            "table": table,
            "rows": len(rows),
            "version": bound.version,
            "findings": new[:_SHOWN_FINDINGS],
        }

    def reread(self) -> bool:
        """Reads the source again, and answers by it if it has changed; one that cannot be read changes nothing."""
        with self._growing:
            try:
                source = self._read()
                if source.fingerprint == self._source.fingerprint:
                    return False
                bound = self._bind(source, self.bound.version + 1)
                self._warmed(bound)
            except Exception:  # of whatever kind: a file may be half written
                self.num_watch_errors += 1
                return False
            self._source, self.bound = source, bound
        return True

    def watch(self, source: str, seconds: float, is_over: Callable[[float], bool]) -> None:
        """Reads the source again whenever it may have changed, until it `is_over` (which waits so many seconds)."""
        before = _signature(source)
        while not is_over(seconds):
            now = _signature(source)
            if now is None or now != before:
                self.reread()
                before = now


class _Heard(Listener):
    """Keeps what was noticed while a question was answered."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def finding(self, finding: Finding) -> None:
        self.findings.append(finding)


def _without_known(database: Database, name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Returns rows of the journal, without those whose key the source holds itself by now."""
    table = database[name]
    piece = rows_as_read(table, rows)
    if not table.primary_key or not piece.num_rows or not table.num_rows:
        return piece
    keys = [KeyColumn.of(piece[column], f"{name}.{column}") for column in table.primary_key]
    return piece.filter(pa.array(KeyMap(table.written_columns(table.primary_key)).rows(keys) < 0))


def _signature(source: str) -> tuple[Any, ...] | None:
    """Returns what changes when the files of a source do; None of a source that is no file."""
    path = Path(source)
    try:
        path.stat()  # a file may have others beside it, such as the journal of SQLite
        files = sorted(path.rglob("*") if path.is_dir() else path.parent.glob(f"{escape(path.name)}*"))
        stats = [(str(each), each.stat()) for each in files]
    except OSError:
        return None
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)
