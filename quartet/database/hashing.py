"""Stable 64-bit hashes of cells and rows, equal on every machine, process and version.

Python's `hash()` differs from process to process, and the hashes inside pandas, polars or DuckDB
differ from version to version. Samplers break ties and key their random numbers by these values,
so they are fixed here: splitmix64 for numbers, FNV-1a (finished by splitmix64) for text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.database.columns import is_binary
from quartet.machine import compiled

Hashes = NDArray[np.uint64]

_NULL = np.uint64(0x9AE16A3B2F90404F)
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_STEP = np.uint64(0x9E3779B97F4A7C15)


def salt_of(text: str) -> np.uint64:
    """A fixed 64-bit value for a name."""
    return np.uint64(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little"))


def mix(values: Hashes) -> Hashes:
    """splitmix64's finaliser: neighbouring inputs give unrelated outputs."""
    z = values + _STEP
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def hash_rows(columns: Iterable[pa.ChunkedArray], salt: str, num_rows: int) -> Hashes:
    """One hash for each row over the given columns, in their order."""
    rows = np.full(num_rows, salt_of(salt), dtype=np.uint64)
    for column in columns:
        rows = mix(rows ^ _hash_cells(column))
    return rows


def _hash_cells(column: pa.ChunkedArray) -> Hashes:
    if column.num_chunks == 0:
        return np.empty(0, dtype=np.uint64)
    return np.concatenate([_hash_chunk(chunk) for chunk in column.chunks])


def _hash_chunk(chunk: pa.Array) -> Hashes:
    is_bytes = is_text(chunk.type) or is_binary(chunk.type)
    cells = _hash_bytes(chunk) if is_bytes else mix(_number_bits(chunk))
    if chunk.null_count:
        cells[chunk.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return cells


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_hashable(kind: pa.DataType) -> bool:
    """Whether cells of a canonical type have a hash: numbers, booleans, times, text and bytes do."""
    return is_text(kind) or bool(
        is_binary(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_null(kind)
    )


def _number_bits(chunk: pa.Array) -> Hashes:
    """The 64 bits of each number, one pattern for each value (0.0 and -0.0 are one, and all NaN are)."""
    kind = chunk.type
    if pa.types.is_null(kind):
        return np.zeros(len(chunk), dtype=np.uint64)
    if pa.types.is_floating(kind):
        floats: NDArray[np.float64] = pc.fill_null(chunk.cast(pa.float64()), 0.0).to_numpy() + 0.0
        floats[np.isnan(floats)] = np.nan
        return floats.view(np.uint64)
    whole = chunk if pa.types.is_uint64(kind) else chunk.cast(pa.int64())
    numbers: NDArray[np.int64] = pc.fill_null(whole, 0).to_numpy()
    # Times are hashed in nanoseconds, so that one instant has one hash; what overflows wraps.
    scale = _NANOSECONDS[kind.unit] if pa.types.is_timestamp(kind) else 1
    return numbers.view(np.uint64) * np.uint64(scale)


def _hash_bytes(chunk: pa.Array) -> Hashes:
    chunk = chunk.cast(pa.large_binary())
    _, offsets, data = chunk.buffers()
    starts = np.frombuffer(offsets, dtype=np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
    letters = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
    return mix(_compiled_fnv1a()(starts, letters))


@cache
def _compiled_fnv1a() -> Any:
    """Compiled at its first use: whoever only looks at a database waits for no compiler."""
    return compiled(_fnv1a)


def _fnv1a(starts: NDArray[np.int64], letters: NDArray[np.uint8]) -> Hashes:
    hashes = np.empty(len(starts) - 1, dtype=np.uint64)
    for row in range(len(hashes)):
        state = np.uint64(0xCBF29CE484222325)
        for place in range(starts[row], starts[row + 1]):
            state = (state ^ np.uint64(letters[place])) * np.uint64(0x100000001B3)
        hashes[row] = state
    return hashes
