"""Files that are either complete or absent: written aside, synced, then put in place."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

PART = ".quartet-part"
DAY_SECONDS = 86_400


def user_cache() -> Path:
    """`$XDG_CACHE_HOME/quartet`, or `~/.cache/quartet`; a relative value is ignored, as the standard asks."""
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".cache") / "quartet"


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Yields a fresh file to fill, which takes the place of `target` when the block ends well.

    A reader sees the old file or the whole new one. What a killed writer left behind is removed by the next writer,
    once it has not been written to for a day.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for leftover in target.parent.glob(f".*{PART}"):
        try:
            if time.time() - leftover.stat().st_mtime > DAY_SECONDS:
                leftover.unlink()
        except OSError:
            pass  # another process removed it first, or it is not ours to remove
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=PART, dir=target.parent)
    os.close(handle)
    aside = Path(name)
    try:
        yield aside
        sync(aside)
        aside.chmod(0o644)
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
    sync(target.parent)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A fresh folder to fill, which takes the place of `target` when the block ends well.

    A reader sees the old folder or the whole new one, or for an instant none; one that reads several files
    must look whether the folder is still the same when it is done. Of two processes that build the same folder
    at once, the last to finish wins and neither sees the other's half.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield aside
        for path in (*(p for p in aside.rglob("*")), aside):
            sync(path)
        aside.chmod(0o755)
        _replace_folder(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    sync(target.parent)


def sync(path: Path) -> None:
    """Waits until a file or a folder's list of names is on the disk."""
    if path.is_dir() and os.name == "nt":  # Windows opens no folders
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _replace_folder(aside: Path, target: Path) -> None:
    """Renames, moving an older folder out of the way first: a folder cannot be renamed onto a full one."""
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    try:
        for attempt in count():  # each failure means that another process has put its folder there
            try:
                aside.rename(target)
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            try:
                target.rename(old / str(attempt))
            except FileNotFoundError:
                pass  # another process moved it first
    finally:
        shutil.rmtree(old, ignore_errors=True)
