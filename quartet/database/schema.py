"""Schema: which columns are keys, links and times, and how sure we are of each.

One file format serves everywhere: RelBench's `manifest.yaml`, plus a few optional words.

    name: shop
    val_timestamp: '2024-01-01'          # optional; proposed from the data's span when absent
    test_timestamp: '2024-03-01'
    on_dangling: drop                    # or: error
    tables:
      orders:
        pkey: order_id                   # [a, b] for a composite key, null for none
        time_col: created_at             # null: the rows were always known
        time_from: parcel_id             # instead of time_col: known when the row it points to is
        available_at: loaded_at          # optional: when the row became known, if later
        fkeys:
          customer_id: customers         # to the primary key of customers
          shop_code: shops.code          # to another unique column
          "country, city": cities        # composite
          owner: [people, firms]         # one column that names a row in each of two tables
        time_unit: ms                    # for numbers: s, ms, us or ns
        time_format: '%d/%m/%Y'          # for text that is not ISO 8601
        timezone: Europe/Paris           # for times without a zone (default: UTC)
        on_missing_time: error           # or: drop, never_visible
        kinds:                           # optional: what kind of feature a column is, where the data mislead
          zone: category                 # number, category, multicategory, time, text or unused

A word that is absent is open, and will be inferred and shown as inferred; a word that is
present, null included, is settled. Under fkeys, a name that holds a comma, a dot or a quote is
written in double quotes, as in a CSV file: `'"net, total"': '"v1.sums".code'`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from quartet.errors import SchemaError, UsageError, did_you_mean

Fact = Literal["pkey", "time_col", "available_at", "fkeys"]
FACTS: frozenset[Fact] = frozenset({"pkey", "time_col", "available_at", "fkeys"})
MissingTime = Literal["error", "drop", "never_visible"]
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
CONFIRMED = Origin("confirmed")  # by the user's schema file


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


@dataclass(frozen=True)
class TimeColumn:
    """The column that dates a row, and how its values are to be read.

    With `link`, the columns of a foreign key, rows take the time of the row they point to; `column` is
    empty until `inherit_times` has made it.
    """

    column: str
    unit: str | None = None
    format: str | None = None
    timezone: str | None = None
    on_missing: MissingTime = "error"
    origin: Origin = DECLARED
    link: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableSchema:
    """Keys, links and time of one table. `settled` names the facts that are not to be inferred.

    `kinds` says of some columns what kind of feature they are (of `COLUMN_KINDS`).
    """

    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    time: TimeColumn | None = None
    available_at: str | None = None
    key_origin: Origin = DECLARED
    settled: frozenset[Fact] = frozenset()
    kinds: Mapping[str, str] = field(default_factory=dict)

    @property
    def named_columns(self) -> tuple[str, ...]:
        """Every column that the schema speaks of, in order, without repetition."""
        names = [*self.primary_key, *(c for fk in self.foreign_keys for c in fk.columns)]
        names += [self.time.column] if self.time and self.time.column else []
        names += [self.available_at] if self.available_at else []
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class Schema:
    """The schema of a database, as declared, as the user corrected it, or as inferred."""

    tables: Mapping[str, TableSchema] = field(default_factory=dict)
    name: str = ""
    description: str = ""
    val_timestamp: str | None = None
    test_timestamp: str | None = None
    on_dangling: Literal["drop", "error"] | None = None  # nothing said: drop

    @staticmethod
    def read(path: Path, origin: Origin = CONFIRMED) -> Schema:
        """The schema in a YAML file of the form above."""
        return schema_from_dict(read_yaml(path), str(path), origin)

    def corrected_by(self, other: Schema) -> Schema:
        """This schema with everything that `other` says put in its place."""
        unknown = set(other.tables) - set(self.tables)
        if unknown:
            name = sorted(unknown)[0]
            raise SchemaError(
                "S09",
                f'the schema file speaks of a table "{name}" that is not in the database'
                + did_you_mean(name, self.tables),
                "correct the name",
            )
        tables = dict(self.tables)
        for name, said in other.tables.items():
            tables[name] = _corrected(tables[name], said)
        return replace(
            self,
            tables=tables,
            name=other.name or self.name,
            description=other.description or self.description,
            val_timestamp=other.val_timestamp or self.val_timestamp,
            test_timestamp=other.test_timestamp or self.test_timestamp,
            on_dangling=other.on_dangling or self.on_dangling,
        )


def _corrected(known: TableSchema, said: TableSchema) -> TableSchema:
    changes: dict[str, Any] = {
        "settled": known.settled | said.settled,
        "kinds": {**known.kinds, **said.kinds},
    }
    if said.primary_key or "pkey" in said.settled:
        changes.update(primary_key=said.primary_key, key_origin=said.key_origin)
    if said.time or "time_col" in said.settled:
        changes.update(time=said.time)
    if said.available_at or "available_at" in said.settled:
        changes.update(available_at=said.available_at)
    if said.foreign_keys or "fkeys" in said.settled:
        changes.update(foreign_keys=said.foreign_keys)
    return replace(known, **changes)


def read_yaml(path: Path) -> dict[str, Any]:
    """The plain mapping in a YAML file; tags that would build objects are refused."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError("C09", f'there is no file "{path}"', "check the path") from None
    except OSError as error:
        raise UsageError("C09", f'"{path}" cannot be read ({error.strerror})', "check the path") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(
            "C04", f'"{path}" is not plain YAML: {" ".join(str(error).split())}', "only plain YAML is read"
        ) from None
    if not isinstance(content, dict):
        raise UsageError("C04", f'"{path}" holds no mapping', 'start it with "tables:"')
    return content


