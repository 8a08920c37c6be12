"""Opening a cache file: all bytes are checked, then mapped. What is not as it was written is refused."""

from __future__ import annotations

from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np

from quartet.contexts.cache.layout import HEADER_SIZE, VERSION, Span, between, checksum, from_header
from quartet.contexts.context import Context
from quartet.errors import IntegrityError

_AGAIN = "build it again"


def open_cache(path: Path, digest: str) -> Context:
    """The contexts in a file, mapped read-only, if they are those of the digest and every byte is right.

    It is the object that was written, with the same bytes. The file may be replaced while it is in use:
    one handle serves to check and to map, and a mapping stays with the file that it was made of.
    """
    try:
        with path.open("rb") as file:
            about = from_header(file.read(HEADER_SIZE))
            _check_key(path, about, digest)
            spans = _spans(about["arrays"])
            _verify(file, about, spans)
            whole = np.asarray(np.memmap(file, np.uint8, "r"))  # compiled code sees a plain array
        return Context(
            **{
                name: whole[slice(*spans[name])].view(dtype).reshape(shape)
                for name, (dtype, shape, _, _) in about["arrays"].items()
            }
        )
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from error
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, str(error)) from error


def _check_key(path: Path, about: dict[str, Any], digest: str) -> None:
    if about["version"] != VERSION:
        what = f"by another version (format {about['version']}, this one reads {VERSION})"
        raise IntegrityError("C05", f'cache "{path.name}" was built {what}', _AGAIN)
    if about["digest"] != digest:
        raise IntegrityError("C05", f'cache "{path.name}" was built for other data', _AGAIN)


def _spans(arrays: dict[str, Any]) -> dict[str, Span]:
    """Where each array lies."""
    return {
        name: (begin, begin + np.dtype(dtype).itemsize * int(np.prod(shape)))
        for name, (dtype, shape, begin, _) in arrays.items()
    }


def _verify(file: BufferedReader, about: dict[str, Any], spans: dict[str, Span]) -> None:
    """Raises ValueError with the name of what is not as it was written."""
    size = file.seek(0, 2)
    if size != about["size"]:
        raise ValueError(f"{size} bytes instead of {about['size']}")
    if checksum(file, between(spans.values(), size)) != about["rest"]:
        raise ValueError("HDF5 metadata")
    for name, span in spans.items():
        if checksum(file, [span]) != about["arrays"][name][3]:
            raise ValueError(name)


def _damaged(path: Path, where: str) -> IntegrityError:
    return IntegrityError("C06", f'cache file "{path.name}" is damaged ({where})', _AGAIN)
