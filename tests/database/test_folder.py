"""Folders of CSV and Parquet files: types that keep what was written, parts, clashes and manifests."""

from __future__ import annotations

import bz2
import gzip
import os
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quartet.database import Database
from quartet.database.readers.folder import read_folder
from quartet.database.schema import CONFIRMED, DECLARED
from quartet.database.source import Source
from quartet.errors import SchemaError, UsageError


def folder_of(path: Path, **files: str | bytes) -> Source:
    """What is read from a folder with the given files; `__` in a name stands for a dot."""
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        (path / name.replace("__", ".")).write_bytes(data)
    return read_folder(path)


def read_csv(path: Path, content: str | bytes) -> pa.Table:
    return folder_of(path, t__csv=content).tables["t"]


def read_cells(path: Path, *cells: str) -> list[Any]:
    """What one column of these cells becomes; a second column keeps empty lines from being skipped."""
    return read_csv(path, "".join(f"{line}\n" for line in ("a,b", *(f"{cell},x" for cell in cells))))[
        "a"
    ].to_pylist()


def refusal(path: Path, **files: str | bytes) -> str:
    with pytest.raises(SchemaError) as caught:
        folder_of(path, **files)
    return str(caught.value)


# --- types of CSV ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1", "-2"], [1, -2]),
        (["1", "2.5"], [1.0, 2.5]),
        (["0.5", "0"], [0.5, 0.0]),
        (["true", "False"], [True, False]),
        (["2024-01-31"], [date(2024, 1, 31)]),
        (["2024-01-31 10:00:00"], [datetime(2024, 1, 31, 10)]),
        (["10:30:00"], [time(10, 30)]),
        (["2024-02-30"], ["2024-02-30"]),
        (["x", "1"], ["x", "1"]),
    ],
)
def test_values_have_the_type_that_they_show(cells: list[str], values: list[Any], tmp_path: Path) -> None:
    assert read_cells(tmp_path, *cells) == values


@pytest.mark.parametrize(
    "cells",
    [
        ["007", "12"],
        ["01", "10"],
        ["-07", "1"],
        ["00", "0"],
        [" 007", "7"],
        ["\t007 ", "7"],
        ["0x10", "16"],
        [" 0X1f", "5"],
    ],
)
def test_leading_zeros_stay_text(cells: list[str], tmp_path: Path) -> None:
    assert read_cells(tmp_path, *cells) == cells
    assert [str(finding) for finding in read_folder(tmp_path).findings] == [
        "note[S18] t.a is kept as text: as a number it would lose digits or leading zeros"
    ]


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["9007199254740993", "1"], [9007199254740993, 1]),
        (["9223372036854775807", ""], [2**63 - 1, None]),
        (["9007199254740993", "1.5"], ["9007199254740993", "1.5"]),
        (["9223372036854775808", "1"], ["9223372036854775808", "1"]),
        ([" 9007199254740993 ", "1.5"], [" 9007199254740993 ", "1.5"]),
        (["123456789012345678901234567890"], ["123456789012345678901234567890"]),
    ],
)
def test_long_integers_keep_every_digit(cells: list[str], values: list[Any], tmp_path: Path) -> None:
    assert read_cells(tmp_path, *cells) == values


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1", "NA", "", "NULL", "nan", "\\N", "N/A", "None"], [1, *[None] * 7]),
        (["DE", "NA", "", "NULL", "null", "\\N", "nan", "None"], ["DE", "NA", *[None] * 4, "nan", "None"]),
        (['"1"', '""', '"3"'], [1, None, 3]),
        (['"x"', '""', ""], ["x", "", None]),
        (['"x"', '"NULL"'], ["x", "NULL"]),
    ],
    ids=["numbers", "Namibia", "quoted numbers", "quoted text", "quoted word"],
)
def test_empty_cells(cells: list[str], values: list[Any], tmp_path: Path) -> None:
    assert read_cells(tmp_path, *cells) == values


def test_a_type_may_change_after_many_rows(tmp_path: Path) -> None:
    table = read_csv(tmp_path, "a\n" + "1\n" * 300_000 + "x\n")
    assert table["a"].type == pa.string()
    assert table["a"][-1].as_py() == "x"


