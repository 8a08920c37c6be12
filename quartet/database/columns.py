"""Columns in canonical Arrow types, so that every reader gives the same database."""

from __future__ import annotations

import pyarrow as pa

_TEXT = pa.string()


def canonical(table: pa.Table) -> pa.Table:
    """The table with widths, encodings and zones of its columns made uniform.

    Integers are int64, decimals and floats float64, text string, dates and zoned times plain UTC
    timestamps, times of day text. Booleans, lists and binary columns stay as they are.
    """
    columns = [_canonical_column(column) for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _canonical_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _canonical_column(pa.chunked_array([c.storage for c in column.chunks], kind.storage_type))
    if pa.types.is_dictionary(kind):
        return _canonical_column(_decoded(column))
    target = _canonical_type(kind)
    if target == kind:
        return column
    try:
        return column.cast(target)
    except pa.ArrowInvalid:
        # An unsigned or decimal integer beyond int64, or text beyond 2 GB: exact as it is, or as text.
        return column if pa.types.is_large_string(kind) else column.cast(_TEXT)


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values that a dictionary stands for. Arrow cannot decode the views that polars keeps."""
    kind = column.type.value_type
    kind = _TEXT if pa.types.is_string_view(kind) else kind
    return pa.chunked_array([c.dictionary.cast(kind).take(c.indices) for c in column.chunks], kind)


def _canonical_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale <= 0):
        return pa.int64()
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return pa.float64()
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or pa.types.is_time(kind):
        return _TEXT
    if pa.types.is_date(kind):
        return pa.timestamp("s")
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit)  # Arrow keeps zoned times in UTC: only the zone's name goes
    if pa.types.is_duration(kind):
        return pa.int64()
    return kind


def is_plain(kind: pa.DataType) -> bool:
    """Whether a column of this type can become a feature: lists, structs and binary cannot."""
    return not (
        pa.types.is_nested(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )
