"""Table: columns with keys, links and a time, validated at birth."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.database.columns import canonical, is_plain, valid_text
from quartet.database.keys import KeyColumn, KeyMap
from quartet.database.schema import MissingTime, TableSchema
from quartet.errors import SchemaError, TimeError, did_you_mean, examples
from quartet.findings import Finding, note, warning
from quartet.times import NEVER, STATIC, to_arrow, to_utc


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of one type. `known_at` is when each row became knowable (`STATIC` if always).

    The time column inside `data` is already UTC nanoseconds. `num_rows_read` counts what the
    source had, so that rows read = rows here + rows reported as dropped.
    """

    name: str
    data: pa.Table
    schema: TableSchema
    known_at: NDArray[np.int64]
    num_rows_read: int

    @property
    def num_rows(self) -> int:
        return int(self.data.num_rows)

    @property
    def is_timed(self) -> bool:
        return self.schema.time is not None

    @property
    def primary_key(self) -> tuple[str, ...]:
        return self.schema.primary_key

    @cached_property
    def key_map(self) -> KeyMap:
        """Key values to row numbers, by the primary key."""
        return self.key_map_of(self.primary_key)

    def key_map_of(self, columns: tuple[str, ...]) -> KeyMap:
        return KeyMap(self.key_columns(columns))

    def key_columns(self, columns: tuple[str, ...]) -> list[KeyColumn]:
        return [KeyColumn.of(self.data[name], f"{self.name}.{name}") for name in columns]

    def take(self, rows: NDArray[np.bool_]) -> Table:
        """The table with only the rows of a mask."""
        mask = pa.array(rows)
        return replace(self, data=self.data.filter(mask), known_at=self.known_at[rows])

    def without(self, columns: set[str]) -> Table:
        """The table without some of its columns; a link over one of them goes with it."""
        for name in columns & {*self.primary_key, *((self.schema.time.column,) if self.schema.time else ())}:
            raise SchemaError(
                "L02", f"{self.name}.{name} is a key or the time of its table and cannot be hidden"
            )
        links = tuple(fk for fk in self.schema.foreign_keys if not columns & set(fk.columns))
        return replace(
            self,
            data=self.data.drop_columns(sorted(columns)),
            schema=replace(self.schema, foreign_keys=links),
        )


def build_table(name: str, raw: pa.Table, schema: TableSchema) -> tuple[Table, list[Finding]]:
    """A validated table, and what was noticed or repaired on the way."""
    _check_column_names(name, raw.column_names)
    _check_named_columns(name, raw.column_names, schema)
    data = canonical(raw, name)
    findings = [*_text_findings(name, raw), *_column_findings(name, data)]
    known_at = np.full(data.num_rows, STATIC, dtype=np.int64)
    if schema.time is not None:
        data, known_at, repaired = _timed(name, raw, data, schema)
        findings += repaired
    table = Table(name, data, schema, known_at, num_rows_read=int(raw.num_rows))
    findings += _row_findings(table)
    if table.primary_key and table.num_rows:
        _check_primary_key(table)
    return table, findings


def _check_column_names(table: str, names: list[str]) -> None:
    """DuckDB and most databases do not tell `Id` from `id`, so neither name would be safe."""
    counts = Counter(name.lower() for name in names)
    for lower, count in counts.items():
        if count > 1:
            same = "/".join(f'"{name}"' for name in names if name.lower() == lower)
            raise SchemaError("S15", f'table "{table}" has two columns named {same}', "rename one")


def _check_named_columns(table: str, names: list[str], schema: TableSchema) -> None:
    times = {schema.time.column if schema.time else None, schema.available_at}
    for column in schema.named_columns:
        if column not in names:
            error, code, role = (
                (TimeError, "T01", "time column") if column in times else (SchemaError, "S09", "key column")
            )
            raise error(
                code,
                f'table "{table}" has no {role} "{column}"' + did_you_mean(column, names),
                "correct the name in the schema file",
            )
    for column in schema.kinds:
        if column not in names:
            raise SchemaError(
                "S09",
                f'table "{table}" has no column "{column}", of which kinds speaks'
                + did_you_mean(column, names),
                "correct the name in the schema file",
            )
    if schema.available_at is not None and schema.time is None:
        raise TimeError(
            "T01",
            f'table "{table}" has available_at "{schema.available_at}" but no time column',
            "give its time_col too",
        )


