"""What was made of data, kept on disk by a digest of all that it depends on, so that no process makes it twice.

A file is a page of facts and some arrays. It is written whole or not at all, and used only if every byte that is read
is as it was written; anything else is made anew, with a finding. Nothing here is needed: a folder that is full, absent
or somebody else's costs time alone.

    0     "quartet kept\\n", the length of the JSON text and its CRC-32, as 8 hexadecimal digits each, and a newline
    30    JSON: format, kind, digest, size of the file, facts, and of each array its type, shape, place and CRC-32
    ...   the arrays, each from a multiple of 64 bytes on
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.findings import Finding, warning
from quartet.machine.files import PART, new_file, user_cache
from quartet.machine.sizes import parse_size

FORMAT = 1  # raise it when the layout of files changes
_MOST_BYTES = 5 * 10**9
_MAGIC, _HEAD, _ALIGNMENT = b"quartet kept\n", 30, 64
_noticed: deque[Finding] = deque()

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Kept:
    """Arrays that are mapped from a file and cannot be written, and the facts beside them."""

    arrays: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Entry:
    """A file of the store: what kind of thing it holds, its size, and when it was last used (seconds since 1970)."""

    path: Path
    kind: str
    num_bytes: int
    used: float


@dataclass(frozen=True)
class Store:
    """A folder that only its owner can enter, with `<kind>/<digest>` files; the least recently used go first."""

    folder: Path
    most_bytes: int = _MOST_BYTES
    _is_ours: list[bool] = field(default_factory=list, repr=False, compare=False)  # once it is known

    @staticmethod
    def of_user() -> Store | None:
        """Returns the store in the user's cache; None where the environment says `QUARTET_CACHE=off`."""
        if os.environ.get("QUARTET_CACHE") == "off":
            return None
        size = os.environ.get("QUARTET_CACHE_SIZE")
        return Store(
            user_cache() / "kept", parse_size(size, "QUARTET_CACHE_SIZE", 0) if size else _MOST_BYTES
        )

    def read(self, kind: str, digest: str) -> Kept | None:
        """Returns what is kept under a digest, mapped from its file; None if it is not there, or not as it was."""
        path = self.folder / kind / digest
        if not path.exists() or not self._may_be_used():
            return None
        try:
            kept = _open(path, kind, digest)
            os.utime(path)  # used just now
            return kept
        except FileNotFoundError:
            return None  # another process has just removed it
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            where = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            text = f'kept file "{kind}/{digest[:16]}" is damaged ({where}). It is made anew; nothing else is affected'
            _noticed.append(warning("C06", str(path), text))
            return None

    def write(self, kind: str, digest: str, arrays: Arrays, facts: Mapping[str, Any] | None = None) -> None:
        """Keeps arrays and facts under a digest, and removes what was not used for longest if there is too much."""
        arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        if sum(array.nbytes for array in arrays.values()) > self.most_bytes // 2:
            return  # it would drive out everything else
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._may_be_used():
                return
            (self.folder / kind).mkdir(mode=0o700, exist_ok=True)
            with new_file(self.folder / kind / digest) as aside:
                _fill(aside, kind, digest, arrays, facts or {})
            self.trim()
        except OSError as error:
            text = f'"{self.folder}" cannot be written ({error.strerror or error}): nothing is kept for the next time'
            fix = "make room, or set QUARTET_CACHE to another folder, or to off"
            if not any(finding.code == "C09" for finding in _noticed):
                _noticed.append(warning("C09", str(self.folder), text, fix=fix))

    def entries(self) -> list[Entry]:
        """Returns all files, the least recently used first; those of a writer that was killed among them."""
        found = []
        for path in self.folder.glob("*/*"):
            try:
                facts = path.stat()
            except OSError:
                continue  # another process has just removed it
            if stat.S_ISREG(facts.st_mode):
                found.append(Entry(path, path.parent.name, facts.st_size, facts.st_mtime))
        return sorted(found, key=lambda entry: (entry.used, str(entry.path)))

    def trim(self) -> None:
        """Removes the least recently used files until all together are as small as they should be."""
        entries = [entry for entry in self.entries() if not entry.path.name.endswith(PART)]
        too_many = sum(entry.num_bytes for entry in entries) - self.most_bytes
        for entry in entries[:-1]:  # the last is what was just written
            if too_many <= 0:
                break
            if _removed(entry.path):
                too_many -= entry.num_bytes

    def clear(self) -> int:
        """Removes all files, and returns how many bytes they were."""
        return sum(entry.num_bytes for entry in self.entries() if _removed(entry.path))

    def _may_be_used(self) -> bool:
        """Returns whether the folder is this user's, and nobody else's to write into; if not, that is a finding."""
        if not self._is_ours:
            facts = self.folder.stat()
            is_ours = os.name == "nt" or (facts.st_uid == os.getuid() and not facts.st_mode & 0o022)
            self._is_ours.append(is_ours)
            if not is_ours:
                text = f'"{self.folder}" is another user\'s, or others can write into it: it is not used'
                fix = "remove it, or set QUARTET_CACHE to another folder"
                _noticed.append(warning("C09", str(self.folder), text, fix=fix))
        return self._is_ours[0]


