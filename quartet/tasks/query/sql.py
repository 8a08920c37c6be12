"""SQL of a query, for DuckDB: who is asked about, and the labels of exactly these.

At a prediction time t, the population is made of rows that are known at t. A label counts the rows of its table that
become known in (t + start, t + end], and the rows that link or describe them are those known at t + end: nothing later
is read anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from quartet.database import Table
from quartet.tasks.labels import known_column
from quartet.tasks.query.dialect import NOW, aggregate, at, comparison, indented, inside, quoted, same
from quartet.tasks.query.paths import Path, find_path
from quartet.tasks.query.resolve import Catalogue, Kind
from quartet.tasks.query.tree import (
    Aggregation,
    Comparison,
    Condition,
    Query,
    Reference,
    Term,
)

_OF_NOTHING = {"SUM": "0", "COUNT": "0", "COUNT_DISTINCT": "0"}  # the others are NULL
Terms = Callable[[Term], str]


@dataclass
class _Joins:
    """LEFT JOINs from some rows to those that they name, as far as these are known at a time."""

    table: Table
    alias: str
    bound: str
    lines: list[str] = field(default_factory=list)
    aliases: dict[Path, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Part:
    """An aggregation as a subquery of (timestamp, columns k1, k2, ..., value), and what it is joined on."""

    sql: str
    near: tuple[str, ...]  # columns of the entity table


class SqlWriter:
    """Writes the SQL of one query."""

    def __init__(
        self, query: Query, catalogue: Catalogue, time_col: str, entity_col: str, target_col: str
    ) -> None:
        self.query, self.catalogue = query, catalogue
        self.time_col, self.entity_col, self.target_col = map(quoted, (time_col, entity_col, target_col))
        self.entity, self.key = catalogue.entity(query)
        self.paths: list[tuple[Aggregation | Reference, Path]] = []  # of more than one link, for the reader

    def population(self) -> str:
        """Returns the SELECT of (time, entity) of who is asked about at each of `timestamps`."""
        joins, parts = _Joins(self.entity, "e", NOW), list[str]()
        known = known_column(self.entity)
        enter = f"JOIN {quoted(self.entity.name)} e ON e.{quoted(known)} <= {NOW}" if known else ""
        lines = [
            f"SELECT t.timestamp AS {self.time_col}, e.{quoted(self.key)} AS {self.entity_col}",
            "FROM timestamps t",
            enter or f"CROSS JOIN {quoted(self.entity.name)} e",
        ]
        condition = ""
        if self.query.where is not None:
            condition = self.condition(self.query.where, self._terms(joins, parts, NOW, is_target=False))
        lines += [*joins.lines, *parts]
        return "\n".join([*lines, *([f"WHERE {condition}"] if condition else [])])

    def labels(self, value: Callable[[Terms], str]) -> str:
        """Returns the SELECT of (time, entity, label) of the population; `value` writes the label."""
        parts, joins = list[str](), _Joins(self.entity, "e", NOW)
        label = value(self._terms(joins, parts, f"p.{self.time_col}", is_target=True))
        people = self._free("population")
        return "\n".join(
            [
                f"WITH {people} AS (",
                indented(self.population()),
                ")",
                f"SELECT p.{self.time_col}, p.{self.entity_col}, {label} AS {self.target_col}",
                f"FROM {people} p",
                f"JOIN {quoted(self.entity.name)} e ON e.{quoted(self.key)} = p.{self.entity_col}",
                *parts,
            ]
        )

    def selected(self) -> str:
        """Returns the SELECT of the keys for whom an answer is wanted."""
        assert self.query.selected is not None
        joins = _Joins(self.entity, "e", NOW)
        condition = self.condition(self.query.selected, self._terms(joins, [], NOW, is_target=False))
        return f"SELECT e.{quoted(self.key)} AS key\nFROM {quoted(self.entity.name)} e\nWHERE {condition}"

    def _terms(self, joins: _Joins, parts: list[str], now: str, is_target: bool) -> Terms:
        """Returns a function that writes each term of a condition, and collects what must be joined for it."""
        written: dict[Term, str] = {}

        def term(asked: Term) -> str:
            if asked not in written:
                if isinstance(asked, Reference):
                    written[asked] = self._column(asked, joins)
                else:
                    name, part = f"a{len(parts) + 1}", self._aggregation(asked, is_target)
                    same = [f"{name}.k{i} = e.{quoted(c)}" for i, c in enumerate(part.near, 1)]
                    on = " AND ".join([f"{name}.timestamp = {now}", *same])
                    parts.append(f"LEFT JOIN (\n{indented(part.sql)}\n) {name} ON {on}")
                    nothing = _OF_NOTHING.get(asked.function)
                    if asked.function == "LIST_DISTINCT" and self._is_classified:
                        nothing = "[]"
                    written[asked] = f"COALESCE({name}.value, {nothing})" if nothing else f"{name}.value"
            return written[asked]

        return term

    @property
    def _is_classified(self) -> bool:
        """Returns whether a list is one of classes: of nothing it is empty. A list of rows is ranked."""
        return self.query.form is not None and self.query.form.kind == "CLASSIFY"

    def condition(self, condition: Condition, term: Terms) -> str:
        """Returns a condition in SQL. What compares with NULL is unknown, and unknown is not true."""
        if isinstance(condition, (Aggregation, Reference)):
            return term(condition)
        if isinstance(condition, Comparison):
            kind = self.kind(condition.term)
            self.catalogue.check_comparison(condition, kind)
            return comparison(condition, term(condition.term), kind)
        inner = [self.condition(part, term) for part in condition.parts]
        if condition.operator == "NOT":
            return f"NOT ({inner[0]})"
        return f" {condition.operator} ".join(f"({part})" for part in inner)

    def kind(self, term: Term) -> Kind:
        return self.catalogue.value(term) if isinstance(term, Aggregation) else self.catalogue.kind(term)

    def _column(self, reference: Reference, joins: _Joins) -> str:
        """Returns a column of some rows, or of rows that they name."""
        table, alias = self.catalogue.table(reference.table), joins.alias
        column = self.catalogue.column(reference)
        if table.name != joins.table.name or reference.via:
            path = find_path(self.catalogue.database, joins.table.name, reference, table.name, only_up=True)
            if len(path) > 1:
                self.paths.append((reference, path))
            for length in range(1, len(path) + 1):
                alias = self._joined(path[:length], joins)
        written = f"{alias}.{quoted(column)}"
        return f"nullif({written}, 'nan')" if self.catalogue.is_float(reference) else written

    def _joined(self, path: Path, joins: _Joins) -> str:
        if path not in joins.aliases:
            near = joins.aliases.get(path[:-1], joins.alias)
            alias = joins.aliases[path] = f"{joins.alias}{len(joins.aliases) + 1}"
            step, known = path[-1], known_column(self.catalogue.database[path[-1].far])
            on = same(alias, step.far_columns, near, step.near_columns)
            on += [f"{alias}.{quoted(known)} <= {joins.bound}"] if known else []
            joins.lines.append(f"LEFT JOIN {quoted(step.far)} {alias} ON {' AND '.join(on)}")
        return joins.aliases[path]

    def _aggregation(self, asked: Aggregation, is_target: bool) -> _Part:
        self.catalogue.check_window(asked, is_target)
        table = self.catalogue.table(asked.of.table)
        database = self.catalogue.database
        path = find_path(database, self.entity.name, asked.of, table.name, only_up=False)
        if len(path) > 1:
            self.paths.append((asked, path))
        bound = at(asked.window.end, asked.window.unit) if asked.window and is_target else NOW
        joins = _Joins(table, "x", bound)
        condition = ""
        if asked.where is not None:
            condition = self.condition(asked.where, self._terms(joins, [], NOW, is_target))
        value = "*" if asked.of.column is None else self._column(_own(asked.of), joins)
        if value != "*" and asked.function in ("MIN", "MAX") and self.catalogue.kind(asked.of) == "truth":
            value = f"CAST({value} AS BIGINT)"
        lines = [*self._links(path, bound), *joins.lines]
        if asked.function == "LIST_DISTINCT" and is_target and not self._is_classified:
            value, line = self._item(asked.of)
            lines.append(line)
        near = [f"{'l' if len(path) > 1 else 'x'}.{c}" for c in _keys(path)]
        keys = ", ".join(f"{c} AS k{i}" for i, c in enumerate(near, 1))
        known = known_column(table)
        if asked.function in ("FIRST", "LAST", "LIST_DISTINCT"):
            condition = f"({condition}) AND {value} IS NOT NULL" if condition else f"{value} IS NOT NULL"
        during = inside(asked.window, f"x.{quoted(known)}") if known else []
        enter = f"JOIN {quoted(table.name)} x ON {' AND '.join(during)}" if during else ""
        sql = [
            f"SELECT t.timestamp, {keys}, {aggregate(asked.function, value, known)} AS value",
            "FROM timestamps t",
            enter or f"CROSS JOIN {quoted(table.name)} x",
            *lines,
            *([f"WHERE {condition}"] if condition else []),
            "GROUP BY " + ", ".join(["t.timestamp", *near]),
        ]
        return _Part("\n".join(sql), path[0].near_columns)

    def _links(self, path: Path, bound: str) -> list[str]:
        """Returns the join with the tables between the entity and the rows: each pair once, when it was first known."""
        if len(path) == 1:
            return []
        tables = [self.catalogue.database[step.far] for step in path[:-1]]
        known = [f"m{i}.{quoted(c)}" for i, table in enumerate(tables, 1) if (c := known_column(table))]
        columns = [f"m1.{quoted(c)} AS k{i}" for i, c in enumerate(path[0].far_columns, 1)]
        last = path[-1]
        columns += [f"m{len(tables)}.{quoted(c)} AS f{i}" for i, c in enumerate(last.near_columns, 1)]
        latest = known[0] if len(known) == 1 else f"greatest({', '.join(known)})"
        first = f", MIN({latest}) AS known" if known else ""
        sql = [
            f"SELECT {'' if known else 'DISTINCT '}{', '.join(columns)}{first}",
            f"FROM {quoted(tables[0].name)} m1",
        ]
        for i, step in enumerate(path[1:-1], 2):
            on = same(f"m{i}", step.far_columns, f"m{i - 1}", step.near_columns)
            sql.append(f"JOIN {quoted(step.far)} m{i} ON {' AND '.join(on)}")
        sql += [f"WHERE {' AND '.join(f'{column} IS NOT NULL' for column in known)}"] if known else []
        sql.append("GROUP BY ALL" if known else "")
        on = [f"l.f{i} = x.{quoted(c)}" for i, c in enumerate(last.far_columns, 1)]
        on += [f"l.known <= {bound}"] if known else []
        return [f"JOIN (\n{indented(chr(10).join(filter(None, sql)))}\n) l ON {' AND '.join(on)}"]

    def _item(self, of: Reference) -> tuple[str, str]:
        """Returns the key of a recommended row and its join: rows that do not exist at t cannot be recommended."""
        item = self.item(of)
        known = known_column(item)
        on = f"i.{quoted(item.primary_key[0])} = x.{quoted(self.catalogue.column(of))}"
        on += f" AND i.{quoted(known)} <= {NOW}" if known else ""
        return f"i.{quoted(item.primary_key[0])}", f"JOIN {quoted(item.name)} i ON {on}"

    def item(self, of: Reference) -> Table:
        """Returns the table whose rows a column names."""
        table, column = self.catalogue.table(of.table), self.catalogue.column(of)
        for link in table.schema.foreign_keys:
            parent = self.catalogue.database[link.table]
            named = link.references or parent.primary_key
            if link.columns == (column,) and len(parent.primary_key) == 1 and named == parent.primary_key:
                return parent
        links = ", ".join(fk.label for fk in table.schema.foreign_keys) or "none"
        fix = f"choose a link of {table.name} ({links})"
        raise of.span.error("Q08", f"LIST_DISTINCT lists rows, and {of.span} is no link to any", fix)

    def _free(self, name: str) -> str:
        taken = {table.lower() for table in self.catalogue.database.tables}
        while name in taken:
            name += "_"
        return name


def _own(reference: Reference) -> Reference:
    """Returns the same column without `VIA`, which tells the way to its table."""
    return Reference(reference.table, reference.column, (), reference.span)


def _keys(path: Path) -> list[str]:
    """Returns the columns by which rows, or the pairs of links before them, belong to entities."""
    count = len(path[0].far_columns)
    return [f"k{i}" for i in range(1, count + 1)] if len(path) > 1 else list(map(quoted, path[0].far_columns))
