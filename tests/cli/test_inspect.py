"""`quartet inspect` and `convert`: honest in both of their voices, and deaf to what names and cells say."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from quartet.cli.views.database import database_view
from quartet.database import Database, ForeignKey, Schema, TableSchema
from quartet.errors import printable
from quartet.features import describe
from tests import market
from tests.strategies import examples
from tests.trained import ROOT, run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The market as a RelBench folder, where nothing is guessed."""
    return market.write_relbench_folder(tmp_path / "market")


@pytest.fixture
def guessed(tmp_path: Path) -> Path:
    """A folder of CSV files, where everything is guessed."""
    source = tmp_path / "guessed"
    source.mkdir()
    (source / "customers.csv").write_text("customer_id,name\n1,Ann\n2,Bob\n3,Cleo\n")
    (source / "orders.csv").write_text(
        "order_id,customer_id,created_at\n1,1,2024-01-01 10:00:00\n2,3,2024-01-02 00:00:00\n3,9,2024-01-03 00:00:00\n"
    )
    return source


# --- inspect --------------------------------------------------------------------------------------


def test_inspect_shows_what_is_declared_and_what_is_wrong(folder: Path) -> None:
    done = run("inspect", folder)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0] == "market 5 tables, 30 rows, 5 links, 2024-01-01 to 2024-03-05 UTC"
    assert "cities 4 country, city declared always known" in lines
    assert "orders 8 id declared placed (2024-01-01 to 2024-03-05) declared" in lines
    assert "orders number amount (decimals)" in lines
    assert "time placed (timestamps)" in lines
    assert "orders.country, city cities 7 87.5% 3 declared" in lines
    assert "items.product products.sku 10 90.9% 5 declared" in lines
    assert "◀─ items by product" in " ".join(lines)
    assert (
        'warning[S07] items.order: 1 of 11 values have no row in "orders" (99). Using: drop links'
        in done.stdout
    )


def test_json_holds_the_same_facts(folder: Path) -> None:
    done = run("inspect", folder, "--json")
    assert done.returncode == 0
    content = json.loads(done.stdout)
    assert content == json.loads(json.dumps(describe(Database.load(folder))))
    assert content["name"] == "market"
    assert content["span"] == ["2024-01-01", "2024-03-05"]
    assert content["tables"]["orders"] == {
        "rows": 8,
        "rows_read": 8,
        "pkey": ["id"],
        "pkey_origin": {"source": "declared", "confidence": 1.0, "why": ""},
        "time_col": "placed",
        "time_origin": {"source": "declared", "confidence": 1.0, "why": ""},
        "available_at": None,
        "columns": {
            "id": "int64",
            "customer": "string",
            "country": "string",
            "city": "string",
            "placed": "timestamp[ns]",
            "amount": "double",
            "note": "string",
        },
        "kinds": {
            "placed": {"kind": "time", "why": "timestamps"},
            "amount": {"kind": "number", "why": "decimals"},
            "note": {"kind": "text", "why": "1 text of 1.0 words"},
        },
    }
    assert content["links"][2] == {
        "table": "items",
        "columns": ["product"],
        "to": "products",
        "references": ["sku"],
        "linked": 10,
        "origin": {"source": "declared", "confidence": 1.0, "why": ""},
    }
    assert [(f["code"], f["count"]) for f in content["findings"]] == [
        ("S05", 0),
        ("S07", 1),
        ("D01", 9),
        ("S07", 1),
    ]


def test_what_is_written_beside_json_does_not_spoil_it(folder: Path, tmp_path: Path) -> None:
    done = run(
        "inspect", folder, "--json", "--write-schema", tmp_path / "s.yaml", "--draw", tmp_path / "s.svg"
    )
    assert json.loads(done.stdout)["name"] == "market"
    schema, picture = done.stderr.splitlines()
    assert str(tmp_path / "s.yaml") in schema
    assert str(tmp_path / "s.svg") in picture


