"""Files that are either complete or absent: written aside, synced, then put in place; and checked when read."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from quartet.errors import IntegrityError, QuartetError, UsageError

PART = ".quartet-part"
DAY_SECONDS = 86_400
_CHECKSUMS = "checksums.json"
_CHECKED = (".json", ".safetensors", ".txt")  # what else lies in a folder is not read


def user_cache() -> Path:
    """Returns `$QUARTET_CACHE`, or `$XDG_CACHE_HOME/quartet`, or `~/.cache/quartet`.

    A relative value of the second is ignored, as the standard asks. `QUARTET_CACHE=off` names no folder: then nothing
    that was made of a database is kept (`Store`), and the rest lies where it would without it.
    """
    chosen = os.environ.get("QUARTET_CACHE", "off")
    if chosen not in ("", "off"):
        return Path(chosen).expanduser().absolute()
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".cache") / "quartet"


def as_path(value: object, what: str) -> Path:
    """Returns what was given as a path, by text or otherwise; what can be none is refused."""
    if not isinstance(value, (str, Path)) or "\0" in str(value):
        raise UsageError("C02", f"{what} is {value!r}", "give a path")
    return Path(value)


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
    except Exception as error:
        found = re.search(r"\(os error (\d+)\)", str(error))  # safetensors tells a full disk in words alone
        if found is None or isinstance(error, OSError):
            raise
        raise OSError(int(found[1]), os.strerror(int(found[1])), str(target)) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    sync(target.parent)


def found_again(target: Path) -> bool:
    """Tells whether a folder is there; one that a killed writer had just moved out of the way is put back first."""
    if not target.is_dir():
        aside = target.parent.glob(f".{target.name}.old.*/*")
        newest = max(aside, key=lambda folder: folder.stat().st_mtime, default=None)
        if newest is not None:
            with suppress(FileNotFoundError):  # another process has put it back first
                newest.rename(target)
    return target.is_dir()


def write_checksums(folder: Path) -> None:
    """Writes the SHA-256 of each file in a folder, and in folders inside it, beside them."""
    inside = (path for path in sorted(folder.rglob("*")) if path.is_file())
    sums = {path.relative_to(folder).as_posix(): _digest(path) for path in inside}
    (folder / _CHECKSUMS).write_text(json.dumps(sums, indent=1), encoding="utf-8")


def check_checksums(folder: Path, fix: str, *names: str) -> None:
    """Raises error C06 where a file of a folder, or one of those named, is damaged, absent or without its checksum."""
    sums: dict[str, str] = json.loads((folder / _CHECKSUMS).read_text(encoding="utf-8"))
    inside = (path for path in folder.rglob("*") if path.suffix in _CHECKED)
    read = {path.relative_to(folder).as_posix() for path in inside}
    for name in names or sorted({*sums, *read} - {_CHECKSUMS}):
        if not (folder / name).is_file() or _digest(folder / name) != sums.get(name):
            raise IntegrityError("C06", f"{folder / name} is damaged or absent", fix)


def checksums_digest(folder: Path) -> str:
    """Returns one checksum of all files of a folder, by those that stand beside them."""
    return _digest(folder / _CHECKSUMS)


@contextmanager
def intact(what: Path, fix: str) -> Iterator[None]:
    """Turns whatever comes of reading a damaged or foreign file or folder of ours into error C06."""
    try:
        yield
    except (QuartetError, PermissionError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise IntegrityError("C06", f"{what} is damaged or not of quartet ({reason})", fix) from error


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