def test_quotes_newlines_and_any_letter(tmp_path: Path) -> None:
    table = read_csv(tmp_path, '\ufeffa,"b ""c"", d"\n"one\ntwo",名前\n"say ""hi"", then\r\ngo",🙂\n')
    assert table.to_pydict() == {"a": ["one\ntwo", 'say "hi", then\r\ngo'], 'b "c", d': ["名前", "🙂"]}
    table = read_csv(tmp_path, '"a",b\n"one\ntwo" ,5" pipe\n"",say "hi\n"x"y,"""z"""')
    assert table.to_pydict() == {"a": ["one\ntwo ", "", "xy"], "b": ['5" pipe', 'say "hi', '"z"']}


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("t.csv", 'a,b\n1,"x\n2,y\n3,z\n', 2),
        ("t.csv", 'a,b\n1,x\n2,"y', 3),
        ("t.csv", 'a,b\n1,x\n2,"y""\n', 3),
        ("t.csv", '\ufeff"a,b\n1,x\n', 1),
        ("t.csv", 'a,b\n1,"x\n2,y\n3,"z"\n', 2),  # closed by the quote that opens the cell of another line
        ("t.tsv", 'a\tb\n1\t"x\n2\ty\n', 2),
    ],
)
def test_a_quote_swallows_no_lines(name: str, content: str, line: int, tmp_path: Path) -> None:
    assert refusal(tmp_path, **{name.replace(".", "__"): content}) == (
        f"error[S01] {tmp_path / name} cannot be read (a cell begins with a quote in line {line} and does not end "
        "with one). Fix: repair the file"
    )


@pytest.mark.parametrize(
    "kind", ["a link to nothing", "no regular file", "a folder", "a part that links to nothing"]
)
def test_what_is_named_like_a_table_is_one(kind: str, tmp_path: Path) -> None:
    folder_of(tmp_path, good__csv="a\n1\n")
    odd = tmp_path / "t.csv"
    if kind == "a part that links to nothing":
        odd, kind = tmp_path / "t" / "1.csv", "a link to nothing"
        odd.parent.mkdir()
        (odd.parent / "0.csv").write_text("a\n1\n")
    if kind == "no regular file":
        os.mkfifo(odd)
    elif kind == "a folder":
        odd.mkdir()
    else:
        odd.symlink_to(tmp_path / "nowhere.csv")
    assert refusal(tmp_path) == (
        f"error[S01] {odd} is named like a table, but it is {kind}. Fix: put the file there, or remove it"
    )


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_line_endings(ending: str, tmp_path: Path) -> None:
    assert read_csv(tmp_path, ending.join(["a,b", "1,x", "2,y"])).to_pydict() == {
        "a": [1, 2],
        "b": ["x", "y"],
    }


# --- kinds of files -------------------------------------------------------------------------------

