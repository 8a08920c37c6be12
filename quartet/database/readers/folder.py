"""A folder of CSV and Parquet files, one table each (or one sub-folder of parts each)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

from quartet.database.schema import CONFIRMED, DECLARED, Schema
from quartet.database.source import Source
from quartet.errors import SchemaError, UsageError
from quartet.findings import Finding, note, warning

# A manifest comes with the data, perhaps from another program; quartet.yaml was written for us.
MANIFESTS = {"manifest.yaml": DECLARED, "quartet.yaml": CONFIRMED}
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
    found = [name for name in MANIFESTS if (folder / name).is_file()]
    if len(found) > 1:
        raise UsageError("C01", f'"{folder}" has two schemas: {" and ".join(found)}', "keep one of them")
    return Schema.read(folder / found[0], MANIFESTS[found[0]]) if found else Schema()


def _task_folder(folder: Path) -> Path | None:
    tasks = folder / "tasks"
    return tasks if any(tasks.glob("*/manifest.yaml")) else None


def _table_files(folder: Path) -> dict[str, list[Path]]:
    """Table name -> its files, in the order of the names."""
    found: dict[str, list[Path]] = {}
    for path in _shown(folder):
        parts = [part for part in (_shown(path) if path.is_dir() else [path]) if _is_table(part)]
        if not parts:
            continue
        name = path.name[: len(path.name) - len(_suffix(path))]
        if name in found:
            first = found[name][0]
            first = first if first.parent == folder else first.parent
            raise SchemaError(
                "S15", f'two files give a table "{name}": {first.name} and {path.name}', "remove one"
            )
        found[name] = parts
    return found


def _shown(folder: Path) -> list[Path]:
    """What is in a folder, without the hidden files that editors and file managers leave."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _is_table(path: Path) -> bool:
    return path.is_file() and _suffix(path) != ""


def _suffix(path: Path) -> str:
    return next((end for end in (*_CSV, *_PARQUET) if path.name.lower().endswith(end)), "")


def _read_table(name: str, parts: list[Path]) -> tuple[pa.Table, list[Finding]]:
    """The parts as one table. A column that is text in one CSV file is text in all of them."""
    tables, findings = _read_parts(name, parts, frozenset())
    mixed = _partly_text(tables)
    if mixed:
        tables, findings = _read_parts(name, parts, mixed)
    return _joined(name, tables), list(dict.fromkeys(findings))


def _joined(name: str, tables: list[pa.Table]) -> pa.Table:
    if len(tables) == 1:
        return tables[0]  # also with repeated names, which are refused later with their own message
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise SchemaError(
            "S08", f'the files of table "{name}" do not fit together ({reason})', "cast one"
        ) from None


def _partly_text(tables: list[pa.Table]) -> frozenset[str]:
    text, other = set(), set()
    for field in (field for table in tables for field in table.schema):
        if pa.types.is_string(field.type):
            text.add(field.name)
        elif not pa.types.is_null(field.type):
            other.add(field.name)
    return frozenset(text & other)


def _read_parts(name: str, parts: list[Path], text: frozenset[str]) -> tuple[list[pa.Table], list[Finding]]:
    tables, findings = [], []
    for path in parts:
        try:
            is_csv = _suffix(path) in _CSV
            table, found = _read_csv(name, path, text) if is_csv else (pq.read_table(path), [])
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0]
            raise SchemaError("S01", f"{path} cannot be read ({reason})", "repair the file") from None
        tables.append(table)
        findings += found
    return tables, findings


def _read_csv(name: str, path: Path, text_columns: frozenset[str]) -> tuple[pa.Table, list[Finding]]:
    """A CSV file with the types of its values, except where a number would lose what was written."""
    content, findings = _valid_utf8(name, path)
    table = _parse(content, path, {}, _EMPTY_NUMBERS)
    written = _parse(content, path, {f.name: pa.string() for f in table.schema}, _EMPTY_TEXT)
    for place, field in enumerate(table.schema):
        text = written.column(place)
        if pa.types.is_string(field.type) or field.name in text_columns:
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
    return csv.read_csv(
        pa.py_buffer(content),
        parse_options=csv.ParseOptions(
            delimiter="\t" if _suffix(path).startswith(".tsv") else ",", newlines_in_values=True
        ),
        convert_options=csv.ConvertOptions(
            column_types=types,
            null_values=empty,
            strings_can_be_null=True,
            # In a column of text, "" in quotes is an empty text; a number in quotes may be missing.
            quoted_strings_can_be_null=not types,
        ),
    )


def _valid_utf8(name: str, path: Path) -> tuple[bytes, list[Finding]]:
    """The bytes of the file, unpacked, with what is not UTF-8 replaced and counted."""
    packed = {".gz": "gzip", ".bz2": "bz2"}.get(path.suffix.lower())
    with pa.input_stream(str(path), compression=packed) as stream:
        content: bytes = stream.read()
    try:
        content.decode()
        return content, []
    except UnicodeDecodeError:
        text = content.decode(errors="replace")
        count = text.count("\ufffd") - content.count("\ufffd".encode())
        message = f'table "{name}": {count:,} places of {path.name} are not UTF-8 and were replaced'
        return text.encode(), [warning("V08", name, message, count, "save the file as UTF-8")]
