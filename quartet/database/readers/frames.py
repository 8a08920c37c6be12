"""A dict of DataFrames (pandas, polars) or Arrow tables."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from quartet.database.schema import Schema
from quartet.database.source import Source
from quartet.errors import SchemaError, TimeError, UsageError


def read_frames(frames: Mapping[Any, Any]) -> Source:
    """Returns the frames as a source that declares nothing."""
    tables = {str(name): _to_arrow(str(name), frame) for name, frame in frames.items()}
    return Source(tables, Schema(), "memory")


def _to_arrow(name: str, frame: Any) -> pa.Table:
    if isinstance(frame, pa.Table):
        return frame
    pandas = sys.modules.get("pandas")  # whoever holds one of its frames has imported it
    if pandas is not None and isinstance(frame, pandas.DataFrame):
        columns = [str(column) for column in frame.columns]
        arrays = [_column(f"{name}.{label}", frame.iloc[:, place]) for place, label in enumerate(columns)]
        # From arrays, a table keeps repeated names, so that they are refused with their own message.
        return pa.Table.from_arrays(arrays, names=columns)
    if hasattr(frame, "__arrow_c_stream__"):
        try:
            return pa.table(frame)
        except pa.ArrowInvalid:
            pass  # a single column: it has no names
    raise UsageError(
        "S01",
        f'table "{name}" is of type {type(frame).__name__}',
        "give a pandas or polars DataFrame or an Arrow table",
    )


def _column(where: str, series: Any) -> pa.Array | pa.ChunkedArray:
    try:
        cells = pa.Array.from_pandas(series)
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        reason = str(error).splitlines()[0]
        raise SchemaError(
            "V09", f"{where} does not fit in one type ({reason})", "give the column one type, e.g. text"
        ) from None
    is_zoned = pa.types.is_timestamp(cells.type) and cells.type.tz is not None
    # Arrow would read a time without a zone as UTC.
    if is_zoned and series.dtype == object and any(time.tzinfo is None for time in series.dropna()):
        fix = "give all of them a zone, or none"
        raise TimeError("T04", f"{where} mixes zone-aware and zone-free values", fix)
    return cells