TABLE = {"a": [1, 2], "b": ["x", "y"]}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", b"a,b\n1,x\n2,y\n"),
        ("t.tsv", b"a\tb\n1\tx\n2\ty\n"),
        ("T.CSV", b"a,b\n1,x\n2,y\n"),
        ("t.csv.gz", gzip.compress(b"a,b\n1,x\n2,y\n")),
        ("t.TSV.GZ", gzip.compress(b"a\tb\n1\tx\n2\ty\n")),
        ("t.csv.bz2", bz2.compress(b"a,b\n1,x\n2,y\n")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_kinds_of_text_files(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert {n: t.to_pydict() for n, t in read_folder(tmp_path).tables.items()} == {name[0]: TABLE}


@pytest.mark.parametrize("suffix", [".parquet", ".pq", ".PARQUET"])
def test_parquet_files(suffix: str, tmp_path: Path) -> None:
    pq.write_table(pa.table(TABLE), tmp_path / f"t{suffix}")
    (tmp_path / "README.md").write_text("no table")
    assert read_folder(tmp_path).tables["t"].to_pydict() == TABLE


def test_a_folder_like_a_partition_adds_no_column(tmp_path: Path) -> None:
    folder = tmp_path / "year=2024"
    folder.mkdir()
    pq.write_table(pa.table(TABLE), folder / "t.parquet")
    assert read_folder(folder).tables["t"].column_names == ["a", "b"]


def test_tables_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    assert list(folder_of(tmp_path, c__csv="x\n1\n", a__csv="x\n1\n", b__csv="x\n1\n").tables) == [
        "a",
        "b",
        "c",
    ]


def test_hidden_files_are_no_tables(tmp_path: Path) -> None:
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints" / "t-checkpoint.csv").write_text("a\n1\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "._0.csv").write_bytes(b"\x00\x05")
    (tmp_path / "parts" / "0.csv").write_text("a\n1\n")
    assert list(folder_of(tmp_path, t__csv="a\n1\n", ___t__csv="a\n1\n").tables) == ["parts", "t"]


def test_a_header_without_rows_is_an_empty_table(tmp_path: Path) -> None:
    folder_of(tmp_path, t__csv="id,name\n")
    database = Database.load(tmp_path)
    assert database["t"].data.column_names == ["id", "name"]
    assert "S02" in {finding.code for finding in database.findings}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("t.csv", b"", "Empty CSV file"),
        ("t.csv", b"a,b\n1\n", "CSV parse error: Expected 2 columns, got 1: 1"),
        ("t.csv.gz", b"a,b\n1,2\n", "zlib inflate failed: incorrect header check"),
    ],
)
def test_files_that_cannot_be_read(name: str, content: bytes, reason: str, tmp_path: Path) -> None:
    file = tmp_path / name
    assert refusal(tmp_path, **{name.replace(".", "__"): content}) == (
        f"error[S01] {file} cannot be read ({reason}). Fix: repair the file"
    )


def test_a_broken_parquet_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": list(range(1000))}), tmp_path / "whole.parquet")
    content = (tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "whole.parquet").unlink()
    file = tmp_path / "t.parquet"
    for part in (content[:100], content[:-100] + b"\x00" * 96 + content[-4:], b""):
        message = refusal(tmp_path, t__parquet=part)
        assert message.startswith(f"error[S01] {file} cannot be read (")
        assert message.endswith("). Fix: repair the file")
        assert "\n" not in message


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_what_is_not_utf8_is_replaced_and_counted(pack: Any, tmp_path: Path) -> None:
    name = "t.csv" if pack is bytes else "t.csv.gz"
    content = "a,b\nKöln,\ufffd\n".encode() + "Köln,Ü\n".encode("latin-1")
    source = folder_of(tmp_path, **{name.replace(".", "__"): pack(content)})
    assert source.tables["t"].to_pydict() == {"a": ["Köln", "K\ufffdln"], "b": ["\ufffd", "\ufffd"]}
    assert [str(finding) for finding in source.findings] == [
        f'warning[V08] table "t": 2 places of {name} are not UTF-8 and were replaced. Fix: save the file as UTF-8'
    ]
    assert source.findings[0].count == 2


# --- parts ----------------------------------------------------------------------------------------


def parts_of(path: Path, **parts: str) -> Source:
    (path / "t").mkdir()
    for name, content in parts.items():
        (path / "t" / f"{name}.csv").write_text(content)
    return read_folder(path)


def test_a_folder_of_parts_is_one_table(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "2.csv").write_text("b,a\ny,2\n")
    (tmp_path / "t" / "_SUCCESS").write_text("")
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "t" / "1.parquet")
    assert read_folder(tmp_path).tables["t"].to_pydict() == TABLE


