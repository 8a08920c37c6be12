"""Large arrays in files: what would fill memory is written to a disk and mapped, so that the system may drop its pages.

An array is set aside where it is large and memory is short for it. It has the same bytes, the same type and the same
flags as before; the file has no name, and goes with the last who holds the array. Where no file can be written, or the
system does not tell how much memory is free, everything stays where it is.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from quartet.machine.devices import free_bytes
from quartet.machine.files import user_cache

if TYPE_CHECKING:
    import pyarrow as pa

A = TypeVar("A", bound=Any)
_LEAST = 2**25  # bytes: what is smaller is never set aside
_PART = 64  # of the free memory: what is larger is
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_has_been_short: list[bool] = []
_mapped: list[tuple[int, int]] = []  # first address and last of what Arrow has mapped


def is_large(num_bytes: int) -> bool:
    """Returns whether something is large beside the memory that is free."""
    is_it = num_bytes >= _LEAST and num_bytes * _PART >= free_bytes()
    if is_it and not _has_been_short:
        _has_been_short.append(True)
    return is_it


def set_aside(array: A) -> A:
    """Returns an array, in a file if it is large."""
    import numpy as np

    if not is_large(array.nbytes) or not array.flags.c_contiguous or array.dtype.hasobject:
        return array
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, (mmap.mmap, memoryview)):
        return array  # it is in a file, or belongs to somebody else
    try:
        with tempfile.TemporaryFile(dir=_folder()) as file:
            file.write(array.reshape(-1).view(np.uint8).data)
            file.flush()
            os.fsync(file.fileno())  # a page that is on the disk can be dropped at once
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except OSError:
        return array
    aside = np.frombuffer(mapped, array.dtype).reshape(array.shape)
    aside.flags.writeable = array.flags.writeable
    return cast("A", aside)


def empty_aside(shape: tuple[int, ...], dtype: Any) -> Any:
    """Returns an array to be filled piece by piece, in a file if it is large."""
    import numpy as np

    num_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if not is_large(num_bytes):
        return np.empty(shape, dtype)
    try:
        with tempfile.TemporaryFile(dir=_folder()) as file:
            os.posix_fallocate(file.fileno(), 0, num_bytes)
            return np.frombuffer(mmap.mmap(file.fileno(), num_bytes), dtype).reshape(shape)
    except OSError:
        return np.empty(shape, dtype)


def set_columns_aside(table: pa.Table) -> pa.Table:
    """Returns a table, with each large column in a file; columns that are mapped already stay as they are."""
    import pyarrow as pa

    for place, column in enumerate(table.columns):
        if is_large(column.nbytes) and not _is_mapped(column):
            field = table.schema.field(place)
            mapped = map_batches(pa.schema([field]), iter(table.select([place]).to_batches()))
            table = table if mapped is None else table.set_column(place, field, mapped.column(0))
    return table


def map_batches(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.Table | None:
    """Returns the table of batches that need never be in memory together; None if no file can be written."""
    import pyarrow as pa

    path = None
    try:
        with tempfile.NamedTemporaryFile(dir=_folder(), delete=False) as file:
            path = Path(file.name)
            with pa.ipc.new_file(file, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            file.flush()
            os.fsync(file.fileno())
        whole = pa.memory_map(str(path)).read_buffer()
    except OSError:
        return None
    finally:
        if path is not None:
            path.unlink(missing_ok=True)
    _mapped.append((whole.address, whole.address + whole.size))
    return pa.ipc.open_file(whole).read_all()


def give_back() -> None:
    """Gives memory that nobody needs back to the system, once memory has been short: it takes a moment."""
    import pyarrow as pa

    if not _has_been_short:
        return
    gc.collect()
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        try:
            ctypes.CDLL(None).malloc_trim(0)
        except (AttributeError, OSError):
            pass  # another C library than glibc


def keep_freed() -> None:
    """Lets memory that is freed stay with the process, up to 256 MB of it, for those who ask for as much again.

    A step of training frees all its tensors: given back to the system, each page would be asked for and cleared anew.
    """
    if sys.platform != "linux":
        return
    try:
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, 2**25)  # from 32 MB on a tensor has pages of its own, as before
        library.mallopt(_TRIM_THRESHOLD, 2**28)
    except (AttributeError, OSError):
        pass  # another C library than glibc


def _is_mapped(column: pa.ChunkedArray) -> bool:
    buffers = (b for chunk in column.chunks for b in chunk.buffers() if b is not None and b.size)
    return all(any(first <= b.address < last for first, last in _mapped) for b in buffers)


def _folder() -> Path:
    """Returns where files are made: on a disk, which a folder of temporary files often is not."""
    if sys.platform == "win32":
        raise OSError("a file that is mapped cannot be removed on Windows")
    folder = user_cache() / "aside"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
