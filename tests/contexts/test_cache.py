"""A cache file is whole, or refused and built anew, or not there; what it gives is what was sampled."""

from __future__ import annotations

import errno
import hashlib
import multiprocessing
import os
import pickle
import random
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.config import SamplingConfig
from quartet.contexts import Context, Estimate, cached_sample, cachefile, estimate, sample, select
from quartet.contexts.cache import PROBE, cache_digest
from quartet.contexts.cachefile import (
    HEADER_SIZE,
    VERSION,
    cannot_write,
    from_header,
    open_cache,
    to_header,
    write_cache,
)
from quartet.database import Database
from quartet.errors import IntegrityError, ResourceError, UsageError
from quartet.findings import Finding
from quartet.graph import TemporalGraph
from quartet.listener import Listener
from quartet.machine import files
from quartet.machine.files import PART
from quartet.tasks import Seeds
from tests.contexts.configs import configs
from tests.contexts.twins import pairs_of, seeds_from
from tests.shop import day, raw_shop, shop
from tests.strategies import Raw, examples, random_db, seeds_of, shuffled

CONFIG = SamplingConfig(num_walks=20, local_budget=12, temporal_budget=9, collab_budget=4)
GRAPH = TemporalGraph.build(shop())
SEEDS = seeds_from([(node, day(when)) for when in (9, 4, 6) for node in GRAPH.nodes("customers")])
DIGEST = cache_digest(GRAPH.fingerprint, SEEDS, CONFIG)
CONTEXT = sample(GRAPH, SEEDS, CONFIG)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the shop's contexts."""
    write_cache(tmp_path / "shop.h5", CONTEXT, DIGEST)
    return tmp_path / "shop.h5"


def refusal(path: Path, digest: str = DIGEST) -> IntegrityError:
    with pytest.raises(IntegrityError) as refused:
        open_cache(path, digest)
    return refused.value


def assert_same(one: Context, other: Context) -> None:
    """The same names, types, shapes and bytes."""
    for name, array in one.arrays.items():
        twin = other.arrays[name]
        assert (name, array.dtype, array.shape) == (name, twin.dtype, twin.shape)
        assert array.tobytes() == twin.tobytes(), name


def is_mapped(array: Any) -> bool:
    while array is not None and not isinstance(array, np.memmap):
        array = array.base
    return array is not None


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- there and back -------------------------------------------------------------------------------


@examples(30)
@given(random_db(), configs(), st.data())
def test_what_is_opened_is_what_was_sampled(
    tmp_path_factory: pytest.TempPathFactory, raw: Raw, config: SamplingConfig, data: st.DataObject
) -> None:
    database = Database.build(*raw)
    graph = TemporalGraph.build(database)
    context = sample(graph, seeds_from(pairs_of(database, data.draw(seeds_of(database)))), config)
    path = tmp_path_factory.mktemp("caches") / "contexts.h5"
    write_cache(path, context, "d" * 64)
    opened = open_cache(path, "d" * 64)
    assert_same(context, opened)
    for array in opened.arrays.values():
        assert type(array) is np.ndarray  # compiled code knows no other type
        assert array.flags.aligned
        assert array.flags.c_contiguous
        assert not array.flags.writeable
        assert is_mapped(array)


def test_an_opened_context_cannot_be_written(path: Path) -> None:
    opened = open_cache(path, DIGEST)
    with pytest.raises(ValueError, match="read-only"):
        opened.local_node[0] = 0
    with pytest.raises(ValueError, match="cannot set WRITEABLE"):
        opened.local_node.flags.writeable = True


def test_equal_contexts_give_equal_files(path: Path) -> None:
    write_cache(path.parent / "again.h5", CONTEXT, DIGEST)
    assert (path.parent / "again.h5").read_bytes() == path.read_bytes()


def test_any_hdf5_tool_reads_the_same_arrays(path: Path) -> None:
    with h5py.File(path) as file:
        assert dict(file.attrs) == {"format": "quartet-contexts", "version": VERSION, "digest": DIGEST}
        assert set(file) == set(CONTEXT.arrays)
        for name, array in CONTEXT.arrays.items():
            dataset = file[name]
            assert dataset.dtype == array.dtype
            assert dataset[...].tobytes() == array.tobytes()
            assert dataset.chunks is None
            assert dataset.compression is None
            assert dataset.attrs["crc32"] == zlib.crc32(array.tobytes())
            if array.size:
                assert dataset.id.get_offset() % 64 == 0


