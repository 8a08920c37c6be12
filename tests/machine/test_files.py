"""Files and folders are filled aside and take their place whole."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from quartet.machine import new_file, new_folder

PARTS = 12


def fill(target: Path, token: str) -> None:
    with new_folder(target) as aside:
        for part in range(PARTS):
            (aside / str(part)).write_text(token * 100)


def fail_halfway(target: Path, error: type[BaseException]) -> None:
    with new_folder(target) as aside:
        (aside / "0").write_text("half")
        raise error


def tokens(target: Path) -> list[str]:
    return [(target / str(part)).read_text() for part in range(PARTS)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- one process ----------------------------------------------------------------------------------


def test_the_folder_appears_whole_with_its_parents(tmp_path: Path) -> None:
    target = tmp_path / "new" / "deep" / "folder"
    with new_folder(target) as aside:
        (aside / "inner").mkdir()
        (aside / "inner" / "file").write_text("here")
        assert not target.exists()
        assert aside.parent == target.parent  # on one file system, or it could not be renamed
    assert (target / "inner" / "file").read_text() == "here"
    assert names(target.parent) == ["folder"]
    assert target.stat().st_mode & 0o777 == 0o755


def test_nothing_of_the_old_folder_remains(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    with new_folder(target) as aside:
        (aside / "old").write_text("old")
    with new_folder(target) as aside:
        (aside / "new").write_text("new")
        assert names(target) == ["old"]
    assert names(target) == ["new"]
    assert names(tmp_path) == ["folder"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_the_old_folder(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "folder"
    fill(target, "a")
    with pytest.raises(error):
        fail_halfway(target, error)
    assert tokens(target) == ["a" * 100] * PARTS
    assert names(tmp_path) == ["folder"]


def test_an_exception_leaves_nothing_where_nothing_was(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        fail_halfway(tmp_path / "folder", RuntimeError)
    assert names(tmp_path) == []


def test_two_at_once_and_the_last_to_finish_wins(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    with new_folder(target) as first:
        (first / "first").write_text("")
        with new_folder(target) as second:
            (second / "second").write_text("")
        assert names(target) == ["second"]
    assert names(target) == ["first"]
    assert names(tmp_path) == ["folder"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    fill(tmp_path / "folder", "a")
    assert tokens(tmp_path / "folder") == ["a" * 100] * PARTS
    assert names(tmp_path) == ["folder"]


def test_a_file_of_that_name_is_not_deleted(tmp_path: Path) -> None:
    """A folder takes the place of a folder; a path that names someone's file is a mistake."""
    target = tmp_path / "thesis.txt"
    target.write_text("three years")
    with pytest.raises(OSError, match=r"thesis\.txt"):
        fill(target, "a")
    assert target.read_text() == "three years"
    assert names(tmp_path) == ["thesis.txt"]


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_there", [True, False])
def test_a_file_is_whole_or_as_it_was(tmp_path: Path, is_there: bool) -> None:
    target = tmp_path / "new" / "file"
    if is_there:
        target.parent.mkdir()
        target.write_text("old")
    with pytest.raises(ValueError, match="half"), new_file(target) as aside:  # noqa: PT012
        aside.write_text("new")
        raise ValueError("half")
    assert names(target.parent) == (["file"] if is_there else [])
    with new_file(target) as aside:
        aside.write_text("new")
        assert target.exists() is is_there
    assert target.read_text() == "new"
    assert names(target.parent) == ["file"]


def test_what_a_killed_writer_left_is_removed_after_a_day(tmp_path: Path) -> None:
    left = []
    for hours in (1, 25):
        with pytest.raises(FileNotFoundError), new_file(tmp_path / "file") as aside:  # noqa: PT012
            left.append(aside.with_name(f".file.{hours}.quartet-part"))
            aside.rename(left[-1])
        os.utime(left[-1], (time.time() - 3600 * hours,) * 2)
    with new_file(tmp_path / "other"):
        pass
    assert [path.exists() for path in left] == [True, False]


# --- several processes ----------------------------------------------------------------------------


def write_often(target: Path, writer: int, results: Any, is_enough: Any) -> None:
    """Replaces the folder until the reader has seen enough, and reports what went wrong."""
    try:
        for count in itertools.count():
            fill(target, f"[{writer}.{count}]")
            if is_enough.is_set():
                break
    except Exception as error:
        results.put(f"writer {writer}: {error!r}")
    else:
        results.put("done")


def look(target: Path) -> str:
    """What a careful reader finds: it reads the first part again at the end, to see that nothing moved.

    A folder that is replaced under a reader is another folder: files read by their paths, one after
    the other, may be of both. That the first is still the same says that all were of one.
    """
    try:
        first, *rest = tokens(target)
        again = (target / "0").read_text()
    except FileNotFoundError:
        return "replaced"
    if first != again:
        return "replaced"
    return "whole" if rest == [first] * (PARTS - 1) else "mixed"


def test_four_writers_and_a_reader(tmp_path: Path) -> None:
    """No writer fails, no reader is deceived, and at the end one whole folder is left, and nothing else."""
    target = tmp_path / "folder"
    context = multiprocessing.get_context("spawn")
    results, is_enough = context.Queue(), context.Event()
    writers = [context.Process(target=write_often, args=(target, n, results, is_enough)) for n in range(4)]
    for process in writers:
        process.start()
    seen: Counter[str] = Counter()
    while any(process.is_alive() for process in writers):
        seen[look(target)] += 1
        if min(seen["whole"], seen["replaced"]) > 10:  # the race was run
            is_enough.set()
    assert [results.get(timeout=600) for _ in writers] == ["done"] * 4
    assert seen["mixed"] == 0
    assert look(target) == "whole"
    assert names(tmp_path) == ["folder"]


def test_a_full_disk_is_an_error_of_the_system_and_the_old_folder_stays(tmp_path: Path) -> None:
    """Safetensors has errors of its own, which only say in words what the system has said."""
    target = tmp_path / "state"
    with new_folder(target) as fresh:
        (fresh / "a").write_text("before")
    with pytest.raises(OSError, match="No space left") as caught, new_folder(target):
        raise ValueError("Error while serializing: I/O error: No space left on device (os error 28)")
    assert (caught.value.errno, caught.value.filename) == (28, str(target))
    assert (target / "a").read_text() == "before"
