"""The verb `quartet query`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from quartet.cli.options import DropEarly, QueryText, SchemaFile, Source, open_database
from quartet.errors import UsageError


def query(
    source: Source,
    text: QueryText,
    schema: SchemaFile = None,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL of the labels and of the population.")
    ] = False,
    write_task: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a task file in SQL that gives the same labels.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The name of the task (default: made from the query).")
    ] = None,
    task_type: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="The type of the task, e.g. regression.")
    ] = None,
    windows: Annotated[
        int | None, typer.Option(min=1, help="Prediction times in validation and in test, at most.")
    ] = None,
    val: Annotated[str | None, typer.Option(metavar="TIME", help="When validation begins.")] = None,
    test: Annotated[str | None, typer.Option(metavar="TIME", help="When test begins.")] = None,
    hide: Annotated[
        list[str] | None,
        typer.Option(metavar="TABLE.COLUMN", help="A column that would give the answer away."),
    ] = None,
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

    given: dict[str, Any] = {
        "name": name, "task_type": task_type, "num_eval_timestamps": windows, "val_timestamp": val,
        "test_timestamp": test, "remove_columns": [column.rpartition(".")[::2] for column in hide or ()] or None,
    }  # fmt: skip
    given = {word: value for word, value in given.items() if value is not None}
    for column in hide or ():
        if "." not in column:
            raise UsageError("C02", f"--hide {column} names no column of a table", "write TABLE.COLUMN")
    if write_task is not None and write_task.suffix not in (
        ".yaml",
        ".yml",
    ):  # it may be a file of another kind
        raise UsageError("C02", f'a task is not written to "{write_task}"', "name a .yaml file")
    database = open_database(source, schema)
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
