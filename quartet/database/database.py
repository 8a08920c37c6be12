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
from numpy.typing import NDArray

from quartet.causal import TimeRule, visible
from quartet.database.infer import Possible, infer
from quartet.database.inherit import inherit_times
from quartet.database.keys import NO_SUCH_KEY, NULL_KEY, KeyColumn, KeyMap
from quartet.database.readers import read_source
from quartet.database.schema import ForeignKey, Schema, TableSchema
from quartet.database.source import Source
from quartet.database.table import Table, build_table
from quartet.errors import SchemaError, UsageError, did_you_mean, examples
from quartet.findings import Finding, note, warning
from quartet.times import NEVER, STATIC

LATE_FILLED_SHARE = 0.001


@dataclass(frozen=True, eq=False)
class Relation:
    """One foreign key with its values as row numbers of the parent table, -1 where there is none."""

    table: str
    foreign_key: ForeignKey
    rows: NDArray[np.int64]

    @property
    def parent(self) -> str:
        return self.foreign_key.table

    @property
    def label(self) -> str:
        return f"{self.table}.{self.foreign_key.label}"

    @property
    def num_links(self) -> int:
        return int((self.rows >= 0).sum())


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
            for foreign_key in table.schema.foreign_keys:
                relation, found = _relate(table, foreign_key, built, schema.on_dangling or "drop")
                relations.append(relation)
                report += found
        report += _structure_findings(built, relations)
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

    def _with(self, tables: dict[str, Table]) -> Database:
        """This database with its tables replaced by parts of themselves, links found anew."""
        relations = [
            _relate(table, foreign_key, tables, "drop")[0]
            for table in tables.values()
            for foreign_key in table.schema.foreign_keys
        ]
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


def _relate(
    table: Table, foreign_key: ForeignKey, tables: Mapping[str, Table], on_dangling: str
) -> tuple[Relation, list[Finding]]:
    """The links of one foreign key, and what was noticed about them."""
    label = f"{table.name}.{foreign_key.label}"
    parent = _parent(label, foreign_key, tables)
    target = foreign_key.references or parent.primary_key
    key_map = _target_map(label, foreign_key, parent, target)
    columns = table.key_columns(foreign_key.columns)
    for column, known in zip(columns, key_map.columns, strict=True):
        if column.kind != known.kind and len(column.values) > column.values.null_count and parent.num_rows:
            raise SchemaError(
                "S08", f"{column.where} is {column.kind}, {known.where} is {known.kind}", "cast one"
            )
    found: list[Finding] = []
    rows = key_map.rows(columns) if _comparable(columns, key_map) else _without_match(columns)
    dangling = rows == NO_SUCH_KEY
    if dangling.any():
        found.append(_dangling(table, label, parent, dangling, foreign_key, on_dangling))
        rows[dangling] = NULL_KEY
    relation = Relation(table.name, foreign_key, rows)
    return relation, found + _link_findings(relation, table, parent)


def _comparable(columns: list[KeyColumn], key_map: KeyMap) -> bool:
    """An empty column or table may arrive with any type; then there is nothing to compare."""
    return all(column.kind == kind for column, kind in zip(columns, key_map.kinds, strict=True))


def _without_match(columns: list[KeyColumn]) -> NDArray[np.int64]:
    """Rows of keys that match nothing: `NULL_KEY` where a part is empty, else `NO_SUCH_KEY`."""
    filled = np.logical_and.reduce([column.values.is_valid().to_numpy() for column in columns])
    return np.where(filled, NO_SUCH_KEY, NULL_KEY)


def _parent(label: str, foreign_key: ForeignKey, tables: Mapping[str, Table]) -> Table:
    if foreign_key.table not in tables:
        raise SchemaError(
            "S09",
            f'{label} points to an unknown table "{foreign_key.table}"'
            + did_you_mean(foreign_key.table, tables),
            "correct the name in the schema file",
        )
    parent = tables[foreign_key.table]
    for column in foreign_key.references:
        if column not in parent.data.column_names:
            raise SchemaError(
                "S09",
                f'{label} points to an unknown column "{parent.name}.{column}"'
                + did_you_mean(column, parent.data.column_names),
                "correct the name in the schema file",
            )
    if not (foreign_key.references or parent.primary_key):
        raise SchemaError(
            "S09",
            f'{label} points to table "{parent.name}", which has no primary key',
            f'give {parent.name} a pkey, or name the column: "{parent.name}.column"',
        )
    return parent


