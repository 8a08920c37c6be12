"""Any database as a RelBench-format folder, which `relbench` itself can load; any forecast as a task manifest.

RelBench wants every key to be the row number and every timed table sorted by time, so keys are
renumbered: `db/` holds the numbers, `keys/<table>.parquet` the original keys by row. Composite keys
become one number column, and a table without a key gets one if a link leads to it. Links to rows that
do not exist are empty. The time of a row is when it became known: its own time, or `available_at` if
that is later.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from numpy.typing import NDArray

from quartet.database import Database, Table
from quartet.errors import SchemaError, TimeError, UsageError
from quartet.machine import new_folder
from quartet.tasks.labels import key_columns
from quartet.tasks.splits import propose
from quartet.times import NEVER, STATIC, parse_instant, show_instant, show_length, to_arrow

if TYPE_CHECKING:
    from quartet.tasks.task import Task

_LONGEST_FILE_NAME = 255
_FAR = parse_instant("2261-12-31", "the last day there is")


def write_relbench(database: Database, folder: str | Path) -> None:
    """Writes the folder, whole or not at all; a folder that has something in it is not overwritten."""
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError("C09", f'"{folder}" is not an empty folder', "give a new folder")
    for name in database.tables:
        if set("/\\\0") & set(name) or len(f"{name}.parquet".encode()) > _LONGEST_FILE_NAME:
            raise SchemaError(
                "S16", f'table "{name}" would be a file of that name, which cannot be', "rename the table"
            )
    manifest = _head(database)
    order = {name: np.argsort(t.known_at, kind="stable") for name, t in database.tables.items()}
    with new_folder(folder) as aside:
        (aside / "db").mkdir()
        (aside / "keys").mkdir()
        entries = {}
        for name, table in database.tables.items():
            data, entries[name] = _renumbered(database, table, order)
            pq.write_table(data, aside / "db" / f"{name}.parquet", compression="zstd")
            if table.primary_key:
                keys = table.data.select(list(table.primary_key)).take(pa.array(order[name]))
                pq.write_table(keys, aside / "keys" / f"{name}.parquet", compression="zstd")
        text = yaml.safe_dump({**manifest, "tables": entries}, sort_keys=False, allow_unicode=True)
        (aside / "manifest.yaml").write_text(text, encoding="utf-8")


def task_yaml(task: Task) -> str:
    """Returns the task as a task file with its SQL and its cut-offs, in RelBench's format.

    What it was made from is a comment: `query` and `sql` do not stand beside each other.
    """
    spec, is_link = task.spec, task.spec.type == "recommendation"
    entity = "src_entity" if is_link else "entity"
    words: dict[str, Any] = {
        "name": spec.name, "kind": spec.kind, "task_type": spec.type, "description": spec.description,
        f"{entity}_table": spec.entity_table, f"{entity}_col": spec.entity_col, "time_col": spec.time_col,
        "target_col": spec.target_col, "dst_entity_table": spec.item_table,
        "dst_entity_col": spec.target_col if is_link else "", "eval_k": spec.eval_k,
        "timedelta": show_length(spec.horizon) if spec.horizon else "",
        "known_after": show_length(spec.known_after) if spec.known_after else "",
        "num_eval_timestamps": spec.num_eval_times if spec.kind == "forecast" else 0,
        "pool_classes": spec.pool_classes,
        "remove_columns": [list(pair) for pair in spec.remove_columns], "timezone": spec.timezone,
        "val_timestamp": show_instant(task.splits.val), "test_timestamp": show_instant(task.splits.test),
        "sql": spec.sql, "population": spec.population, "labels": spec.labels,
    }  # fmt: skip
    written = {word: value for word, value in words.items() if value}
    text = yaml.dump(written, Dumper=_Blocks, sort_keys=False, allow_unicode=True, width=110)
    made = "".join(f"# {line.strip()}\n" for line in spec.query.splitlines())
    return f"{made}{text}"


class _Blocks(yaml.SafeDumper):
    """Writes texts of several lines as they are."""


_Blocks.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


def _head(database: Database) -> dict[str, object]:
    """Returns name, description and cut-offs, which RelBench needs."""
    schema = database.schema
    val, test = schema.val_timestamp, schema.test_timestamp
    if not (val and test):
        if database.span is None:
            raise TimeError(
                "T10",
                "no table has a time column, and RelBench needs val and test times",
                "name a time_col, or give val_timestamp and test_timestamp, in the schema file",
            )
        splits = propose(*database.span, lag=0)
        val, test = show_instant(splits.val), show_instant(splits.test)
    description = {"description": schema.description} if schema.description else {}
    cut_offs = {"val_timestamp": val, "test_timestamp": test}
    return {"name": schema.name or "database", "manifest_version": 1, **description, **cut_offs}


def _renumbered(
    database: Database, table: Table, order: dict[str, NDArray[np.int64]]
) -> tuple[pa.Table, dict[str, object]]:
    """Returns the data with numbers for keys, and the table's entry in the manifest."""
    time, rows = table.schema.time, order[table.name]
    replaced = key_columns(table) - ({time.column} if time else set())
    kept = [name for name in table.data.column_names if name not in replaced]
    taken = {name.lower() for name in kept}
    columns: dict[str, pa.Array] = {}
    key = None
    if table.primary_key or any(relation.parent == table.name for relation in database.relations):
        key = _free(_key_name(table), taken)
        columns[key] = pa.array(np.arange(table.num_rows))
    fkeys = {}
    for relation in database.relations:
        if relation.table == table.name:
            name = _free("_".join(relation.foreign_key.columns), taken)
            fkeys[name] = relation.parent
            place = np.append(np.argsort(order[relation.parent]), 0)  # where each parent row stands now
            linked = relation.rows[rows] >= 0
            columns[name] = pa.array(np.where(linked, place[relation.rows[rows]], 0), mask=~linked)
    columns |= {name: table.data[name].take(pa.array(rows)) for name in kept}
    entry: dict[str, object] = {"pkey": key, "time_col": time.column if time else None, "fkeys": fkeys}
    if time:
        known_at = table.known_at[rows]
        if is_mixed := bool((known_at == STATIC).any()):  # an empty time means always, so never is far away
            known_at = np.where(known_at == STATIC, NEVER, np.where(known_at == NEVER, _FAR, known_at))
            entry["on_missing_time"] = "always_known"
        columns[time.column] = to_arrow(known_at)
    kinds = {name: kind for name, kind in table.schema.kinds.items() if name in kept}
    if kinds:
        entry["kinds"] = kinds
    if time and NEVER in table.known_at and not is_mixed:
        entry["on_missing_time"] = "never_visible"
    return pa.table(columns), entry


def _key_name(table: Table) -> str:
    links = {column for fk in table.schema.foreign_keys for column in fk.columns}
    name = "_".join(table.primary_key) or table.name
    return name if table.primary_key and not set(table.primary_key) & links else f"{name}_row"


def _free(name: str, taken: set[str]) -> str:
    """Returns the name, with a number if there is such a column already; it is taken from then on."""
    free, number = name, 2
    while free.lower() in taken:
        free, number = f"{name}_{number}", number + 1
    taken.add(free.lower())
    return free
