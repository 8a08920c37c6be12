"""Graphs and features from disk are those that would be built: bit for bit, and of the same data alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from quartet.config import SamplingConfig
from quartet.contexts import kept_graph, sample
from quartet.database import Database
from quartet.features import FeatureTable, kept_features
from quartet.features.statistics import FeatureStatistics
from quartet.graph import TemporalGraph
from quartet.machine import store_findings
from quartet.tasks import Seeds
from quartet.times import NEVER
from tests.strategies import Raw, examples, random_db
from tests.tasks.small import small_shop


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    keep_all(monkeypatch, tmp_path)
    return tmp_path


def keep_all(patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.setenv("QUARTET_CACHE", str(folder))
    patch.setattr("quartet.contexts.keeping._FEWEST_ROWS", 0)
    patch.setattr("quartet.features.kept._FEWEST_ROWS", 0)


def assert_same(one: Any, other: Any) -> None:
    """Asserts equal bits of arrays, and of whatever holds them."""
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    elif hasattr(one, "__dataclass_fields__"):
        for name in one.__dataclass_fields__:
            assert_same(getattr(one, name), getattr(other, name))
    elif isinstance(one, dict):
        assert list(one) == list(other)
        assert_same(tuple(one.values()), tuple(other.values()))
    else:
        assert one == other


@given(random_db())
@examples(25)
def test_a_kept_graph_is_the_one_that_is_built(tmp_path_factory: pytest.TempPathFactory, raw: Raw) -> None:
    with pytest.MonkeyPatch.context() as patch:
        keep_all(patch, tmp_path_factory.mktemp("cache"))
        database = Database.build(*raw)
        first, again = kept_graph(database), kept_graph(Database.build(*raw))
        assert_same(TemporalGraph.build(database), first)
        assert_same(first, again)
        assert not any(array.flags.writeable for array in again.arrays)
        nodes = np.arange(min(database.num_rows, 30))
        seeds = Seeds(nodes, np.full(len(nodes), NEVER - 1), None)
        for config in (SamplingConfig(), SamplingConfig(temporal_unit="links")):
            assert_same(sample(first, seeds, config).arrays, sample(again, seeds, config).arrays)


@given(random_db())
@examples(25)
def test_kept_features_are_those_that_are_encoded(tmp_path_factory: pytest.TempPathFactory, raw: Raw) -> None:
    with pytest.MonkeyPatch.context() as patch:
        keep_all(patch, tmp_path_factory.mktemp("cache"))
        database = Database.build(*raw)
        statistics = FeatureStatistics.fit(database, NEVER - 1)
        expected = FeatureTable.encode(database, statistics)
        for _ in range(2):
            found = kept_features(Database.build(*raw), statistics)
            assert_same(tuple(expected.tables.values()), tuple(found.tables.values()))
            assert found.findings == expected.findings


@pytest.mark.parametrize("column", ["customer", "age"])
def test_a_changed_cell_has_another_graph_and_other_features(kept: Path, column: str) -> None:
    shop = small_shop()
    statistics = FeatureStatistics.fit(shop, NEVER - 1)
    kept_graph(shop), kept_features(shop, statistics)
    data = shop["customers"].data
    cells = data[column].to_pylist()
    cells[-1] = "C99" if column == "customer" else cells[-1] + 1
    place = data.column_names.index(column)
    other = data.set_column(place, column, pa.array(cells, data[column].type))
    changed = Database.build({"customers": other, "orders": shop["orders"].data}, shop.schema)
    assert_same(TemporalGraph.build(changed), kept_graph(changed))
    expected = FeatureTable.encode(changed, statistics)
    assert_same(tuple(expected.tables.values()), tuple(kept_features(changed, statistics).tables.values()))
    for kind in ("graphs", "features"):
        assert len(list((kept / "kept" / kind).iterdir())) == 2


@pytest.mark.parametrize("kind", ["graphs", "features"])
def test_a_damaged_file_is_made_anew_with_a_word(kept: Path, kind: str) -> None:
    shop = small_shop()
    statistics = FeatureStatistics.fit(shop, NEVER - 1)

    def made() -> Any:
        if kind == "graphs":
            return kept_graph(shop)
        return tuple(kept_features(shop, statistics).tables.values())

    expected = made()
    (path,) = (kept / "kept" / kind).iterdir()
    content = bytearray(path.read_bytes())
    content[-70] ^= 4
    path.write_bytes(content)
    assert_same(expected, made())
    assert [finding.code for finding in store_findings()] == ["C06"]
    assert_same(expected, made())
    assert not list(store_findings())
