"""The journal: every row that was accepted, on the disk before anybody is told so, and read again at the next start.

A line is a checksum and the JSON of one request. A line that a crash has cut short was never acknowledged, and is
dropped; damage anywhere else is an error, because rows that count would be lost in silence.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
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
        self.num_dropped = 0  # lines that were cut short
        for _ in self.entries():  # a last line that was cut short is dropped, other damage is an error
            pass
        if not os.fstat(self._file).st_size:
            self._write(_HEAD)
            sync(path.parent)

    def add(self, table: str, rows: Rows) -> None:
        """Returns when the rows are on the disk; where that fails they are not in the journal either."""
        self._write({"table": table, "rows": rows})

    def close(self) -> None:
        os.close(self._file)
        self._lock.release()

    def _write(self, told: Mapping[str, Any]) -> None:
        text = json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()
        line, before = b"%08x %s\n" % (crc32(text), text), os.fstat(self._file).st_size
        try:
            done = 0
            while done < len(line):
                done += os.write(self._file, line[done:])
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, before)
            raise ResourceError(
                "C09", f"rows cannot be kept: {error.strerror}", "make room on the disk"
            ) from None

    def entries(self) -> Iterator[tuple[str, Rows]]:
        """Yields table and rows of each request that was accepted, those of earlier processes first."""
        whole, place = self.path.read_bytes(), 0
        lines = whole.split(b"\n")
        for number, line in enumerate(lines):
            if number == len(lines) - 1 and not line:
                return
            told = _checked(line)
            if told is None or number == len(lines) - 1:
                if number < len(lines) - 2:
                    what = f"{self.path} is damaged in line {number + 1}"
                    raise IntegrityError("C06", what, "restore it, or begin with a new file: --journal FILE")
                os.ftruncate(self._file, place)
                os.fsync(self._file)
                self.num_dropped += 1
                return
            if number == 0 and told != _HEAD:
                raise IntegrityError(
                    "C10", f"{self.path} is no journal of this version", "name another: --journal FILE"
                )
            if number:
                yield told["table"], told["rows"]
            place += len(line) + 1


def _checked(line: bytes) -> Any:
    """Returns what a line tells, or None if it is not as it was written."""
    digest, _, text = line.partition(b" ")
    if digest != b"%08x" % crc32(text):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None
