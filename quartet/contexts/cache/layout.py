"""What stands where in a cache file.

    0       the header: a page of JSON, then its own CRC-32     (the user block of the HDF5 file)
    4096    HDF5: groups local, temporal, collab, sketch and seeds; contiguous, uncompressed datasets

The header says what was cached, where each array lies, and the CRC-32 of each array and of every byte between
them. With it a file is checked and mapped without the HDF5 library, which may loop for ever over a file with
one flipped bit; any HDF5 tool can still read the file.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from io import BufferedRandom, BufferedReader
from typing import Any

import numpy as np

from quartet.contexts.context import Array

FORMAT = "quartet-contexts"
VERSION = 1  # of the layout and of what the samplers draw: raise it when either changes
HEADER_SIZE = 4096  # HDF5 wants a power of two
CHECK_SIZE = 8
CHUNK = 1 << 20

DATASETS = {
    "seed_node": "seeds/node",
    "seed_time": "seeds/time",
    "local_start": "local/start",
    "local_node": "local/node",
    "local_hop": "local/hop",
    "local_count": "local/share",
    "edge_start": "local/edge_start",
    "edge": "local/edge",
    "collab_start": "collab/start",
    "collab_node": "collab/node",
    "time_index": "temporal/time_index",
    "temporal_start": "temporal/start",
    "temporal_node": "temporal/node",
    "sketch": "sketch/values",
}

Span = tuple[int, int]  # the first byte, and the one after the last


def to_header(about: dict[str, Any]) -> bytes:
    """The header of a file: JSON, padded, and its checksum."""
    text = json.dumps({"format": FORMAT, "version": VERSION, **about}).encode()
    if len(text) > HEADER_SIZE - CHECK_SIZE:
        raise ValueError(f"a header of {len(text)} bytes")
    text = text.ljust(HEADER_SIZE - CHECK_SIZE)
    return text + f"{zlib.crc32(text):0{CHECK_SIZE}x}".encode()


def from_header(header: bytes) -> dict[str, Any]:
    """What a header says; ValueError if it is not ours, or not as it was written."""
    if not header.startswith(json.dumps({"format": FORMAT})[:-1].encode()):
        raise ValueError("not a cache of contexts")
    text, check = header[:-CHECK_SIZE], header[-CHECK_SIZE:]
    if len(header) != HEADER_SIZE or f"{zlib.crc32(text):0{CHECK_SIZE}x}".encode() != check:
        raise ValueError("header")
    about: dict[str, Any] = json.loads(text)
    return about


def bytes_of(array: Array) -> memoryview:
    """The bytes of an array, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def between(spans: Iterable[Span], size: int) -> Iterator[Span]:
    """The parts of a file that are neither header nor array."""
    at = HEADER_SIZE
    for begin, end in sorted(spans):
        yield at, begin
        at = end
    yield at, size


def checksum(file: BufferedReader | BufferedRandom, spans: Iterable[Span]) -> int:
    """The CRC-32 of some parts of a file, read piece by piece."""
    check, buffer = 0, memoryview(bytearray(CHUNK))
    for begin, end in spans:
        file.seek(begin)
        while begin < end:
            count = file.readinto(buffer[: min(CHUNK, end - begin)])
            if not count:
                raise ValueError("end of file")
            check = zlib.crc32(buffer[:count], check)
            begin += count
    return check
