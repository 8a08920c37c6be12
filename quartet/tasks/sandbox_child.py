"""The process in which task SQL runs: a DuckDB that can read the given tables and nothing else.

In memory, one SELECT, no files, no network, no extensions, no variables, settings locked, in UTC. It imports nothing of
this package, so that it starts at once. Requests come as lines of JSON, tables as Arrow streams after them:

    {"keep": name, "of": owner, "bytes": n}, a table     keeps a table of an owner; no answer
    {"forget": owner}                                    drops the tables of an owner; no answer
    {"sql": ..., "of": owner, "rows": {name: [[start, stop], ...] or null}, "times": [...], "seconds": n}
                                                         answers {} and a table, or {"failed": why}, {"kinds": [...]}
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

_CONFIG = {"python_enable_replacements": "false", "threads": 1, "temp_directory": ""}
_SETTINGS = (
    "enable_external_access = false",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "TimeZone = 'UTC'",
    "lock_configuration = true",
)


class _Limits:
    """What the kernel lets this process have, where it can be told: memory in all, time of the processor, no files.

    DuckDB counts its own memory, but not that of long texts, nor that of the result: they get half as much.
    """

    def __init__(self, memory: int) -> None:
        self.memory = memory + memory // 2
        try:
            import resource
        except ImportError:  # Windows: the parent's clock remains
            self.resource: Any = None
            return
        self.resource = resource
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            Path("/proc/self/oom_score_adj").write_text("1000")  # where memory ends, this process goes first
            self.used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        except OSError:
            self.used = 0
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        self.allow(0)

    def allow(self, num_bytes: int) -> None:
        """Raises the limit of memory by what tables are about to take."""
        if self.resource and self.used:
            self.used += num_bytes
            self._set(self.resource.RLIMIT_AS, self.used + self.memory)

    def begin(self, seconds: float) -> None:
        """Ends the process after so much work, even if whoever waits for it is gone."""
        if self.resource:
            done = sum(self.resource.getrusage(self.resource.RUSAGE_SELF)[:2])
            self._set(self.resource.RLIMIT_CPU, int(done + seconds) + 10)

    def _set(self, which: int, value: int) -> None:
        hard = self.resource.getrlimit(which)[1]
        value = value if hard == self.resource.RLIM_INFINITY else min(value, hard)
        self.resource.setrlimit(which, (value, hard))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else speaks to the parent
    import duckdb
    import pyarrow as pa

    memory = int(sys.argv[1])
    limits = _Limits(memory)
    kept: dict[int, dict[str, Any]] = {}
    asked: tuple[int, str] | None = None  # of the open connection
    connection: Any = None

    def opened(sql: str) -> Any:
        fresh = duckdb.connect(config={**_CONFIG, "memory_limit": f"{memory}B"})
        for setting in _SETTINGS:
            fresh.execute(f"SET {setting}")
        return fresh, fresh.extract_statements(sql)

    def result(request: dict[str, Any]) -> Any:
        times = pa.array(request["times"], pa.timestamp("ns"))
        connection.register("timestamps", pa.table({"timestamp": times}))
        for name, ranges in request["rows"].items():
            table = kept[request["of"]][name]
            if ranges is not None:
                parts = [table.slice(start, stop - start) for start, stop in ranges]
                table = pa.concat_tables([table.slice(0, 0), *parts])
            connection.register(name, table)
        return connection.sql(statements[0].query).to_arrow_table()

    answers.write(b"{}\n")
    answers.flush()
    for line in iter(requests.readline, b""):
        request = json.loads(line)
        if "keep" in request:
            limits.allow(request["bytes"])
            kept.setdefault(request["of"], {})[request["keep"]] = pa.ipc.open_stream(requests).read_all()
            continue
        if "forget" in request:
            limits.allow(-sum(table.nbytes for table in kept.pop(request["forget"], {}).values()))
            asked, connection = None, None
            continue
        limits.begin(request["seconds"])
        answer: dict[str, Any] = {}
        try:
            if asked != (request["of"], request["sql"]):
                asked, connection = None, None
                connection, statements = opened(request["sql"])
                asked = request["of"], request["sql"]
            kinds = [str(statement.type).rsplit(".", 1)[-1] for statement in statements]
            table, answer = (result(request), {}) if kinds == ["SELECT"] else (None, {"kinds": kinds})
        except Exception as error:  # whatever SQL can bring about
            table, answer = None, {"failed": str(error) or type(error).__name__}
        answers.write(json.dumps(answer).encode() + b"\n")
        if table is not None:
            with pa.ipc.new_stream(answers, table.schema) as stream:
                stream.write_table(table)
        answers.flush()


if __name__ == "__main__":
    main()
