"""Any database as a RelBench-format folder, which `relbench` itself can load.

RelBench wants every key to be the row number and every timed table sorted by time, so keys are
renumbered: `db/` holds the numbers, `keys/<table>.parquet` the original keys by row. Composite keys
become one number column. Links to rows that do not exist are empty.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from numpy.typing import NDArray

from quartet.database.database import Database, Relation
from quartet.database.table import Table
from quartet.errors import SchemaError
from quartet.files import new_folder
from quartet.splits import propose
from quartet.times import show_instant


def write_relbench(database: Database, folder: Path) -> None:
    """Writes the folder, whole or not at all; a folder that has something in it is not overwritten."""
    if folder.exists() and any(folder.iterdir()):
        raise SchemaError("C09", f'"{folder}" is not empty', "give a new folder")
    order = {name: np.argsort(t.known_at, kind="stable") for name, t in database.tables.items()}
    place = {name: _inverse(rows) for name, rows in order.items()}
    with new_folder(folder) as aside:
        (aside / "db").mkdir()
        (aside / "keys").mkdir()
        entries = {}
        for name, table in database.tables.items():
            links = [relation for relation in database.relations if relation.table == name]
            data, entries[name] = _renumbered(table, links, order[name], place)
            pq.write_table(data, aside / "db" / f"{name}.parquet", compression="zstd")
            if table.primary_key:
                keys = table.data.select(list(table.primary_key)).take(pa.array(order[name]))
                pq.write_table(keys, aside / "keys" / f"{name}.parquet", compression="zstd")
        (aside / "manifest.yaml").write_text(_manifest(database, entries), encoding="utf-8")


def _inverse(order: NDArray[np.int64]) -> NDArray[np.int64]:
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place


def _renumbered(
    table: Table, links: list[Relation], order: NDArray[np.int64], place: dict[str, NDArray[np.int64]]
) -> tuple[pa.Table, dict[str, object]]:
    """The data with numbers for keys, and the table's entry in the manifest."""
    key = _key_name(table)
    columns: dict[str, pa.Array] = {key: pa.array(np.arange(table.num_rows))} if key else {}
    fkeys = {}
    for relation in links:
        name = "_".join(relation.foreign_key.columns)
        name = f"{name}_{relation.parent}" if name in columns else name
        fkeys[name] = relation.parent
        columns[name] = _numbers(relation.rows[order], place[relation.parent])
    replaced = {*table.primary_key, *(c for r in links for c in r.foreign_key.columns)}
    for name in table.data.column_names:
        if name not in replaced:
            columns[name] = table.data[name].take(pa.array(order))
    time = table.schema.time
    if time is not None:
        columns[time.column] = pa.array(table.known_at[order]).cast(pa.timestamp("ns"))
    entry: dict[str, object] = {"pkey": key, "time_col": time.column if time else None, "fkeys": fkeys}
    return pa.table(columns), entry


def _key_name(table: Table) -> str | None:
    if not table.primary_key:
        return None
    links = {c for fk in table.schema.foreign_keys for c in fk.columns}
    name = "_".join(table.primary_key)
    return f"{name}_row" if set(table.primary_key) & links else name


def _numbers(rows: NDArray[np.int64], place: NDArray[np.int64]) -> pa.Array:
    linked = rows >= 0
    return pa.array(np.where(linked, place[rows] if len(place) else 0, 0), mask=~linked)


def _manifest(database: Database, entries: dict[str, dict[str, object]]) -> str:
    schema = database.schema
    val, test = schema.val_timestamp, schema.test_timestamp
    if not (val and test):
        if database.span is None:
            raise SchemaError("T10", "no table has a time column, and RelBench needs val and test times")
        splits = propose(*database.span, horizon=0)
        val, test = show_instant(splits.val), show_instant(splits.test)
    about = {"name": schema.name or "database", "manifest_version": 1}
    if schema.description:
        about["description"] = schema.description
    about |= {"val_timestamp": val, "test_timestamp": test, "tables": entries}
    return yaml.safe_dump(about, sort_keys=False, allow_unicode=True)
