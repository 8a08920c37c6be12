"""Decides which reader a source is for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from quartet.database.readers.address import hide_passwords
from quartet.database.source import Source
from quartet.errors import UsageError, did_you_mean

_KINDS = 'a folder of .parquet/.csv, a SQLite or DuckDB file, a database URL, a RelBench name, or "demo"'


def read_source(source: object, views: bool = False) -> Source:
    """Reads a dict of tables, a path, a URL, a Hub name or "demo" with the reader for it.

    With `views`, the views of an SQL database are read as tables.
    """
    if isinstance(source, Mapping):
        from quartet.database.readers.frames import read_frames

        return read_frames(source)
    if not isinstance(source, (str, PathLike)) or not str(source).strip():
        kind = "empty" if isinstance(source, str) else f"of type {type(source).__name__}"
        raise UsageError("C02", f"the source is {kind}", f"give {_KINDS}; or a dict of DataFrames")
    text = str(source)
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:  # the home of an unknown user
        raise UsageError("C09", f'"{text}" cannot be read ({error})', "check the path") from None
    try:
        return _read(text, path, views)
    except OSError as error:  # no permission, or a text that is no path at all
        reason = error.strerror or error
        shown = hide_passwords(text)[:200]
        raise UsageError("C09", f'"{shown}" cannot be read ({reason})', "check the path") from None


def read_table(source: Any, name: str) -> pa.Table:
    """Reads one table, as it would be read among others: a data frame, an Arrow table, or the path of a file."""
    if isinstance(source, (str, PathLike)):
        from quartet.database.readers.folder import read_files

        return read_files(name, [Path(source)])[0]
    from quartet.database.readers.frames import read_frames

    return read_frames({name: source}).tables[name]


def _read(text: str, path: Path, views: bool) -> Source:
    from quartet.database.readers.folder import read_folder
    from quartet.database.readers.relbench import is_relbench, read_hub, read_relbench
    from quartet.database.readers.sql import is_sql, read_sql

    if text == "demo":
        # By name: the demo makes its labels with `tasks`, which stands above this room.
        path = import_module("quartet.demo").demo_folder()
    if "://" in text:
        return read_sql(text, views)
    if hide_passwords(text) != text and not path.exists():
        fix = "write postgresql://user:password@host/database"
        raise UsageError("C13", f'"{hide_passwords(text)}" is neither a path nor a database URL', fix)
    if path.is_dir():
        return read_relbench(path) if is_relbench(path) else read_folder(path)
    if is_sql(text):
        return read_sql(text, views)
    if not path.is_file() and (path.exists() or path.is_symlink()):
        kind = "no regular file" if path.exists() else "a link to nothing"
        raise UsageError("S01", f'"{text}" is {kind}', f"give {_KINDS}")
    if path.is_file():
        raise UsageError(
            "S01",
            f'"{text}" is neither a SQLite nor a DuckDB file',
            "give the folder that holds the .parquet/.csv files, or a database URL",
        )
    # An address of the Hub has slashes too: text was meant as a path if it begins like one.
    is_path = text.startswith((".", "~")) or path.is_absolute() or path.parent.is_dir()
    if is_path if "/" in text else not text.startswith("rel-"):
        beside = [str(path.parent / p.name) for p in path.parent.iterdir()] if path.parent.is_dir() else []
        meant = did_you_mean(str(path), beside) if beside else ""
        raise UsageError("S01", f'there is nothing at "{text}"{meant}', f"give {_KINDS}")
    return read_hub(text)
