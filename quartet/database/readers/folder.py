"""A folder of CSV and Parquet files, one table each (or one sub-folder of parts each)."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

from quartet.database.schema import CONFIRMED, DECLARED, Schema
from quartet.database.source import Source
from quartet.errors import SchemaError, UsageError
from quartet.findings import Finding, note, warning
from quartet.machine import is_large, map_batches

# A manifest comes with the data, perhaps from another program; quartet.yaml was written for us.
_MANIFESTS = {"manifest.yaml": DECLARED, "quartet.yaml": CONFIRMED}
_CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.bz2", ".tsv.bz2")
_PARQUET = (".parquet", ".pq")
# "NA" in a column of numbers is an empty cell; in a column of text it may be Namibia.
_EMPTY_TEXT = ["", "NULL", "null", "\\N"]
_EMPTY_NUMBERS = [*_EMPTY_TEXT, "NA", "N/A", "NaN", "nan", "None"]
# A cell in quotes: what it holds, the quote that closes it, and the letter after that, which ends most cells.
_QUOTED = rb'"(?<![^%b\r\n]")((?:[^"]++|"")*+)("?) *+([^%b\r\n]?)'
# Numbers that are written in several ways, or with more digits than a float has: 007, 0x1F, 12345678901234567.
_ZEROS, _DIGITS = r"^\s*[+-]?0(\d+\s*$|[xX])", r"^\s*[+-]?\d{16,}\s*$"


def read_folder(folder: Path) -> Source:
    """Reads every CSV and Parquet file of a folder as a table, with the schema of its manifest if it has one."""
    files = _table_files(folder)
    if not files:
        fix = "give a folder of .parquet/.csv or a database URL"
        raise SchemaError("S01", f'no tables found in "{folder}"', fix)
    manifests = [name for name in _MANIFESTS if (folder / name).is_file()]
    if len(manifests) > 1:
        raise UsageError("C01", f'"{folder}" has two schemas: {" and ".join(manifests)}', "keep one of them")
    tables, findings = {}, []
    for name, parts in files.items():
        tables[name], noticed = read_files(name, parts)
        findings += noticed
    schema = Schema.read(folder / manifests[0], _MANIFESTS[manifests[0]]) if manifests else Schema()
    tasks = folder / "tasks"
    has_tasks = any(tasks.glob("*/manifest.yaml"))
    untyped = frozenset(name for name, parts in files.items() if _suffix(parts[0]) in _CSV)
    return Source(tables, schema, str(folder), tasks if has_tasks else None, tuple(findings), untyped)


def _table_files(folder: Path) -> dict[str, list[Path]]:
    """Returns the files of each table, in the order of the names; hidden files are left alone."""

    def shown(inside: Path) -> list[Path]:
        return sorted(path for path in inside.iterdir() if not path.name.startswith("."))

    files: dict[str, list[Path]] = {}
    for path in shown(folder):
        parts = [p for p in (shown(path) if path.is_dir() else [path]) if _suffix(p)]
        odd = next(
            (part for part in parts if not part.is_file()), None if parts or not _suffix(path) else path
        )
        if odd is not None:
            kind = (
                "a link to nothing" if odd.is_symlink() else "a folder" if odd.is_dir() else "no regular file"
            )
            fix = "put the file there, or remove it"
            raise SchemaError("S01", f"{odd} is named like a table, but it is {kind}", fix)
        name = path.name[: len(path.name) - len(_suffix(path))]
        if parts and name in files:
            first = files[name][0]
            first = first if first.parent == folder else first.parent
            text = f'two files give a table "{name}": {first.name} and {path.name}'
            raise SchemaError("S15", text, "remove one")
        if parts:
            files[name] = parts
    return files


def _suffix(path: Path) -> str:
    return next((end for end in (*_CSV, *_PARQUET) if path.name.lower().endswith(end)), "")


def read_files(name: str, parts: list[Path]) -> tuple[pa.Table, list[Finding]]:
    """Reads the parts as one table. A column that is text in one CSV file is text in all of them."""
    tables, findings = _read_parts(name, parts, frozenset())
    if len(tables) == 1:
        return tables[0], findings  # also with repeated names, which are refused later with their own message
    fields = [field for table in tables for field in table.schema if not pa.types.is_null(field.type)]
    text = {field.name for field in fields if pa.types.is_string(field.type)}
    mixed = text & {field.name for field in fields if not pa.types.is_string(field.type)}
    if mixed:
        tables, findings = _read_parts(name, parts, frozenset(mixed))
    try:
        return pa.concat_tables(tables, promote_options="permissive"), list(dict.fromkeys(findings))
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        message = f'the files of table "{name}" do not fit together ({reason})'
        raise SchemaError("S08", message, "cast one") from None


def _read_parts(name: str, parts: list[Path], text: frozenset[str]) -> tuple[list[pa.Table], list[Finding]]:
    tables, findings = [], []
    for path in parts:
        if _suffix(path) not in _CSV:
            tables.append(read_parquet(path))
            continue
        try:
            table, noticed = _read_csv(name, path, text)
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(path, error) from None
        tables.append(table)
        findings += noticed
    return tables, findings


def read_parquet(path: Path) -> pa.Table:
    try:
        parts = pq.read_metadata(path)
        size = sum(parts.row_group(number).total_byte_size for number in range(parts.num_row_groups))
        if is_large(size):  # never in memory as a whole
            from pyarrow.dataset import dataset

            whole = dataset(path, format="parquet", partitioning="hive")
            mapped = map_batches(whole.schema, whole.to_batches(batch_readahead=2, fragment_readahead=1))
            if mapped is not None:
                return mapped
        return pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: object) -> SchemaError:
    return SchemaError("S01", f"{path} cannot be read ({str(error).splitlines()[0]})", "repair the file")


def _read_csv(name: str, path: Path, text_columns: frozenset[str]) -> tuple[pa.Table, list[Finding]]:
    """Reads a CSV file with the types of its values, except where a number would lose what was written."""
    findings = []
    packed = {".gz": "gzip", ".bz2": "bz2"}.get(path.suffix.lower())
    with pa.input_stream(str(path), compression=packed) as stream:
        content: bytes = stream.read()
    try:
        content.decode()
    except UnicodeDecodeError:
        text = content.decode(errors="replace")
        count = text.count("\ufffd") - content.count("\ufffd".encode())
        message = f'table "{name}": {count:,} places of {path.name} are not UTF-8 and were replaced'
        findings.append(warning("V08", name, message, count, "save the file as UTF-8"))
        content = text.encode()
    line = _unclosed_quote(content.removeprefix(b"\xef\xbb\xbf"), _delimiter(path).encode())
    if line:
        raise _unreadable(path, f"a cell begins with a quote in line {line:,} and does not end with one")
    table = _parse(content, path, {}, _EMPTY_NUMBERS)
    written = _parse(content, path, {f.name: pa.string() for f in table.schema}, _EMPTY_TEXT)
    for place, field in enumerate(table.schema):
        column = written.column(place)
        is_lossy = _is_lossy(column, field.type)
        if pa.types.is_string(field.type) or field.name in text_columns or is_lossy:
            table = table.set_column(place, field.name, column)
        if is_lossy and field.name not in text_columns:
            where = f"{name}.{field.name}"
            message = f"{where} is kept as text: as a number it would lose digits or leading zeros"
            findings.append(note("S18", where, message))
    return table, findings


def _parse(content: bytes, path: Path, types: dict[str, pa.DataType], empty: list[str]) -> pa.Table:
    return csv.read_csv(
        pa.py_buffer(content),
        parse_options=csv.ParseOptions(delimiter=_delimiter(path), newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=types,
            null_values=empty,
            strings_can_be_null=True,
            # In a column of text, "" in quotes is an empty text; a number in quotes may be missing.
            quoted_strings_can_be_null=not types,
        ),
    )


def as_csv_reads(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns a text column as it would be read from a CSV file with only these cells."""
    stream = pa.BufferOutputStream()
    csv.write_csv(pa.table({"cells": pc.fill_null(cells, _EMPTY_NUMBERS[-1])}), stream)
    read = _parse(stream.getvalue().to_pybytes(), Path("cells.csv"), {}, _EMPTY_NUMBERS).column(0)
    return cells if _is_lossy(cells, read.type) else read


def _delimiter(path: Path) -> str:
    return "\t" if _suffix(path).startswith(".tsv") else ","


def _unclosed_quote(content: bytes, delimiter: bytes) -> int:
    """Returns the line of the first cell whose quote swallows the lines that follow, or 0.

    The quote is never closed, or it is closed on another line by one that was meant to open or to stand inside a cell.
    """
    for cell in re.finditer(_QUOTED % (delimiter, delimiter), content):
        if not cell[2] or (cell[3] and b"\n" in cell[1]):
            return content.count(b"\n", 0, cell.start()) + 1
    return 0


def _is_lossy(text: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Whether a number would drop leading zeros (007), merge two ways of writing (0x10), or lose digits."""
    is_float = pa.types.is_floating(kind)
    if not (is_float or pa.types.is_integer(kind)):
        return False
    pattern = f"{_ZEROS}|{_DIGITS}" if is_float else _ZEROS
    return bool(pc.any(pc.match_substring_regex(text, pattern)).as_py())
