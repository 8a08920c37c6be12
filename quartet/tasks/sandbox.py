"""Task SQL in a DuckDB that can read the given tables and nothing else.

In memory, one SELECT, no files, no network, no extensions, no variables of this process, settings
locked, with limits on time and memory.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quartet.errors import TaskError
from quartet.times import show_length, to_arrow

TIME_LIMIT_SECONDS = 600.0
MEMORY_LIMIT = "8GB"


Query = Callable[[Mapping[str, pa.Table], NDArray[np.int64]], pa.Table]


def run_task_sql(
    sql: str,
    tables: Mapping[str, pa.Table],
    times: NDArray[np.int64],
    horizon: int,
    where: str,
    time_limit: float = TIME_LIMIT_SECONDS,
) -> pa.Table:
    """What a task's SELECT gives over the tables and `timestamps(timestamp)`."""
    with task_query(sql, horizon, where, time_limit) as query:
        return query(tables, times)


@contextmanager
def task_query(sql: str, horizon: int, where: str, time_limit: float = TIME_LIMIT_SECONDS) -> Iterator[Query]:
    """A task's SELECT, to be asked over one set of tables and times after another."""
    import duckdb

    connection = duckdb.connect(
        config={"python_enable_replacements": "false", "memory_limit": MEMORY_LIMIT, "threads": 1}
    )

    def query(tables: Mapping[str, pa.Table], times: NDArray[np.int64]) -> pa.Table:
        connection.register("timestamps", pa.table({"timestamp": to_arrow(times)}))
        for name, table in tables.items():
            connection.register(name, table)
        return _run(connection, statement, where, time_limit)

    try:
        for setting in (
            "enable_external_access = false",
            "autoinstall_known_extensions = false",
            "autoload_known_extensions = false",
            "lock_configuration = true",
        ):
            connection.execute(f"SET {setting}")
        statement = _single_select(connection, sql.replace("{timedelta}", show_length(horizon)), where)
        yield query
    except duckdb.Error as error:
        reason = re.sub(r"\s+", " ", str(error)).strip()
        raise TaskError("L12", f"{where}: the SQL failed: {reason}", "correct the SQL of the task") from None
    finally:
        connection.close()


def _single_select(connection: Any, sql: str, where: str) -> Any:
    import duckdb

    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        kinds = ", ".join(str(s.type).rsplit(".", 1)[-1] for s in statements) or "nothing"
        raise TaskError(
            "L12",
            f"{where}: task SQL must be a single SELECT that returns (entity, time, label), got {kinds}",
        )
    return statements[0]


def _run(connection: Any, statement: Any, where: str, time_limit: float) -> pa.Table:
    import duckdb

    timer = threading.Timer(time_limit, connection.interrupt)
    timer.start()
    try:
        return connection.sql(statement.query).to_arrow_table()
    except duckdb.InterruptException:
        raise TaskError(
            "L12", f"{where}: the SQL ran for more than {time_limit:g} s and was stopped", "simplify the SQL"
        ) from None
    finally:
        timer.cancel()
