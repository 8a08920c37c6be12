"""SQL databases: PostgreSQL, MySQL and others by URL, SQLite and DuckDB by URL or by path (see `address.py`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from quartet.database.readers.address import kind_of_file, parse_address
from quartet.database.readers.duckdb import open_duckdb
from quartet.database.readers.engine import DeclaredTable, Engine, Link, QueryError, Tables, quote
from quartet.database.readers.mysql import open_mysql
from quartet.database.readers.postgresql import open_postgresql
from quartet.database.readers.sqlite import open_sqlite
from quartet.database.readers.warehouse import open_warehouse
from quartet.database.schema import Fact, ForeignKey, Schema, TableSchema
from quartet.database.source import Source
from quartet.database.writing import is_predictions
from quartet.errors import ResourceError, SchemaError, did_you_mean
from quartet.findings import Finding, note, warning

_OPEN = {
    "postgresql": open_postgresql,
    "mysql": open_mysql,
    "duckdb": open_duckdb,
    "sqlite": open_sqlite,
    "snowflake": open_warehouse,
    "bigquery": open_warehouse,
}


def is_sql(source: str) -> bool:
    """Whether a source is a URL, or the path of an SQLite or DuckDB file by its first bytes."""
    return "://" in source or kind_of_file(Path(source).expanduser()) is not None


def read_sql(url: str, views: bool = False) -> Source:
    """Reads every base table of a database with the keys it declares, all of one moment; its views if asked to."""
    address = parse_address(url)
    try:
        with _OPEN[address.kind](address) as engine:
            engine.reads_views = views
            return _read_all(engine, address.location, address.schema)
    except QueryError as error:
        text = f'"{address.location}" cannot be read: {error.reason}'
        raise ResourceError("R02", text, error.fix) from None


def _read_all(engine: Engine, location: str, schema_name: str) -> Source:
    declared, findings = engine.catalogue()
    written = [name for name, table in declared.items() if is_predictions(table.columns)]
    if written:
        declared = {name: table for name, table in declared.items() if name not in written}
        text = f"left out, because they hold predictions: {', '.join(map(quote, written))}"
        findings.append(note("S19", schema_name, text, len(written)))
    others = [name for name in engine.schemas() if name != schema_name]
    if others:
        text = f"tables of other schemas are not read: {', '.join(map(quote, others))}"
        findings.append(
            note("S19", schema_name, text, len(others), f"to read one, add ?schema={others[0]} to the URL")
        )
    if not declared:
        besides = "".join(f" ({finding.message})" for finding in findings)
        fix = findings[-1].fix if others else "give a folder of .parquet/.csv or a database URL"
        raise SchemaError("S01", f'no tables found in "{location}"{besides}', fix)
    schema, noticed = _declared_schema(declared, schema_name)
    findings += noticed
    keys = {name: set(table.primary_key) for name, table in schema.tables.items()}
    for name, table in schema.tables.items():
        for key in table.foreign_keys:
            keys[name].update(key.columns)
            keys[key.table].update(key.references)
    tables, views = {}, {name for name, table in declared.items() if table.is_view}
    for name in list(schema.tables):
        try:
            rows, noticed = engine.read(declared[name], frozenset(keys[name]))
        except QueryError as error:
            if name not in views:
                raise
            findings.append(
                warning("S19", name, f'view "{name}" cannot be read and is left out: {error.reason}')
            )
            views.remove(name)
            continue
        columns = [  # without the drivers' own types
            c.cast(c.type.storage_type) if isinstance(c.type, pa.BaseExtensionType) else c
            for c in rows.columns
        ]
        tables[name] = pa.table(columns, names=rows.column_names)
        findings += noticed
    schema = replace(schema, tables={name: schema.tables[name] for name in tables})
    findings += _agree_on_types(tables, schema)
    for name in sorted(views):
        text = f'view "{name}" may sum up rows of any time: such a column would show what happens later'
        fix = f"hide it: kinds: {{column: unused}} for {name} in the schema file"
        findings.append(warning("D04", name, text, tables[name].num_rows, fix))
    return Source(tables, schema, location, findings=tuple(findings), views=frozenset(views))


def _declared_schema(declared: Tables, schema_name: str) -> tuple[Schema, list[Finding]]:
    tables, findings = {}, []
    for name, table in sorted(declared.items()):
        links: dict[ForeignKey, None] = {}
        for link in table.links:
            reason = _why_unusable(link, declared, schema_name)
            if reason:
                where = f"{name}.{', '.join(link.columns)}"
                findings.append(warning("S09", where, f"{where}: the foreign key {reason}; it is left out"))
            else:
                links[_foreign_key(link, declared[link.table])] = None
        place = {column: i for i, column in enumerate(table.columns)}
        in_order = sorted(links, key=lambda fk: ([place[c] for c in fk.columns], fk.table))
        settled: frozenset[Fact] = frozenset({"pkey"} if table.primary_key else ())
        tables[name] = TableSchema(table.primary_key, tuple(in_order), settled=settled)
    return Schema(tables), findings


def _why_unusable(link: Link, tables: Tables, schema_name: str) -> str:
    """Returns where a link leads if not to a column of a table that is read, else an empty text."""
    if link.schema != schema_name:
        return f'leads into another schema ("{link.schema}"."{link.table}")'
    if link.table not in tables:
        return f'leads to "{link.table}", which is not read' + did_you_mean(link.table, tables)
    target = tables[link.table]
    if not (link.references or target.primary_key):
        return f'leads to "{link.table}", which has no primary key'
    for column in link.references:
        if column not in target.columns:
            meant = did_you_mean(column, target.columns)
            return f'leads to "{link.table}"."{column}", which does not exist{meant}'
    return ""


def _foreign_key(link: Link, target: DeclaredTable) -> ForeignKey:
    """Returns the link with its columns in the order of the primary key, if that is what it names."""
    if not link.references or set(link.references) != set(target.primary_key):
        return ForeignKey(link.columns, link.table, link.references)
    partner = dict(zip(link.references, link.columns, strict=True))
    return ForeignKey(tuple(partner[column] for column in target.primary_key), link.table)


def _agree_on_types(tables: dict[str, pa.Table], schema: Schema) -> list[Finding]:
    """Turns whole numbers into text wherever a declared link leads from or to text.

    The database finds the two ends equal; and one end may be text only because it was too
    large or too mixed for a number. An empty column may have any type and changes nothing.
    """
    pairs = [
        ((name, mine), (key.table, theirs))
        for name, table in schema.tables.items()
        for key in table.foreign_keys
        for mine, theirs in zip(
            key.columns, key.references or schema.tables[key.table].primary_key, strict=False
        )
    ]
    findings: list[Finding] = []
    changed = True
    while changed:
        changed = False
        for one, other in (*pairs, *((b, a) for a, b in pairs)):
            text, number = tables[one[0]][one[1]], tables[other[0]][other[1]]
            has_text = pa.types.is_string(text.type) and text.null_count < len(text)
            if has_text and pa.types.is_integer(number.type):
                place = tables[other[0]].column_names.index(other[1])
                tables[other[0]] = tables[other[0]].set_column(place, other[1], number.cast(pa.string()))
                where, reason = ".".join(other), ".".join(one)
                message = f"{where} is read as text, as {reason} is, to which it is linked"
                findings.append(note("V11", where, message))
                changed = True
    return findings
