"""A dict of DataFrames (pandas, polars) or Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from quartet.database.schema import Schema
from quartet.database.source import Source
from quartet.errors import SchemaError, UsageError


def read_frames(frames: Mapping[Any, Any]) -> Source:
    """The frames as a source that declares nothing."""
    tables = {str(name): _to_arrow(str(name), frame) for name, frame in frames.items()}
    return Source(tables, Schema(), "memory")


def _to_arrow(name: str, frame: Any) -> pa.Table:
    if isinstance(frame, pa.Table):
        return frame
    if type(frame).__module__.startswith("pandas"):
        return _from_pandas(name, frame)
    if hasattr(frame, "__arrow_c_stream__"):
        return pa.table(frame)
    raise UsageError(
        "S01",
        f'table "{name}" is a {type(frame).__name__}',
        "give a pandas or polars DataFrame or an Arrow table",
    )


def _from_pandas(name: str, frame: Any) -> pa.Table:
    columns = [str(column) for column in frame.columns]
    arrays = [_column(name, label, frame.iloc[:, place]) for place, label in enumerate(columns)]
    # pa.table from a list keeps repeated names, so that they are refused with their own message.
    return pa.Table.from_arrays(arrays, names=columns)


def _column(table: str, label: str, series: Any) -> pa.Array:
    try:
        return pa.Array.from_pandas(series)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SchemaError(
            "V09",
            f"{table}.{label} mixes types that do not fit in one column ({str(error).splitlines()[0]})",
            "give the column one type, e.g. text",
        ) from None
