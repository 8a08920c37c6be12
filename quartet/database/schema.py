"""Schema: which columns are keys, links and times, and how sure we are of each.

One format serves everywhere, described with an example in docs/schema.md: RelBench's `manifest.yaml` with a
few optional fields. A field that is absent is open, and will be inferred and shown as inferred; a field that is
present, null included, is settled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from quartet.database.plain_yaml import read_yaml
from quartet.errors import SchemaError, TimeError, UsageError, did_you_mean
from quartet.times import PERIODS

Fact = Literal["pkey", "time_col", "available_at", "fkeys"]
FACTS: frozenset[Fact] = frozenset({"pkey", "time_col", "available_at", "fkeys"})
MissingTime = Literal["error", "drop", "never_visible", "always_known"]
BadTime = Literal["error", "drop", "never_visible"]
_ENDS = {f"end of {period}": period for period in ("period", *PERIODS)}
COLUMN_KINDS = ("number", "category", "multicategory", "time", "text", "unused")


@dataclass(frozen=True)
class Origin:
    """Where a fact of the schema comes from."""

    source: Literal["declared", "confirmed", "inferred"]
    confidence: float = 1.0
    why: str = ""

    @property
    def is_inferred(self) -> bool:
        return self.source == "inferred"


DECLARED = Origin("declared")  # by the database or its manifest
CONFIRMED = Origin("confirmed")  # by the user's schema


def inferred(confidence: float, why: str) -> Origin:
    return Origin("inferred", confidence, why)


@dataclass(frozen=True)
class ForeignKey:
    """Columns whose values name a row of another table (by its primary key, or `references`)."""

    columns: tuple[str, ...]
    table: str
    references: tuple[str, ...] = ()
    origin: Origin = DECLARED

    @property
    def label(self) -> str:
        return ", ".join(self.columns)

    @property
    def distinct_label(self) -> str:
        """The label, and the columns it points to: one column may name two unique columns of a table."""
        return self.label + (f" = {', '.join(self.references)}" if self.references else "")


@dataclass(frozen=True)
class TimeColumn:
    """The column that dates a row, and how its values are to be read.

    With `link`, the columns of a foreign key, rows take the time of the row they point to; `column` is
    empty until `inherit_times` has made it. With `end_of` (year, month, day, or period: the smallest part that is
    written), a row is known when that period is over.
    """

    column: str
    unit: str | None = None
    format: str | None = None
    timezone: str | None = None
    on_missing: MissingTime = "error"
    origin: Origin = DECLARED
    link: tuple[str, ...] = ()
    end_of: str | None = None
    on_bad: BadTime = "error"


@dataclass(frozen=True)
class TableSchema:
    """Keys, links and time of one table. `settled` names the facts that are not to be inferred.

    `kinds` sets the feature kind (one of `COLUMN_KINDS`) of some columns. `made_from` names the (table, column)
    pairs whose distinct values are the rows of a table that is in no source (see `entities.py`).
    """

    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    time: TimeColumn | None = None
    available_at: str | None = None
    key_origin: Origin = DECLARED
    settled: frozenset[Fact] = frozenset()
    kinds: Mapping[str, str] = field(default_factory=dict)
    made_from: tuple[tuple[str, str], ...] = ()

    def corrected_by(self, other: TableSchema) -> TableSchema:
        """Returns this schema with everything that `other` settles put in its place."""
        changes: dict[str, Any] = {
            "settled": self.settled | other.settled,
            "kinds": {**self.kinds, **other.kinds},
        }
        if other.primary_key or "pkey" in other.settled:
            changes |= {"primary_key": other.primary_key, "key_origin": other.key_origin}
        if other.time or "time_col" in other.settled:
            changes["time"] = other.time
        if other.available_at or "available_at" in other.settled:
            changes["available_at"] = other.available_at
        if other.foreign_keys or "fkeys" in other.settled:
            changes["foreign_keys"] = other.foreign_keys
        return replace(self, **changes)


@dataclass(frozen=True)
class Schema:
    """The schema of a database, as declared, as corrected by the user, or as inferred."""

    tables: Mapping[str, TableSchema] = field(default_factory=dict)
    name: str = ""
    description: str = ""
    val_timestamp: str | None = None
    test_timestamp: str | None = None
    on_dangling: Literal["drop", "error"] | None = None  # None means drop
    times: Mapping[str, TimeColumn] = field(default_factory=dict)  # of every table that has such a column
    entities: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # tables made from distinct values
    views: bool = False  # whether the views of an SQL database are read, too

    @staticmethod
    def read(path: Path, origin: Origin = CONFIRMED) -> Schema:
        """Reads a schema file."""
        return Schema.from_dict(read_yaml(path), str(path), origin)

    @staticmethod
    def from_dict(
        content: Mapping[Any, Any], where: str = "the schema", origin: Origin = CONFIRMED
    ) -> Schema:
        """Returns the schema in a mapping with the content of a schema file.

        Unknown fields of the user's own schema are refused with a suggestion; those of a manifest that
        came with the data may belong to another program.
        """
        if origin is CONFIRMED:
            _refuse_unknown(content, _SCHEMA_FIELDS, where)
        on_dangling = content.get("on_dangling")
        if on_dangling not in ("drop", "error", None):
            raise UsageError("C01", f"{where}: on_dangling is {on_dangling!r}", 'use "drop" or "error"')
        tables = _mapping(content.get("tables"), f"{where}: tables")
        times, listed = {}, content.get("times")
        if isinstance(listed, (str, list)):  # columns of which nothing is to be said
            listed = dict.fromkeys(_names(listed))
        for column, fields in _mapping(listed, f"{where}: times").items():
            place = f"{where}: times, {column}"
            _refuse_unknown(_mapping(fields, place), frozenset(_TIME_FIELDS), place)
            times[str(column)] = _time({**(fields or {}), "time_col": column}, place, origin)
        return Schema(
            {str(name): _table(fields, f"{where}, table {name}", origin) for name, fields in tables.items()},
            name=str(content.get("name") or ""),
            description=str(content.get("description") or ""),
            val_timestamp=_text(content.get("val_timestamp")),
            test_timestamp=_text(content.get("test_timestamp")),
            on_dangling=on_dangling,
            times=times,
            entities=_entities(content.get("entities"), f"{where}: entities"),
            views=_truth(content.get("views"), f"{where}: views"),
        )

    def with_times_spread(self, columns: Mapping[str, Sequence[str]]) -> Schema:
        """Returns the schema in which `times` has dated every table of a database that has such a column.

        A table whose own entry says what its time is keeps it; of two such columns the first is taken.
        """
        tables = dict(self.tables)
        for name, own in columns.items():
            table = tables.get(name, TableSchema())
            time = next((self.times[column] for column in self.times if column in own), None)
            if time and not table.time and "time_col" not in table.settled:
                tables[name] = replace(table, time=time, settled=table.settled | {"time_col"})
        for column in self.times:
            if not any(column in own for own in columns.values()):
                known = {name for own in columns.values() for name in own}
                raise TimeError(
                    "T01",
                    f'times names a column "{column}" that no table has{did_you_mean(column, known)}',
                    "correct the name in the schema file",
                )
        return replace(self, tables=tables)

    def corrected_by(self, other: Schema) -> Schema:
        """Returns this schema with everything that `other` settles put in its place."""
        tables = dict(self.tables)
        for name, table in sorted(other.tables.items()):
            if name not in tables:
                raise SchemaError(
                    "S09",
                    f'the schema names a table "{name}" that is not in the database'
                    + did_you_mean(name, self.tables),
                    "correct the name",
                )
            tables[name] = tables[name].corrected_by(table)
        return replace(
            self,
            tables=tables,
            name=other.name or self.name,
            description=other.description or self.description,
            val_timestamp=other.val_timestamp or self.val_timestamp,
            test_timestamp=other.test_timestamp or self.test_timestamp,
            on_dangling=other.on_dangling or self.on_dangling,
            entities={**self.entities, **other.entities},
            views=self.views or other.views,
        )


_TIME_FIELDS = ("time_unit", "time_format", "timezone", "known_at", "on_missing_time", "on_bad_time")
_TABLE_FIELDS = frozenset([*FACTS, "time_from", "kinds", *_TIME_FIELDS])
_SCHEMA_FIELDS = frozenset(
    [
        "name",
        "description",
        "manifest_version",
        "val_timestamp",
        "test_timestamp",
        "on_dangling",
        "tables",
        "times",
        "entities",
        "views",
    ]
)


def _table(content: object, where: str, origin: Origin) -> TableSchema:
    fields = _mapping(content, where)
    time, link = fields.get("time_col"), fields.get("time_from")
    if origin is CONFIRMED:
        _refuse_unknown(fields, _TABLE_FIELDS, where)
        lonely = [name for name in _TIME_FIELDS if name in fields]
        if lonely and time is None and link is None:
            raise UsageError(
                "C01", f"{where}: {lonely[0]} is given without a time_col", "name the time_col too"
            )
    if time is not None and link is not None:
        raise UsageError("C01", f"{where}: both time_col and time_from are given", "choose one")
    if link is not None and not _names(link):
        raise UsageError("C01", f"{where}: time_from is {link!r}", "name a link, or leave it out")
    kinds = {str(k): str(v) for k, v in _mapping(fields.get("kinds"), f"{where}: kinds").items()}
    for column, kind in kinds.items():
        if kind not in COLUMN_KINDS:
            raise UsageError(
                "C01",
                f'{where}: kinds: {column} is "{kind}"{did_you_mean(kind, COLUMN_KINDS)}',
                f"use {', '.join(COLUMN_KINDS[:-1])} or {COLUMN_KINDS[-1]}",
            )
    return TableSchema(
        primary_key=_names(fields.get("pkey")),
        foreign_keys=tuple(
            _foreign_key(columns, str(target), origin)
            for columns, targets in _mapping(fields.get("fkeys"), f"{where}: fkeys").items()
            for target in (targets if isinstance(targets, (list, tuple)) else [targets])
        ),
        time=None if time is None and link is None else _time(fields, where, origin),
        available_at=_text(fields.get("available_at")),
        key_origin=origin,
        settled=frozenset(f for f in FACTS if f in fields or (f == "time_col" and link is not None)),
        kinds=kinds,
    )


def _time(fields: Mapping[Any, Any], where: str, origin: Origin) -> TimeColumn:
    missing, bad = fields.get("on_missing_time", "error"), fields.get("on_bad_time", "error")
    moment = fields.get("known_at")
    if missing not in get_args(MissingTime):
        fix = "use error, drop, never_visible or always_known"
        raise UsageError("C01", f"{where}: on_missing_time is {missing!r}", fix)
    if bad not in get_args(BadTime):
        raise UsageError("C01", f"{where}: on_bad_time is {bad!r}", "use error, drop or never_visible")
    if moment is not None and (moment not in [*_ENDS] or fields.get("time_from") is not None):
        fix = f"use one of {', '.join(_ENDS)}, with a time_col; for any other moment name its column as available_at"
        raise UsageError("C01", f"{where}: known_at is {moment!r}", fix)
    column = fields.get("time_col")
    return TimeColumn(
        column="" if column is None else str(column),
        unit=_text(fields.get("time_unit")),
        format=_text(fields.get("time_format")),
        timezone=_text(fields.get("timezone")),
        on_missing=missing,
        on_bad=bad,
        origin=origin,
        link=_names(fields.get("time_from")),
        end_of=None if moment is None else _ENDS[moment],
    )


def _mapping(content: object, where: str) -> Mapping[Any, Any]:
    if content is None:
        return {}
    if not isinstance(content, Mapping):
        kind = type(content).__name__
        raise UsageError("C04", f"{where} is a {kind}", 'write a mapping, one "name: value" a line')
    return content


def _entities(content: object, where: str) -> dict[str, tuple[str, ...]]:
    """Returns the columns from whose values tables are made: `column`, `table.column`, or a list of these."""
    return {
        str(name): tuple(map(str, texts))
        if isinstance(texts, (list, tuple))
        else (str(texts),) * (texts is not None)
        for name, texts in _mapping(content, where).items()
    }


def _truth(value: object, where: str) -> bool:
    if value not in (True, False, None):
        raise UsageError("C01", f"{where} is {value!r}", "use true or false")
    return bool(value)


def _refuse_unknown(fields: Mapping[Any, Any], known: frozenset[str], where: str) -> None:
    for name in fields:
        if name not in known:
            raise UsageError("C01", f'{where}: unknown field "{name}"{did_you_mean(str(name), known)}')


def _text(value: object) -> str | None:
    return None if value is None else str(value)


# Names: `a, b` are two columns, `a.b` is a column of a table; a name with such a mark in it stands in quotes.

_QUOTED = r'"(?:[^"]|"")*"'
_NAME = re.compile(rf"\s*{_QUOTED}\s*(?=,|$)|[^,]+")
_TARGET = re.compile(rf"^(\s*{_QUOTED}\s*(?=\.|$)|[^.]*)\.?(.*)$", re.DOTALL)


def quoted(name: str, mark: str) -> str:
    """Returns the name as it is written beside names that a mark separates: in quotes if it holds the mark."""
    is_plain = name and name == name.strip() and not set(name) & {'"', mark}
    return name if is_plain else '"' + name.replace('"', '""') + '"'


def _unquoted(name: str) -> str:
    name = name.strip()
    return name[1:-1].replace('""', '"') if re.fullmatch(_QUOTED, name) else name


def _names(value: object) -> tuple[str, ...]:
    """Returns the names in `None`, `a`, `a, "b, c"` or `[a, b]`."""
    if isinstance(value, (list, tuple)):
        return tuple(map(str, value))
    return () if value is None else tuple(map(_unquoted, _NAME.findall(str(value))))


def parse_target(text: str) -> tuple[str, str]:
    """Returns the table and the column in `table.column`; the column is empty if only a table is named."""
    table, column = _TARGET.findall(text)[0]
    return _unquoted(table), _unquoted(column)


def _foreign_key(columns: object, target: str, origin: Origin) -> ForeignKey:
    table, references = _TARGET.findall(target)[0]
    columns = columns if isinstance(columns, tuple) else str(columns)  # a dict may have tuples as keys
    return ForeignKey(_names(columns), _unquoted(table), _names(references), origin)
