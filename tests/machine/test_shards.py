"""Whoever does the shards of a job, their results are the same: in order, none lost, none twice."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quartet.errors import DataError, ResourceError, UsageError
from quartet.listener import Listener
from quartet.machine import Place, map_shards, slices
from tests.machine import shardwork

ON = [None, "local:1", "local:2", "local:3"]
SHARDS = slices(20, 4)
SUMS = [6.0, 22.0, 38.0, 54.0, 70.0]


class Counted(Listener):
    def __init__(self) -> None:
        self.told: list[tuple[str, int, int]] = []

    def progress(self, what: str, done: int, total: int) -> None:
        self.told.append((what, done, total))


def shared(**more: Any) -> dict[str, Any]:
    fixed = np.arange(20.0)
    fixed.flags.writeable = False
    return {"numbers": np.arange(20.0), "fixed": fixed, **more}


def test_shards_are_whole_but_for_the_last() -> None:
    assert slices(10, 4) == [slice(0, 4), slice(4, 8), slice(8, 10)]
    assert slices(0, 4) == []


@pytest.mark.parametrize("on", ON)
def test_results_are_in_order_whoever_works(on: str | None) -> None:
    listener = Counted()
    got = list(map_shards(shardwork.summed, shared(), SHARDS, on, None, listener, "sums", [4] * 5, 25))
    assert got == SUMS
    assert listener.told == [("sums", 4, 25)] * 5


@pytest.mark.parametrize("on", ON[:3])
def test_shards_are_taken_as_somebody_is_free(on: str | None) -> None:
    """An iterator decides by what is done whether there is more to do."""
    done: list[float] = []

    def while_few() -> Iterator[slice]:
        for shard in SHARDS:
            if len(done) < 2:
                yield shard

    for result in map_shards(shardwork.summed, shared(), while_few(), on, in_order=False):
        done.append(result)  # noqa: PERF402 (the iterator reads it)
    assert sorted(done) == SUMS[: len(done)]
    assert 2 <= len(done) < 5


@pytest.mark.parametrize("on", ON)
def test_no_shards_are_no_results(on: str | None) -> None:
    assert list(map_shards(shardwork.summed, shared(), [], on)) == []


def test_what_is_shared_is_mapped_as_it_was() -> None:
    """Compiled code tells arrays that may be written from others: workers must not compile for other ones."""
    assert list(map_shards(shardwork.flags, shared(), SHARDS[:1], "local:1")) == [(False, True, False)]


def test_what_a_worker_writes_is_its_own() -> None:
    given = shared()
    assert list(map_shards(shardwork.scribbled, given, SHARDS, "local:2")) == SUMS
    assert given["numbers"].tolist() == list(range(20))


@pytest.mark.parametrize("on", ON[:3])
def test_an_error_of_ours_stays_what_it_is(on: str | None) -> None:
    with pytest.raises(DataError, match=r"error\[V01\] shard 4 cannot be read. Fix: look at it"):
        list(map_shards(shardwork.refused, shared(), SHARDS, on))


def test_any_other_error_is_told() -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError: in 0"):
        list(map_shards(shardwork.broken, shared(), SHARDS[:1], "local:1"))


@pytest.mark.parametrize("on", ["local:1", "local:2"])
def test_a_killed_worker_costs_its_shard_alone(on: str, tmp_path: Path) -> None:
    given = shared(folder=str(tmp_path))
    assert list(map_shards(shardwork.dies_once, given, SHARDS, on)) == SUMS
    assert (tmp_path / "died").exists()


def test_a_shard_that_kills_every_worker_is_an_error() -> None:
    with pytest.raises(ResourceError, match=r"C09.*shard 0 died 3 times \(exit code -9\)"):
        list(map_shards(shardwork.always_dies, shared(), SHARDS[:1], "local:1"))


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """Who stops listening has no processes and no files afterwards."""
    results = map_shards(shardwork.summed, shared(), SHARDS, "local:2", tmp_path)
    assert next(results) == SUMS[0]
    assert [path.name.startswith(".quartet-shared-") for path in tmp_path.iterdir()] == [True]
    results.close()  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []
    assert not [child for child in _children() if "spawn_main" in child]


def _children() -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"PPid:\t{os.getpid()}\n" in (folder / "status").read_text():
                found.append((folder / "cmdline").read_text())
        except OSError:
            pass
    return found


@pytest.mark.parametrize(
    "on", ["", "cluster", "local:0", "local:x", "local:", "ray:", "ray://", "ray:x", "here:1"]
)
def test_who_is_nobody_is_refused(on: str) -> None:
    if on:
        with pytest.raises(UsageError, match=r"C02.*nobody works on"):
            Place.parse(on)
    else:
        assert Place.parse(on).kind == "here"


def test_without_ray_one_hears_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    whole = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name == "ray":
            raise ImportError(name)
        return whole(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ResourceError, match=r"R01.*Ray is not installed.*quartet-rdl\[ray\]"):
        Place.parse("ray")


# --- Ray: a cluster of several nodes on this machine -------------------------------------------------


@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings("ignore")
def test_ray_gives_the_same_results(tmp_path: Path) -> None:
    listener = Counted()
    told = (listener, "sums", [4] * 5)
    assert list(map_shards(shardwork.summed, shared(), SHARDS, "ray", tmp_path, *told)) == SUMS
    assert listener.told == [("sums", 4, 20)] * 5
    later = map_shards(shardwork.summed, shared(), iter(SHARDS), "ray", tmp_path, in_order=False)
    assert sorted(later) == SUMS
    with pytest.raises(DataError, match=r"error\[V01\] shard 4"):
        list(map_shards(shardwork.refused, shared(), SHARDS, "ray", tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings("ignore")
def test_kill_9_of_a_ray_worker_loses_nothing(tmp_path: Path) -> None:
    """A worker is killed from outside, half-way through a shard: that one is done again, and no other."""
    given = shared(folder=str(tmp_path), seconds=1.0)
    killed: list[tuple[int, int]] = []

    def kill() -> None:
        tries = tmp_path / "tries"
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            started = tries.read_text().splitlines() if tries.is_file() else []
            if len(started) >= 2:
                shard, process = map(int, started[1].split())
                os.kill(process, signal.SIGKILL)
                killed.append((shard, process))
                return
            time.sleep(0.02)

    killer = threading.Thread(target=kill)
    killer.start()
    workers = list(map_shards(shardwork.written, given, SHARDS, "ray"))
    killer.join()
    ((shard, process),) = killed
    assert workers[shard // 4] != process  # which may have done an earlier shard
    tries = [int(line.split()[0]) for line in (tmp_path / "tries").read_text().splitlines()]
    assert sorted(tries) == sorted([*range(0, 20, 4), shard])
    outs = sorted(tmp_path.glob("*.out"))
    assert [path.name for path in outs] == [f"{first:03}.out" for first in range(0, 20, 4)]
    assert [float(path.read_text()) for path in outs] == SUMS
