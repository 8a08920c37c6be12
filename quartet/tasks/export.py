"""Any database as a RelBench-format folder, which `relbench` itself can load.

RelBench wants every key to be the row number and every timed table sorted by time, so keys are
renumbered: `db/` holds the numbers, `keys/<table>.parquet` the original keys by row. Composite keys
become one number column, and a table without a key gets one if a link leads to it. Links to rows that
do not exist are empty. The time of a row is when it became known, so of its own time and a later
`available_at` the later one is written.
"""

from __future__ import annotations

from itertools import chain, count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from numpy.typing import NDArray

from quartet.database import Database, Relation, Table
from quartet.errors import SchemaError, TimeError, UsageError
from quartet.machine import new_folder
from quartet.tasks.splits import propose
from quartet.times import NEVER, show_instant, to_arrow

_LONGEST_FILE_NAME = 255


def write_relbench(database: Database, folder: Path) -> None:
    """Writes the folder, whole or not at all; a folder that has something in it is not overwritten."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError("C09", f'"{folder}" is not an empty folder', "give a new folder")
    _check_file_names(database)
    about = _about(database)
    order = {name: np.argsort(t.known_at, kind="stable") for name, t in database.tables.items()}
    place = {name: _inverse(rows) for name, rows in order.items()}
    pointed_to = {relation.parent for relation in database.relations}
    with new_folder(folder) as aside:
        (aside / "db").mkdir()
        (aside / "keys").mkdir()
        entries = {}
        for name, table in database.tables.items():
            links = [relation for relation in database.relations if relation.table == name]
            data, entries[name] = _renumbered(table, links, order[name], place, pointed_to)
            pq.write_table(data, aside / "db" / f"{name}.parquet", compression="zstd")
            if table.primary_key:
                keys = table.data.select(list(table.primary_key)).take(pa.array(order[name]))
                pq.write_table(keys, aside / "keys" / f"{name}.parquet", compression="zstd")
        manifest = yaml.safe_dump({**about, "tables": entries}, sort_keys=False, allow_unicode=True)
        (aside / "manifest.yaml").write_text(manifest, encoding="utf-8")


def _check_file_names(database: Database) -> None:
    for name in database.tables:
        if set("/\\\0") & set(name) or len(f"{name}.parquet".encode()) > _LONGEST_FILE_NAME:
            raise SchemaError(
                "S16", f'table "{name}" would be a file of that name, which cannot be', "rename the table"
            )


def _inverse(order: NDArray[np.int64]) -> NDArray[np.int64]:
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place


def _renumbered(
    table: Table,
    links: list[Relation],
    order: NDArray[np.int64],
    place: dict[str, NDArray[np.int64]],
    pointed_to: set[str],
) -> tuple[pa.Table, dict[str, object]]:
    """The data with numbers for keys, and the table's entry in the manifest."""
    time = table.schema.time
    replaced = {*table.primary_key, *(c for r in links for c in r.foreign_key.columns)}
    replaced -= {time.column} if time else set()
    kept = [name for name in table.data.column_names if name not in replaced]
    taken = {name.lower() for name in kept}
    key = _free(_key_name(table), taken) if table.primary_key or table.name in pointed_to else None
    columns: dict[str, pa.Array] = {key: pa.array(np.arange(table.num_rows))} if key else {}
    fkeys = {}
    for relation in links:
        name = _free("_".join(relation.foreign_key.columns), taken)
        fkeys[name] = relation.parent
        columns[name] = _numbers(relation.rows[order], place[relation.parent])
    columns |= {name: table.data[name].take(pa.array(order)) for name in kept}
    entry: dict[str, object] = {"pkey": key, "time_col": time.column if time else None, "fkeys": fkeys}
    if time:
        columns[time.column] = to_arrow(table.known_at[order])
    kinds = {name: kind for name, kind in table.schema.kinds.items() if name in kept}
    if kinds:
        entry["kinds"] = kinds
    if NEVER in table.known_at:
        entry["on_missing_time"] = "never_visible"
    return pa.table(columns), entry


def _key_name(table: Table) -> str:
    links = {c for fk in table.schema.foreign_keys for c in fk.columns}
    name = "_".join(table.primary_key) or table.name
    return name if table.primary_key and not set(table.primary_key) & links else f"{name}_row"


def _free(name: str, taken: set[str]) -> str:
    """The name, or the name with a number if there is such a column; it is taken from then on."""
    names = chain([name], (f"{name}_{number}" for number in count(2)))
    free = next(name for name in names if name.lower() not in taken)
    taken.add(free.lower())
    return free


def _numbers(rows: NDArray[np.int64], place: NDArray[np.int64]) -> pa.Array:
    linked = rows >= 0
    return pa.array(np.where(linked, place[rows] if len(place) else 0, 0), mask=~linked)


def _about(database: Database) -> dict[str, object]:
    """Name, description and cut-offs, which RelBench needs."""
    schema = database.schema
    val, test = schema.val_timestamp, schema.test_timestamp
    if not (val and test):
        if database.span is None:
            raise TimeError(
                "T10",
                "no table has a time column, and RelBench needs val and test times",
                "name a time_col, or give val_timestamp and test_timestamp, in the schema file",
            )
        splits = propose(*database.span, horizon=0)
        val, test = show_instant(splits.val), show_instant(splits.test)
    about: dict[str, object] = {"name": schema.name or "database", "manifest_version": 1}
    if schema.description:
        about["description"] = schema.description
    return about | {"val_timestamp": val, "test_timestamp": test}