def _target_map(label: str, foreign_key: ForeignKey, parent: Table, target: tuple[str, ...]) -> KeyMap:
    count = len(foreign_key.columns)
    if count != len(target):
        names = ", ".join(f'"{name}"' for name in foreign_key.columns)
        raise SchemaError(
            "S06",
            f"{label}: foreign key ({names}) has {count} column{'s' if count > 1 else ''}, "
            f'key of "{parent.name}" has {len(target)}',
            "name as many columns as the key has",
        )
    if target == parent.primary_key:
        return parent.key_map
    key_map = parent.key_map_of(target)
    count, first = key_map.repeated()
    if count:
        raise SchemaError(
            "S03",
            f"{label} points to {parent.name}.{', '.join(target)}, which has {count:,} repeated values "
            f"{examples(first)}",
            "point to a unique column",
        )
    return key_map


def _dangling(
    table: Table,
    label: str,
    parent: Table,
    dangling: NDArray[np.bool_],
    foreign_key: ForeignKey,
    on_dangling: str,
) -> Finding:
    count = int(dangling.sum())
    where = np.flatnonzero(dangling)[:2]
    values = ["/".join(str(table.data[c][int(row)].as_py()) for c in foreign_key.columns) for row in where]
    text = (
        f'{label}: {count:,} of {table.num_rows:,} values have no row in "{parent.name}" {examples(values)}'
    )
    if on_dangling == "error":
        raise SchemaError("S07", text, "repair the rows, or say on_dangling: drop")
    return warning("S07", label, text + ". Using: drop links (on_dangling: error to stop)", count)


def _link_findings(relation: Relation, table: Table, parent: Table) -> list[Finding]:
    found = []
    if relation.table == relation.parent:
        loops = int((relation.rows == np.arange(len(relation.rows))).sum())
        if loops:
            text = f"{relation.label}: {loops:,} rows point at themselves; these loops are dropped"
            found.append(note("S10", relation.label, text, loops))
    late, linked = late_filled(relation, table, parent)
    if late > LATE_FILLED_SHARE * linked:
        text = (
            f"{relation.label}: {late:,} of {linked:,} rows point to a row of "
            f'"{parent.name}" that is newer than they are; a link filled in later tells the future'
        )
        fix = "if the link was set later, drop the column or date the row by available_at"
        found.append(warning("D01", relation.label, text, late, fix))
    return found


def late_filled(relation: Relation, table: Table, parent: Table) -> tuple[int, int]:
    """How many links of a relation lead to a parent newer than their holder, of how many."""
    linked = relation.rows >= 0
    holder = table.known_at[linked]
    newer = parent.known_at[relation.rows[linked]] > holder
    return int((newer & (holder != STATIC)).sum()), int(linked.sum())


def _structure_findings(tables: Mapping[str, Table], relations: list[Relation]) -> list[Finding]:
    found = []
    if not relations:
        text = "tables are not linked; a relational model needs at least one foreign key"
        found.append(warning("S13", "", text, fix="declare links under fkeys in the schema file"))
    if not any(table.is_timed for table in tables.values()):
        text = "no table has a time column: temporal branch off; results are not time-safe"
        found.append(warning("T10", "", text, fix="name a time_col in the schema file"))
    found += [_timeless_holder(relation) for relation in _timeless_holders(tables, relations)]
    for cycle in _cycles(relations):
        found.append(note("S11", "", f"cycle {' -> '.join(cycle)}"))
    return found


def _timeless_holders(tables: Mapping[str, Table], relations: list[Relation]) -> list[Relation]:
    """For each table without a time whose rows point to rows that have one, the first such link."""
    found: dict[str, Relation] = {}
    for relation in relations:
        if not tables[relation.table].is_timed and tables[relation.parent].is_timed and relation.num_links:
            found.setdefault(relation.table, relation)
    return list(found.values())


def _timeless_holder(relation: Relation) -> Finding:
    text = (
        f'table "{relation.table}" has no time, but its rows point to "{relation.parent}", whose rows have one: '
        "they count as always known, and would show what happens later"
    )
    fix = f"say time_from: {relation.foreign_key.label} for {relation.table} in the schema file"
    return warning("D02", relation.table, text, relation.num_links, fix)


def _cycles(relations: list[Relation]) -> list[tuple[str, ...]]:
    """The shortest cycle of links through each table that lies on one, each cycle once."""
    parents: dict[str, list[str]] = {}
    for relation in relations:
        if relation.table != relation.parent and relation.parent not in parents.setdefault(
            relation.table, []
        ):
            parents[relation.table].append(relation.parent)
    cycles: dict[frozenset[str], tuple[str, ...]] = {}
    for start in parents:
        path = _path_back(start, parents)
        if path:
            cycles.setdefault(frozenset(path), path)
    return list(cycles.values())


def _path_back(start: str, parents: Mapping[str, list[str]]) -> tuple[str, ...]:
    paths: list[tuple[str, ...]] = [(start,)]
    seen = {start}
    while paths:
        path = paths.pop(0)
        for parent in parents.get(path[-1], []):
            if parent == start:
                return (*path, start)
            if parent not in seen:
                seen.add(parent)
                paths.append((*path, parent))
    return ()