def test_a_folder_of_parts_may_be_named_like_a_file(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").mkdir()
    pq.write_table(pa.table(TABLE), tmp_path / "t.parquet" / "part-0.parquet")
    assert list(read_folder(tmp_path).tables) == ["t"]


@pytest.mark.parametrize(
    ("first", "second", "values"),
    [
        ("a\n1\n", "a\n2.5\n", [1.0, 2.5]),
        ("a,b\n1,x\n", "a,b\n,x\n", [1, None]),
        ("a\n1\n", "a\nx\n", ["1", "x"]),
        ("a\n02134\n", "a\n94110\n", ["02134", "94110"]),
        ("a\n1.50\n", "a\nNA?\n", ["1.50", "NA?"]),
    ],
    ids=["decimals", "empty part", "text later", "leading zero in one part", "as written"],
)
def test_parts_agree_on_a_type(first: str, second: str, values: list[Any], tmp_path: Path) -> None:
    assert parts_of(tmp_path, p1=first, p2=second).tables["t"]["a"].to_pylist() == values


def test_a_finding_of_every_part_is_shown_once(tmp_path: Path) -> None:
    source = parts_of(tmp_path, p1="a\n01\n", p2="a\n02\n")
    assert [finding.code for finding in source.findings] == ["S18"]


def test_parts_that_do_not_fit_together(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "t" / "1.parquet")
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "t" / "2.parquet")
    assert refusal(tmp_path) == (
        'error[S08] the files of table "t" do not fit together (Unable to merge: Field a has incompatible types: '
        "int64 vs string). Fix: cast one"
    )


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["t.csv", "t.tsv"], "t.csv and t.tsv"),
        (["t.csv", "t.csv.gz"], "t.csv and t.csv.gz"),
        (["t", "t.csv"], "t and t.csv"),
    ],
)
def test_two_files_for_one_table(names: list[str], shown: str, tmp_path: Path) -> None:
    for name in names:
        file = tmp_path / name
        if "." not in name:
            file.mkdir()
            file /= "1.csv"
        file.write_bytes(gzip.compress(b"a\n1\n") if name.endswith("gz") else b"a\n1\n")
    assert refusal(tmp_path) == f'error[S15] two files give a table "t": {shown}. Fix: remove one'


# --- manifests ------------------------------------------------------------------------------------

MANIFEST = "name: mine\ntables: {t: {pkey: b}}\n"


def test_a_manifest_in_the_folder_declares(tmp_path: Path) -> None:
    source = folder_of(tmp_path, t__csv="a,b\n1,x\n", manifest__yaml=MANIFEST + "licence: CC0\n")
    assert source.schema.name == "mine"
    assert source.schema.tables["t"].primary_key == ("b",)
    assert source.schema.tables["t"].key_origin == DECLARED


def test_quartet_yaml_in_the_folder_confirms(tmp_path: Path) -> None:
    source = folder_of(tmp_path, t__csv="a,b\n1,x\n", quartet__yaml=MANIFEST)
    assert source.schema.tables["t"].key_origin == CONFIRMED
    with pytest.raises(UsageError) as caught:
        folder_of(tmp_path, quartet__yaml=MANIFEST + "licence: CC0\n")
    assert str(caught.value).startswith(f'error[C01] {tmp_path / "quartet.yaml"}: unknown field "licence"')


def test_two_schemas_in_one_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        folder_of(tmp_path, t__csv="a\n1\n", quartet__yaml=MANIFEST, manifest__yaml=MANIFEST)
    assert str(caught.value) == (
        f'error[C01] "{tmp_path}" has two schemas: manifest.yaml and quartet.yaml. Fix: keep one of them'
    )


def test_a_manifest_of_a_table_that_is_not_there(tmp_path: Path) -> None:
    folder_of(tmp_path, orders__csv="a\n1\n", manifest__yaml="tables: {order: {pkey: a}}")
    with pytest.raises(SchemaError) as caught:
        Database.load(tmp_path)
    assert str(caught.value) == (
        f'error[S09] the manifest of "{tmp_path}" declares a table "order" without data (did you mean "orders"?)'
    )


def test_tasks_beside_the_tables(tmp_path: Path) -> None:
    assert folder_of(tmp_path, t__csv="a\n1\n").task_folder is None
    (tmp_path / "tasks" / "churn").mkdir(parents=True)
    (tmp_path / "tasks" / "churn" / "manifest.yaml").write_text("name: churn\n")
    assert read_folder(tmp_path).task_folder == tmp_path / "tasks"


# --- names (S16) ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        'say "hi"',
        "it's",
        "with space",
        "名前 🙂",
        "x" * 251,
        "'; DROP TABLE customers; --",
        "a.b",
        "[red]b[bold]",
    ],
)
def test_any_name_is_accepted(name: str, tmp_path: Path) -> None:
    column = f"{name} id"
    (tmp_path / f"{name}.csv").write_text(f'"{column.replace(chr(34), chr(34) * 2)}",x\n1,a\n2,b\n')
    database = Database.load(tmp_path)
    assert database[name].data.to_pydict() == {column: [1, 2], "x": ["a", "b"]}
    assert name in repr(database.tables)
