"""Brings columns to canonical Arrow types, so that every reader gives the same database.

The result depends on the type of a column, not on its cells: otherwise a row that is not known yet could
change the keys of the others.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from quartet.errors import SchemaError

_TEXT = pa.string()
ENDING_ZEROS = r"\.0+$|(\.\d*[1-9])0+$"  # of a fraction: a finer unit writes more of them


def canonical(table: pa.Table, name: str = "") -> pa.Table:
    """Returns the table with the widths, encodings and time zones of its columns made uniform.

    Integers become int64, decimals and floats float64, text string; dates and times become timestamps in UTC
    microseconds (nanoseconds stay), times of day text, durations counts of their unit. Unsigned integers of
    64 bits and UUIDs become text. Booleans, lists and binary columns stay as they are, but for views, which become
    what they show. Invalid UTF-8 is replaced.
    """
    columns = [
        _canonical_column(column, f"{name}.{label}" if name else f'column "{label}"')
        for label, column in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.table(columns, names=table.column_names)


def _canonical_column(column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.uuid":  # as SQL databases write it
            return pa.chunked_array([[uuid and str(uuid) for uuid in column.to_pylist()]], _TEXT)
        storage = pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)
        return _canonical_column(storage, where)
    if pa.types.is_dictionary(kind):
        # Arrow cannot decode the string views that polars keeps.
        value = _TEXT if pa.types.is_string_view(kind.value_type) else kind.value_type
        decoded = [chunk.dictionary.cast(value).take(chunk.indices) for chunk in column.chunks]
        return _canonical_column(pa.chunked_array(decoded, value), where)
    if pa.types.is_time(kind):
        return pc.replace_substring_regex(column.cast(_TEXT), ENDING_ZEROS, r"\1")
    if pa.types.is_decimal(kind) and kind.scale <= 0:
        # Warehouses write every integer as a decimal. If one that is too large made the column text,
        # the other values would change with it.
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid:
            raise SchemaError(
                "S17", f"{where} is {kind} and holds whole numbers of 2^63 and above", "store it as text"
            ) from None
    if (plain := _without_views(kind)) != kind:
        # Arrow casts views of text and bytes, but a view of lists only to broken offsets.
        is_view = pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)
        column = pa.chunked_array([column.to_pylist()], plain) if is_view else column.cast(plain)
    for wanted in _canonical_types(kind):
        try:
            return valid_text(column.cast(wanted))[0]
        except pa.ArrowInvalid:
            continue
    return valid_text(column)[0]


def _canonical_types(kind: pa.DataType) -> tuple[pa.DataType, ...]:
    """Returns the types to try in turn; a column that fits none without loss stays as it is."""
    if pa.types.is_uint64(kind) or pa.types.is_large_string(kind):
        return (_TEXT,)
    if pa.types.is_integer(kind) or pa.types.is_duration(kind):
        return (pa.int64(),)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return (pa.float64(),)
    if pa.types.is_date(kind):
        return pa.timestamp("us"), pa.timestamp("s")
    if pa.types.is_timestamp(kind):
        # Arrow keeps zoned times in UTC, so that only the name of the zone goes.
        return (pa.timestamp("ns"),) if kind.unit == "ns" else (pa.timestamp("us"), pa.timestamp(kind.unit))
    return ()


def _without_views(kind: pa.DataType) -> pa.DataType:
    """Returns the type with views, at any depth, as plain columns: Arrow can neither take nor filter views."""

    def plain(field: pa.Field) -> pa.Field:
        return field.with_type(_without_views(field.type))

    if pa.types.is_struct(kind):
        return pa.struct([plain(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_field), plain(kind.item_field), kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(plain(kind.value_field), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(plain(kind.value_field))
    if pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(plain(kind.value_field))
    return {pa.string_view(): _TEXT, pa.binary_view(): pa.binary()}.get(kind, kind)


def valid_text(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, int]:
    """Returns a text column with invalid UTF-8 replaced, and the number of cells where this was needed."""
    try:
        if is_text(column.type):
            column.validate(full=True)
        return column, 0
    except pa.ArrowInvalid:
        raw = column.cast(pa.large_binary()).to_pylist()
    text = [None if cell is None else cell.decode("utf-8", "replace") for cell in raw]
    broken = sum(new is not None and new.encode() != old for new, old in zip(text, raw, strict=True))
    return pa.chunked_array([pa.array(text, _TEXT)]), broken


def is_plain(kind: pa.DataType) -> bool:
    """Whether a column of this type can become a feature: structs, binary and lists of these cannot.

    The parts of a list must be able to stand for categories: text, whole numbers or truth values.
    """
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        part = kind.value_type
        while pa.types.is_dictionary(part):
            part = part.value_type
        return is_text(part) or pa.types.is_integer(part) or part in (pa.bool_(), pa.null())
    return not (pa.types.is_nested(kind) or is_binary(kind))


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Whether cells are bytes, of whatever width."""
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )
