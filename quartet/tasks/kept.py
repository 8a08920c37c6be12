"""Answers of task SQL, kept from one process to the next by a digest of all that they depend on.

What SQL answers depends on its text, on the times it is asked at and on the rows that it may read, in their order. The
rows count by their content: of a database that has grown, windows that closed before the new rows are found again, and
those into which a late row has come are not. SQL that looks at the clock or draws random numbers is never kept.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import pyarrow as pa

from quartet.machine import Store

_VERSION = 1  # of what is done with answers before they are kept: raise it when that changes
_KIND = "labels"
_MOST_ANSWERS = 4  # times as many as were last asked for, and so many more:
_MORE_ANSWERS = 1000
_COMMENT = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)
_VOLATILE = re.compile(
    r"\b((now|today|random|setseed|(gen_random_)?uuid\w*|(get_)?current_(date|time\w*|localtime\w*|setting|query\w*"
    r"|connection_id|transaction_id|schemas?|database)|localtime\w*|transaction_timestamp|txid_current|nextval"
    r"|currval|getvariable|tablesample|using\s+sample)\b|(age|version)\"?\s*\()",
    re.IGNORECASE,
)

Ranges = Sequence[tuple[int, int]]


class RowDigests:
    """Digests of ranges of rows of some tables, each in an order of its own."""

    def __init__(self, rows_of: Callable[[str], tuple[bytes, np.ndarray[Any, Any]] | None]) -> None:
        """`rows_of` gives what is to be said of a table, and a hash of each row; None if rows have none."""
        self._rows_of = rows_of
        self._rows: dict[str, tuple[bytes, np.ndarray[Any, Any]] | None] = {}
        self._prefixes: dict[str, tuple[list[int], list[Any]]] = {}

    def of(self, name: str, ranges: Ranges) -> bytes | None:
        """Returns the digest of some ranges of a table's rows; None if it has none."""
        if name not in self._rows:
            self._rows[name] = self._rows_of(name)
        found = self._rows[name]
        if found is None:
            return None
        about, rows = found
        (first, end), *others = ranges
        digest = self._prefix(name, rows, end) if first == 0 else hashlib.sha256(rows[first:end].data)
        whole = hashlib.sha256(about + digest.digest())
        for first, end in others:
            whole.update(hashlib.sha256(rows[first:end].data).digest())
        return whole.digest()

    def _prefix(self, name: str, rows: np.ndarray[Any, Any], end: int) -> Any:
        """Returns the digest of the first rows, which goes on from the longest known one that is not longer."""
        ends, digests = self._prefixes.setdefault(name, ([0], [hashlib.sha256()]))
        place = bisect_right(ends, end) - 1
        if ends[place] < end:
            digest = digests[place].copy()
            digest.update(rows[ends[place] : end].data)
            place += 1
            ends.insert(place, end)
            digests.insert(place, digest)
        return digests[place]


class KeptAnswers:
    """The answers of one text of SQL, finished in one way: in memory, and on disk where there is a store."""

    def __init__(self, sql: str, facts: Mapping[str, Any]) -> None:
        about = {"sql": sql, "duckdb": version("duckdb"), "version": _VERSION, **facts}
        self.is_kept = not _VOLATILE.search(_COMMENT.sub(" ", sql))
        self._store = Store.of_user() if self.is_kept else None
        self._name = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
        self._answers: dict[str, Any] = {}  # tables, or bytes that are not read yet
        self._fresh = False
        kept = self._store.read(_KIND, self._name) if self._store else None
        if kept is not None:
            content, starts = kept.arrays["content"], kept.arrays["start"].tolist()
            for key, begin, end in zip(kept.facts["keys"], starts, starts[1:], strict=False):
                self._answers[key] = content[begin:end]

    def key(
        self, times: Iterable[int], ranges: Mapping[str, Ranges], rows: RowDigests, more: str = ""
    ) -> str | None:
        """Returns the key of an answer; None if it is not to be kept."""
        if not self.is_kept:
            return None
        digest = hashlib.sha256(repr((list(times), more)).encode())
        for name in sorted(ranges):
            own = rows.of(name, ranges[name])
            if own is None:
                return None
            digest.update(f"{len(name)}:{name}".encode() + own)
        return digest.hexdigest()

    def get(self, key: str | None) -> pa.Table | None:
        found = self._answers.get(key) if key is not None else None
        if found is None or isinstance(found, pa.Table):
            return found
        table = pa.ipc.open_stream(pa.py_buffer(found)).read_all()
        self._answers[str(key)] = table
        return table

    def put(self, key: str | None, table: pa.Table) -> None:
        if key is not None:
            self._answers[key], self._fresh = table, True

    def write(self, asked: Sequence[str | None]) -> None:
        """Keeps what is new, those that were asked for last; of others the latest, so that they do not pile up."""
        if not self._fresh:
            return
        self._fresh = False
        for key in asked:
            if key in self._answers:
                self._answers[key] = self._answers.pop(key)
        most = _MOST_ANSWERS * len(asked) + _MORE_ANSWERS
        for key in list(self._answers)[:-most]:
            del self._answers[key]
        if self._store is None:
            return
        parts = [_bytes(table) if isinstance(table, pa.Table) else table for table in self._answers.values()]
        start = np.cumsum([0, *(len(part) for part in parts)])
        content = np.concatenate([np.empty(0, np.uint8), *parts])
        self._store.write(
            _KIND, self._name, {"content": content, "start": start}, {"keys": list(self._answers)}
        )


def _bytes(table: pa.Table) -> Any:
    """Returns a table as bytes whose length is a multiple of 8, so that none that follows is out of line."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    content = np.frombuffer(sink.getvalue(), np.uint8)
    return np.append(content, np.zeros(-len(content) % 64, np.uint8))