def store_findings() -> Iterator[Finding]:
    """Yields what was noticed of stores since this was last asked: files that were damaged, folders of no use."""
    while _noticed:
        yield _noticed.popleft()


def _removed(path: Path) -> bool:
    try:
        path.unlink()
        return True
    except OSError:
        return False  # another process removed it first or, on Windows, uses it


def _open(path: Path, kind: str, digest: str) -> Kept:
    """Returns what a file holds; ValueError, KeyError or TypeError where a byte is not as it was written."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
        if not head.startswith(_MAGIC) or len(head) != _HEAD:
            raise ValueError("not a kept file")
        length, check = (int(head[len(_MAGIC) + at : len(_MAGIC) + at + 8], 16) for at in (0, 8))
        text = file.read(length)
        if zlib.crc32(text) != check:
            raise ValueError("header")
        about = json.loads(text)
        told = (about["format"], about["kind"], about["digest"])
        if told != (FORMAT, kind, digest):
            raise ValueError("of another version, or renamed")
        if os.fstat(file.fileno()).st_size != about["size"]:
            raise ValueError(f"{os.fstat(file.fileno()).st_size} bytes instead of {about['size']}")
        whole = np.asarray(np.memmap(file, np.uint8, "r"))  # compiled code sees a plain array
    arrays = {}
    for name, (dtype, shape, begin, check) in about["arrays"].items():
        end = begin + np.dtype(dtype).itemsize * int(np.prod(shape))
        part = whole[begin:end]
        if zlib.crc32(part.data) != check:
            raise ValueError(name)
        arrays[name] = part.view(dtype).reshape(shape)
    return Kept(arrays, about["facts"])


def _fill(
    path: Path, kind: str, digest: str, arrays: dict[str, NDArray[Any]], facts: Mapping[str, Any]
) -> None:
    def header(first: int, size: int) -> bytes:
        begin, told = first, {}
        for name, array in arrays.items():
            told[name] = (array.dtype.str, array.shape, begin, checks[name])
            begin = _aligned(begin + array.nbytes)
        about = {
            "format": FORMAT,
            "kind": kind,
            "digest": digest,
            "size": size,
            "facts": facts,
            "arrays": told,
        }
        text = json.dumps(about).encode()
        return _MAGIC + f"{len(text):08x}{zlib.crc32(text):08x}\n".encode() + text

    checks = {name: zlib.crc32(_bytes(array)) for name, array in arrays.items()}
    content = sum(_aligned(array.nbytes) for array in arrays.values())
    first = _aligned(len(header(2**60, 2**60)))  # room for the largest numbers
    with path.open("wb") as file:
        file.write(header(first, first + content).ljust(first))
        for array in arrays.values():
            file.write(_bytes(array))
            file.write(bytes(_aligned(array.nbytes) - array.nbytes))


def _aligned(place: int) -> int:
    return -(-place // _ALIGNMENT) * _ALIGNMENT


def _bytes(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
