"""Large arrays in files are the same arrays: bytes, types, flags; and every step of a task gives the same with them."""

from __future__ import annotations

import mmap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quartet.config import SamplingConfig
from quartet.contexts import sample
from quartet.database import Database
from quartet.features import FeatureTable, RelationalColumns
from quartet.graph import TemporalGraph
from quartet.machine import (
    empty_aside,
    is_large,
    keep_freed,
    large,
    map_batches,
    set_aside,
    set_columns_aside,
)
from tests.tasks.small import CHURN
from tests.trained import write_shop


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """As if memory were so short that every array goes to a file; returns where the files are made."""
    monkeypatch.setattr(large, "_LEAST", 1)
    monkeypatch.setattr(large, "free_bytes", lambda: 1)
    monkeypatch.setattr(large, "_mapped", [])
    monkeypatch.setattr(large, "_has_been_short", [])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "quartet" / "aside"


def is_in_a_file(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, (mmap.mmap, memoryview))


def test_small_arrays_stay_where_they_are() -> None:
    array = np.arange(1000)
    assert not is_large(array.nbytes)
    assert set_aside(array) is array


@pytest.mark.parametrize("shape", [(12,), (3, 4), (2, 3, 2)])
@pytest.mark.parametrize("is_fixed", [True, False])
def test_an_array_keeps_all_that_it_is(
    everything_is_large: Path, shape: tuple[int, ...], is_fixed: bool
) -> None:
    array = np.arange(12, dtype=np.float32).reshape(shape).copy()
    array.flags.writeable = not is_fixed
    aside = set_aside(array)
    assert is_in_a_file(aside)
    assert (aside.dtype, aside.shape, aside.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert aside.flags.writeable == array.flags.writeable
    assert aside.flags.c_contiguous
    assert set_aside(aside) is aside
    assert list(everything_is_large.iterdir()) == []  # the file has no name


@pytest.mark.usefixtures("everything_is_large")
def test_what_cannot_be_in_a_file_stays() -> None:
    for array in (np.array([{}, []], object), np.arange(12).reshape(3, 4).T):
        assert set_aside(array) is array


@pytest.mark.usefixtures("everything_is_large")
def test_an_empty_array_is_filled_like_any_other() -> None:
    array = empty_aside((3, 2), np.float32)
    assert is_in_a_file(array)
    array[:] = np.arange(6).reshape(3, 2)
    assert array.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_without_a_disk_nothing_changes(everything_is_large: Path) -> None:
    everything_is_large.parent.mkdir(parents=True)
    everything_is_large.write_text("no folder")
    array, table = np.arange(3), pa.table({"a": [1, 2, 3]})
    assert set_aside(array) is array
    assert empty_aside((3,), np.int64).shape == (3,)
    assert set_columns_aside(table).equals(table)
    assert map_batches(table.schema, iter(table.to_batches())) is None


def test_columns_keep_all_that_they_are(everything_is_large: Path) -> None:
    table = pa.table(
        {
            "number": pa.array([1, None, 3]),
            "text": pa.array(["a", None, "ccc"]),
            "list": pa.array([[1], [], None]),
            "time": pa.array([1, 2, None], pa.timestamp("ns")),
        }
    )
    aside = set_columns_aside(table)
    assert aside.equals(table)
    assert aside.schema == table.schema
    assert all(large._is_mapped(column) for column in aside.columns)
    num_files = len(large._mapped)
    assert set_columns_aside(aside).equals(table)
    assert len(large._mapped) == num_files  # not written twice
    assert list(everything_is_large.iterdir()) == []


def test_a_task_has_the_same_bits_in_files(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Database, labels, features, graph, contexts and columns, in memory and with all arrays in files."""
    folder = write_shop(tmp_path / "shop")
    pq.write_table(pq.read_table(folder / "orders.parquet"), folder / "orders.parquet", row_group_size=50)
    config = SamplingConfig(num_walks=10, local_budget=12, temporal_budget=9, collab_budget=4)

    def all_bits() -> dict[str, Any]:
        database = Database.load(str(folder))
        task = database.task(CHURN)
        seeds = task.seeds("train")
        features = FeatureTable.fit(task.database, task.splits.val)
        graph = TemporalGraph.build(task.database)
        columns = RelationalColumns.of(task.database, "customers", features)
        bits: dict[str, Any] = {
            "fingerprint": database.fingerprint,
            "labels": task.label_rows("train").to_pylist(),
        }
        bits["columns"] = (columns.names, columns.matrix(seeds).tobytes())
        bits |= {name: getattr(graph.arrays, name).tobytes() for name in graph.arrays._fields}
        bits |= {name: array.tobytes() for name, array in sample(graph, seeds, config, 1).arrays.items()}
        for name, table in features.tables.items():
            bits[f"{name} features"] = (table.numbers.tobytes(), table.categories.tobytes())
        bits["in files"] = is_in_a_file(graph.entries)
        return bits

    in_memory = all_bits()
    request.getfixturevalue("everything_is_large")
    in_files = all_bits()
    assert (in_memory.pop("in files"), in_files.pop("in files")) == (False, True)
    assert in_files == in_memory


def test_freed_memory_is_kept_where_the_system_knows_how(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing happens where it does not: with another C library, or on another system."""
    asked: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda what, value: asked.append((what, value)))
    monkeypatch.setattr("quartet.machine.large.ctypes.CDLL", lambda _: library)
    monkeypatch.setattr("quartet.machine.large.sys.platform", "linux")
    keep_freed()
    assert [what for what, _ in asked] == [-3, -1]
    monkeypatch.setattr("quartet.machine.large.ctypes.CDLL", lambda _: SimpleNamespace())
    keep_freed()
    monkeypatch.setattr("quartet.machine.large.sys.platform", "darwin")
    keep_freed()
    assert len(asked) == 2