def test_reading_asks_nothing_of_the_hdf5_library(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert_same(open_cache(path, DIGEST), CONTEXT)
    with pytest.raises(ImportError):
        write_cache(path, CONTEXT, DIGEST)


def test_a_file_may_be_replaced_while_it_is_in_use(path: Path) -> None:
    opened = open_cache(path, DIGEST)
    other = select(CONTEXT, [3, 1])
    write_cache(path, other, "e" * 64)
    assert_same(opened, CONTEXT)
    assert_same(open_cache(path, "e" * 64), other)
    assert names(path.parent) == ["shop.h5"]


# --- the key --------------------------------------------------------------------------------------


def test_the_digest_names_all_that_contexts_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    node, when = SEEDS.node, SEEDS.time
    later = Seeds(node, np.where(np.arange(len(node)) == 3, when + 1, when), None)
    digests = [
        DIGEST,
        cache_digest("0" * 64, SEEDS, CONFIG),
        cache_digest(GRAPH.fingerprint, SEEDS, CONFIG.changed(rng_seed=1)),
        cache_digest(GRAPH.fingerprint, later, CONFIG),
        cache_digest(GRAPH.fingerprint, Seeds(node[::-1], when[::-1], None), CONFIG),
        cache_digest(GRAPH.fingerprint, Seeds(node[:-1], when[:-1], None), CONFIG),
        cache_digest(GRAPH.fingerprint, Seeds(when, node, None), CONFIG),
        cache_digest(TemporalGraph.build(other_order()).fingerprint, SEEDS, CONFIG),
    ]
    monkeypatch.setattr("quartet.contexts.cache.VERSION", VERSION + 1)
    digests.append(cache_digest(GRAPH.fingerprint, SEEDS, CONFIG))
    assert len(set(digests)) == len(digests)


def other_order() -> Database:
    """The shop with its rows in another order: the same facts, but other row numbers."""
    return Database.build(*shuffled(raw_shop(), random.Random(1)))


def test_the_digest_names_nothing_else() -> None:
    labelled = Seeds(SEEDS.node.astype(np.int32), SEEDS.time, np.ones(len(SEEDS)))  # type: ignore[arg-type]
    assert cache_digest(GRAPH.fingerprint, labelled, CONFIG) == DIGEST
    assert cache_digest(TemporalGraph.build(shop()).fingerprint, SEEDS, replace(CONFIG)) == DIGEST


def test_samplers_that_draw_otherwise_have_another_version() -> None:
    """If this fails, contexts changed: raise VERSION, or caches of the older samplers will be read as new.

    The sketch is left out: it is made of logarithms, which two mathematical libraries may round differently.
    """
    digest = hashlib.sha256()
    for config in (
        CONFIG,
        CONFIG.changed(local_sampler="bfs"),
        CONFIG.changed(collab_hops=4, truncation="random"),
        CONFIG.changed(local_sampler="uniform", first_fanout=2, second_fanout=2),
    ):
        for name, array in sample(GRAPH, SEEDS, config).arrays.items():
            digest.update(array.tobytes() if name != "sketch" else b"")
    assert {VERSION: digest.hexdigest()[:16]} == {6: "4dceb506d7471e05"}


# --- damage ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A file to damage, and what was in it."""
    path = tmp_path_factory.mktemp("damage") / "shop.h5"
    write_cache(path, CONTEXT, DIGEST)
    return path, path.read_bytes()


def regions(whole: bytes) -> dict[str, tuple[int, int]]:
    """Where the header and each array lie; what is between them is the HDF5 library's."""
    arrays = from_header(whole[:HEADER_SIZE])["arrays"]
    spans = {name: (begin, begin + CONTEXT.arrays[name].nbytes) for name, (_, _, begin, _) in arrays.items()}
    return {"header": (0, HEADER_SIZE), **{name: span for name, span in spans.items() if span[0] < span[1]}}


def where_it_lies(place: int, whole: bytes) -> str:
    found = [name for name, (begin, end) in regions(whole).items() if begin <= place < end]
    return found[0] if found else "HDF5 metadata"


@examples(200)
@given(st.data())
def test_c06_every_flipped_bit_is_noticed_and_named(written: tuple[Path, bytes], data: st.DataObject) -> None:
    path, whole = written
    begin, end = data.draw(st.sampled_from([*regions(whole).values(), (HEADER_SIZE, len(whole))]))
    place = data.draw(st.integers(begin, end - 1))
    damaged = bytearray(whole)
    damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(damaged)
    where = where_it_lies(place, whole)
    if place < len('{"format": "quartet-contexts"'):
        where = "not a cache of contexts"
    assert str(refusal(path)) == (
        f'error[C06] cache file "shop.h5" is damaged ({where}). Fix: build it again'
    )


@examples(100)
@given(st.integers(0, 2**32), st.integers(1, 4096))
def test_c06_overwritten_bytes_are_noticed(written: tuple[Path, bytes], number: int, length: int) -> None:
    path, whole = written
    place = number % len(whole)
    other = random.Random(number).randbytes(min(length, len(whole) - place))
    damaged = whole[:place] + other + whole[place + len(other) :]
    path.write_bytes(damaged)
    if damaged == whole:
        assert_same(open_cache(path, DIGEST), CONTEXT)
    else:
        assert refusal(path).code == "C06"


@examples(100)
@given(st.data())
def test_c06_a_file_cut_short_anywhere(written: tuple[Path, bytes], data: st.DataObject) -> None:
    path, whole = written
    length = data.draw(st.integers(0, len(whole) - 1))
    path.write_bytes(whole[:length])
    where = f"{length} bytes instead of {len(whole)}"
    if length < HEADER_SIZE:
        where = "header" if length >= len('{"format": "quartet-contexts"') else "not a cache of contexts"
    assert refusal(path).what == f'cache file "shop.h5" is damaged ({where})'


def test_c06_a_longer_file(path: Path) -> None:
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"\0")
    assert refusal(path).what == f'cache file "shop.h5" is damaged ({size + 1} bytes instead of {size})'


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _foreign_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for name, array in CONTEXT.arrays.items():
            file[name] = array


