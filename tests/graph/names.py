"""Names for nodes: what a row is, never its number, which moves when other rows come and go."""

from __future__ import annotations

import pyarrow as pa

from quartet.database import Database
from tests.reference.graph import Cell

Name = tuple[Cell, ...]


def names_of(database: Database) -> list[Name]:
    """What each node is: its table with its primary key, or with all of its cells."""
    names: list[Name] = []
    for name, table in database.tables.items():
        columns = [_plain(table.data[c]) for c in table.primary_key or table.data.column_names]
        names += [(name, *cells) for cells in zip(*columns, strict=True)]
    return names


def _plain(column: pa.ChunkedArray) -> list[Cell]:
    """Cells that compare as the values they are: all NaN alike, no negative zero, times as numbers."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64()).to_pylist()
    cells = column.to_pylist()
    return [str(cell + 0.0) if isinstance(cell, float) else cell for cell in cells]
