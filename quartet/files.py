"""Files that are either complete or absent: written aside, synced, then put in place."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A fresh folder to fill, which takes the place of `target` when the block ends well.

    A reader sees the old folder or the whole new one. Of two processes that build the same folder
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
    for _ in range(10):
        try:
            aside.rename(target)
            return
        except OSError:
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
            try:
                target.rename(old / "was")
            except FileNotFoundError:
                pass  # another process moved it first
            shutil.rmtree(old, ignore_errors=True)
    raise OSError(f"{target} is being replaced by too many others at once")
