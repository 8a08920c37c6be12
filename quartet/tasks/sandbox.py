"""Task SQL in a DuckDB that can read the given tables and nothing else.

In memory, one SELECT, no files, no network, no extensions, no variables of this process, settings
locked, with limits on time and memory.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quartet.errors import TaskError
from quartet.times import show_length, to_arrow

_TIME_LIMIT = 600.0  # seconds
_MEMORY_LIMIT = "8GB"
_LOCKED = (
    "enable_external_access = false",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "lock_configuration = true",
)

_Query = Callable[[Mapping[str, pa.Table], NDArray[np.int64]], pa.Table]


def run_task_sql(
    sql: str,
    tables: Mapping[str, pa.Table],
    times: NDArray[np.int64],
    horizon: int,
    where: str,
    time_limit: float = _TIME_LIMIT,
) -> pa.Table:
    """Returns the rows of a task's SELECT over some tables and `timestamps(timestamp)`."""
    with task_query(sql, horizon, where, time_limit) as query:
        return query(tables, times)


@contextmanager
def task_query(sql: str, horizon: int, where: str, time_limit: float = _TIME_LIMIT) -> Iterator[_Query]:
    """Opens a task's SELECT, to be run over one set of tables and times after another."""
    import duckdb

    connection = duckdb.connect(
        config={"python_enable_replacements": "false", "memory_limit": _MEMORY_LIMIT, "threads": 1}
    )

    def query(tables: Mapping[str, pa.Table], times: NDArray[np.int64]) -> pa.Table:
        connection.register("timestamps", pa.table({"timestamp": to_arrow(times)}))
        for name, table in tables.items():
            connection.register(name, table)
        timer = threading.Timer(time_limit, connection.interrupt)
        timer.start()
        try:
            return connection.sql(statements[0].query).to_arrow_table()
        except duckdb.InterruptException:
            text = f"{where}: the SQL ran for more than {time_limit:g} s and was stopped"
            raise TaskError("L12", text, "simplify the SQL") from None
        finally:
            timer.cancel()

    try:
        for setting in _LOCKED:
            connection.execute(f"SET {setting}")
        statements = connection.extract_statements(sql.replace("{timedelta}", show_length(horizon)))
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            kinds = ", ".join(str(statement.type).rsplit(".", 1)[-1] for statement in statements) or "nothing"
            raise TaskError(
                "L12",
                f"{where}: task SQL must be a single SELECT that returns (entity, time, label), got {kinds}",
            )
        yield query
    except duckdb.Error as error:
        reason = re.sub(r"\s+", " ", str(error)).strip()
        raise TaskError("L12", f"{where}: the SQL failed: {reason}", "correct the SQL of the task") from None
    finally:
        connection.close()
