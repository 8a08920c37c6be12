"""A graph on disk is whole, or refused, or not there."""

from __future__ import annotations

import builtins
import io
import json
import multiprocessing
import pickle
import random
import shutil
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.database import Database
from quartet.errors import IntegrityError
from quartet.graph import TemporalGraph
from quartet.graph.storage import open_graph, save_graph
from tests.shop import raw_shop, shop
from tests.strategies import Raw, examples, interesting_times, random_db, shuffled

ARRAYS = list(TemporalGraph.build(shop()).arrays)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The folder of the shop's graph."""
    save_graph(TemporalGraph.build(shop()), tmp_path / "graph")
    return tmp_path / "graph"


def other_shop() -> TemporalGraph:
    """The graph of the shop in another order of rows: every array as long, most of them different."""
    return TemporalGraph.build(Database.build(*shuffled(raw_shop(), random.Random(1))))


def refusal(folder: Path, fingerprint: str | None = None) -> IntegrityError:
    with pytest.raises(IntegrityError) as refused:
        open_graph(folder, fingerprint)
    return refused.value


def is_mapped(array: Any) -> bool:
    while array is not None and not isinstance(array, np.memmap):
        array = array.base
    return array is not None


def assert_equal(one: TemporalGraph, other: TemporalGraph) -> None:
    assert facts(one) == facts(other)
    assert list(one.arrays) == list(other.arrays)
    for name, array in one.arrays.items():
        assert array.dtype == other.arrays[name].dtype
        np.testing.assert_array_equal(array, other.arrays[name])


def facts(graph: TemporalGraph) -> tuple[object, ...]:
    return graph.names, graph.num_loops, graph.num_parallel, graph.fingerprint


# --- there and back -------------------------------------------------------------------------------


@examples(50)
@given(random_db(), st.data())
def test_what_is_opened_is_what_was_saved(
    tmp_path_factory: pytest.TempPathFactory, raw: Raw, data: st.DataObject
) -> None:
    database = Database.build(*raw)
    graph = TemporalGraph.build(database)
    folder = tmp_path_factory.mktemp("graphs") / "graph"
    save_graph(graph, folder)
    opened = open_graph(folder, database.fingerprint)
    assert_equal(graph, opened)
    assert not any(array.flags.writeable for array in opened.arrays.values())
    assert all(is_mapped(array) for array in opened.arrays.values() if len(array))
    nodes = np.arange(graph.num_nodes)
    times = np.full(len(nodes), data.draw(st.sampled_from(interesting_times(database))))
    assert opened.degrees(nodes, times).tolist() == graph.degrees(nodes, times).tolist()
    for node, when in zip(nodes[::5], times, strict=False):
        assert opened.neighbors(node, when).tolist() == graph.neighbors(node, when).tolist()


def test_an_opened_graph_cannot_be_written(saved: Path) -> None:
    graph = open_graph(saved)
    with pytest.raises(ValueError, match="read-only"):
        graph.entries[0] = 0
    with pytest.raises(ValueError, match="cannot set WRITEABLE"):
        graph.entries.flags.writeable = True


def test_a_second_save_replaces_the_first_and_leaves_nothing_behind(saved: Path) -> None:
    first = open_graph(saved)
    other = other_shop()
    save_graph(other, saved)
    assert_equal(open_graph(saved), other)
    assert_equal(first, TemporalGraph.build(shop()))  # still mapped from the files that are gone
    assert [path.name for path in saved.parent.iterdir()] == ["graph"]
    assert sorted(path.name for path in saved.iterdir()) == sorted(
        ["graph.json", *(f"{n}.npy" for n in ARRAYS)]
    )


def test_opening_does_not_read_the_arrays(tmp_path: Path) -> None:
    """80 MB open in a moment. The bound is loose: reading them would take longer only on a slow disk."""
    graph = TemporalGraph.build(shop())
    large = {**graph.arrays, "entries": np.zeros(10**7, dtype=np.int64)}
    save_graph(TemporalGraph(*facts(graph), **large), tmp_path / "graph")  # type: ignore[arg-type]
    began = time.perf_counter()
    assert is_mapped(open_graph(tmp_path / "graph").entries)
    assert time.perf_counter() - began < 1.0


# --- refusals -------------------------------------------------------------------------------------


def test_c05_other_data(saved: Path) -> None:
    assert open_graph(saved, shop().fingerprint).num_nodes == 30
    error = refusal(saved, "0" * 64)
    assert error.exit_code == 5
    assert str(error) == (
        f'error[C05] the graph in "{saved}" was built from other data. Fix: build it again and save it'
    )


def _no_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def _no_json(folder: Path) -> None:
    (folder / "graph.json").unlink()


