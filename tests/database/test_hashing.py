"""Hashes that no machine, process or version may change, against plain integers."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.database import hash_rows, is_hashable, mix, salt_of
from tests.reference.graph import fnv1a, hash_cell, hash_row
from tests.reference.graph import mix as mix_twin
from tests.strategies import examples

PINNED_TEXT = [1384651582133959588, 11574709426407096043, 12662988898527979228]
PINNED_NUMBERS = [11850677488873719399, 12543683022833228023, 9789175117566472892]
PINNED_SALT = 5584380421345094869

int64s = st.integers(-(2**63), 2**63 - 1)
CELLS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): int64s,
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.bool_(): st.booleans(),
    pa.float64(): st.floats(),
    pa.float32(): st.floats(width=32),
    pa.timestamp("ns"): int64s,
    pa.string(): st.text(max_size=20),
    pa.large_string(): st.text(max_size=20),
    pa.null(): st.none(),
}


@st.composite
def columns(draw: st.DrawFn, num_rows: int) -> tuple[pa.ChunkedArray, list[Any]]:
    """A column cut into chunks (slices of one buffer, some of them empty), and its plain cells."""
    kind = draw(st.sampled_from(list(CELLS)))
    cells = draw(st.lists(st.none() | CELLS[kind], min_size=num_rows, max_size=num_rows))
    whole = pa.array(cells, kind)
    cuts = draw(st.lists(st.integers(0, num_rows), max_size=3))
    chunks = [whole.slice(a, b - a) for a, b in pairwise(sorted([0, *cuts, num_rows]))]
    return pa.chunked_array(chunks, kind), cells


@examples(80)
@given(st.data(), st.integers(0, 12), st.integers(0, 3), st.text(max_size=8))
def test_rows_hash_as_their_twin(data: st.DataObject, num_rows: int, num_columns: int, salt: str) -> None:
    drawn = [data.draw(columns(num_rows)) for _ in range(num_columns)]
    found = hash_rows([column for column, _ in drawn], salt, num_rows)
    assert found.dtype == np.uint64
    assert found.tolist() == [hash_row([cells[row] for _, cells in drawn], salt) for row in range(num_rows)]


@examples(30)
@given(st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_mix_is_splitmix64(values: list[int]) -> None:
    assert mix(np.array(values, dtype=np.uint64)).tolist() == [mix_twin(value) for value in values]


def test_published_values() -> None:
    """What the authors of the two functions publish, so that twin and code cannot err together.

    splitmix64 seeded with 1234567 gives 6457827717110365317 first; FNV-1a of "foobar" is 85944171f73967e8.
    """
    assert mix_twin(1234567) == 6457827717110365317
    assert (fnv1a(""), fnv1a("a"), fnv1a("foobar")) == (
        0xCBF29CE484222325,
        0xAF63DC4C8601EC8C,
        0x85944171F73967E8,
    )


def test_values_are_pinned() -> None:
    """A cache of another day and a sampler of another version rely on these very numbers."""
    column = pa.chunked_array([["Ada", "", None]])
    assert hash_rows([column], "customers", 3).tolist() == PINNED_TEXT
    assert hash_rows([pa.chunked_array([[0, -1, 2**53 + 1]])], "orders", 3).tolist() == PINNED_NUMBERS
    assert int(salt_of("orders")) == PINNED_SALT


def test_another_process_with_another_hash_seed_agrees() -> None:
    code = (
        "import pyarrow as pa; from quartet.database.hashing import hash_rows;"
        "print(hash_rows([pa.chunked_array([['Ada', '', None]])], 'customers', 3).tolist())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == str(PINNED_TEXT)


def test_one_value_has_one_hash() -> None:
    nan, other_nan = np.array([0x7FF8000000000000, 0xFFF8000000000001], dtype=np.uint64).view(np.float64)
    zeros, nans = pa.array([0.0, -0.0]), pa.array([nan, other_nan], from_pandas=False)
    for cells in (zeros, nans):
        first, second = hash_rows([pa.chunked_array([cells])], "x", 2)
        assert first == second


def test_empty_is_not_zero_nor_the_empty_text() -> None:
    numbers = hash_rows([pa.chunked_array([[None, 0]])], "x", 2)
    texts = hash_rows([pa.chunked_array([[None, ""]])], "x", 2)
    assert numbers[0] == texts[0] != numbers[1]
    assert texts[0] != texts[1]


def test_salt_and_order_of_columns_matter() -> None:
    a, b = pa.chunked_array([[1]]), pa.chunked_array([[2]])
    found = [hash_rows([a, b], "x", 1), hash_rows([b, a], "x", 1), hash_rows([a, b], "y", 1)]
    assert len({int(value[0]) for value in found}) == 3


def test_neighbouring_keys_have_unrelated_hashes() -> None:
    """Each of the 64 bits flips in about half of the steps from one key to the next."""
    keys = hash_rows([pa.chunked_array([np.arange(10_001)])], "orders", 10_001)
    flips = keys[1:] ^ keys[:-1]
    shares = [float(((flips >> np.uint64(bit)) & np.uint64(1)).mean()) for bit in range(64)]
    assert min(shares) > 0.475
    assert max(shares) < 0.525
    assert len(np.unique(keys)) == 10_001


@pytest.mark.parametrize(
    ("kind", "expected"),
    [*[(kind, True) for kind in CELLS], (pa.list_(pa.int64()), False)],
    ids=str,
)
def test_what_has_a_hash(kind: pa.DataType, expected: bool) -> None:
    assert is_hashable(kind) is expected


def test_a_cell_of_the_twin_is_one_of_the_four() -> None:
    assert hash_cell(True) == hash_cell(1) == mix_twin(1)
    assert hash_cell(-1) == mix_twin(2**64 - 1)
