"""Database: validated tables, their links as row numbers, and a report of what was found."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from quartet.causal import TimeRule, visible
from quartet.database.inference.evidence import Possible
from quartet.database.inference.infer import infer
from quartet.database.inference.inherit import inherit_times
from quartet.database.readers.read import read_source
from quartet.database.relations import Relation, relate
from quartet.database.schema import ForeignKey, Schema, TableSchema
from quartet.database.source import Source
from quartet.database.structure import structure_findings
from quartet.database.table import Table, build_table
from quartet.errors import SchemaError, UsageError, did_you_mean
from quartet.findings import Finding
from quartet.times import NEVER


@dataclass(frozen=True, eq=False)
class Database:
    """Tables, relations and findings. Build one with `Database.load` or `Database.build`."""

    tables: Mapping[str, Table]
    relations: tuple[Relation, ...]
    schema: Schema
    findings: tuple[Finding, ...] = ()
    possible: tuple[Possible, ...] = ()
    location: str = ""
    task_folder: Path | None = None

    @staticmethod
    def load(source: object, schema: Schema | str | Path | None = None) -> Database:
        """The database at a source: a folder, a file, a URL, a Hub name, "demo", or a dict of frames.

        What the source does not declare is inferred and shown as inferred (`quartet inspect`);
        `schema`, or a YAML file of one, confirms or corrects it.
        """
        if isinstance(schema, (str, Path)):
            schema = Schema.read(Path(schema))
        return Database.of(read_source(source), schema)

    @staticmethod
    def of(source: Source, corrections: Schema | None = None) -> Database:
        """The database of what a reader brought, completed by inference."""
        declared = _complete(source)
        if corrections is not None:
            declared = declared.corrected_by(corrections)
        found = infer(source.tables, _resolved(declared, source.tables))
        tables, schema = inherit_times(source.tables, found.schema)
        return Database.build(
            tables,
            schema,
            location=source.location,
            task_folder=source.task_folder,
            findings=source.findings,
            possible=found.possible,
        )

    @staticmethod
    def build(
        tables: Mapping[str, pa.Table], schema: Schema, findings: Iterable[Finding] = (), **about: Any
    ) -> Database:
        """A database from raw tables and a complete schema: every table and link is validated."""
        if not tables:
            place = about.get("location", "")
            raise SchemaError(
                "S01",
                f'no tables found in "{place}"',
                "give a folder of .parquet/.csv or a database URL",
            )
        _check_table_names(tables)
        built, report = {}, list(findings)
        for name, raw in tables.items():
            built[name], found = build_table(name, raw, schema.tables[name])
            report += found
        relations = []
        for table in built.values():
            links, found = _links(table, built, schema.on_dangling or "drop")
            relations += links
            report += found
        report += structure_findings(built, relations)
        return Database(built, tuple(relations), schema, tuple(report), **about)

    def __getitem__(self, name: str) -> Table:
        """A table by name."""
        if name not in self.tables:
            raise UsageError("S09", f'there is no table "{name}"' + did_you_mean(name, self.tables))
        return self.tables[name]

    def __repr__(self) -> str:
        return (
            f"Database({self.schema.name or self.location!r}: {len(self.tables)} tables, "
            f"{self.num_rows:,} rows, {len(self.relations)} links)"
        )

    @property
    def num_rows(self) -> int:
        return sum(table.num_rows for table in self.tables.values())

    @cached_property
    def offsets(self) -> dict[str, int]:
        """The global id of the first row of each table: global id = offset + row."""
        starts = np.cumsum([0] + [table.num_rows for table in self.tables.values()])
        return {name: int(start) for name, start in zip(self.tables, starts, strict=False)}

    @cached_property
    def span(self) -> tuple[int, int] | None:
        """The first and the last time of any row, or nothing if no table has a time."""
        dated = [t.known_at[t.known_at != NEVER] for t in self.tables.values() if t.is_timed]
        ends = [(times.min(), times.max()) for times in dated if len(times)]
        if not ends:
            return None
        return int(min(first for first, _ in ends)), int(max(last for _, last in ends))

    def upto(self, time: int, rule: TimeRule = "<=") -> Database:
        """The database as it was known at a time."""
        return self._with({name: t.take(visible(t.known_at, time, rule)) for name, t in self.tables.items()})

    def without(self, columns: Iterable[tuple[str, str]]) -> Database:
        """The database with some (table, column) pairs hidden, as a task demands."""
        hidden: dict[str, set[str]] = {}
        for table, column in columns:
            if column not in self[table].data.column_names:
                names = self[table].data.column_names
                raise SchemaError(
                    "L01", f'table "{table}" has no column "{column}"' + did_you_mean(column, names)
                )
            hidden.setdefault(table, set()).add(column)
        if not hidden:
            return self
        return self._with({n: t.without(hidden[n]) if n in hidden else t for n, t in self.tables.items()})

    def adding(self, name: str, raw: pa.Table, schema: TableSchema) -> Database:
        """The database with one more table, whose links are found among the others."""
        table, report = build_table(name, raw, schema)
        tables = {**self.tables, name: table}
        links, found = _links(table, tables, "drop")
        return replace(
            self,
            tables=tables,
            relations=(*self.relations, *links),
            findings=(*self.findings, *report, *found),
        )

    def _with(self, tables: dict[str, Table]) -> Database:
        """This database with its tables replaced by parts of themselves, links found anew."""
        relations = [link for table in tables.values() for link in _links(table, tables, "drop")[0]]
        return replace(self, tables=tables, relations=tuple(relations))

    @cached_property
    def fingerprint(self) -> str:
        """A digest of everything a model could see: schema and cells, in row order."""
        digest = hashlib.sha256()
        for table in self.tables.values():
            time = table.schema.time.column if table.schema.time else None
            facts = (table.name, table.primary_key, time, table.schema.available_at)
            links = [(fk.columns, fk.table, fk.references) for fk in table.schema.foreign_keys]
            columns = [(field.name, str(field.type)) for field in table.data.schema]
            digest.update(repr((facts, links, columns)).encode())
            digest.update(table.known_at.tobytes())
            for column in table.data.columns:
                _digest_cells(digest, column)
        return digest.hexdigest()


def _links(
    table: Table, tables: Mapping[str, Table], on_dangling: str
) -> tuple[list[Relation], list[Finding]]:
    """The relations of one table by all its foreign keys, and what was noticed about them."""
    related = [relate(table, foreign_key, tables, on_dangling) for foreign_key in table.schema.foreign_keys]
    return [relation for relation, _ in related], [finding for _, found in related for finding in found]


def _digest_cells(digest: Any, column: pa.ChunkedArray) -> None:
    """Digests which cells are filled, and what with: neither chunks nor the bytes under empty cells count."""
    for part in (column.is_valid(), column.drop_null()):
        whole = part.cast(pa.uint8()) if pa.types.is_boolean(part.type) else part  # bits have ragged ends
        table = pa.table([whole.combine_chunks()], names=["cells"])
        with pa.ipc.new_stream(_Sink(digest), table.schema) as stream:
            stream.write_table(table)


class _Sink:
    """A file that only remembers the digest of what is written to it."""

    closed = False

    def __init__(self, digest: Any) -> None:
        self._digest = digest

    def write(self, content: Any) -> int:
        self._digest.update(content)
        return len(content)

    def flush(self) -> None: ...

    def close(self) -> None: ...


def _complete(source: Source) -> Schema:
    """The declared schema with an entry for every table, and none for a table that is not there."""
    for name in source.schema.tables:
        if name not in source.tables:
            raise SchemaError(
                "S09",
                f'the manifest of "{source.location}" declares a table "{name}" without data'
                + did_you_mean(name, source.tables),
            )
    tables = {name: source.schema.tables.get(name, TableSchema()) for name in source.tables}
    return replace(source.schema, tables=tables)


def _resolved(schema: Schema, tables: Mapping[str, pa.Table]) -> Schema:
    """The schema with `a, b` or `a.b` read as one name where there is such a name and no `a`."""

    def columns(table: str, names: tuple[str, ...]) -> tuple[str, ...]:
        known, whole = tables[table].column_names, ", ".join(names)
        return (whole,) if whole in known and not set(names) <= set(known) else names

    def link(table: str, fk: ForeignKey) -> ForeignKey:
        fk = replace(fk, columns=columns(table, fk.columns))
        whole = f"{fk.table}.{', '.join(fk.references)}"
        return replace(fk, table=whole, references=()) if whole in tables and fk.table not in tables else fk

    def resolved(name: str, table: TableSchema) -> TableSchema:
        links = tuple(link(name, fk) for fk in table.foreign_keys)
        return replace(table, primary_key=columns(name, table.primary_key), foreign_keys=links)

    return replace(schema, tables={name: resolved(name, t) for name, t in schema.tables.items()})


def _check_table_names(tables: Mapping[str, pa.Table]) -> None:
    seen: dict[str, str] = {}
    for name in tables:
        if name.lower() in seen:
            raise SchemaError("S15", f'two tables are named "{seen[name.lower()]}"/"{name}"', "rename one")
        seen[name.lower()] = name
