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
        available_at: loaded_at          # optional: when the row became known, if later
        fkeys:
          customer_id: customers         # to the primary key of customers
          shop_code: shops.code          # to another unique column
          "country, city": cities        # composite
        time_unit: ms                    # for numbers: s, ms, us or ns
        time_format: '%d/%m/%Y'          # for text that is not ISO 8601
        timezone: Europe/Paris           # for times without a zone (default: UTC)
        on_missing_time: error           # or: drop, never_visible

A word that is absent is open, and will be inferred and shown as inferred; a word that is
present, null included, is settled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from quartet.errors import SchemaError, UsageError, did_you_mean

Fact = Literal["pkey", "time_col", "fkeys"]
FACTS: frozenset[Fact] = frozenset({"pkey", "time_col", "fkeys"})
MissingTime = Literal["error", "drop", "never_visible"]


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
    """The column that dates a row, and how its values are to be read."""

    column: str
    unit: str | None = None
    format: str | None = None
    timezone: str | None = None
    on_missing: MissingTime = "error"
    origin: Origin = DECLARED


@dataclass(frozen=True)
class TableSchema:
    """Keys, links and time of one table. `settled` names the facts that are not to be inferred."""

    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    time: TimeColumn | None = None
    available_at: str | None = None
    key_origin: Origin = DECLARED
    settled: frozenset[Fact] = frozenset()

    @property
    def named_columns(self) -> tuple[str, ...]:
        """Every column that the schema speaks of, in order, without repetition."""
        names = [*self.primary_key, *(c for fk in self.foreign_keys for c in fk.columns)]
        names += [self.time.column] if self.time else []
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
    on_dangling: Literal["drop", "error"] = "drop"

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
            on_dangling=other.on_dangling,
        )


def _corrected(known: TableSchema, said: TableSchema) -> TableSchema:
    changes: dict[str, Any] = {"settled": known.settled | said.settled}
    if "pkey" in said.settled:
        changes.update(primary_key=said.primary_key, key_origin=said.key_origin)
    if "time_col" in said.settled:
        changes.update(time=said.time)
    if "fkeys" in said.settled:
        changes.update(foreign_keys=said.foreign_keys)
    if said.available_at is not None:
        changes.update(available_at=said.available_at)
    return replace(known, **changes)


def read_yaml(path: Path) -> dict[str, Any]:
    """The plain mapping in a YAML file; tags that would build objects are refused."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError("C09", f'there is no file "{path}"', "check the path") from None
    except yaml.YAMLError as error:
        raise UsageError(
            "C04", f'"{path}" is not plain YAML: {" ".join(str(error).split())}', "only plain YAML is read"
        ) from None
    if not isinstance(content, dict):
        raise UsageError("C04", f'"{path}" holds no mapping', 'start it with "tables:"')
    return content


_TABLE_WORDS = frozenset(
    ["pkey", "time_col", "fkeys", "available_at", "time_unit", "time_format", "timezone", "on_missing_time"]
)
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
    on_dangling = content.get("on_dangling", "drop")
    if on_dangling not in ("drop", "error"):
        raise UsageError("C01", f"{where}: on_dangling is {on_dangling!r}", 'say "drop" or "error"')
    tables = content.get("tables") or {}
    return Schema(
        tables={
            str(name): _table_from_dict(said or {}, f"{where}, table {name}", origin)
            for name, said in tables.items()
        },
        name=str(content.get("name") or ""),
        description=str(content.get("description") or ""),
        val_timestamp=_text(content.get("val_timestamp")),
        test_timestamp=_text(content.get("test_timestamp")),
        on_dangling=on_dangling,
    )


def _table_from_dict(said: Mapping[str, Any], where: str, origin: Origin) -> TableSchema:
    if origin is CONFIRMED:
        _refuse_unknown(said, _TABLE_WORDS, where)
    missing = said.get("on_missing_time", "error")
    if missing not in ("error", "drop", "never_visible"):
        raise UsageError(
            "C01", f"{where}: on_missing_time is {missing!r}", "say error, drop or never_visible"
        )
    time = said.get("time_col")
    return TableSchema(
        primary_key=_columns(said.get("pkey")),
        foreign_keys=tuple(
            _foreign_key(columns, target, origin) for columns, target in (said.get("fkeys") or {}).items()
        ),
        time=TimeColumn(
            column=str(time),
            unit=_text(said.get("time_unit")),
            format=_text(said.get("time_format")),
            timezone=_text(said.get("timezone")),
            on_missing=missing,
            origin=origin,
        )
        if time is not None
        else None,
        available_at=_text(said.get("available_at")),
        key_origin=origin,
        settled=frozenset(fact for fact in FACTS if fact in said),
    )


def _foreign_key(columns: object, target: object, origin: Origin) -> ForeignKey:
    table, dot, references = str(target).partition(".")
    return ForeignKey(_columns(columns), table, _columns(references) if dot else (), origin)


def _columns(value: object) -> tuple[str, ...]:
    """Column names from `null`, `name`, `"a, b"` or `[a, b]`."""
    if value is None:
        return ()
    if isinstance(value, (list, tuple)):
        return tuple(str(name) for name in value)
    return tuple(name.strip() for name in str(value).split(","))


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _refuse_unknown(said: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    for word in said:
        if word not in known:
            raise UsageError("C01", f'{where}: unknown word "{word}"{did_you_mean(str(word), known)}')
