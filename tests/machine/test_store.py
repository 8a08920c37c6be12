"""The store of kept things: the same bits or nothing, whatever happens to its files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.errors import UsageError
from quartet.machine import Store, parse_size, show_size, store_findings
from tests.strategies import examples

DTYPES = ("<i8", "<i4", "<u8", "<f4", "<f8", "|u1", "|b1")


def some_arrays(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    shapes = [tuple(rng.integers(0, 5, rng.integers(1, 4))) for _ in range(count)]
    return {
        f"array {n}": rng.integers(0, 2, shape).astype(DTYPES[n % len(DTYPES)])
        for n, shape in enumerate(shapes)
    }


def codes() -> list[str]:
    return [finding.code for finding in store_findings()]


@given(st.integers(0, 2**32), st.integers(0, 6))
@examples(30)
def test_what_is_read_is_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, rng_seed: int, count: int
) -> None:
    store = Store(tmp_path_factory.mktemp("store") / "kept")
    arrays = some_arrays(np.random.default_rng(rng_seed), count)
    facts = {"names": ["a", "é\n"], "number": 2**60}
    assert store.read("graphs", "d" * 64) is None
    store.write("graphs", "d" * 64, arrays, facts)
    kept = store.read("graphs", "d" * 64)
    assert kept is not None
    assert kept.facts == facts
    assert list(kept.arrays) == list(arrays)
    for name, array in arrays.items():
        assert kept.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(kept.arrays[name], array)
        assert not kept.arrays[name].flags.writeable
    assert store.read("labels", "d" * 64) is None
    assert codes() == []


def test_a_byte_that_changed_is_never_read(tmp_path: Path) -> None:
    """Each bit of the file in turn: the same content, or nothing and a finding."""
    store, arrays = Store(tmp_path / "kept"), {"a": np.arange(9), "b": np.ones(3, np.float32)}
    store.write("graphs", "digest", arrays, {"n": 1})
    path = tmp_path / "kept" / "graphs" / "digest"
    whole = path.read_bytes()
    num_refused = 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        kept = store.read("graphs", "digest")
        if kept is None:
            num_refused += 1
            assert codes() == ["C06"]
        else:  # only padding, which nobody reads
            for name, array in arrays.items():
                np.testing.assert_array_equal(kept.arrays[name], array)
    assert num_refused > 9 * 8 + 3 * 4


@pytest.mark.parametrize("content", [b"", b"quartet kept\n", b"\x89HDF\r\n\x1a\n" * 9, None])
def test_a_file_that_ends_early_or_is_foreign_is_made_anew(tmp_path: Path, content: bytes | None) -> None:
    store = Store(tmp_path / "kept")
    store.write("graphs", "digest", {"a": np.arange(1000)})
    path = tmp_path / "kept" / "graphs" / "digest"
    path.write_bytes(path.read_bytes()[:-1] if content is None else content)
    assert store.read("graphs", "digest") is None
    assert codes() == ["C06"]
    store.write("graphs", "digest", {"a": np.arange(1000)})
    assert store.read("graphs", "digest") is not None


def test_a_renamed_file_is_not_taken_for_another(tmp_path: Path) -> None:
    store = Store(tmp_path / "kept")
    store.write("graphs", "one", {"a": np.arange(3)})
    (tmp_path / "kept" / "graphs" / "one").rename(tmp_path / "kept" / "graphs" / "other")
    assert store.read("graphs", "other") is None
    assert codes() == ["C06"]


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    store = Store(tmp_path / "kept", most_bytes=9000)
    for number, name in enumerate("abc"):
        store.write("graphs", name, {"x": np.zeros(300)})
        os.utime(tmp_path / "kept" / "graphs" / name, (number, number))
    assert store.read("graphs", "a") is not None  # now the latest
    store.write("graphs", "d", {"x": np.zeros(300)})
    assert {entry.path.name for entry in store.entries()} == {"a", "c", "d"}
    store.write("graphs", "large", {"x": np.zeros(3000)})  # more than may be kept: nothing is driven out
    assert {entry.path.name for entry in store.entries()} == {"a", "c", "d"}
    assert store.clear() > 3 * 300 * 8
    assert store.entries() == []


def test_the_folder_is_for_its_owner_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep" / "kept")
    store.write("graphs", "a", {"x": np.zeros(3)})
    assert (tmp_path / "deep" / "kept").stat().st_mode & 0o777 == 0o700
    (tmp_path / "deep" / "kept").chmod(0o777)
    assert Store(tmp_path / "deep" / "kept").read("graphs", "a") is None
    assert codes() == ["C09"]


def test_a_folder_that_cannot_be_written_costs_time_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "kept")
    store.write("graphs", "a", {"x": np.zeros(3)})
    assert codes() == ["C09"]
    assert store.read("graphs", "a") is None


def test_a_writer_that_is_killed_leaves_nothing_half(tmp_path: Path) -> None:
    """kill -9 at some moments of a process that writes all the time, while this one reads."""
    script = (
        "import sys, numpy as np, pathlib; from quartet.machine import Store\n"
        "store = Store(pathlib.Path(sys.argv[1])); print('go', flush=True)\n"
        "n = 0\n"
        "while True:\n"
        "    n += 1; store.write('graphs', 'd', {'x': np.full(200_000, n), 'y': np.full(7, n)}, {'n': n})\n"
    )
    num_read = 0
    for turn in range(6):
        writer = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "kept")], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        for _ in range(5 + turn):
            kept = Store(tmp_path / "kept").read("graphs", "d")
            if kept is not None:
                num_read += 1
                assert (kept.arrays["x"] == kept.facts["n"]).all()
                assert (kept.arrays["y"] == kept.facts["n"]).all()
            time.sleep(0.003 * turn)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        after = Store(tmp_path / "kept").read("graphs", "d")
        assert after is None or (after.arrays["x"] == after.facts["n"]).all()
    assert num_read
    assert codes() == []


def test_sizes_in_words() -> None:
    assert [parse_size(text, "the cache", 0) for text in ("20GB", "1.5 mb", "0", "700")] == [
        20 * 10**9,
        1_500_000,
        0,
        700,
    ]
    assert [show_size(count) for count in (0, 999, 1500, 2 * 10**9)] == [
        "0 bytes", "999 bytes", "1.5 kB", "2.0 GB",
    ]  # fmt: skip
    for text in ("much", "-1GB", "nan"):
        with pytest.raises(UsageError):
            parse_size(text, "the cache", 0)


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("QUARTET_CACHE", "off")
    assert Store.of_user() is None
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("QUARTET_CACHE")
    assert Store.of_user() == Store(tmp_path / "quartet" / "kept")
    monkeypatch.setenv("QUARTET_CACHE", str(tmp_path / "mine"))
    monkeypatch.setenv("QUARTET_CACHE_SIZE", "1MB")
    assert Store.of_user() == Store(tmp_path / "mine" / "kept", 10**6)
