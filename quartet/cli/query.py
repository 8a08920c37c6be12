"""The verb `quartet query`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quartet.cli.options import (
    DropEarly,
    Hide,
    Keep,
    PoolClasses,
    QueryName,
    QueryText,
    QueryType,
    SchemaFile,
    Source,
    TestTime,
    ValTime,
    Views,
    Windows,
    open_database,
    query_words,
)  # fmt: skip
from quartet.errors import UsageError


def query(
    source: Source,
    text: QueryText,
    schema: SchemaFile = None,
    views: Views = False,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL of the labels and of the population.")
    ] = False,
    write_task: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a task file in SQL that gives the same labels.")
    ] = None,
    name: QueryName = None,
    task_type: QueryType = None,
    windows: Windows = None,
    val: ValTime = None,
    test: TestTime = None,
    hide: Hide = None,
    keep: Keep = None,
    pool_classes: PoolClasses = None,
    drop_early: DropEarly = False,
) -> None:
    """Show how a predictive query is read: who, what, when, its type, splits and labels; or its SQL.

    - `quartet query SRC "PREDICT COUNT(orders.*, 0, 30, days) = 0 FOR EACH customers.id"` shows it in words.

    - `--sql` prints the SQL that it stands for; `--write-task churn.yaml` writes a task file to go on from.

    - Every verb that takes a TASK takes a query, too: `quartet train SRC "PREDICT …"`.
    """
    from quartet.cli.views.query import query_view
    from quartet.drawing import console, say
    from quartet.tasks import read_query, task_yaml

    given = query_words(name, task_type, windows, val, test, hide, keep, pool_classes)
    if write_task is not None and write_task.suffix not in (".yaml", ".yml"):  # it may be a database
        raise UsageError("C02", f'a task is not written to "{write_task}"', "name a .yaml file")
    database = open_database(source, schema, views)
    reading = read_query(text, database, given)
    if sql:
        spec = reading.spec
        labels = (
            f"-- labels\n{spec.sql};" if spec.sql else f"-- labels: {spec.entity_table}.{spec.target_col}"
        )
        print(
            f"-- who is asked about at a time\n{spec.population};\n\n{labels}" if spec.population else labels
        )
        if write_task is None:
            return
    task = database.query(text, on_early_seed="drop" if drop_early else "error", **given)
    _ = task.visible_database  # a column that cannot be hidden is an error
    if not sql:
        console().print(query_view(reading, task, windows))
    if write_task is not None:
        write_task.parent.mkdir(parents=True, exist_ok=True)
        write_task.write_text(task_yaml(task), encoding="utf-8")
        say(f"Wrote {write_task}")
