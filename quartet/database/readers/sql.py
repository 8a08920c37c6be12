"""SQL databases: PostgreSQL by URL, SQLite and DuckDB by URL or by path (see `address.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa

from quartet.database.readers.address import Address, kind_of_file, parse_address
from quartet.database.readers.duckdb import open_duckdb
from quartet.database.readers.engine import Catalogue, DeclaredTable, Engine, Link, QueryError
from quartet.database.readers.postgresql import open_postgresql
from quartet.database.readers.sqlite import open_sqlite
from quartet.database.schema import ForeignKey, Schema, TableSchema
from quartet.database.source import Source
from quartet.errors import ResourceError, SchemaError, did_you_mean
from quartet.findings import Finding, note, warning


def is_sql(source: str) -> bool:
    """Whether a source is a URL, or the path of an SQLite or DuckDB file by its first bytes."""
    return "://" in source or kind_of_file(Path(source).expanduser()) is not None


def read_sql(url: str) -> Source:
    """Every base table of a database with the keys it declares, all of one moment."""
    address = parse_address(url)
    try:
        with _opened(address) as engine:
            return _source_of(engine, address.location)
    except QueryError as error:
        raise ResourceError(
            "R02", f'"{address.location}" cannot be read: {error.reason}', error.fix
        ) from None


def _opened(address: Address) -> AbstractContextManager[Engine]:
    if address.kind == "postgresql":
        return open_postgresql(address.connection, address.schema, address.location)
    if address.kind == "duckdb":
        return open_duckdb(address.path, address.schema, address.location)
    return open_sqlite(address.path, address.schema, address.location)


def _source_of(engine: Engine, location: str) -> Source:
    catalogue = engine.catalogue()
    if not catalogue.tables:
        besides = "".join(f" ({finding.message})" for finding in catalogue.findings)
        raise SchemaError(
            "S01",
            f'no tables found in "{location}"{besides}',
            "give a folder of .parquet/.csv or a database URL",
        )
    schema, findings = _declared_schema(catalogue)
    keys = _key_columns(schema)
    tables = {}
    for name, declared in sorted(catalogue.tables.items()):
        rows, found = engine.read(declared, keys[name])
        tables[name], repaired = _plain_and_valid(name, rows)
        findings += [*found, *repaired]
    tables, agreed = _with_links_of_one_type(tables, schema)
    return Source(tables, schema, location, findings=(*catalogue.findings, *findings, *agreed))


# What the database declares


def _declared_schema(catalogue: Catalogue) -> tuple[Schema, list[Finding]]:
    tables, findings = {}, []
    for name, table in sorted(catalogue.tables.items()):
        usable = []
        for link in table.links:
            reason = _why_unusable(link, catalogue)
            if reason:
                where = f"{name}.{', '.join(link.columns)}"
                findings.append(warning("S09", where, f"{where}: the foreign key {reason}; it is left out"))
            else:
                usable.append(_foreign_key(link, catalogue.tables[link.table]))
        tables[name] = TableSchema(
            primary_key=table.primary_key,
            foreign_keys=_in_column_order(usable, table),
            settled=frozenset({"pkey"}) if table.primary_key else frozenset(),
        )
    return Schema(tables), findings


def _why_unusable(link: Link, catalogue: Catalogue) -> str:
    """Where a link leads if it is not to a column of a table that is read, else nothing."""
    if link.schema != catalogue.schema:
        return f'leads into another schema ("{link.schema}"."{link.table}")'
    if link.table not in catalogue.tables:
        return f'leads to "{link.table}", which is not read' + did_you_mean(link.table, catalogue.tables)
    target = catalogue.tables[link.table]
    if not (link.references or target.primary_key):
        return f'leads to "{link.table}", which has no primary key'
    known = [column.name for column in target.columns]
    for column in link.references:
        if column not in known:
            return f'leads to "{link.table}"."{column}", which does not exist' + did_you_mean(column, known)
    return ""


def _foreign_key(link: Link, target: DeclaredTable) -> ForeignKey:
    """The link with its columns in the order of the primary key, if that is what it names."""
    if not link.references or set(link.references) != set(target.primary_key):
        return ForeignKey(link.columns, link.table, link.references)
    partner = dict(zip(link.references, link.columns, strict=True))
    return ForeignKey(tuple(partner[column] for column in target.primary_key), link.table)


def _in_column_order(keys: Iterable[ForeignKey], table: DeclaredTable) -> tuple[ForeignKey, ...]:
    position = {column.name: i for i, column in enumerate(table.columns)}
    distinct = dict.fromkeys(keys)
    return tuple(sorted(distinct, key=lambda key: ([position[c] for c in key.columns], key.table)))


def _key_columns(schema: Schema) -> dict[str, frozenset[str]]:
    """Of every table, the columns that name a row of it or of another table."""
    keys = {name: set(table.primary_key) for name, table in schema.tables.items()}
    for name, table in schema.tables.items():
        for key in table.foreign_keys:
            keys[name].update(key.columns)
            keys[key.table].update(key.references)
    return {name: frozenset(columns) for name, columns in keys.items()}


# What is repaired in the rows


def _plain_and_valid(name: str, rows: pa.Table) -> tuple[pa.Table, list[Finding]]:
    """The rows without the drivers' own types, and with text that is text."""
    findings = []
    for position, field in enumerate(rows.schema):
        column = rows.column(position)
        if isinstance(field.type, pa.BaseExtensionType):
            column = column.cast(field.type.storage_type)
        if pa.types.is_string(column.type):
            column, broken = _valid_text(column)
            if broken:
                where = f"{name}.{field.name}"
                message = f"{where}: {broken:,} values are not valid UTF-8; the broken bytes are replaced"
                findings.append(warning("V08", where, message, broken))
        if column is not rows.column(position):
            rows = rows.set_column(position, field.name, column)
    return rows, findings