def _timed(
    name: str, raw: pa.Table, data: pa.Table, schema: TableSchema
) -> tuple[pa.Table, NDArray[np.int64], list[Finding]]:
    """The data with its time column in UTC, when each row became known, and what was repaired."""
    spec = schema.time
    assert spec is not None
    known_at = np.full(data.num_rows, STATIC, dtype=np.int64)
    missing, repaired = np.zeros(data.num_rows, dtype=bool), []
    for column in filter(None, (spec.column, schema.available_at)):
        parsed = to_utc(raw[column], f"{name}.{column}", spec.unit, spec.format, spec.timezone)
        known_at = np.maximum(known_at, parsed.ns)
        data = data.set_column(data.column_names.index(column), column, to_arrow(parsed.ns))
        count = int((parsed.missing & ~missing).sum())  # a row is reported once, whatever it lacks
        repaired += [_missing_time(f"{name}.{column}", count, spec.on_missing)] if count else []
        missing |= parsed.missing
    if spec.on_missing == "drop" and missing.any():
        return data.filter(pa.array(~missing)), known_at[~missing], repaired
    return data, known_at, repaired


def _missing_time(where: str, count: int, on_missing: MissingTime) -> Finding:
    text = f"{where} is empty in {count:,} rows"
    if on_missing == "error":
        raise TimeError(
            "T03",
            f"{text}. A row without a time cannot be placed before or after a prediction",
            "on_missing_time: drop | never_visible",
        )
    done = "dropped" if on_missing == "drop" else "kept, and never visible"
    return warning("T03", where, f"{text}; {done}", count)


def _text_findings(name: str, raw: pa.Table) -> list[Finding]:
    found = []
    for column in raw.column_names:
        _, count = valid_text(raw[column])
        if count:
            text = f"{name}.{column}: {count:,} values are not valid UTF-8; the broken bytes are replaced"
            found.append(warning("V08", f"{name}.{column}", text, count))
    return found


def _column_findings(name: str, data: pa.Table) -> list[Finding]:
    odd = [f.name for f in data.schema if not is_plain(f.type)]
    if not odd:
        return []
    text = f'table "{name}": {len(odd)} nested or binary columns are not used {examples(odd)}'
    return [note("V09", name, text, len(odd))]


def _row_findings(table: Table) -> list[Finding]:
    found = []
    if table.num_rows == 0:
        found.append(warning("S02", table.name, f'table "{table.name}" has 0 rows; kept as an empty type'))
    if not table.primary_key:
        kind = note if "pkey" in table.schema.settled else warning
        text = (
            f'table "{table.name}" has no primary key; rows get content keys and cannot be prediction targets'
        )
        found.append(kind("S05", table.name, text))
    if table.schema.time is not None and table.num_rows:
        found += _time_findings(table, f"{table.name}.{table.schema.time.column}")
    return found


def _time_findings(table: Table, where: str) -> list[Finding]:
    dated = table.known_at[table.known_at != NEVER]
    found = []
    ahead = int((dated > time.time_ns()).sum())
    if ahead:
        found.append(
            warning("T08", where, f"{where}: {ahead:,} rows lie in the future of this machine", ahead)
        )
    if len(dated) > 1 and dated.min() == dated.max():
        text = f"{where}: all {len(dated):,} rows share one time; order is by key"
        found.append(warning("T09", where, text, len(dated)))
    return found


def _check_primary_key(table: Table) -> None:
    label = ", ".join(table.primary_key)
    for name in table.primary_key:
        empty = pc.is_null(table.data[name], nan_is_null=True)
        count = pc.sum(empty).as_py()
        if count:
            rows = np.flatnonzero(empty.to_numpy())[:3] + 1
            raise SchemaError(
                "S04",
                f'table "{table.name}": primary key "{name}" is empty in {count:,} rows '
                f"(rows {', '.join(map(str, rows))})",
                "fill it in or choose another key",
            )
    count, first = table.key_map.repeated()
    if count:
        raise SchemaError(
            "S03",
            f'table "{table.name}": primary key "{label}" has {count:,} repeated values {examples(first)}',
            "deduplicate or choose another key",
        )
