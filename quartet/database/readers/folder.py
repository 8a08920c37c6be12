"""A folder of CSV and Parquet files, one table each (or one sub-folder of parts each)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

from quartet.database.schema import Schema
from quartet.database.source import Source
from quartet.errors import SchemaError
from quartet.findings import Finding, note, warning

MANIFESTS = ("manifest.yaml", "quartet.yaml")
_CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.bz2", ".tsv.bz2")
_PARQUET = (".parquet", ".pq")
# "NA" in a column of numbers is an empty cell; in a column of text it may be Namibia.
_EMPTY_TEXT = ["", "NULL", "null", "\\N"]
_EMPTY_NUMBERS = [*_EMPTY_TEXT, "NA", "N/A", "NaN", "nan", "None"]


def read_folder(folder: Path) -> Source:
    """Every CSV and Parquet file of a folder as a table, with the schema of its manifest if it has one."""
    files = _table_files(folder)
    if not files:
        raise SchemaError(
            "S01", f'no tables found in "{folder}"', "give a folder of .parquet/.csv or a database URL"
        )
    tables, findings = {}, []
    for name, parts in files.items():
        tables[name], found = _read_table(name, parts)
        findings += found
    return Source(tables, _manifest(folder), str(folder), _task_folder(folder), tuple(findings))


def _manifest(folder: Path) -> Schema:
    for name in MANIFESTS:
        if (folder / name).is_file():
            return Schema.read(folder / name)
    return Schema()


def _task_folder(folder: Path) -> Path | None:
    tasks = folder / "tasks"
    return tasks if any(tasks.glob("*/manifest.yaml")) else None


def _table_files(folder: Path) -> dict[str, list[Path]]:
    """Table name -> its files, in the order of the names."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        parts = sorted(p for p in path.iterdir() if _suffix(p)) if path.is_dir() else [path]
        parts = [part for part in parts if _suffix(part)]
        if not parts:
            continue
        name = path.name if path.is_dir() else path.name.removesuffix(_suffix(path))
        if name in found:
            raise SchemaError(
                "S15", f'two files give a table "{name}": {found[name][0].name} and {path.name}', "remove one"
            )
        found[name] = parts
    return found


def _suffix(path: Path) -> str:
    return next((end for end in (*_CSV, *_PARQUET) if path.name.lower().endswith(end)), "")


def _read_table(name: str, parts: list[Path]) -> tuple[pa.Table, list[Finding]]:
    tables, findings = [], []
    for path in parts:
        try:
            table, found = (pq.read_table(path), []) if _suffix(path) in _PARQUET else _read_csv(name, path)
        except pa.ArrowInvalid as error:
            reason = str(error).splitlines()[0]
            raise SchemaError("S01", f"{path} cannot be read ({reason})", "repair the file") from None
        tables.append(table)
        findings += found
    return pa.concat_tables(tables, promote_options="permissive"), findings


def _read_csv(name: str, path: Path) -> tuple[pa.Table, list[Finding]]:
    """A CSV file with the types of its values, except where a number would lose what was written."""
    content, findings = _valid_utf8(name, path)
    table = _parse(content, path, {}, _EMPTY_NUMBERS)
    written = _parse(content, path, {f.name: pa.string() for f in table.schema}, _EMPTY_TEXT)
    for place, field in enumerate(table.schema):
        text = written.column(place)
        if pa.types.is_string(field.type):
            table = table.set_column(place, field.name, text)
        elif _is_number(field.type) and _would_lose(text, field.type):
            table = table.set_column(place, field.name, text)
            message = (
                f"{name}.{field.name} is kept as text: as a number it would lose digits or leading zeros"
            )
            findings.append(note("S18", f"{name}.{field.name}", message))
    return table, findings


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _would_lose(text: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Whether reading the text as a number drops a leading zero (007) or the digits of a long integer."""
    zeros = pc.any(pc.match_substring_regex(text, r"^[+-]?0\d+$")).as_py()
    if zeros or pa.types.is_integer(kind):
        return bool(zeros)
    return bool(pc.any(pc.match_substring_regex(text, r"^[+-]?\d{16,}$")).as_py())


def _parse(content: bytes, path: Path, types: dict[str, pa.DataType], empty: list[str]) -> pa.Table:
    delimiter = "\t" if ".tsv" in path.name.lower() else ","
    with pa.input_stream(pa.py_buffer(content), compression=_compression(path)) as stream:
        return csv.read_csv(
            stream,
            parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                column_types=types,
                null_values=empty,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )


def _compression(path: Path) -> str | None:
    return {".gz": "gzip", ".bz2": "bz2"}.get(path.suffix.lower())


def _valid_utf8(name: str, path: Path) -> tuple[bytes, list[Finding]]:
    """The file's bytes, with what is not UTF-8 replaced and counted."""
    content = path.read_bytes()
    if _compression(path) is not None:
        return content, []
    try:
        content.decode()
        return content, []
    except UnicodeDecodeError:
        text = content.decode(errors="replace")
        count = text.count("\ufffd")
        message = f'table "{name}": {count:,} places are not UTF-8 and were replaced'
        return text.encode(), [warning("V08", name, message, count, "save the file as UTF-8")]
