"""Columns in canonical Arrow types, so that every reader gives the same database.

How a column is kept follows from its type, not from its cells: else a row that is not known yet could
change the keys of the others.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from quartet.errors import SchemaError

_TEXT = pa.string()
ENDING_ZEROS = r"\.0+$|(\.\d*[1-9])0+$"  # of a fraction: a finer unit writes more of them


def canonical(table: pa.Table, name: str = "") -> pa.Table:
    """The table with widths, encodings and zones of its columns made uniform.

    Integers are int64, decimals and floats float64, text string; dates and times are timestamps in UTC
    microseconds (nanoseconds stay), times of day text, durations counts of their unit. Unsigned integers of
    64 bits are text. Booleans, lists and binary columns stay as they are. Bytes that are not UTF-8 are replaced.
    """
    columns = [
        _canonical_column(column, f"{name}.{label}" if name else f'column "{label}"')
        for label, column in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.table(columns, names=table.column_names)


def _canonical_column(column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _canonical_column(
            pa.chunked_array([c.storage for c in column.chunks], kind.storage_type), where
        )
    if pa.types.is_dictionary(kind):
        return _canonical_column(_decoded(column), where)
    if pa.types.is_time(kind):
        return pc.replace_substring_regex(column.cast(_TEXT), ENDING_ZEROS, r"\1")
    if pa.types.is_decimal(kind) and kind.scale <= 0:
        return _whole_decimals(column, where)
    return valid_text(_exact(column, *_canonical_types(kind)))[0]


def valid_text(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, int]:
    """The column with what is not UTF-8 replaced, as a file may have it in a column of text, and in how many cells."""
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if not is_text or _is_valid(column):
        return column, 0
    raw = column.cast(pa.large_binary()).to_pylist()
    text = [None if cell is None else cell.decode("utf-8", "replace") for cell in raw]
    broken = sum(new is not None and new.encode() != old for new, old in zip(text, raw, strict=True))
    return pa.chunked_array([pa.array(text, _TEXT)]), broken


def _is_valid(column: pa.ChunkedArray) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _whole_decimals(column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    """Warehouses write every integer as a decimal. As text where one is too large, the others would change."""
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        raise SchemaError(
            "S17", f"{where} is {column.type} and holds whole numbers of 2^63 and above", "store it as text"
        ) from None


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values that a dictionary stands for. Arrow cannot decode the views that polars keeps."""
    kind = column.type.value_type
    kind = _TEXT if pa.types.is_string_view(kind) else kind
    return pa.chunked_array([c.dictionary.cast(kind).take(c.indices) for c in column.chunks], kind)


def _exact(column: pa.ChunkedArray, *kinds: pa.DataType) -> pa.ChunkedArray:
    """The column in the first of some types that loses nothing, or as it is."""
    for kind in kinds:
        try:
            return column if column.type == kind else column.cast(kind)
        except pa.ArrowInvalid:
            pass
    return column


def _canonical_types(kind: pa.DataType) -> tuple[pa.DataType, ...]:
    """The types to try, the best first."""
    if pa.types.is_uint64(kind):
        return (_TEXT,)
    if pa.types.is_integer(kind) or pa.types.is_duration(kind):
        return (pa.int64(),)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return (pa.float64(),)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return (_TEXT,)
    if pa.types.is_date(kind):
        return pa.timestamp("us"), pa.timestamp("s")
    if pa.types.is_timestamp(kind):
        # Arrow keeps zoned times in UTC, so that only the name of the zone goes.
        return (pa.timestamp("ns"),) if kind.unit == "ns" else (pa.timestamp("us"), pa.timestamp(kind.unit))
    return ()


def is_plain(kind: pa.DataType) -> bool:
    """Whether a column of this type can become a feature: structs, binary and lists of these cannot."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _is_word(kind.value_type)
    return not (pa.types.is_nested(kind) or is_binary(kind))


def _is_word(kind: pa.DataType) -> bool:
    """Whether the parts of a list can stand for categories: text, whole numbers and yes or no."""
    if pa.types.is_dictionary(kind):
        return _is_word(kind.value_type)
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_null(kind)
    )


def is_binary(kind: pa.DataType) -> bool:
    """Whether cells are bytes, of whatever width."""
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )
