"""Columns read as the schema file tells (`kinds`): a cell that cannot be read so is missing, and counted.

A reader takes the type of a CSV column from its cells, where one "unknown" turns numbers into text. What is told does
not depend on cells, so that no later row can change how the earlier ones are read.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from quartet.database.columns import canonical, is_text
from quartet.database.schema import TableSchema
from quartet.errors import examples
from quartet.findings import Finding, warning
from quartet.times import is_iso, to_arrow, to_utc

_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_TYPES = {"number": pa.float64(), "time": pa.timestamp("us")}
_UNTYPED = {"number": pa.types.is_integer, "unused": pa.types.is_integer, "time": pa.types.is_timestamp}
_EMPTY = pa.array(["", "NULL", "null", "\\N", "NA", "N/A", "NaN", "nan", "None", "NaT"])


def read_as_told(
    name: str, raw: pa.Table, schema: TableSchema, is_untyped: bool
) -> tuple[pa.Table, list[Finding]]:
    """Returns the table with text told to be `number` or `time` as such, and what was unreadable.

    Where the types of the source were taken from its cells, what is told also settles the width, and whole numbers
    told to be `unused` are text, as they would be if one cell were. The time of the table stays as it is written.
    """
    findings = []
    for column, kind in schema.kinds.items():
        if raw.column_names.count(column) != 1:
            continue
        cells = canonical(raw.select([column]), name)[column]
        is_time = schema.time is not None and schema.time.column == column
        if is_text(cells.type) and kind in _TYPES and not (is_time and schema.time and schema.time.format):
            cells, unreadable = _readable(f"{name}.{column}", cells, kind)
            findings += unreadable
            if kind == "time" and not is_time:
                cells = to_arrow(to_utc(cells, f"{name}.{column}").ns)
        elif not is_untyped or kind not in _UNTYPED or not _UNTYPED[kind](cells.type):
            continue
        if kind == "unused" or not is_time:
            cells = cells.cast(_TYPES.get(kind, pa.string()), safe=False)
        raw = raw.set_column(raw.column_names.index(column), column, cells)
    return raw, findings


def _readable(where: str, cells: pa.ChunkedArray, kind: str) -> tuple[pa.ChunkedArray, list[Finding]]:
    """Returns the texts that can be read as told, null for the others, and a finding that counts these."""
    text = pc.utf8_trim_whitespace(cells)
    text = pc.if_else(pc.is_in(text, _EMPTY), None, text)
    fits = pc.match_substring_regex(text, _NUMBER) if kind == "number" else is_iso(text)
    odd = text.filter(pc.invert(fits))
    cells_are = (
        "1 cell cannot be read so and is"
        if len(odd) == 1
        else f"{len(odd):,} cells cannot be read so and are"
    )
    what = f"{where} is told to be {kind}: {cells_are} missing"
    finding = warning("V12", where, f"{what} {examples(pc.unique(odd).to_pylist())}", len(odd))
    return pc.if_else(fits, text, None), [finding] if len(odd) else []
