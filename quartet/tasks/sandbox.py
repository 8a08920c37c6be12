"""Task SQL in a process of its own, which can be killed (see `sandbox_child.py` for what it may do there).

One process serves all queries, one after the other. Tables are sent to it once, through a pipe; each query says which
rows of them it may see. It ends when it has had nothing to do for a while, and with this process.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quartet.errors import ResourceError, SchemaError, TaskError
from quartet.times import NEVER, show_length

TIMES = "timestamps"  # the table of prediction times
_TIME_LIMIT = 600.0  # seconds
_MEMORY = 8 << 30  # bytes, besides the tables
_IDLE = 10.0  # seconds
_owners = count()
_forgotten: deque[int] = deque()  # owners that are gone
_lock = threading.RLock()


@atexit.register
def _end() -> None:
    if _Process.current is not None and _Process.current.parent == os.getpid():
        _Process.current.end()


def run_task_sql(
    sql: str,
    tables: Mapping[str, pa.Table],
    times: NDArray[np.int64],
    horizon: int,
    where: str,
    time_limit: float = _TIME_LIMIT,
) -> pa.Table:
    """Returns the rows of a task's SELECT over some tables and `timestamps(timestamp)`."""
    return TaskTables(tables, tables.__getitem__).query(sql, times, horizon, where, time_limit=time_limit)


class TaskTables:
    """Tables that task SQL may read. Each is made and sent when SQL first names it."""

    def __init__(self, names: Iterable[str], table_of: Callable[[str], pa.Table]) -> None:
        self._names, self._table_of = tuple(names), table_of
        self._owner, self._sent = next(_owners), set[str]()
        self._process: _Process | None = None
        weakref.finalize(self, _forgotten.append, self._owner)

    def names_in(self, sql: str) -> list[str]:
        """Returns the tables that SQL may read: those that it names."""
        return [name for name in self._names if name.lower().replace('"', '""') in sql.lower()]

    def query(
        self,
        sql: str,
        times: NDArray[np.int64],
        horizon: int,
        where: str,
        rows_of: Callable[[str], Sequence[tuple[int, int]]] | None = None,
        time_limit: float = _TIME_LIMIT,
    ) -> pa.Table:
        """Returns the rows of a SELECT over the tables, or over the ranges (start, stop) that `rows_of` gives."""
        names = self.names_in(sql)
        if TIMES in map(str.lower, names):
            text = f'{where}: SQL reads the prediction times from "{TIMES}", but the database has a table of that name'
            raise SchemaError("S15", text, "rename that table")
        with _lock:
            process = _Process.running()
            if process is not self._process:
                self._process, self._sent = process, set()
            request = {
                "sql": sql.replace("{timedelta}", show_length(horizon)),
                "of": self._owner,
                "rows": {name: None if rows_of is None else rows_of(name) for name in names},
                "times": [None if at == NEVER else at for at in times.tolist()],
                "seconds": time_limit,
            }
            try:
                for name in names:
                    if name not in self._sent:
                        process.keep(self._owner, name, self._table_of(name))
                        self._sent.add(name)
                answer, table = process.ask(request, time_limit)
            except BaseException:
                process.end()  # in the middle of something
                raise
        if table is not None:
            return table
        if "late" in answer:
            text = f"{where}: the SQL ran for more than {time_limit:g} s and was stopped"
            raise TaskError("L12", text, "simplify the SQL")
        if "ended" in answer:
            text = f"{where}: the SQL ended its process (code {answer['ended']}): it may need too much memory"
            raise TaskError("L12", text, "simplify the SQL")
        if "kinds" in answer:
            kinds = ", ".join(answer["kinds"]) or "nothing"
            text = (
                f"{where}: task SQL must be a single SELECT that returns (entity, time, label), got {kinds}"
            )
            raise TaskError("L12", text)
        reason = re.sub(r"\s+", " ", answer["failed"]).strip()
        if len(reason) > 1000:
            reason = f"{reason[:1000]} ..."
        raise TaskError("L12", f"{where}: the SQL failed: {reason}", "correct the SQL of the task")


class _Process:
    """The process of the sandbox, with its pipes."""

    current: _Process | None = None

    def __init__(self) -> None:
        child = Path(__file__).with_name("sandbox_child.py")
        # -P: the folder of that file is no place to import from.
        command = [sys.executable, "-P", str(child), str(_MEMORY)]
        pipes: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.DEVNULL,
        }
        self.popen = subprocess.Popen(command, **pipes, env={**os.environ, "TZ": "UTC"})
        self.requests, self.answers = (
            cast("IO[bytes]", self.popen.stdin),
            cast("IO[bytes]", self.popen.stdout),
        )
        self.parent, self.idle = os.getpid(), threading.Timer(0, lambda: None)
        if not self.answers.readline():
            self.end()
            raise ResourceError(
                "R03", "the process for task SQL does not start", f"try {sys.executable} {child}"
            )

    @staticmethod
    def running() -> _Process:
        """Returns the process of this one, started if there is none."""
        process = _Process.current
        if process is None or process.parent != os.getpid() or process.popen.poll() is not None:
            process = _Process.current = _Process()
        return process

    def keep(self, owner: int, name: str, table: pa.Table) -> None:
        """Sends a table."""
        try:
            self._say({"keep": name, "of": owner, "bytes": table.nbytes})
            with pa.ipc.new_stream(self.requests, table.schema) as stream:
                stream.write_table(table)
        except BrokenPipeError:
            pass  # it has ended, and `ask` finds out

    def ask(self, request: dict[str, Any], seconds: float) -> tuple[dict[str, Any], pa.Table | None]:
        """Returns the answer to a query and its table; the process is killed when the time is over."""
        self.idle.cancel()
        begin, limit = time.monotonic(), threading.Timer(seconds, self.popen.kill)
        limit.start()
        try:
            while _forgotten:
                self._say({"forget": _forgotten.popleft()})
            self._say(request)
            answer = json.loads(self.answers.readline())
            table = None if answer else pa.ipc.open_stream(self.answers).read_all()
        except (BrokenPipeError, ValueError, OSError):  # the answer stops in the middle
            took = time.monotonic() - begin
            self.end()
            return ({"late": True} if took >= seconds else {"ended": self.popen.returncode}), None
        finally:
            limit.cancel()
        self.idle = threading.Timer(_IDLE, self._end_if_idle)
        self.idle.daemon = True
        self.idle.start()
        return answer, table

    def end(self) -> None:
        """Kills the process, which has nothing to lose."""
        self.idle.cancel()
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.requests, self.answers):
            try:
                pipe.close()
            except OSError:
                pass  # what was not yet sent is of no use

    def _end_if_idle(self) -> None:
        with _lock:
            if self.idle is threading.current_thread():  # no query has come since
                self.end()

    def _say(self, request: dict[str, Any]) -> None:
        self.requests.write(json.dumps(request).encode() + b"\n")
        self.requests.flush()