def _half_json(folder: Path) -> None:
    whole = (folder / "graph.json").read_text()
    (folder / "graph.json").write_text(whole[: len(whole) // 2])


def _foreign_json(folder: Path) -> None:
    (folder / "graph.json").write_text('{"format": "another", "version": 1}')


def _list_json(folder: Path) -> None:
    (folder / "graph.json").write_text("[]")


def _binary_json(folder: Path) -> None:
    (folder / "graph.json").write_bytes(b"\x00\xff\xfe")


@pytest.mark.parametrize(
    "damage", [_no_folder, _no_json, _half_json, _foreign_json, _list_json, _binary_json]
)
def test_c10_not_a_graph(saved: Path, damage: Callable[[Path], None]) -> None:
    damage(saved)
    assert str(refusal(saved)) == (
        f'error[C10] "{saved}" does not hold a graph. Fix: build it again and save it'
    )


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    about = json.loads((folder / "graph.json").read_text())
    change(about)
    (folder / "graph.json").write_text(json.dumps(about))


def test_c10_a_newer_version(saved: Path) -> None:
    rewrite(saved, lambda about: about.update(version=2))
    assert str(refusal(saved)) == f'error[C10] the graph in "{saved}" has format 2, this version reads 1'


@pytest.mark.parametrize("word", ["version", "names", "num_loops", "num_parallel", "fingerprint", "arrays"])
def test_c10_a_word_is_missing(saved: Path, word: str) -> None:
    rewrite(saved, lambda about: about.pop(word))
    assert refusal(saved).code == "C10"


@pytest.mark.parametrize("name", ["entries", "offsets"])
def test_c10_an_array_is_not_listed(saved: Path, name: str) -> None:
    rewrite(saved, lambda about: about["arrays"].pop(name))
    assert refusal(saved).code == "C10"


def test_c10_an_array_is_listed_that_no_graph_has(saved: Path) -> None:
    """Nor may the list lead out of the folder."""
    np.save(saved.parent / "outside.npy", np.zeros(3))
    rewrite(saved, lambda about: about["arrays"].update({"../outside": ["<f8", 3]}))
    assert refusal(saved).code == "C10"


@pytest.mark.parametrize("name", ARRAYS)
def test_c06_an_array_is_missing(saved: Path, name: str) -> None:
    path = saved / f"{name}.npy"
    path.unlink()
    assert str(refusal(saved)) == (
        f"error[C06] \"{path}\" is damaged ([Errno 2] No such file or directory: '{path}'). "
        "Fix: build the graph again"
    )


@pytest.mark.parametrize("name", ARRAYS)
def test_c06_an_array_is_cut_short_anywhere(saved: Path, name: str) -> None:
    path = saved / f"{name}.npy"
    whole = path.read_bytes()
    for length in {0, 1, 5, 6, 8, 10, 64, 127, 128, len(whole) // 2, len(whole) - 1}:
        path.write_bytes(whole[:length])
        text = str(refusal(saved))
        assert text.startswith(f'error[C06] "{path}" is damaged (')
        assert text.endswith("). Fix: build the graph again")


def test_c06_another_array_lies_in_its_place(saved: Path) -> None:
    path = saved / "entries.npy"
    expected = f'error[C06] "{path}" is not the array that was saved. Fix: build the graph again'
    for array in (np.zeros(85, np.int64), np.zeros(86, np.int32), np.zeros((86, 2), np.int64)):
        np.save(path, array)
        assert str(refusal(saved)) == expected


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a zip", b"\x00" * 200, b"\x93NUMPY\x09\x09"])
def test_c06_something_else_lies_in_its_place(saved: Path, content: bytes) -> None:
    (saved / "entries.npy").write_bytes(content)
    assert refusal(saved).code == "C06"


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_c06_a_pickle_is_never_opened(saved: Path) -> None:
    """T6"""
    trace = saved.parent / "trace"
    (saved / "entries.npy").write_bytes(pickle.dumps(Bomb(trace)))
    assert refusal(saved).code == "C06"
    np.save(saved / "entries.npy", np.array([Bomb(trace)] * 86, dtype=object), allow_pickle=True)
    assert refusal(saved).code == "C06"
    assert not trace.exists()


# --- others beside us -----------------------------------------------------------------------------


def test_a_reader_beside_a_writer_sees_one_graph(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is replaced while it is being opened: before its first, second, ... file is."""
    one, other = TemporalGraph.build(shop()), other_shop()
    really_open, countdown = builtins.open, 0

    def interrupted(file: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal countdown
        if str(file).startswith(str(saved)):
            countdown -= 1
            if countdown == 0:
                save_graph(other, saved)
        return really_open(file, *args, **kwargs)

    monkeypatch.setattr(builtins, "open", interrupted)
    monkeypatch.setattr(io, "open", interrupted)
    for moment in range(1, 40):
        countdown = 0
        save_graph(one, saved)
        countdown = moment
        opened = open_graph(saved)
        assert_equal(opened, other if opened.fingerprint == other.fingerprint else one)
    assert countdown > 0  # the last moment came after the last file


def save_for_ever(sources: list[Path], target: Path, started: Any) -> None:
    graphs = [open_graph(source) for source in sources]
    started.set()
    for graph in cycle(graphs):
        save_graph(graph, target)


def test_kill_9_leaves_a_whole_graph_or_none(tmp_path: Path) -> None:
    """Twenty writers are killed at random moments, each after the last one's remains."""
    graphs = [TemporalGraph.build(shop()), other_shop()]
    sources = [tmp_path / "first", tmp_path / "second"]
    for graph, source in zip(graphs, sources, strict=True):
        save_graph(graph, source)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    target, rng, num_whole, num_halves = tmp_path / "out" / "graph", random.Random(0), 0, 0
    for _ in range(20):
        started = context.Event()
        process = context.Process(target=save_for_ever, args=(sources, target, started))
        process.start()
        assert started.wait(60)
        time.sleep(rng.random() * 0.05)
        process.kill()
        process.join()
        if target.exists():
            opened = open_graph(target)
            assert_equal(opened, graphs[opened.fingerprint == graphs[1].fingerprint])
            num_whole += 1
        halves = [path for path in target.parent.iterdir() if path != target]
        num_halves += bool(halves)
        for path in halves:
            shutil.rmtree(path)
    assert num_whole > 0
    assert num_halves > 0  # some were killed in the middle of it, or nothing was tested
