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

from quartet.database.columns import is_binary, is_text
from quartet.machine import compiled

Hashes = NDArray[np.uint64]

_NULL = np.uint64(0x9AE16A3B2F90404F)
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_STEP = np.uint64(0x9E3779B97F4A7C15)


def salt_of(text: str) -> np.uint64:
    """Returns a fixed 64-bit value for a name."""
    return np.uint64(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little"))


def mix(values: Hashes) -> Hashes:
    """Applies splitmix64's finaliser: neighbouring inputs give unrelated outputs."""
    z = values + _STEP
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def hash_rows(columns: Iterable[pa.ChunkedArray], salt: str, num_rows: int) -> Hashes:
    """Returns one hash for each row over the given columns, in their order."""
    rows = np.full(num_rows, salt_of(salt), dtype=np.uint64)
    for column in columns:
        cells = [_hash_chunk(chunk) for chunk in column.chunks]
        rows = mix(rows ^ (np.concatenate(cells) if cells else np.empty(0, dtype=np.uint64)))
    return rows


def exact_rows(columns: Iterable[pa.ChunkedArray], num_rows: int) -> Hashes | None:
    """Returns one hash for each row over all of its cells, by their bits: -0.0 is not 0.0, and lists count in order.

    None where a column is of a type whose cells have no hash.
    """
    rows = np.zeros(num_rows, dtype=np.uint64)
    for column in columns:
        cells = [_exact_chunk(chunk) for chunk in column.chunks]
        if any(each is None for each in cells):
            return None
        rows = mix(rows ^ (np.concatenate(cells) if cells else np.empty(0, dtype=np.uint64)))  # type: ignore[arg-type]
    return rows


def _exact_chunk(chunk: pa.Array) -> Hashes | None:
    kind = chunk.type
    if pa.types.is_floating(kind):
        cells = mix(
            pc.fill_null(chunk.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False).view(np.uint64)
        )
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        parts, length = _exact_chunk(chunk.flatten()), pc.fill_null(pc.list_value_length(chunk), 0)
        if parts is None:
            return None
        counts = length.to_numpy(zero_copy_only=False).astype(np.int64)
        end = np.cumsum(counts)
        place = (np.arange(len(parts)) - np.repeat(end - counts, counts)).astype(np.uint64)
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mix(parts ^ mix(place)), dtype=np.uint64)])
        cells = mix((sums[end] - sums[end - counts]) ^ mix(counts.astype(np.uint64)))
    elif is_hashable(kind):
        return _hash_chunk(chunk)
    else:
        return None
    if chunk.null_count:
        cells[chunk.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return cells


def is_hashable(kind: pa.DataType) -> bool:
    """Whether cells of a canonical type have a hash: numbers, booleans, times, text and bytes do."""
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_timestamp)
    return is_text(kind) or is_binary(kind) or kind == pa.null() or any(test(kind) for test in numbers)


def digest_column(digest: Any, column: pa.ChunkedArray) -> None:
    """Adds to a digest which cells are filled and with what; chunks and the bytes of empty cells do not count."""
    for part in (column.is_valid(), column.drop_null()):
        whole = part.cast(pa.uint8()) if pa.types.is_boolean(part.type) else part  # bits have ragged ends
        table = pa.table([whole.combine_chunks()], names=["cells"])
        with pa.ipc.new_stream(pa.PythonFile(_Digested(digest), "w"), table.schema) as stream:
            stream.write_table(table)


class _Digested:
    """A file of which nothing is kept but its digest."""

    closed = False

    def __init__(self, digest: Any) -> None:
        self.write = digest.update

    def flush(self) -> None:
        """Has nothing to write."""


def _hash_chunk(chunk: pa.Array) -> Hashes:
    if is_text(chunk.type) or is_binary(chunk.type):
        content = chunk.cast(pa.large_binary())
        _, offsets, data = content.buffers()
        starts = np.frombuffer(offsets, dtype=np.int64)[content.offset : content.offset + len(content) + 1]
        letters = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
        cells = mix(_compiled_fnv1a()(starts, letters))
    else:
        cells = mix(_number_bits(chunk))
    if chunk.null_count:
        cells[chunk.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return cells


def _number_bits(chunk: pa.Array) -> Hashes:
    """Returns the 64 bits of each number, one pattern for each value (0.0 is -0.0, and every NaN the same)."""
    kind = chunk.type
    if pa.types.is_null(kind):
        return np.zeros(len(chunk), dtype=np.uint64)
    if pa.types.is_floating(kind):
        floats: NDArray[np.float64] = pc.fill_null(chunk.cast(pa.float64()), 0.0).to_numpy() + 0.0
        floats[np.isnan(floats)] = np.nan
        return floats.view(np.uint64)
    whole = chunk if pa.types.is_uint64(kind) else chunk.cast(pa.int64())
    numbers: NDArray[np.int64] = pc.fill_null(whole, 0).to_numpy()
    # Times are hashed in nanoseconds, so that one instant has one hash; overflow wraps around.
    scale = _NANOSECONDS[kind.unit] if pa.types.is_timestamp(kind) else 1
    return numbers.view(np.uint64) * np.uint64(scale)


@cache
def _compiled_fnv1a() -> Any:
    """Compiles at the first use: looking at a database waits for no compiler."""
    return compiled(_fnv1a)


def _fnv1a(starts: NDArray[np.int64], letters: NDArray[np.uint8]) -> Hashes:
    hashes = np.empty(len(starts) - 1, dtype=np.uint64)
    for row in range(len(hashes)):
        state = np.uint64(0xCBF29CE484222325)
        for place in range(starts[row], starts[row + 1]):
            state = (state ^ np.uint64(letters[place])) * np.uint64(0x100000001B3)
        hashes[row] = state
    return hashes