def origins(content: Any) -> set[str]:
    """Every origin of a fact in the JSON of a database."""
    tables = content["tables"].values()
    facts = [table[fact] for table in tables for fact in ("pkey_origin", "time_origin") if table[fact]]
    return {fact["source"] for fact in [*facts, *(link["origin"] for link in content["links"])]}


def test_a_written_schema_turns_guesses_into_facts(guessed: Path, tmp_path: Path) -> None:
    schema = tmp_path / "new folder" / "schema.yaml"
    first = run("inspect", guessed, "--json", "--write-schema", schema)
    second = run("inspect", guessed, "--json", "--schema", schema)
    before, after = json.loads(first.stdout), json.loads(second.stdout)
    assert (origins(before), origins(after)) == ({"inferred"}, {"confirmed"})
    for table in before["tables"]:
        assert before["tables"][table]["pkey"] == after["tables"][table]["pkey"]
        assert before["tables"][table]["time_col"] == after["tables"][table]["time_col"]
    assert before["findings"] == after["findings"]
    shown = run("inspect", guessed, "--schema", schema).stdout
    assert "confirmed" in shown
    assert "inferred" not in shown
    assert "inferred, " in run("inspect", guessed).stdout


def test_draw_writes_a_picture(folder: Path, tmp_path: Path) -> None:
    picture = tmp_path / "pictures" / "schema.svg"
    assert run("inspect", folder, "--draw", picture).returncode == 0
    texts = {element.text for element in ET.parse(picture).getroot().iter("{http://www.w3.org/2000/svg}text")}
    assert {"orders", "8 rows", "placed: timestamp[ns]"} <= texts


def test_convert_writes_a_folder_that_inspect_reads(guessed: Path, tmp_path: Path) -> None:
    done = run("convert", guessed, tmp_path / "out")
    assert (done.returncode, done.stdout) == (0, "")
    assert "6 rows of 2 tables" in done.stderr
    assert yaml.safe_load((tmp_path / "out" / "manifest.yaml").read_text())["name"] == "database"
    content = json.loads(run("inspect", tmp_path / "out", "--json").stdout)
    assert origins(content) == {"declared"}
    assert [link["linked"] for link in content["links"]] == [2]


