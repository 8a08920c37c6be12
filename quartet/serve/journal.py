"""The journal: every row that was accepted, on the disk before anybody is told so, and read again at the next start.

A line is a checksum and the JSON of one request. A line that a crash has cut short was never acknowledged, and is
dropped; damage anywhere else is an error, because rows that count would be lost in silence.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from filelock import FileLock, Timeout

from quartet.errors import IntegrityError, ResourceError, UsageError
from quartet.machine import sync

Rows = Sequence[Mapping[str, Any]]
_HEAD = {"quartet": "rows", "format": 1}


class Journal:
    """The rows that were added to a database, in the order in which they came. One process writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(f"{path}.lock", timeout=0)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except Timeout:
            what = f"another process adds rows to {path}"
            raise ResourceError("C08", what, "stop it, or name another file with --journal") from None
        except OSError as error:
            what = f"rows cannot be kept in {path}: {error.strerror}"
            raise UsageError("C09", what, "name a file that can be written with --journal") from None
        self.entries()  # a last line that was cut short is dropped, other damage is an error
        if not os.fstat(self._file).st_size:
            self._write(_line(_HEAD))
            sync(path.parent)

    def add(self, table: str, rows: Rows) -> None:
        """Returns when the rows are on the disk; where that fails they are not in the journal either."""
        self._write(_line({"table": table, "rows": rows}))

    def close(self) -> None:
        os.close(self._file)
        self._lock.release()

    def _write(self, line: bytes) -> None:
        before, done = os.fstat(self._file).st_size, 0
        try:
            while done < len(line):
                done += os.write(self._file, line[done:])
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, before)
            what = f"rows cannot be kept: {error.strerror}"
            raise ResourceError("C09", what, "make room on the disk") from None

    def entries(self) -> list[tuple[str, Rows]]:
        """Returns table and rows of each request that was accepted, those of earlier processes first."""
        whole, head = self.path.read_bytes(), _line(_HEAD)
        if not (whole.startswith(head) or head.startswith(whole)):
            what = f"{self.path} is no journal of this version"
            raise IntegrityError("C10", what, "name another: --journal FILE")
        lines = whole.split(b"\n")[:-1]  # without what a crash has cut short
        told = [_checked(line) for line in lines]
        if told and told[-1] is None:
            told.pop()
        if None in told:
            what = f"{self.path} is damaged in line {told.index(None) + 1}"
            raise IntegrityError("C06", what, "restore it, or begin with a new file: --journal FILE")
        if (end := sum(len(line) + 1 for line in lines[: len(told)])) < len(whole):
            os.ftruncate(self._file, end)
            os.fsync(self._file)
        return [(each["table"], each["rows"]) for each in told[1:]]


def _line(told: Mapping[str, Any]) -> bytes:
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()
    return b"%08x %s\n" % (crc32(text), text)


def _checked(line: bytes) -> Any:
    """Returns what a line tells, or None if it is not as it was written."""
    digest, _, text = line.partition(b" ")
    return json.loads(text) if digest == b"%08x" % crc32(text) else None
