"""A market of 30 rows in every form that a database comes in.

    cities (country, city)       customers C1..C4              products 1..3, by sku
        ^                            ^   | referred_by              ^
        |                            |   +--> customers             |
        +------- orders 10..17 ------+                              |
                     ^    01-01 ... 03-05, not in the order of the keys
                     +------------- items (no key), one of the missing order 99, one of the sku "?"

C1 placed six of the eight orders (a hub), C4 none; order 15 has neither city nor note.
"""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Columns = dict[str, list[Any]]


def at(month: int, day: int, hour: int = 0) -> datetime:
    return datetime(2024, month, day, hour)


PLACED = [at(3, 5), at(1, 2, 8), at(1, 1), at(2, 3, 12), at(1, 20), at(2, 3, 12), at(2, 28, 23), at(1, 2, 9)]
TABLES: dict[str, Columns] = {
    "cities": {
        "country": ["DE", "DE", "FR", "NA"],
        "city": ["Köln", "Bonn", "Bonn", "Windhoek"],
        "people": [1_085_000, 331_000, 600, 431_000],
    },
    "customers": {
        "id": ["C1", "C2", "C3", "C4"],
        "name": ["Ann, the first", 'Bob "B"', "Cleo\nof two lines", "Дан"],
        "referred_by": [None, "C1", "C1", "C3"],
    },
    "items": {
        "order": [10, 10, 11, 12, 13, 14, 15, 16, 17, 17, 99],
        "product": ["A-1", "B-2", "A-1", "C-3", "A-1", "A-1", "B-2", "A-1", "?", "B-2", "C-3"],
        "quantity": [1, 2, 1, 1, 5, 1, 1, 3, 1, 1, 1],
        "added": [at(1, 1, 1 + hour) for hour in range(11)],
    },
    "orders": {
        "id": [10, 11, 12, 13, 14, 15, 16, 17],
        "customer": ["C1", "C1", "C2", "C1", "C1", "C3", "C1", "C1"],
        "country": ["DE", "DE", "FR", "DE", "NA", None, "DE", "DE"],
        "city": ["Köln", "Bonn", "Bonn", "Köln", "Windhoek", None, "Köln", "Bonn"],
        "placed": PLACED,
        "amount": [9.5, 20.25, 1.0, 100.0, 0.5, 7.75, 33.0, 12.5],
        "note": ["gift", None, "late", "gift", None, None, "gift", "late"],
    },
    "products": {
        "id": [1, 2, 3],
        "sku": ["A-1", "B-2", "C-3"],
        "price": [9.5, 10.0, 0.25],
    },
}

SCHEMA = """
name: market
val_timestamp: '2024-02-01'
test_timestamp: '2024-02-15'
tables:
  cities:
    pkey: [country, city]
    time_col: null
    fkeys: {}
  customers:
    pkey: id
    time_col: null
    fkeys:
      referred_by: customers
  items:
    pkey: null
    time_col: added
    fkeys:
      order: orders
      product: products.sku
  orders:
    pkey: id
    time_col: placed
    fkeys:
      customer: customers
      country, city: cities
  products:
    pkey: id
    time_col: null
    fkeys: {}
"""

KEYS = {
    "cities": "PRIMARY KEY (country, city)",
    "customers": "PRIMARY KEY (id), FOREIGN KEY (referred_by) REFERENCES customers (id)",
    "items": 'FOREIGN KEY ("order") REFERENCES orders (id), FOREIGN KEY (product) REFERENCES products (sku)',
    "orders": "PRIMARY KEY (id), FOREIGN KEY (customer) REFERENCES customers (id), "
    "FOREIGN KEY (country, city) REFERENCES cities (country, city)",
    "products": "PRIMARY KEY (id), UNIQUE (sku)",
}
SQL_TYPES = {int: "INTEGER", float: "REAL", str: "TEXT", datetime: "TIMESTAMP"}


def arrow_tables() -> dict[str, pa.Table]:
    return {name: pa.table(columns) for name, columns in TABLES.items()}


def write_parquet(folder: Path) -> Path:
    """A folder with a Parquet file for each table."""
    folder.mkdir(parents=True)
    for name, table in arrow_tables().items():
        pq.write_table(table, folder / f"{name}.parquet")
    return folder


def write_csv(folder: Path) -> Path:
    """A folder with a CSV file for each table."""
    folder.mkdir()
    for name, columns in TABLES.items():
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(rows(columns))
    return folder


def write_relbench_folder(folder: Path) -> Path:
    """A folder as RelBench lays it out, with our words for what its own manifest cannot say."""
    write_parquet(folder / "db")
    (folder / "manifest.yaml").write_text(SCHEMA, encoding="utf-8")
    return folder


def write_sqlite(path: Path) -> Path:
    """A SQLite file with declared keys and links."""
    with closing(sqlite3.connect(path)) as connection:
        for name, columns in TABLES.items():
            declared = [f'"{column}" {sql_type(cells)}' for column, cells in columns.items()]
            connection.execute(f'CREATE TABLE "{name}" ({", ".join([*declared, KEYS[name]])})')
            marks = ", ".join("?" * len(columns))
            connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', map(_plain, rows(columns)))
        connection.commit()
    return path


def sql_type(cells: list[Any]) -> str:
    return SQL_TYPES[next(type(cell) for cell in cells if cell is not None)]


def rows(columns: Columns) -> Iterator[tuple[Any, ...]]:
    return zip(*columns.values(), strict=True)


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(cell.isoformat(" ") if isinstance(cell, datetime) else cell for cell in row)
