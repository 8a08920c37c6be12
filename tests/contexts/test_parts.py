"""Contexts sampled in parts and joined on disk are, byte for byte, those sampled at once, whoever samples them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.config import SamplingConfig
from quartet.contexts import cached_sample, parts, sample
from quartet.contexts.cache import cache_digest
from quartet.contexts.cachefile import write_cache
from quartet.database import Database
from quartet.errors import ResourceError
from quartet.graph import TemporalGraph
from quartet.listener import Listener
from quartet.tasks import Seeds
from tests.contexts.configs import configs
from tests.contexts.twins import pairs_of, seeds_from
from tests.shop import day, shop
from tests.strategies import Raw, examples, random_db, seeds_of

CONFIG = SamplingConfig(num_walks=20, local_budget=12, temporal_budget=9, collab_budget=4)
GRAPH = TemporalGraph.build(shop())
SEEDS = seeds_from([(node, day(when)) for when in (9, 4, 6, 9) for node in GRAPH.nodes("customers")])
WHOLE = sample(GRAPH, SEEDS, CONFIG)


class Told(Listener):
    def __init__(self) -> None:
        self.sampled: list[int] = []

    def progress(self, what: str, done: int, total: int) -> None:
        assert (what, total) == ("contexts of shop-train", len(SEEDS))
        self.sampled.append(done)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (parts, cached_sample.__globals__):
        if isinstance(module, dict):
            monkeypatch.setitem(module, "PART", 3)
        else:
            monkeypatch.setattr(module, "PART", 3)


@pytest.fixture
def at_once(tmp_path: Path) -> bytes:
    path = tmp_path / "whole.h5"
    write_cache(path, WHOLE, cache_digest(GRAPH.fingerprint, SEEDS, CONFIG))
    return path.read_bytes()


def build(folder: Path, on: str | None = None) -> tuple[bytes, list[int]]:
    told = Told()
    cached_sample(GRAPH, SEEDS, CONFIG, folder, "shop-train", told, on=on)
    (path,) = folder.iterdir()  # nothing else is left
    return path.read_bytes(), told.sampled


@examples(30)
@given(random_db(), configs(), st.data())
def test_parts_become_the_file_of_all_seeds(
    tmp_path_factory: pytest.TempPathFactory, raw: Raw, config: SamplingConfig, data: st.DataObject
) -> None:
    database = Database.build(*raw)
    graph, folder = TemporalGraph.build(database), tmp_path_factory.mktemp("caches")
    seeds = seeds_from(pairs_of(database, data.draw(seeds_of(database))))
    digest = cache_digest(graph.fingerprint, seeds, config)
    write_cache(folder / "at-once.h5", sample(graph, seeds, config), digest)
    cached_sample(graph, seeds, config, folder, "in-parts")
    in_parts = folder / f"in-parts-{digest[:16]}.h5"
    assert in_parts.read_bytes() == (folder / "at-once.h5").read_bytes()


@pytest.mark.parametrize("on", [None, "here", "local:1", "local:2", "local:3"])
def test_the_bytes_do_not_depend_on_who_samples(tmp_path: Path, at_once: bytes, on: str | None) -> None:
    made, sampled = build(tmp_path / "cache", on)
    assert made == at_once
    assert sampled == [0, *[3] * (len(SEEDS) // 3), *[len(SEEDS) % 3] * (len(SEEDS) % 3 > 0)]


@pytest.mark.filterwarnings("ignore")
def test_a_ray_cluster_gives_the_same_bytes(cluster: Any, tmp_path: Path, at_once: bytes) -> None:
    assert cluster is not None
    assert build(tmp_path / "cache", "ray")[0] == at_once


def interrupted(folder: Path, after: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Samples until so many parts are done; returns the folder with them."""
    work: Callable[[Any, parts.Shard], None] = parts.sample_part
    done: list[str] = []

    def stopped(shared: Any, shard: parts.Shard) -> None:
        if len(done) == after:
            raise KeyboardInterrupt
        work(shared, shard)
        done.append(shard[0])

    with monkeypatch.context() as patch:
        patch.setattr(parts, "sample_part", stopped)
        with pytest.raises(KeyboardInterrupt):
            build(folder)
    (left,) = folder.glob("*.parts")
    return left


def test_a_job_that_was_stopped_goes_on(
    tmp_path: Path, at_once: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = interrupted(tmp_path / "cache", 2, monkeypatch)
    before = {path.name: path.stat().st_mtime_ns for path in left.glob("*.h5")}
    assert sorted(before) == ["000000.h5", "000001.h5"]
    sampled: list[str] = []
    work = parts.sample_part

    def noted(shared: Any, shard: parts.Shard) -> None:
        sampled.append(Path(shard[0]).name)
        work(shared, shard)

    monkeypatch.setattr(parts, "sample_part", noted)
    assert build(tmp_path / "cache")[0] == at_once
    assert sampled[0] == "000002.h5"


def test_a_damaged_part_is_sampled_again(
    tmp_path: Path, at_once: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = interrupted(tmp_path / "cache", 2, monkeypatch)
    content = bytearray((left / "000001.h5").read_bytes())
    content[-5] ^= 1
    (left / "000001.h5").write_bytes(content)
    assert build(tmp_path / "cache", "local:2")[0] == at_once


def test_a_part_that_does_not_arrive_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if workers wrote to a disk of their own."""
    monkeypatch.setattr(parts, "sample_part", lambda *_: None)
    with pytest.raises(ResourceError, match=r"C09.*storage that every machine of the cluster sees"):
        build(tmp_path / "cache")


def test_no_seeds_have_no_parts(tmp_path: Path) -> None:
    none = Seeds(SEEDS.node[:0], SEEDS.time[:0], None)
    assert len(cached_sample(GRAPH, none, CONFIG, tmp_path, "none", on="local:2")) == 0
    assert [path.suffix for path in tmp_path.iterdir()] == [".h5"]


def test_memory_of_a_graph_that_is_sent_holds_no_samplers(tmp_path: Path) -> None:
    """What samplers keep with a graph are functions, which cannot be sent."""
    sample(GRAPH, SEEDS, CONFIG)
    build(tmp_path / str(os.getpid()), "local:1")
