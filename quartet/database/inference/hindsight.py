"""What later rows change in the reading of earlier ones.

Types, keys, links and times that nobody declared are inferred from all rows of a source. If the rows known at a time
would have been read in another way without those that came later, the future has a say in what a model sees.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.database.columns import canonical, is_text
from quartet.database.inference.infer import infer
from quartet.database.inference.inherit import inherit_times
from quartet.database.readers.folder import as_csv_reads
from quartet.database.schema import FACTS, ForeignKey, Schema, TableSchema, TimeColumn, quoted
from quartet.findings import Finding, warning
from quartet.times import is_iso, show_instant, to_utc

if TYPE_CHECKING:
    from quartet.database.database import Database
    from quartet.database.table import Table


def read_differently(database: Database, upto: int) -> list[Finding]:
    """Returns the types, keys, links and times that the rows known at a time would have been read with instead.

    The fix of each is an entry of the schema file under `tables`; what is declared depends on no row.
    """
    read = {name: table for name, table in database.tables.items() if not table.schema.made_from}
    database = replace(database, tables=read)  # what is made from them follows from their rows
    when, findings = f"by the rows known at {show_instant(upto)}", []
    asked = replace(database.schema, tables={n: _declared(t.schema, read) for n, t in read.items()})
    whole = {}
    for name, table in database.tables.items():
        made = [table.schema.time.column] if table.schema.time and table.schema.time.link else []
        whole[name] = table.data.drop_columns(made)
    part = {
        name: whole[name].filter(pa.array(_rows_known(database[name], whole, asked, upto))) for name in whole
    }
    for name, table in database.tables.items():
        for column in _typed_by_cells(database, table):
            cells = canonical(pa.table({column: as_csv_reads(part[name][column])}))[column]
            if not is_text(cells.type) and not pa.types.is_null(cells.type):
                part[name] = part[name].set_column(part[name].column_names.index(column), column, cells)
                kind = "time" if pa.types.is_temporal(cells.type) else "number"
                told = "unused" if column in _keys(table.schema) or pa.types.is_boolean(cells.type) else kind
                what = f"{name}.{column} would hold no text {when}, but {cells.type}, and is text by all rows"
                findings.append(_finding(name, f"{name}.{column}", what, kinds={column: told}))
    if all(table.schema.settled >= FACTS for table in database.tables.values()):
        return findings
    now, then = (inherit_times(tables, infer(tables, asked)[0])[1].tables for tables in (whole, part))
    for name in database.tables:
        if part[name].num_rows:
            findings += _differences(database, name, now, then, when)
    return findings


def _rows_known(table: Table, whole: Mapping[str, pa.Table], asked: Schema, upto: int) -> NDArray[np.bool_]:
    """Returns the rows of a table that are known at a time.

    A table may have lost its time to later rows, in which it is empty or no date: the rows before it are known by a
    column that would be the time if they were alone.
    """
    if table.is_timed or "time_col" in table.schema.settled:
        return visible(table.known_at, upto)
    for column, cells in zip(table.data.column_names, table.data.columns, strict=True):
        if is_text(cells.type):
            cells = pc.if_else(is_iso(cells), cells, None)
        if not (is_text(cells.type) or pa.types.is_timestamp(cells.type)) or cells.null_count in (
            0,
            len(cells),
        ):
            continue
        known = visible(to_utc(cells, table.name, timezone="UTC").ns, upto)
        alone = {**whole, table.name: whole[table.name].filter(pa.array(known))}
        time = infer(alone, asked)[0].tables[table.name].time
        if time and time.column == column:
            return known
    return visible(table.known_at, upto)


def _typed_by_cells(database: Database, table: Table) -> list[str]:
    """Returns the text columns whose type the reader took from their cells, and not from a declaration."""
    mixed = {finding.where for finding in database.findings if finding.code == "V11"}
    return [
        field.name
        for field in table.data.schema
        if is_text(field.type)
        and field.name not in table.schema.kinds
        and (table.name in database.untyped or f"{table.name}.{field.name}" in mixed)
    ]


def _keys(schema: TableSchema) -> set[str]:
    return {*schema.primary_key, *(column for fk in schema.foreign_keys for column in fk.columns)}


def _declared(schema: TableSchema, read: Collection[str]) -> TableSchema:
    """Returns a schema without what was inferred, with links to tables that are `read` alone.

    Times have been read already, so only their column counts.
    """
    time = None if schema.time is None or schema.time.origin.is_inferred else schema.time
    return replace(
        schema,
        primary_key=() if schema.key_origin.is_inferred else schema.primary_key,
        foreign_keys=tuple(
            fk for fk in schema.foreign_keys if not fk.origin.is_inferred and fk.table in read
        ),
        time=time
        and replace(time, column="" if time.link else time.column, unit=None, format=None, timezone=None),
    )


def _differences(
    database: Database, name: str, now: Mapping[str, TableSchema], then: Mapping[str, TableSchema], when: str
) -> list[Finding]:
    findings, new, old, table = [], now[name], then[name], database[name]
    if new.primary_key != old.primary_key:
        keys = [", ".join(key) or "none" for key in (old.primary_key, new.primary_key)]
        what = f"the key of {name} would be {keys[0]} {when}, and is {keys[1]} by all rows"
        findings.append(_finding(name, name, what, pkey=[*new.primary_key] or None))
    both = {(fk.columns, fk.table) for fk in new.foreign_keys} & {
        (fk.columns, fk.table) for fk in old.foreign_keys
    }
    lost = [fk for fk in old.foreign_keys if (fk.columns, fk.table) not in both]
    gained = [fk for fk in new.foreign_keys if (fk.columns, fk.table) not in both]
    entry: dict[str, list[str]] = {}
    for fk in (*new.foreign_keys, *(fk for fk in lost if _still_holds(database, name, fk, now, then))):
        references = "".join(f".{quoted(column, ',')}" for column in fk.references)
        entry.setdefault(", ".join(quoted(c, ",") for c in fk.columns), []).append(
            quoted(fk.table, ".") + references
        )
    for fk in (*lost, *gained):
        yes, no = ("", " not") if fk in lost else ("not ", "")
        what = f"{name}.{fk.label} would {yes}point to {fk.table} {when}, and does{no} by all rows"
        findings.append(_finding(name, f"{name}.{fk.label}", what, fkeys=entry))
    if (old.time and (old.time.column, old.time.link)) != (new.time and (new.time.column, new.time.link)):
        shown = [side.time.column if side.time else "none" for side in (old, new)]
        what = f"the time of {name} would be {shown[0]} {when}, and is {shown[1]} by all rows"
        findings.append(
            _finding(name, name, what, **_time_entry(table, old.time or new.time or TimeColumn("")))
        )
    return findings


def _still_holds(
    database: Database,
    name: str,
    fk: ForeignKey,
    now: Mapping[str, TableSchema],
    then: Mapping[str, TableSchema],
) -> bool:
    """Whether a link can be declared although it is no longer inferred: its target has the same key, of its type."""
    key = now[fk.table].primary_key
    own, target = database[name].data, database[fk.table].data
    same = (is_text(own[c].type) == is_text(target[k].type) for c, k in zip(fk.columns, key, strict=False))
    return bool(key) and key == then[fk.table].primary_key and all(same)


def _time_entry(table: Table, time: TimeColumn) -> dict[str, Any]:
    """Returns the fields that declare a time, such that a cell which is no time does no harm."""
    if time.link:
        return {"time_from": [*time.link], "on_missing_time": "never_visible"}
    own = table.schema.time
    read = own if own and own.column == time.column else time
    entry: dict[str, Any] = {"time_col": time.column, "time_unit": read.unit, "time_format": read.format}
    entry["kinds"] = {time.column: "time"} if is_text(table.data[time.column].type) else None
    return {field: value for field, value in entry.items() if value} | {"on_missing_time": "never_visible"}


def _finding(name: str, where: str, what: str, **entry: Any) -> Finding:
    text = yaml.safe_dump({name: entry}, default_flow_style=True, width=10**9, sort_keys=False).strip()
    return warning(
        "S21", where, f"{what}: later rows decide", fix=f"write under tables in the schema file: {text[1:-1]}"
    )
