"""Writing contexts to a file: the HDF5 library lays it out, the bytes are written past it, then it is renamed."""

from __future__ import annotations

import errno
import os
import shutil
import zlib
from pathlib import Path

import numpy as np

from quartet.contexts.cache.layout import (
    DATASETS,
    FORMAT,
    HEADER_SIZE,
    VERSION,
    Span,
    between,
    bytes_of,
    checksum,
    to_header,
)
from quartet.contexts.context import Array, Context
from quartet.errors import ResourceError
from quartet.machine import new_file

ALIGNMENT = 64
Arrays = dict[str, Array]


def write_cache(path: Path, context: Context, digest: str) -> None:
    """Writes contexts as one file, whole or not at all. Equal contexts give equal files.

    Of several processes that write the same file at once the last to finish wins, and none is harmed.
    """
    arrays = {name: np.ascontiguousarray(array) for name, array in context.arrays.items()}
    checks = {name: zlib.crc32(bytes_of(array)) for name, array in arrays.items()}
    try:
        with new_file(path) as aside:
            try:
                spans = _lay_out(aside, arrays, checks, digest)
            except RuntimeError as error:  # what the HDF5 library says of a disk that has just become full
                raise OSError(str(error)) from error
            _fill(aside, arrays, spans, checks, digest)
    except OSError as error:
        raise cannot_write(path.parent, context.num_bytes, error) from error


def _lay_out(path: Path, arrays: Arrays, checks: dict[str, int], digest: str) -> dict[str, Span]:
    """Makes the HDF5 file with room for every array, and says where that is."""
    import h5py

    early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    early.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    aligned = {"alignment_threshold": 1, "alignment_interval": ALIGNMENT}
    spans = {}
    with h5py.File(path, "w", userblock_size=HEADER_SIZE, locking=False, **aligned) as file:
        file.attrs.update({"format": FORMAT, "version": VERSION, "digest": digest})
        for name, array in arrays.items():
            dataset = file.create_dataset(DATASETS[name], array.shape, array.dtype, dcpl=early)
            dataset.attrs["crc32"] = np.uint32(checks[name])
            begin = dataset.id.get_offset() if array.size else HEADER_SIZE  # HDF5 gives nothing to nothing
            spans[name] = (begin, begin + array.nbytes)
    return spans


def _fill(path: Path, arrays: Arrays, spans: dict[str, Span], checks: dict[str, int], digest: str) -> None:
    """Writes the arrays into their places, and the header before them."""
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if hasattr(os, "posix_fallocate"):  # a full disk shows now, and the file lies in one piece
            os.posix_fallocate(file.fileno(), 0, size)
        for name, array in arrays.items():
            file.seek(spans[name][0])
            file.write(bytes_of(array))
        about = {
            "digest": digest,
            "size": size,
            "rest": checksum(file, between(spans.values(), size)),
            "arrays": {
                name: [array.dtype.str, array.shape, spans[name][0], checks[name]]
                for name, array in arrays.items()
            },
        }
        file.seek(0)
        file.write(to_header(about))


def cannot_write(folder: Path, needed: int, error: OSError) -> ResourceError:
    """The error for a folder that is full or may not be written."""
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


_UNITS = ((1, "bytes"), (10**3, "kB"), (10**6, "MB"), (10**9, "GB"), (10**12, "TB"))
