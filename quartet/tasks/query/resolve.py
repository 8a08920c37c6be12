"""Names of a query as tables, columns and kinds of values; what does not fit is an error at its place."""

from __future__ import annotations

from contextlib import suppress
from typing import Literal

import pyarrow as pa

from quartet.database import Database, ProposedEntity, Table, proposed_entities
from quartet.errors import QuartetError, UsageError, did_you_mean
from quartet.tasks.labels import known_column
from quartet.tasks.query.tree import Aggregation, Comparison, Condition, Name, Query, Reference, terms
from quartet.times import parse_instant

Kind = Literal["number", "truth", "text", "time", "other"]
_TEXT_TESTS = ("LIKE", "CONTAINS", "STARTS", "ENDS")
_KINDS = {
    "number": "numbers",
    "truth": "truth values",
    "text": "text",
    "time": "times",
    "other": "of a mixed type",
}


class Catalogue:
    """The tables of a database, asked by the names that a query writes."""

    def __init__(self, database: Database, query: Query) -> None:
        self.database = database
        with suppress(UsageError):  # there is no such table: an error at its place, below
            if self._known(query.entity.table.text) is None:
                self.database = database.with_entity(query.entity.table.text)

    def table(self, name: Name) -> Table:
        known = self._known(name.text)
        if known is None:
            proposed = proposed_entities(self.database)
            meant = did_you_mean(name.text, [*self.database.tables, *(entity.name for entity in proposed)])
            made = "; or, made from distinct values, ".join(["", *map(_for_each, proposed[:1])])
            raise name.span.error("Q02", f'there is no table "{name.text}"{meant}', f"correct the name{made}")
        return self.database[known]

    def _known(self, name: str) -> str | None:
        """Returns the table that a name means, in any case; one made from distinct values in the singular, too."""
        tables = {known.lower(): known for known in self.database.tables}
        return name if name in tables.values() else tables.get(name.lower(), self.database.entity_name(name))

    def column(self, reference: Reference) -> str:
        table = self.table(reference.table)
        assert reference.column is not None
        columns = {known.lower(): known for known in table.data.column_names}
        name = reference.column
        if name.text in table.data.column_names:
            return name.text
        if name.text.lower() not in columns:
            meant = did_you_mean(name.text, table.data.column_names)
            elsewhere = [
                t for t, other in self.database.tables.items() if name.text in other.data.column_names
            ]
            fix = f"{elsewhere[0]} has one of that name" if elsewhere else "correct the name"
            raise name.span.error("Q02", f'table "{table.name}" has no column "{name.text}"{meant}', fix)
        return str(columns[name.text.lower()])

    def kind(self, reference: Reference) -> Kind:
        """Returns what a column holds."""
        kind = self.table(reference.table).data[self.column(reference)].type
        if pa.types.is_boolean(kind):
            return "truth"
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return "number"
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind):
            return "text"
        return "time" if pa.types.is_timestamp(kind) else "other"

    def is_float(self, reference: Reference) -> bool:
        return bool(pa.types.is_floating(self.table(reference.table).data[self.column(reference)].type))

    def entity(self, query: Query) -> tuple[Table, str]:
        """Returns the entity table of a query and its key, which the query must name."""
        table, reference = self.table(query.entity.table), query.entity
        named = self._named(table, self.column(reference)) if reference.column is not None else ""
        if len(table.primary_key) != 1:
            has = f"the key {', '.join(table.primary_key)}" if table.primary_key else "no primary key"
            what = f'"{table.name}" has {has}: predictions need a key of one column'
            raise reference.span.error("Q06", what, named or f"give {table.name} a pkey in the schema file")
        key = table.primary_key[0]
        if reference.column is None or self.column(reference) != key:
            what = f'{reference.span} is not the key of "{table.name}"'
            fix = f"write FOR EACH {table.name}.{key}"
            raise reference.span.error("Q06", what, f"{named}, or {fix[6:]}" if named else fix)
        return table, key

    def _named(self, table: Table, column: str) -> str:
        """Returns how to ask about what a column names: rows of another table, or its own distinct values."""
        for link in table.schema.foreign_keys:
            key = self.database[link.table].primary_key
            if link.columns == (column,) and len(key) == 1:
                return f"write FOR EACH {link.table}.{key[0]}"
        entities = [e for e in proposed_entities(self.database) if (table.name, column) in e.places]
        return f"write {_for_each(entities[0])}, made from distinct values" if entities else ""

    def value(self, aggregation: Aggregation) -> Kind:
        """Returns what kind of value an aggregation has; one that does not fit its column is an error."""
        function, of = aggregation.function, aggregation.of
        if of.column is None and function != "COUNT":
            fix = f"name a column: {function}({of.table.text}.column, ...)"
            raise of.span.error("Q05", f"{function} needs a column; only COUNT counts rows", fix)
        kind = self.kind(of) if of.column is not None else "number"
        if kind == "other":
            fix = "choose a column of plain values"
            raise of.span.error("Q05", f"{of.span} holds values that no query reads", fix)
        if function in ("COUNT", "COUNT_DISTINCT"):
            return "number"
        is_fit = kind in ("number", "truth") or (function in ("MIN", "MAX") and kind == "time")
        if function in ("SUM", "AVG", "MIN", "MAX") and not is_fit:
            fix = "choose a column of numbers, or use COUNT_DISTINCT, FIRST or LAST"
            raise of.span.error("Q05", f"{of.span} holds {_KINDS[kind]}, which {function} cannot take", fix)
        return "number" if function in ("SUM", "AVG", "MIN", "MAX") and kind == "truth" else kind

    def dating(self, table: Table) -> str:
        """Returns what to do about a table without a time, with the likeliest line of the schema file."""
        possible = self.database.possible
        guesses = [p for p in possible if p.table == table.name and p.fact == "time_col"]
        best = max(guesses, key=lambda guess: guess.confidence, default=None)
        column = next((name for name, _ in _times(table)), "COLUMN")
        line = best.line_for_all(possible) if best else f"tables: {{{table.name}: {{time_col: {column}}}}}"
        return f"say when its rows were known, in a schema file (--schema FILE): {line}"

    def _dated_instead(self, table: Table) -> str:
        """Returns what may be meant by a window of a table without a time: mostly the events that name its rows."""
        names = [
            f"{other.name}.{link.columns[0]}"
            for other in self.database.tables.values()
            for link in other.schema.foreign_keys
            if link.table == table.name and known_column(other) is not None
        ]
        if names:
            return f"aggregate rows that have a time and link to it ({', '.join(names)})"
        return "aggregate rows that have a time; SQL can follow them to this table (docs/tasks.md)"

    def check_window(self, aggregation: Aggregation, is_target: bool) -> None:
        """Refuses windows that look the wrong way, and windows of a table whose rows have no time."""
        window, table = aggregation.window, self.table(aggregation.of.table)
        if window is None:
            if is_target:
                fix = f"add one: {aggregation.function}({aggregation.of.span}, 0, 30, days)"
                raise aggregation.span.error("Q04", "the target has no window of time", fix)
            return
        if known_column(table) is None:
            what = f'"{table.name}" has no time column, so a window cannot pick its rows'
            raise aggregation.span.error(
                "Q07", what, f"{self._dated_instead(table)}; or {self.dating(table)}"
            )
        if is_target and (window.start is None or window.start < 0):
            what = (
                "the window of the target looks back: what is known at the prediction time is not predicted"
            )
            raise window.span.error(
                "Q04", what, "begin at 0 or later; conditions on the past belong after WHERE"
            )
        if not is_target and window.end > 0:
            what = "WHERE looks ahead: who is asked about must be known at the prediction time"
            raise window.span.error("Q04", what, "end the window at 0 or before")

    def check_comparison(self, comparison: Comparison, kind: Kind) -> None:
        """Refuses a comparison with constants of another kind."""
        operator, span = comparison.operator, comparison.span
        if kind == "other" and operator != "NULL":
            what = f"{comparison.term.span} holds values {_KINDS[kind]}"
            raise span.error("Q05", what, "ask IS NULL, or choose another column")
        if operator in _TEXT_TESTS and kind != "text":
            raise span.error(
                "Q05", f"{comparison.term.span} holds {_KINDS[kind]}, not text", "use = < > or IN"
            )
        for constant in comparison.constants:
            is_number = isinstance(constant, (int, float))
            if kind == "number" and (not is_number or isinstance(constant, bool)):
                fix = "give a number without quotes"
                raise span.error("Q05", f"{comparison.term.span} holds numbers, {constant!r} is none", fix)
            if kind == "truth" and constant not in (0, 1):
                fix = "write TRUE or FALSE"
                raise span.error(
                    "Q05", f"{comparison.term.span} holds truth values, {constant!r} is none", fix
                )
            if kind == "text" and not isinstance(constant, str):
                fix = f"write it in quotes: '{constant}'"
                raise span.error("Q05", f"{comparison.term.span} holds text, {constant!r} is none", fix)
            if kind == "time":
                try:
                    parse_instant(str(constant), "the query")
                except QuartetError:
                    fix = "write it as '2024-01-31' or '2024-01-31 12:00:00'"
                    raise span.error("Q05", f"{constant!r} is no time", fix) from None

    def check_condition(self, condition: Condition | None) -> None:
        """Refuses a condition in which a value stands alone, without a comparison."""
        if isinstance(condition, (Aggregation, Reference)):
            fix = f"compare it, e.g. {condition.span} > 0 or {condition.span} IS NOT NULL"
            raise condition.span.error("Q05", f"{condition.span} is a value, not a condition", fix)
        for part in getattr(condition, "parts", ()):
            self.check_condition(part)
        for term in terms(condition):
            if isinstance(term, Aggregation):
                self.check_condition(term.where)
                for inner in terms(term.where):
                    if isinstance(inner, Aggregation):
                        fix = "compare columns of the rows that are aggregated"
                        raise inner.span.error("Q08", "an aggregation inside another is not supported", fix)
            elif term.column is None:
                raise term.span.error("Q05", f"{term.span} is no column", "name a column")


def _times(table: Table) -> list[tuple[str, pa.DataType]]:
    return [(f.name, f.type) for f in table.data.schema if pa.types.is_timestamp(f.type)]


def _for_each(entity: ProposedEntity) -> str:
    return f"FOR EACH {entity.name}.{entity.places[0][1]}"
