"""A file of contexts: written whole or not at all, opened only if every byte is as it was written.

    0       the header: a page of JSON, then its own CRC-32     (the user block of the HDF5 file)
    4096    HDF5: one contiguous, uncompressed dataset for each field of `Context`, by its name

The header says what was cached, where each array lies, and the CRC-32 of each array and of every byte between
them. With it a file is checked and mapped without the HDF5 library, which may loop for ever over a file with
one flipped bit; any HDF5 tool can still read the file.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from io import BufferedRandom, BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from quartet.contexts.context import Array, Context
from quartet.errors import IntegrityError, ResourceError
from quartet.machine import new_file

FORMAT = "quartet-contexts"
VERSION = 6  # of the layout and of what the samplers draw: raise it when either changes
HEADER_SIZE = 4096  # HDF5 wants a power of two
_CHECK_SIZE = 8
_PIECE = 1 << 20
_ALIGNMENT = 64
_AGAIN = "build it again"
_UNITS = ((1, "bytes"), (10**3, "kB"), (10**6, "MB"), (10**9, "GB"), (10**12, "TB"))

Span = tuple[int, int]  # the first byte, and the one after the last


# --- the header -----------------------------------------------------------------------------------


def to_header(about: dict[str, Any]) -> bytes:
    """Returns the header of a file: JSON, padded, and its checksum."""
    text = json.dumps({"format": FORMAT, "version": VERSION, **about}).encode()
    if len(text) > HEADER_SIZE - _CHECK_SIZE:
        raise ValueError(f"a header of {len(text)} bytes")
    text = text.ljust(HEADER_SIZE - _CHECK_SIZE)
    return text + f"{zlib.crc32(text):0{_CHECK_SIZE}x}".encode()


def from_header(header: bytes) -> dict[str, Any]:
    """Returns what a header says; ValueError if it is not ours, or not as it was written."""
    if not header.startswith(json.dumps({"format": FORMAT})[:-1].encode()):
        raise ValueError("not a cache of contexts")
    text, check = header[:-_CHECK_SIZE], header[-_CHECK_SIZE:]
    if len(header) != HEADER_SIZE or f"{zlib.crc32(text):0{_CHECK_SIZE}x}".encode() != check:
        raise ValueError("header")
    about: dict[str, Any] = json.loads(text)
    return about


def _between(spans: Iterable[Span], size: int) -> Iterator[Span]:
    """Yields the parts of a file that are neither header nor array."""
    at = HEADER_SIZE
    for begin, end in sorted(spans):
        yield at, begin
        at = end
    yield at, size


def _checksum(file: BufferedReader | BufferedRandom, spans: Iterable[Span]) -> int:
    """Returns the CRC-32 of some parts of a file, read piece by piece."""
    check, buffer = 0, memoryview(bytearray(_PIECE))
    for begin, end in spans:
        file.seek(begin)
        while begin < end:
            count = file.readinto(buffer[: min(_PIECE, end - begin)])
            if not count:
                raise ValueError("end of file")
            check = zlib.crc32(buffer[:count], check)
            begin += count
    return check


# --- opening --------------------------------------------------------------------------------------


def open_cache(path: Path, digest: str, verify: bool = True) -> Context:
    """Returns the contexts in a file, mapped read-only, if they are those of the digest and every byte is right.

    Who has written or verified the file just before need not `verify` it again.
    It is the object that was written, with the same bytes. The file may be replaced while it is in use:
    one handle serves to check and to map, and a mapping stays with the file that it was made of.
    """
    try:
        with path.open("rb") as file:
            about = from_header(file.read(HEADER_SIZE))
            if about["version"] != VERSION:
                what = f"by another version (format {about['version']}, this one reads {VERSION})"
                raise IntegrityError("C05", f'cache "{path.name}" was built {what}', _AGAIN)
            if about["digest"] != digest:
                raise IntegrityError("C05", f'cache "{path.name}" was built for other data', _AGAIN)
            spans = {
                name: (begin, begin + np.dtype(dtype).itemsize * int(np.prod(shape)))
                for name, (dtype, shape, begin, _) in about["arrays"].items()
            }
            if verify:
                _verify(file, about, spans)
            whole = np.asarray(np.memmap(file, np.uint8, "r"))  # compiled code sees a plain array
        arrays = {
            name: whole[slice(*spans[name])].view(dtype).reshape(shape)
            for name, (dtype, shape, _, _) in about["arrays"].items()
        }
        return Context(**arrays)
    except (OSError, KeyError, TypeError, ValueError) as error:
        where = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise IntegrityError("C06", f'cache file "{path.name}" is damaged ({where})', _AGAIN) from error


def _verify(file: BufferedReader, about: dict[str, Any], spans: dict[str, Span]) -> None:
    """Raises ValueError with the name of what is not as it was written."""
    size = file.seek(0, os.SEEK_END)
    if size != about["size"]:
        raise ValueError(f"{size} bytes instead of {about['size']}")
    if _checksum(file, _between(spans.values(), size)) != about["rest"]:
        raise ValueError("HDF5 metadata")
    for name, span in spans.items():
        if _checksum(file, [span]) != about["arrays"][name][3]:
            raise ValueError(name)


# --- writing --------------------------------------------------------------------------------------


class Pieces(NamedTuple):
    """An array that is written piece by piece: its type and shape as a whole, and what gives the pieces, any time."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    give: Callable[[], Iterable[Array]]

    @property
    def num_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)

    def checksum(self) -> int:
        return reduce(lambda check, piece: zlib.crc32(_bytes(piece), check), self.give(), 0)


