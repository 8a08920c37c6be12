"""Readers: every kind of source, one `Source`. This page decides which reader a source is for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from quartet.database.source import Source
from quartet.errors import UsageError, did_you_mean

DEMO = "demo"


def read_source(source: object) -> Source:
    """What the right reader brings back from a dict of frames, a path, a URL, a Hub name or "demo"."""
    if isinstance(source, Source):
        return source
    if isinstance(source, Mapping):
        from quartet.database.readers.frames import read_frames

        return read_frames(source)
    text = str(source)
    if text == DEMO:
        # By name: the demo makes its labels with `tasks`, which stands above this room.
        return _read_folder(import_module("quartet.demo").demo_folder())
    path = Path(text).expanduser()
    if path.is_dir():
        return _read_folder(path)
    from quartet.database.readers.sql import is_sql, read_sql

    if is_sql(text):
        return read_sql(text)
    if path.exists() or _looks_like_path(text):
        raise _unknown(text)
    from quartet.database.readers.relbench import read_hub

    return read_hub(text)


def _read_folder(path: Path) -> Source:
    from quartet.database.readers.folder import read_folder
    from quartet.database.readers.relbench import is_relbench, read_relbench

    return read_relbench(path) if is_relbench(path) else read_folder(path)


def _looks_like_path(text: str) -> bool:
    """Whether a source that does not exist was meant as a path, and not as an address of the Hub."""
    if "/" not in text:
        return not text.startswith("rel-")
    return text.startswith((".", "/", "~")) or Path(text).parent.is_dir()


def _unknown(text: str) -> UsageError:
    path = Path(text).expanduser()
    if path.is_file():
        return UsageError(
            "S01",
            f'"{text}" is neither a SQLite nor a DuckDB file',
            "give the folder that holds the .parquet/.csv files, or a database URL",
        )
    beside = [str(path.parent / p.name) for p in path.parent.iterdir()] if path.parent.is_dir() else []
    return UsageError(
        "S01",
        f'there is nothing at "{text}"' + (did_you_mean(str(path), beside) if beside else ""),
        'give a folder of .parquet/.csv, a SQLite or DuckDB file, a database URL, a RelBench name, or "demo"',
    )
