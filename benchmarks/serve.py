"""How fast and how steady `quartet serve` answers: latency of one entity, a load for minutes, rows, random requests.

    python -m benchmarks.serve RUN --database demo [--at 2013-12-01] [--rate 40] [--minutes 10] [--fuzz 20000]

Starts the real server on a free port and asks it over HTTP from this process. Every answer that is not as expected
counts as an error.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from threading import local
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

_here = local()


def ask(port: int, path: str, body: Any = None, method: str = "") -> tuple[int, bytes]:
    """Returns status and body, over a connection that each thread keeps open."""
    if (
        getattr(_here, "line", None) is None or time.monotonic() - _here.used > 5
    ):  # idle ones are closed over there
        _here.line = HTTPConnection("127.0.0.1", port, timeout=60)
    _here.used = time.monotonic()
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    try:
        way = method or ("POST" if data is not None else "GET")
        _here.line.request(way, path, data, {"content-type": "application/json"})
        answer = _here.line.getresponse()
        return answer.status, answer.read()
    except Exception:
        _here.line.close()
        _here.line = None
        raise


def told(name: str, seconds: list[float]) -> str:
    ms = 1000 * np.array(seconds)
    p50, p90, p99 = np.percentile(ms, [50, 90, 99])
    return f"{name:34} {len(ms):6,} requests  p50 {p50:6.1f}  p90 {p90:6.1f}  p99 {p99:6.1f}  most {ms.max():6.1f} ms"


def timed(port: int, question: dict[str, Any]) -> float:
    begin = time.perf_counter()
    status, body = ask(port, "/predict", question)
    assert status == 200, body
    return time.perf_counter() - begin


def resident(port: int) -> float:
    found = re.search(rb"\nquartet_resident_bytes (\d+)", ask(port, "/metrics")[1])
    return float(found[1]) / 2**20 if found else 0.0


def cpu_seconds(process: int) -> float:
    """Returns the time that a process has computed for (Linux): it does not grow while others have the cores."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(port: int, entities: list[Any], at: str, rate: float, minutes: float) -> None:
    """Asks at a fixed rate, whatever the answers take: who comes late waits from the moment he was due."""
    begin, errors, seconds, memory = time.perf_counter() + 0.1, Counter[str](), [], [resident(port)]

    def one(number: int) -> None:
        due = begin + number / rate
        time.sleep(max(0.0, due - time.perf_counter()))
        try:
            status, _ = ask(port, "/predict", {"entities": [entities[number % len(entities)]], "at": at})
        except Exception as error:
            errors[type(error).__name__] += 1
            return
        seconds.append(time.perf_counter() - due)
        if status != 200:
            errors[str(status)] += 1
        if number % int(rate * 15) == 0:
            memory.append(resident(port))

    with ThreadPoolExecutor(64) as pool:
        list(pool.map(one, range(int(rate * 60 * minutes))))
    print(told(f"{rate:g} a second for {minutes:g} min", seconds))
    some = ", ".join(f"{each:.0f}" for each in memory[:: max(1, len(memory) // 8)])
    print(f"  errors {dict(errors) or 0}; memory {some} MiB")


def rows(port: int, count: int) -> None:
    """Adds rows one by one to the first table that has a whole number as its key and a time."""
    model = json.loads(ask(port, "/model")[1])
    for name, table in model["tables"].items():
        key = table["key"][0] if len(table["key"]) == 1 else ""
        if (
            table["time"]
            and table["columns"].get(key) == "int64"
            and table["columns"][table["time"]].startswith("timestamp")
        ):
            seconds = []
            for number in range(count):
                row = {key: 10**12 + number, table["time"]: model["last_time"].replace(" ", "T")}
                begin = time.perf_counter()
                status, body = ask(port, "/rows", {"table": name, "rows": [row]})
                assert status == 200, body
                seconds.append(time.perf_counter() - begin)
            print(told(f"a row of {name} added", seconds))
            return


def fuzz(port: int, count: int) -> None:
    """Random requests by the description: how many had which status."""
    from tests.serve.fuzzed import requests

    described = json.loads(ask(port, "/openapi.json")[1])
    model = json.loads(ask(port, "/model")[1])
    columns = sorted({column for table in model["tables"].values() for column in table["columns"]})
    seen, begin = Counter[int](), time.perf_counter()

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def one(data: st.DataObject) -> None:
        method, path, body = data.draw(requests(described, columns))
        seen[ask(port, path, body, method)[0]] += 1

    one()
    took = time.perf_counter() - begin
    print(f"{sum(seen.values()):,} random requests in {took:.0f} s: {dict(sorted(seen.items()))}; "
          f"{sum(n for status, n in seen.items() if status >= 500)} x 5xx")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run")
    parser.add_argument("--database", required=True)
    parser.add_argument("--at", default="2013-12-01")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--rate", type=float, default=40.0)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--rows", type=int, default=10)
    parser.add_argument("--fuzz", type=int, default=0)
    given_words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        words = ["serve", given_words.run, "--database", given_words.database, "--port", "0"]
        server = subprocess.Popen(
            [sys.executable, "-m", "quartet", *words, "--journal", str(Path(folder) / "rows.journal")],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        try:
            assert server.stdout is not None
            begin = time.perf_counter()
            port = int(json.loads(server.stdout.readline())["url"].rstrip("/").rpartition(":")[2])
            listening = time.perf_counter() - begin
            ready = json.loads(server.stdout.readline())
            assert ready["event"] == "ready", ready
            print(f"listening after {listening:.1f} s, ready after {time.perf_counter() - begin:.1f} s")
            drain = ThreadPoolExecutor(1)
            drain.submit(lambda: [None for _ in server.stdout or ()])  # its log
            found = json.loads(ask(port, "/entities?most=100")[1])["entities"]
            entities = [each["entity"] for each in found]
            timed(port, {"entities": entities[:1], "at": given_words.at})
            computed = cpu_seconds(server.pid)
            one = [
                timed(port, {"entities": [entities[n % len(entities)]], "at": given_words.at})
                for n in range(given_words.requests)
            ]
            computed = 1000 * (cpu_seconds(server.pid) - computed) / len(one)
            print(told("one entity", one) + f"; {computed:.1f} ms of a core each")
            day = np.datetime64(given_words.at)
            moments = [str(day - np.timedelta64(7 * n, "m")) for n in range(1, 51)]
            print(
                told(
                    "one entity, at ever new times",
                    [timed(port, {"entities": entities[:1], "at": each}) for each in moments],
                )
            )
            print(
                told(
                    "100 entities",
                    [timed(port, {"entities": entities, "at": given_words.at}) for _ in range(10)],
                )
            )
            explained = [
                {"entities": [each], "at": given_words.at, "explain": True} for each in entities[:10]
            ]
            print(told("one entity with reasons", [timed(port, each) for each in explained]))
            if given_words.minutes:
                load(port, entities, given_words.at, given_words.rate, given_words.minutes)
            if given_words.rows:
                rows(port, given_words.rows)
            if given_words.fuzz:
                fuzz(port, given_words.fuzz)
        finally:
            server.terminate()
            server.wait(60)


if __name__ == "__main__":
    main()
