"""Rows that come later: plain values as cells of a table, and tables as their source writes them.

A row that is added is read as a reader would have read it with the others: by the type of its column, never by its
neighbours, so that a database that has grown is the one that a fresh reading of all rows would give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quartet.database.columns import is_text
from quartet.database.keys import rows_named
from quartet.database.relations import Relation, relate
from quartet.database.table import Table, build_table
from quartet.errors import SchemaError, TimeError, did_you_mean, examples
from quartet.findings import Finding
from quartet.times import is_iso, to_utc

_OF_TABLES = ("S02", "S05", "T09", "V09", "V13")  # findings that tell of a whole table, not of its last rows
_MOST_CHUNKS = 64
_LARGEST = 1.7e308


def as_read(table: Table) -> pa.Table:
    """Returns a table as its source writes it: its times are not in UTC yet, and none is taken from another table."""
    data, time = table.data, table.schema.time
    if time is not None and time.link:
        data, time = data.drop_columns([time.column]), None
    for name, column in table.written.items():
        if name in data.column_names:
            data = data.set_column(data.column_names.index(name), name, column)
    if time is None:
        return data
    place = data.column_names.index(time.column)
    if time.end_of == "period" and time.column not in table.written:
        # The type alone has said that the period is a day.
        return data.set_column(place, time.column, data[time.column].cast(pa.date32(), safe=False))
    if time.timezone and pa.types.is_timestamp(data[time.column].type):
        filled = pc.indices_nonzero(pc.is_valid(data[time.column]))[:1]
        told = to_utc(data[time.column].take(filled), table.name, timezone=time.timezone).ns
        if (told != table.data[time.column].take(filled).cast(pa.int64()).to_numpy()).any():
            # The source wrote a zone, which went before that of the schema.
            return data.set_column(
                place, time.column, table.data[time.column].cast(pa.timestamp("ns", "UTC"))
            )
    return data


def rows_as_read(table: Table, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Returns rows of plain values, such as JSON has, as more of what `as_read` returns; an absent cell is empty.

    Whole numbers, numbers, texts and truth values stand for themselves; dates and times are texts of ISO 8601, where
    the source does not write them in another way.
    """
    if table.schema.made_from:
        what = f'table "{table.name}" is made from the values of other tables'
        raise SchemaError("S22", what, "add rows of those tables")
    kinds = as_read(table).schema
    for number, row in enumerate(rows):
        for name in row:
            if name not in kinds.names:
                what = f'row {number + 1}: table "{table.name}" has no column "{_short(name)}"'
                raise SchemaError("V05", what + did_you_mean(name, kinds.names), "leave it out")
    columns = [_column(table, field, [row.get(field.name) for row in rows]) for field in kinds]
    return pa.table(columns, schema=kinds)


def _column(table: Table, field: pa.Field, cells: list[Any]) -> pa.ChunkedArray:
    where, kind = f"{table.name}.{field.name}", field.type
    fits, words = _expected(kind)
    odd = [(number, cell) for number, cell in enumerate(cells) if cell is not None and not fits(cell)]
    if odd:
        shown = examples(f"row {number + 1}: {_short(cell)}" for number, cell in odd)
        raise SchemaError("V06", f"{where} holds {words}, got something else {shown}", f"give {words}")
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        return pa.chunked_array([pa.array([_as_kind(cell, kind) for cell in cells], kind)])
    texts = pa.array(cells, pa.string())
    bad = [cell for cell, is_time in zip(cells, is_iso(texts).to_pylist(), strict=True) if is_time is False]
    if (
        field.name in table.written and getattr(kind, "tz", None) is None
    ):  # an offset would contradict its zone
        bad += [cell for cell in cells if cell is not None and _has_offset(cell)]
    if bad:
        shown = examples(map(_short, bad))
        raise TimeError(
            "T02", f"{where}: {len(bad):,} cells are no times of this column {shown}", f"give {words}"
        )
    parsed = to_utc(texts, where)
    stamps = pa.array(parsed.ns, pa.timestamp("ns"), mask=parsed.missing)
    return pa.chunked_array([stamps.cast(kind, safe=False)])


def _as_kind(cell: Any, kind: pa.DataType) -> Any:
    """Returns a cell as Arrow takes it: whole numbers of a column of decimals as the nearest of these."""
    if pa.types.is_floating(kind) and cell is not None:
        return float(cell)
    if isinstance(cell, list):
        return [_as_kind(part, kind.value_type) for part in cell]
    return cell