def _valid_text(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, int]:
    try:
        column.validate(full=True)
        return column, 0
    except pa.ArrowInvalid:
        raw = column.cast(pa.binary()).to_pylist()
    text = [None if value is None else value.decode("utf-8", "replace") for value in raw]
    broken = sum(v is not None and v.encode() != r for v, r in zip(text, raw, strict=True))
    return pa.chunked_array([pa.array(text, pa.string())]), broken


def _with_links_of_one_type(
    tables: Mapping[str, pa.Table], schema: Schema
) -> tuple[dict[str, pa.Table], list[Finding]]:
    """The tables with whole numbers as text wherever a declared link leads from or to text.

    The database finds the two ends equal; and one end may be text only because it was too
    large or too mixed for a number.
    """
    tables, findings = dict(tables), []
    pairs = [
        ((name, mine), (key.table, theirs))
        for name, table in schema.tables.items()
        for key in table.foreign_keys
        for mine, theirs in zip(
            key.columns, key.references or schema.tables[key.table].primary_key, strict=False
        )
    ]
    changed = True
    while changed:
        changed = False
        for one, other in (*pairs, *((b, a) for a, b in pairs)):
            if _is_text(_column(tables, one)) and pa.types.is_integer(_column(tables, other).type):
                tables[other[0]] = _as_text(tables[other[0]], other[1])
                where, reason = ".".join(other), ".".join(one)
                findings.append(
                    note("V11", where, f"{where} is read as text, as {reason} is, to which it is linked")
                )
                changed = True
    return tables, findings


def _column(tables: Mapping[str, pa.Table], place: tuple[str, str]) -> pa.ChunkedArray:
    return tables[place[0]].column(place[1])


def _is_text(column: pa.ChunkedArray) -> bool:
    """Whether there is text in the column: an empty one may have any type and says nothing."""
    return bool(pa.types.is_string(column.type) and column.null_count < len(column))


def _as_text(table: pa.Table, column: str) -> pa.Table:
    return table.set_column(
        table.schema.get_field_index(column), column, table.column(column).cast(pa.string())
    )