def _hdf5_without_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[HEADER_SIZE:])


def _pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(Bomb(path.parent / "trace")))


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("put", [_empty, _zeros, _foreign_hdf5, _hdf5_without_header, _pickle])
def test_c06_something_else_lies_there(path: Path, put: Callable[[Path], None]) -> None:
    put(path)
    error = refusal(path)
    assert error.exit_code == 5
    assert str(error) == (
        'error[C06] cache file "shop.h5" is damaged (not a cache of contexts). Fix: build it again'
    )
    assert not (path.parent / "trace").exists()


def test_c06_a_folder_lies_there_or_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder.h5").mkdir()
    assert refusal(tmp_path / "folder.h5").what == 'cache file "folder.h5" is damaged (Is a directory)'
    assert refusal(tmp_path / "none.h5").what == 'cache file "none.h5" is damaged (No such file or directory)'


def test_c05_other_data(path: Path) -> None:
    error = refusal(path, "0" * 64)
    assert error.exit_code == 5
    assert str(error) == 'error[C05] cache "shop.h5" was built for other data. Fix: build it again'


def rewrite_header(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the header and signs it again, which no accident does."""
    whole = path.read_bytes()
    about = from_header(whole[:HEADER_SIZE])
    change(about)
    path.write_bytes(to_header(about) + whole[HEADER_SIZE:])


def test_c05_another_version(path: Path) -> None:
    rewrite_header(path, lambda about: about.update(version=VERSION + 1))
    assert str(refusal(path)) == (
        f'error[C05] cache "shop.h5" was built by another version (format {VERSION + 1}, this one reads {VERSION}). '
        "Fix: build it again"
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda about: about.pop("digest"),
        lambda about: about.pop("arrays"),
        lambda about: about["arrays"].pop("link"),
        lambda about: about["arrays"].update(extra=["<i4", [1], 4096, 0]),
        lambda about: about["arrays"].update(link=3),
        lambda about: about["arrays"]["link"].__setitem__(0, "O"),
        lambda about: about["arrays"]["link"].__setitem__(0, "nonsense"),
        lambda about: about["arrays"]["link"].__setitem__(1, [2**62]),
        lambda about: about["arrays"]["link"].__setitem__(2, -8),
        lambda about: about["arrays"]["link"].__setitem__(2, about["arrays"]["local_node"][2]),
    ],
)
def test_c06_a_header_that_was_tampered_with(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    rewrite_header(path, change)
    assert refusal(path).code == "C06"


def test_a_header_that_does_not_fit_is_never_written() -> None:
    with pytest.raises(ValueError, match="a header of"):
        to_header({"digest": "d" * HEADER_SIZE})


# --- sampled or opened ----------------------------------------------------------------------------


class Told(Listener):
    """Remembers how many seeds were sampled and what was found."""

    def __init__(self) -> None:
        self.sampled: list[int] = []
        self.findings: list[Finding] = []

    def progress(self, what: str, done: int, total: int) -> None:
        assert (what, total) == ("contexts of shop-train", len(SEEDS))
        self.sampled.append(done)

    def finding(self, finding: Finding) -> None:
        self.findings.append(finding)


def build(folder: Path, **words: Any) -> tuple[Context, list[int], list[Finding]]:
    """Contexts by way of the cache, what was sampled for them, and what was reported."""
    told = Told()
    context = cached_sample(GRAPH, SEEDS, CONFIG.changed(**words), folder, "shop-train", told)
    return context, told.sampled, told.findings


def test_the_first_call_samples_and_the_second_opens(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    context, sampled, findings = build(folder)
    assert_same(context, CONTEXT)
    assert is_mapped(context.local_node)
    assert (sampled, findings) == ([0, len(SEEDS)], [])
    assert names(folder) == [f"shop-train-{DIGEST[:16]}.h5"]
    context, sampled, findings = build(folder)
    assert_same(context, CONTEXT)
    assert (sampled, findings) == ([], [])
    _, sampled, findings = build(folder, rng_seed=1)  # another configuration stands beside the first
    assert (sampled, findings) == ([0, len(SEEDS)], [])
    assert len(names(folder)) == 2


def test_c06_a_damaged_file_is_reported_and_rebuilt(tmp_path: Path) -> None:
    build(tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    context, sampled, (finding,) = build(tmp_path)
    assert_same(context, CONTEXT)
    assert sampled == [0, len(SEEDS)]
    assert str(finding) == (
        f'warning[C06] cache file "{path.name}" is damaged ({len(whole) - 1} bytes instead of {len(whole)}). '
        "It will be rebuilt; nothing else is affected"
    )
    assert (finding.where, finding.count) == (str(path), len(SEEDS))
    assert path.read_bytes() == whole
    assert names(tmp_path) == [path.name]


def test_c05_a_file_of_other_data_is_reported_and_rebuilt(tmp_path: Path) -> None:
    path = tmp_path / f"shop-train-{DIGEST[:16]}.h5"
    write_cache(path, select(CONTEXT, [0]), "e" * 64)
    context, sampled, (finding,) = build(tmp_path)
    assert_same(context, CONTEXT)
    assert sampled == [0, len(SEEDS)]
    assert str(finding) == f'warning[C05] cache "{path.name}" was built for other data. Rebuilding'


@pytest.mark.parametrize("name", ["../train", "a/b"])
def test_a_name_does_not_lead_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError) as refused:
        cached_sample(GRAPH, SEEDS, CONFIG, tmp_path / "inner", name)
    assert str(refused.value) == (
        f'error[C02] a cache cannot be called "{name}". Fix: give a plain name, without slashes'
    )
    assert names(tmp_path) == []


# --- estimates ------------------------------------------------------------------------------------


def test_the_estimate_of_few_seeds_is_exact() -> None:
    guess = estimate(GRAPH, SEEDS, CONFIG)
    assert guess.num_bytes == CONTEXT.num_bytes
    assert 0 < guess.seconds < 5


def test_the_estimate_of_many_seeds_is_close() -> None:
    rng = np.random.default_rng(0)
    many = 4 * PROBE
    nodes, times = (
        rng.integers(0, GRAPH.num_nodes, many),
        day(2) + rng.integers(0, 8, many) * (day(1) - day(0)),
    )
    seeds = Seeds(nodes, times, None)
    guess = estimate(GRAPH, seeds, CONFIG)
    assert guess.num_bytes == pytest.approx(sample(GRAPH, seeds, CONFIG).num_bytes, rel=0.05)


def test_no_seeds_cost_nothing() -> None:
    assert estimate(GRAPH, seeds_from([]), CONFIG) == Estimate(0.0, HEADER_SIZE)


# --- batches --------------------------------------------------------------------------------------


def selected_slowly(context: Context, places: Sequence[int]) -> Context:
    """What `select` gives, by slicing one seed after the other."""
    local = [context.local(place) for place in places]
    links = [context.part("link", place) for place in places]
    collab = [context.collab(place) for place in places]
    which = sorted({int(context.time_index[place]) for place in places})
    recent = [context.temporal_node[slice(*context.temporal_start[time : time + 2])] for time in which]

    def joined(parts: Sequence[Any], like: Any) -> Any:
        return np.concatenate([like[:0], *parts])

    def starts(parts: Sequence[Any]) -> Any:
        return np.array([sum(map(len, parts[:end])) for end in range(len(parts) + 1)], np.int64)

    return Context(
        seed_node=np.array([context.seed_node[place] for place in places], np.int32),
        seed_time=np.array([context.seed_time[place] for place in places], np.int64),
        local_start=starts([nodes for nodes, _, _, _ in local]),
        local_node=joined([nodes for nodes, _, _, _ in local], context.local_node),
        local_hop=joined([hops for _, hops, _, _ in local], context.local_hop),
        local_count=joined([counts for _, _, counts, _ in local], context.local_count),
        link_start=starts(links),
        link=joined(links, context.link),
        collab_start=starts(collab),
        collab_node=joined(collab, context.collab_node),
        time_index=np.array([which.index(context.time_index[place]) for place in places], np.int32),
        temporal_start=starts(recent),
        temporal_node=joined(recent, context.temporal_node),
        sketch=np.stack([*(context.sketch[place] for place in places)]) if places else context.sketch[:0],
        columns=np.stack([*(context.columns[place] for place in places)]) if places else context.columns[:0],
    )


@examples(60)
@given(random_db(), configs(), st.data())
def test_select_is_slicing_and_is_sampling_the_chosen_alone(
    tmp_path_factory: pytest.TempPathFactory, raw: Raw, config: SamplingConfig, data: st.DataObject
) -> None:
    database = Database.build(*raw)
    graph = TemporalGraph.build(database)
    pairs = pairs_of(database, data.draw(seeds_of(database)))
    context = sample(graph, seeds_from(pairs), config)
    places = data.draw(st.lists(st.integers(0, len(pairs) - 1), max_size=12)) if pairs else []
    chosen = select(context, places)
    assert_same(chosen, selected_slowly(context, places))
    assert_same(chosen, sample(graph, seeds_from([pairs[place] for place in places]), config))
    assert_same(select(context, np.arange(len(context))), context)
    path = tmp_path_factory.mktemp("caches") / "contexts.h5"
    write_cache(path, context, "d" * 64)
    assert_same(select(open_cache(path, "d" * 64), places), chosen)


def test_a_batch_keeps_each_temporal_context_once() -> None:
    batch = select(CONTEXT, [0, 7, 1, 0, 17])
    assert batch.seed_time.tolist() == [day(9), day(4), day(9), day(9), day(6)]
    assert batch.time_index.tolist() == [2, 0, 2, 2, 1]
    assert len(batch.temporal_start) == 4
    assert batch.temporal(1).tolist() == CONTEXT.temporal(7).tolist()


@pytest.mark.parametrize("places", [[-1], [0, 18], [2**40]])
def test_a_place_out_of_range_is_refused(places: list[int]) -> None:
    with pytest.raises(IndexError, match="there are seeds 0 to 17, asked for"):
        select(CONTEXT, places)


@pytest.mark.parametrize("places", [[True, False], [0.5], ["0"]])
def test_a_place_is_a_whole_number(places: list[Any]) -> None:
    with pytest.raises(TypeError, match="seeds are named by their places, whole numbers, not by"):
        select(CONTEXT, places)


# --- others beside us, and kill -9 ----------------------------------------------------------------


def contexts_of_two_lengths() -> list[tuple[str, Context]]:
    return [("a" * 64, CONTEXT), ("b" * 64, select(CONTEXT, np.tile(np.arange(len(CONTEXT)), 300)))]


def write_until(path: Path, writer: int, stop: Any, results: Any) -> None:
    """Replaces the file again and again, and reports what went wrong."""
    try:
        digest, context = contexts_of_two_lengths()[writer % 2]
        while not stop.is_set():
            write_cache(path, context, digest)
    except Exception as error:
        results.put(f"writer {writer}: {error!r}")
    else:
        results.put("done")


def look(path: Path) -> str:
    """Which of the two contexts lies there, wholly."""
    for digest, context in contexts_of_two_lengths():
        try:
            assert_same(open_cache(path, digest), context)
        except IntegrityError as error:
            if error.code == "C06":
                return str(error)
        else:
            return digest[0]
    return "replaced in between"


def test_two_writers_and_a_reader(tmp_path: Path) -> None:
    """No writer fails, no reader sees half, and at the end one whole file is left, and nothing else."""
    path = tmp_path / "shop.h5"
    write_cache(path, CONTEXT, "a" * 64)
    spawn = multiprocessing.get_context("spawn")
    stop, results = spawn.Event(), spawn.Queue()
    writers = [spawn.Process(target=write_until, args=(path, number, stop, results)) for number in range(2)]
    for process in writers:
        process.start()
    seen: Counter[str] = Counter()
    while min(seen["a"], seen["b"]) < 10 and all(process.is_alive() for process in writers):
        seen[look(path)] += 1
    stop.set()
    assert [results.get(timeout=600) for _ in writers] == ["done"] * 2
    for process in writers:
        process.join()
    assert set(seen) <= {"a", "b", "replaced in between"}
    assert look(path) in "ab"
    assert names(tmp_path) == ["shop.h5"]


def build_and_tell(folder: Path, start: Any, results: Any) -> None:
    start.wait(60)
    context, _, findings = build(folder)
    results.put((select(context, [5]).local_node.tolist(), [str(finding) for finding in findings]))


def test_two_processes_build_one_cache(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    start, results = spawn.Barrier(2), spawn.Queue()
    processes = [spawn.Process(target=build_and_tell, args=(tmp_path, start, results)) for _ in range(2)]
    for process in processes:
        process.start()
    told = [results.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    assert told == [(CONTEXT.local(5)[0].tolist(), [])] * 2
    assert names(tmp_path) == [f"shop-train-{DIGEST[:16]}.h5"]


def write_and_stop(path: Path, moment: str, reached: Any) -> None:
    """Writes a cache, and at some moment says so and waits to be killed."""

    def stop_after(work: Callable[..., Any]) -> Callable[..., Any]:
        def worked(*words: Any) -> None:
            work(*words)
            reached.set()
            time.sleep(600)

        return worked

    if moment == "synced":
        files.sync = stop_after(files.sync)
    else:
        setattr(cachefile, moment, stop_after(getattr(cachefile, moment)))
    write_cache(path, *reversed(contexts_of_two_lengths()[1]))


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("moment", ["_lay_out", "_fill", "synced"])
def test_kill_9_leaves_the_old_file_or_none(tmp_path: Path, moment: str, is_there: bool) -> None:
    """A writer is killed when the file is laid out, filled, or synced; `benchmarks/faults.py` kills at any time."""
    path = tmp_path / "shop.h5"
    if is_there:
        write_cache(path, CONTEXT, "a" * 64)
    start = multiprocessing.get_context("forkserver" if os.name == "posix" else "spawn")
    if os.name == "posix":
        start.set_forkserver_preload([__name__])
    reached = start.Event()
    process = start.Process(target=write_and_stop, args=(path, moment, reached))
    process.start()
    assert reached.wait(60)
    process.kill()
    process.join()
    assert [name.endswith(PART) for name in names(tmp_path)] == [True] + [False] * is_there
    assert (look(path) if path.exists() else "none") == ("a" if is_there else "none")
    write_cache(path, CONTEXT, "a" * 64)
    assert look(path) == "a"


# --- a full disk, a folder that may not be written ------------------------------------------------


def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A small file system of its own; skips the test where none can be mounted."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True)
    if done.returncode:
        pytest.skip(f"cannot mount a file system here ({done.stderr.decode().strip()})")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    yield from mounted(tmp_path / "disk", "size=1m")


@pytest.fixture
def read_only_disk(tmp_path: Path) -> Iterator[Path]:
    yield from mounted(tmp_path / "disk", "size=1m,ro")


MANY = select(CONTEXT, np.tile(np.arange(len(CONTEXT)), 500))


@pytest.mark.parametrize("free_pages", [0, 1, 3, 8, 256])
def test_c07_a_full_disk(small_disk: Path, free_pages: int) -> None:
    """Full from the start, or while the HDF5 library lays out the file, or when the arrays claim their room."""
    room = free_pages * 4096
    if room < 2**20:
        (small_disk / "filler").write_bytes(bytes(2**20 - room))
    before, free = names(small_disk), {0: "0 bytes", 256: "1.0 MB"}.get(free_pages, f"{room / 1000:.1f} kB")
    with pytest.raises(ResourceError) as refused:
        write_cache(small_disk / "shop.h5", MANY, DIGEST)
    assert refused.value.exit_code == 4
    assert str(refused.value) == (
        f'error[C07] the cache needs {MANY.num_bytes / 1e6:.1f} MB in "{small_disk}", {free} free; '
        "nothing was kept. Fix: make room or choose another folder, and run again"
    )
    assert names(small_disk) == before
    (small_disk / "filler").unlink(missing_ok=True)
    write_cache(small_disk / "shop.h5", CONTEXT, DIGEST)  # the library has recovered
    assert_same(open_cache(small_disk / "shop.h5", DIGEST), CONTEXT)


def test_c07_a_full_disk_keeps_the_old_file(small_disk: Path) -> None:
    write_cache(small_disk / "shop.h5", CONTEXT, DIGEST)
    with pytest.raises(ResourceError):
        write_cache(small_disk / "shop.h5", MANY, DIGEST)
    assert_same(open_cache(small_disk / "shop.h5", DIGEST), CONTEXT)
    assert names(small_disk) == ["shop.h5"]


def test_c09_a_read_only_folder_shows_before_sampling(read_only_disk: Path) -> None:
    told = Told()
    with pytest.raises(ResourceError) as refused:
        cached_sample(GRAPH, SEEDS, CONFIG, read_only_disk, "shop-train", told)
    assert refused.value.exit_code == 4
    assert str(refused.value) == (
        f'error[C09] the cache folder "{read_only_disk}" cannot be written (Read-only file system). '
        "Fix: choose another folder, or allow writing to this one"
    )
    assert told.sampled == []


def test_c09_a_read_only_folder_with_the_cache_in_it(small_disk: Path) -> None:
    build(small_disk)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    context, sampled, findings = build(small_disk)
    assert_same(context, CONTEXT)
    assert (sampled, findings) == ([], [])


def test_c09_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError) as refused:
        build(tmp_path / "file" / "caches")
    assert refused.value.what == (
        f'the cache folder "{tmp_path / "file" / "caches"}" cannot be written (Not a directory)'
    )


def test_c09_a_folder_where_the_file_should_be(tmp_path: Path) -> None:
    (tmp_path / "shop.h5" / "inner").mkdir(parents=True)
    with pytest.raises(ResourceError, match=r"C09.*Is a directory"):
        write_cache(tmp_path / "shop.h5", CONTEXT, DIGEST)
    assert names(tmp_path) == ["shop.h5"]


@pytest.mark.parametrize(
    ("needed", "text"),
    [
        (41 * 10**9, "41.0 GB"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (2 * 10**12, "2.0 TB"),
        (2_660_000, "2.7 MB"),
    ],
)
def test_c07_sizes_are_readable(tmp_path: Path, needed: int, text: str) -> None:
    error = cannot_write(tmp_path, needed, OSError(errno.ENOSPC, "No space left on device"))
    assert error.what.startswith(f'the cache needs {text} in "{tmp_path}", ')