def _has_offset(text: str) -> bool:
    clock = text[10:]
    return not set(clock).isdisjoint("Z+-")


def _expected(kind: pa.DataType) -> tuple[Callable[[Any], bool], str]:
    """Returns what a cell of a column must be, and in words."""
    if pa.types.is_boolean(kind):
        return lambda cell: isinstance(cell, bool), "true or false"
    if pa.types.is_integer(kind):
        least, most = int(np.iinfo(kind.to_pandas_dtype()).min), int(np.iinfo(kind.to_pandas_dtype()).max)
        is_whole = lambda cell: type(cell) is int and least <= cell <= most  # noqa: E731
        return is_whole, f"whole numbers below 2^{most.bit_length()}"
    if pa.types.is_floating(kind):
        return lambda cell: type(cell) in (int, float) and -_LARGEST < cell < _LARGEST, "numbers"
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return lambda cell: isinstance(cell, str), 'times such as "2024-06-01T12:00:00"'
    if is_text(kind):
        return lambda cell: isinstance(cell, str), "text"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        part, words = _expected(kind.value_type)
        is_fit = lambda cell: isinstance(cell, list) and all(x is None or part(x) for x in cell)  # noqa: E731
        return is_fit, f"lists of {words}"
    return lambda _: False, f"{kind}, for which JSON has no form: leave it empty"


def _short(cell: object) -> str:
    text = str(cell)[:200]
    return text if len(text) <= 40 else text[:37] + "..."


def joined(table: Table, more: pa.Table) -> tuple[Table, Table, list[Finding]]:
    """Returns a table with rows at its end, these rows as a table of their own, and what was noticed about them.

    `more` is as the source writes it (`rows_as_read`); a key that the table already holds is an error.
    """
    part, findings = build_table(table.name, more, table.schema)
    part = replace(part, data=part.data.cast(table.data.schema))
    if table.primary_key and part.num_rows and table.num_rows:
        rows = rows_named(part.key_columns(table.primary_key), table.key_map)
        known = np.flatnonzero(rows >= 0)
        if len(known):
            label, shown = ", ".join(table.primary_key), [part.key_map.show(int(row)) for row in known[:3]]
            what = (
                f'table "{table.name}" has {len(known):,} of these keys "{label}" already {examples(shown)}'
            )
            raise SchemaError("S03", what, "leave these rows out: a row that is known does not change")
    data = pa.concat_tables([table.data, part.data])
    if any(column.num_chunks > _MOST_CHUNKS for column in data.columns):  # after many small additions
        data = data.combine_chunks()
    whole = replace(
        table,
        data=data,
        known_at=np.concatenate([table.known_at, part.known_at]),
        num_rows_read=table.num_rows_read + part.num_rows_read,
        written={
            name: pa.chunked_array(
                [*column.chunks, *part.written[name].cast(column.type).chunks], column.type
            )
            for name, column in table.written.items()
        },
    )
    return whole, part, [finding for finding in findings if finding.code not in _OF_TABLES]


def linked(
    relation: Relation,
    before: Mapping[str, Table],
    after: Mapping[str, Table],
    parts: Mapping[str, Table],
    on_dangling: str,
) -> tuple[Relation, list[Finding]]:
    """Returns a relation of tables that have grown: new rows find theirs, and old ones a row that they named before it
    came."""
    rows, findings, name, parent = relation.rows, [], relation.table, relation.parent

    def relate_some(some: Table, tables: Mapping[str, Table], rule: str) -> tuple[Relation, list[Finding]]:
        alone = replace(some, schema=replace(some.schema, foreign_keys=(relation.foreign_key,)))
        found, noticed = relate(alone, tables, rule)
        return found[0], noticed

    if parent in parts:
        waiting = np.flatnonzero(rows < 0)
        if len(waiting):
            mask = np.zeros(len(rows), bool)
            mask[waiting] = True
            found, _ = relate_some(before[name].take(mask), {**before, parent: parts[parent]}, "drop")
            if (found.rows >= 0).any():  # else they stay the same, and what was made of them
                rows = rows.copy()
                rows[waiting] = np.where(found.rows >= 0, found.rows + before[parent].num_rows, -1)
    if name in parts:
        found, noticed = relate_some(parts[name], after, on_dangling)
        rows, findings = np.concatenate([rows, found.rows]), noticed
    return replace(relation, rows=rows), findings