def write_cache(path: Path, context: Context, digest: str) -> None:
    """Writes contexts as one file, whole or not at all. Equal contexts give equal files.

    The HDF5 library lays out the file, the bytes are written past it. Of several processes that write the
    same file at once the last to finish wins, and none is harmed.
    """
    arrays = {name: np.ascontiguousarray(array) for name, array in context.arrays.items()}
    write_pieces(path, {n: Pieces(a.dtype, a.shape, partial(list, [a])) for n, a in arrays.items()}, digest)


def write_pieces(path: Path, arrays: dict[str, Pieces], digest: str) -> None:
    """Writes the arrays of contexts that need never be in memory as a whole: the file that `write_cache` gives."""
    checks = {name: array.checksum() for name, array in arrays.items()}
    try:
        with new_file(path) as aside:
            try:
                begins = _lay_out(aside, arrays, checks, digest)
            except RuntimeError as error:  # what the HDF5 library says of a disk that has just become full
                raise OSError(str(error)) from error
            _fill(aside, arrays, begins, checks, digest)
    except OSError as error:
        needed = sum(array.num_bytes for array in arrays.values())
        raise cannot_write(path.parent, needed, error) from error


def _bytes(array: Array) -> memoryview:
    """Returns the bytes of an array, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def _lay_out(path: Path, arrays: dict[str, Pieces], checks: dict[str, int], digest: str) -> dict[str, int]:
    """Makes the HDF5 file with room for every array, and returns where each begins."""
    import h5py

    early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    early.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    aligned = {"alignment_threshold": 1, "alignment_interval": _ALIGNMENT}
    begins = {}
    with h5py.File(path, "w", userblock_size=HEADER_SIZE, locking=False, **aligned) as file:
        file.attrs.update({"format": FORMAT, "version": VERSION, "digest": digest})
        for name, array in arrays.items():
            dataset = file.create_dataset(name, array.shape, array.dtype, dcpl=early)
            dataset.attrs["crc32"] = np.uint32(checks[name])
            begins[name] = (
                dataset.id.get_offset() if array.num_bytes else HEADER_SIZE
            )  # nothing gets no place
    return begins


def _fill(
    path: Path, arrays: dict[str, Pieces], begins: dict[str, int], checks: dict[str, int], digest: str
) -> None:
    """Writes the arrays into their places, and the header before them."""
    spans = [(begins[name], begins[name] + array.num_bytes) for name, array in arrays.items()]
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if hasattr(os, "posix_fallocate"):  # a full disk shows now, and the file lies in one piece
            os.posix_fallocate(file.fileno(), 0, size)
        for name, array in arrays.items():
            file.seek(begins[name])
            for piece in array.give():
                file.write(_bytes(piece))
        about = {
            "digest": digest,
            "size": size,
            "rest": _checksum(file, _between(spans, size)),
            "arrays": {
                name: [array.dtype.str, array.shape, begins[name], checks[name]]
                for name, array in arrays.items()
            },
        }
        file.seek(0)
        file.write(to_header(about))


def cannot_write(folder: Path, needed: int, error: OSError) -> ResourceError:
    """Returns the error for a folder that is full or may not be written."""
    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    if needed and (error.errno in (errno.ENOSPC, errno.EDQUOT) or (error.errno is None and free < needed)):
        return ResourceError(
            "C07",
            f'the cache needs {_size(needed)} in "{folder}", {_size(free)} free; nothing was kept',
            "make room or choose another folder, and run again",
        )
    reason = os.strerror(error.errno) if error.errno else str(error)
    return ResourceError(
        "C09",
        f'the cache folder "{folder}" cannot be written ({reason})',
        "choose another folder, or allow writing to this one",
    )


def _size(num_bytes: int) -> str:
    unit, name = max((u for u in _UNITS if u[0] <= num_bytes), default=_UNITS[0])
    return f"{num_bytes / unit:.1f} {name}" if unit > 1 else f"{num_bytes} {name}"
