"""RelBench folders and names: real datasets, manifests of others, and a Hub that is out of reach."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quartet.database import FACTS, Database
from quartet.database.readers.read import read_source
from quartet.database.readers.relbench import read_relbench
from quartet.database.schema import DECLARED
from quartet.errors import SchemaError
from tests.shared import shared_data

# The row counts of the README of each dataset.
ROWS = {
    "rel-f1": {
        "circuits": 77,
        "constructors": 211,
        "drivers": 857,
        "races": 1_101,
        "results": 26_080,
        "standings": 34_124,
        "constructor_results": 12_290,
        "constructor_standings": 13_051,
        "qualifying": 9_815,
    },
    "rel-flights": {
        "airlines": 16,
        "airports": 107,
        "planes": 4_043,
        "flights": 336_776,
        "reports": 336_776,
        "weather": 26_115,
    },
    "rel-travel": {
        "users": 44_202,
        "posts": 72_181,
        "comments": 157_989,
        "votes": 566_062,
        "badges": 108_812,
        "postLinks": 15_644,
    },
}
LINKS = {"rel-f1": 13, "rel-flights": 6, "rel-travel": 9}
TIMED = {"rel-f1": 6, "rel-flights": 3, "rel-travel": 6}


@pytest.mark.parametrize("name", ROWS)
def test_a_real_dataset_loads_as_its_readme_says(name: str) -> None:
    folder = shared_data(name)
    database = Database.load(folder)
    assert {table.name: table.num_rows for table in database.tables.values()} == ROWS[name]
    assert len(database.relations) == LINKS[name]
    assert sum(table.is_timed for table in database.tables.values()) == TIMED[name]
    assert database.schema.name == name
    assert database.task_folder == folder / "tasks"
    assert not database.possible
    assert {finding.code for finding in database.findings} <= {"S05", "D01", "T08"}


def write(folder: Path, manifest: str, **tables: dict[str, Any]) -> Path:
    (folder / "db").mkdir(parents=True)
    (folder / "manifest.yaml").write_text(manifest)
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / "db" / f"{name}.parquet")
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(SchemaError) as caught:
        Database.load(folder)
    return str(caught.value)


def test_absent_means_none_and_nothing_is_guessed(tmp_path: Path) -> None:
    manifest = "tables: {customers: {pkey: id}, orders: {}}"
    columns = {"id": [1], "customer_id": [1], "created_at": ["2024-01-01"]}
    write(tmp_path / "x", manifest, customers={"id": [1]}, orders=columns)
    source = read_relbench(tmp_path / "x")
    assert {table.settled for table in source.schema.tables.values()} == {FACTS}
    assert source.schema.tables["customers"].key_origin == DECLARED
    assert source.task_folder is None
    orders = Database.load(tmp_path / "x")["orders"].schema
    assert (orders.primary_key, orders.foreign_keys, orders.time) == ((), (), None)


def test_words_of_another_program_are_tolerated(tmp_path: Path) -> None:
    manifest = """
        name: theirs
        manifest_version: 9
        licence: {spdx: CC0-1.0}
        tables: {t: {pkey: id, rows: 2, timezone: Mars, stypes: {x: numerical}}}
    """
    database = Database.load(write(tmp_path / "x", manifest, t={"id": [1, 2], "x": [0.5, 1.5]}))
    assert database.schema.name == "theirs"
    assert database["t"].primary_key == ("id",)


def test_only_declared_tables_are_read(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", "tables: {t: {pkey: id}}", t={"id": [1]}, other={"id": [1]})
    assert list(Database.load(folder).tables) == ["t"]


@pytest.mark.parametrize("name", ["../secret", "../../secret", "sub/secret"])
def test_a_manifest_cannot_reach_out_of_its_folder(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "x", f"tables: {{{name}: {{}}}}")
    (folder / "db" / "sub").mkdir()
    for place in (tmp_path, folder, folder / "db" / "sub"):
        pq.write_table(pa.table({"id": [1]}), place / "secret.parquet")
    assert refusal(folder) == (
        f'error[S09] {folder / "manifest.yaml"} declares a table "{name}", but db/{name}.parquet is not there. '
        "Fix: add the file, or take the table out of the manifest"
    )


def test_a_damaged_file(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", "tables: {t: {}}")
    (folder / "db" / "t.parquet").write_bytes(b"PAR1 and then nothing")
    message = refusal(folder)
    assert message.startswith(f"error[S01] {folder / 'db' / 't.parquet'} cannot be read (")
    assert message.endswith("). Fix: repair the file")
    assert "\n" not in message


def test_a_folder_with_a_manifest_but_no_db_is_a_plain_folder(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text("tables: {t: {pkey: id}}")
    (tmp_path / "t.csv").write_text("id\n1\n")
    assert list(read_source(tmp_path).tables) == ["t"]


# --- names on the Hub -----------------------------------------------------------------------------

PRINT_ERRORS = """
import sys
{before}
from quartet.database.readers.read import read_source
from quartet.errors import QuartetError
for name in sys.argv[1:]:
    try:
        read_source(name)
    except QuartetError as error:
        print(type(error).__name__, error.exit_code, error)
"""


def refusals(*names: str, cache: Path, before: str = "") -> list[str]:
    """The errors for some names in a process that cannot reach the Hub, one line each."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", PRINT_ERRORS.format(before=before), *names],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.skipif(find_spec("relbench") is None, reason="relbench is not installed")
def test_a_hub_name_without_a_network(tmp_path: Path) -> None:
    found = refusals("rel-nothing", "some/repo/rel-x", cache=tmp_path)
    addresses = ["stanford-star/relbench-v1/rel-nothing", "some/repo/rel-x"]
    for text, address in zip(found, addresses, strict=True):
        assert text.startswith(
            f'ResourceError 4 error[R02] the RelBench dataset "{address}" could not be fetched ('
        )
        assert text.endswith("). Fix: check the name and the network, or give a local folder")


def test_a_hub_name_without_the_package(tmp_path: Path) -> None:
    (text,) = refusals("rel-f1", cache=tmp_path, before='sys.modules["relbench"] = None')
    assert text.startswith('ResourceError 4 error[R01] "rel-f1" is not a local source')
    assert text.endswith('Fix: pip install "quartet-rdl[relbench]", or give a local folder')