# --- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["inspect", "markte"], 2, r'error\[S01\] there is nothing at "markte" \(did you mean "market"\?\)\. Fix: '),
        (["inspect", "market/bd"], 2, r'error\[S01\].*"market/bd" \(did you mean "market/db"\?\)\. Fix: '),
        (["inspect", "market/manifest.yaml"], 2, r'error\[S01\] "market/manifest\.yaml" is neither a SQLite nor'),
        (["inspect", "market", "--schema", "no.yaml"], 2, r'error\[C09\] there is no file "no\.yaml"\. Fix: '),
        (["inspect", "market", "--draw", "market/manifest.yaml/x.svg"], 2, r'error\[C09\] "market/manifest\.yaml": '),
        (["convert", "market", "market"], 2, r'error\[C09\] "market" is not an empty folder\. Fix: '),
    ],
)  # fmt: skip
def test_an_error_is_one_line_and_an_exit_code(
    arguments: list[str], code: int, message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    done = run(*arguments)
    assert (done.returncode, len(done.stderr.splitlines())) == (code, 1)
    assert re.match(message, done.stderr), done.stderr


def test_a_reader_that_goes_away_causes_no_traceback(tmp_path: Path) -> None:
    source = tmp_path / "many"
    source.mkdir()
    columns = ",".join(f"a_column_with_quite_a_long_name_{number}" for number in range(60))
    for number in range(40):  # together more than a pipe holds
        (source / f"table_{number}.csv").write_text(f"{columns}\n{','.join('abcd' * 15)}\n")
    command = [sys.executable, "-m", "quartet", "inspect", str(source), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=600) in (0, 1)


# --- inert (P29) ----------------------------------------------------------------------------------

CLEAR, TITLE = "\x1b[2J", "\x1b]0;owned\x07"
HOSTILE = f"{CLEAR}[red]<script>alert(1)</script>[/red]{TITLE}\u202e"
SHOWN = "�[2J[red]<script>alert(1)</script>[/red]�]0;owned��"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Names and cells that would like to speak to a terminal, to rich, or to a browser."""
    source = tmp_path / "hostile"
    source.mkdir()
    (source / "orders.csv").write_text(
        f'id,"{HOSTILE}","[link=http://x]customer_id"\n1,"{HOSTILE}",1\n2,"{HOSTILE}",2\n', encoding="utf-8"
    )
    (source / "[bold]customers.csv").write_text(f'customer_id\n"{HOSTILE}"\n"b"\n', encoding="utf-8")
    (source / "quartet.yaml").write_text(
        json.dumps({"name": HOSTILE, "tables": {"orders": {"fkeys": {HOSTILE: "[bold]customers"}}}})
    )
    return source


def is_inert(text: str, allowed: str = "\n") -> bool:
    return all(letter.isprintable() or letter in allowed for letter in text)


def test_names_and_cells_give_no_orders_to_a_terminal(hostile: Path) -> None:
    plain = run("inspect", hostile).stdout
    assert is_inert(plain)
    assert plain.startswith(f"{SHOWN}  2 tables")
    assert f"orders.{SHOWN}" in " ".join(plain.split())
    assert "[bold]customers" in plain
    assert "[link=http://x]customer_id" in " ".join(plain.split())


def test_colours_are_ours_alone(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "300", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    coloured = run("inspect", hostile).stdout
    assert "\x1b[1m" in coloured  # bold, by rich
    assert CLEAR not in coloured
    assert "\x1b]" not in coloured  # neither titles nor links
    assert "\x07" not in coloured


def test_json_escapes_what_a_terminal_obeys(hostile: Path) -> None:
    done = run("inspect", hostile, "--json")
    assert is_inert(done.stdout)
    assert json.loads(done.stdout)["name"] == HOSTILE


def test_errors_are_as_inert_as_the_rest(hostile: Path, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(json.dumps({"tables": {HOSTILE: {}}}))
    done = run("inspect", hostile, "--schema", tmp_path / "s.yaml")
    assert done.returncode == 3
    assert done.stderr.startswith("error[S09]")
    assert is_inert(done.stderr)
    assert SHOWN in done.stderr


def test_a_hostile_schema_is_written_and_read_back(hostile: Path, tmp_path: Path) -> None:
    run("inspect", hostile, "--write-schema", tmp_path / "[red]s.yaml", "--draw", tmp_path / "s.svg")
    text = (tmp_path / "[red]s.yaml").read_text()
    assert is_inert(text)
    (hostile / "quartet.yaml").unlink()
    content = json.loads(run("inspect", hostile, "--json", "--schema", tmp_path / "[red]s.yaml").stdout)
    assert content["links"][0]["columns"] == [HOSTILE]
    assert is_inert((tmp_path / "s.svg").read_text())


@examples(60)
@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=30), min_size=3, max_size=3))
def test_any_name_and_cell_is_inert(texts: list[str]) -> None:
    table, column, cell = texts
    data = pa.table({f"a{column}": [cell], f"b{column}": [f"{cell}?"]})
    schema = TableSchema((f"a{column}",), (ForeignKey((f"b{column}",), f"t{table}"),))
    database = Database.build({f"t{table}": data}, Schema({f"t{table}": schema}, name=cell))
    screen = io.StringIO()
    Console(file=screen, highlight=False, width=1000).print(database_view(database))
    assert is_inert(screen.getvalue())
    assert f"t{printable(table)}" in screen.getvalue()
    assert printable(cell) in screen.getvalue()