_TIME_WORDS = ("time_unit", "time_format", "timezone", "on_missing_time")
_TABLE_WORDS = frozenset([*FACTS, "time_from", "kinds", *_TIME_WORDS])
_SCHEMA_WORDS = frozenset(
    ["name", "description", "manifest_version", "val_timestamp", "test_timestamp", "on_dangling", "tables"]
)


def schema_from_dict(content: Mapping[str, Any], where: str, origin: Origin) -> Schema:
    """A `Schema` from the mapping of a manifest.

    Unknown words of the user's own file are refused with a suggestion; those of a manifest that
    came with the data may belong to another program.
    """
    if origin is CONFIRMED:
        _refuse_unknown(content, _SCHEMA_WORDS, where)
    on_dangling = content.get("on_dangling")
    if on_dangling not in ("drop", "error", None):
        raise UsageError("C01", f"{where}: on_dangling is {on_dangling!r}", 'say "drop" or "error"')
    tables = _mapping(content.get("tables"), f"{where}: tables")
    return Schema(
        tables={
            str(name): _table_from_dict(said, f"{where}, table {name}", origin)
            for name, said in tables.items()
        },
        name=str(content.get("name") or ""),
        description=str(content.get("description") or ""),
        val_timestamp=_text(content.get("val_timestamp")),
        test_timestamp=_text(content.get("test_timestamp")),
        on_dangling=on_dangling,
    )


def _table_from_dict(content: object, where: str, origin: Origin) -> TableSchema:
    said = _mapping(content, where)
    if origin is CONFIRMED:
        _refuse_unknown(said, _TABLE_WORDS, where)
        _refuse_lonely_time_words(said, where)
    missing = said.get("on_missing_time", "error")
    if missing not in ("error", "drop", "never_visible"):
        raise UsageError(
            "C01", f"{where}: on_missing_time is {missing!r}", "say error, drop or never_visible"
        )
    time, link = said.get("time_col"), said.get("time_from")
    if time is not None and link is not None:
        raise UsageError("C01", f"{where}: both time_col and time_from are given", "choose one")
    return TableSchema(
        primary_key=_key_columns(said.get("pkey")),
        foreign_keys=tuple(
            _foreign_key(str(columns), str(target), origin)
            for columns, targets in _mapping(said.get("fkeys"), f"{where}: fkeys").items()
            for target in (targets if isinstance(targets, list) else [targets])
        ),
        time=TimeColumn(
            column="" if time is None else str(time),
            unit=_text(said.get("time_unit")),
            format=_text(said.get("time_format")),
            timezone=_text(said.get("timezone")),
            on_missing=missing,
            origin=origin,
            link=_key_columns(link),
        )
        if time is not None or link is not None
        else None,
        available_at=_text(said.get("available_at")),
        key_origin=origin,
        settled=frozenset(
            fact for fact in FACTS if fact in said or (fact == "time_col" and link is not None)
        ),
        kinds=_kinds(said.get("kinds"), f"{where}: kinds"),
    )


def _kinds(content: object, where: str) -> dict[str, str]:
    kinds = {str(column): str(kind) for column, kind in _mapping(content, where).items()}
    for column, kind in kinds.items():
        if kind not in COLUMN_KINDS:
            raise UsageError(
                "C01",
                f'{where}: {column} is "{kind}"{did_you_mean(kind, COLUMN_KINDS)}',
                f"say {', '.join(COLUMN_KINDS[:-1])} or {COLUMN_KINDS[-1]}",
            )
    return kinds


def _mapping(content: object, where: str) -> Mapping[Any, Any]:
    if content is None:
        return {}
    if not isinstance(content, Mapping):
        raise UsageError(
            "C04", f"{where} is a {type(content).__name__}", 'write a mapping, one "name: value" a line'
        )
    return content


def _foreign_key(columns: str, target: str, origin: Origin) -> ForeignKey:
    table, references = _TARGET.findall(target)[0]
    return ForeignKey(_split(columns), _unquoted(table), _split(references), origin)


def _key_columns(value: object) -> tuple[str, ...]:
    """Column names from `null`, `name`, `"a, b"` or `[a, b]`."""
    if value is None:
        return ()
    if isinstance(value, (list, tuple)):
        return tuple(str(name) for name in value)
    return _split(str(value))


_QUOTED = r'"(?:[^"]|"")*"'
_NAME = re.compile(rf"\s*{_QUOTED}\s*(?=,|$)|[^,]+")
_TARGET = re.compile(rf"^(\s*{_QUOTED}\s*(?=\.|$)|[^.]*)\.?(.*)$", re.DOTALL)


def _split(text: str) -> tuple[str, ...]:
    """The names in `a, b` or `a, "b, c"`."""
    return tuple(map(_unquoted, _NAME.findall(text)))


def quoted(name: str, mark: str) -> str:
    """The name as it is written beside names that a mark keeps apart: in quotes if it holds the mark."""
    is_plain = name and name == name.strip() and not set(name) & {'"', mark}
    return name if is_plain else '"' + name.replace('"', '""') + '"'


def _unquoted(name: str) -> str:
    name = name.strip()
    return name[1:-1].replace('""', '"') if re.fullmatch(_QUOTED, name) else name


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _refuse_unknown(said: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    for word in said:
        if word not in known:
            raise UsageError("C01", f'{where}: unknown word "{word}"{did_you_mean(str(word), known)}')


def _refuse_lonely_time_words(said: Mapping[str, Any], where: str) -> None:
    """How to read a time is said of a column: without one the words would be lost in silence."""
    if said.get("time_col") is not None or said.get("time_from") is not None:
        return
    lonely = [word for word in _TIME_WORDS if word in said]
    if lonely:
        raise UsageError("C01", f"{where}: {lonely[0]} is said of no time_col", "name the time_col too")
