"""Files that are either complete or absent: written aside, synced, then put in place."""

from __future__ import annotations

import errno
import fcntl
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
    """A fresh file to fill, which takes the place of `target` when the block ends well.

    A reader sees the old file or the whole new one. The fresh file stays locked while its writer lives, so
    that what a killed writer left behind can be told apart: after a day the next writer removes it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(target.parent)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=PART, dir=target.parent)
    aside = Path(name)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield aside
        sync(aside)
        aside.chmod(0o644)
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
        os.close(handle)
    sync(target.parent)


def _remove_leftovers(folder: Path) -> None:
    """Removes files of writers that are dead, once they have not been touched for a day."""
    for path in folder.glob(f".*{PART}"):
        try:
            if time.time() - path.stat().st_mtime > DAY_SECONDS:
                with path.open("rb") as handle:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
        except OSError:
            pass  # its writer lives, or another process removed it first, or it is not ours to remove


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
    handle = os.open(path, os.O_RDONLY)
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
