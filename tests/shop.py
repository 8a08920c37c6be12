"""The shop: a database of thirty rows that fits on one page, times included.

           countries (static)
               ^
               | country
           customers <------ referred_by, a self reference
            ^     ^     ^
      buyer |     | recipient    who
          orders ---> products      visits (no primary key)
                product

    countries   FR, DE, IN, always known

    customers   id    joined   country   referred_by
                101   day 1    FR        -
                102   day 2    DE        101
                103   day 2    FR        103            a row that points at itself
                104   day 6    XX        102            a key that dangles
                105   day 6    IN        106            two rows that point at each other,
                106   day 8    -         105            the first of them older than its parent

    products    id    added
                tea   day 0                             the hub
                cup   day 3
                pot   day 7

    orders      id    placed   product   buyer   recipient
                 1    day 2    tea       101     101    a parallel link
                 2    day 2    tea       102     101
                 3    day 3    tea       103     -
                 4    day 3    tea       101     102
                 5    day 4    pot       102     103    older than its product
                 6    day 5    tea       103     103    a parallel link
                 7    day 5    tea       101     104    older than its recipient
                 8    day 6    cup       104     101
                 9    day 7    tea       999     102    a key that dangles
                10    day 8    tea       105     106
                11    day 9    cup       106     105
                12    day 9    tea       101     -

    visits      at       who   page
                day 1    101   home
                day 1    101   home                     the same row again
                day 3    102   tea
                day 6    104   home
                day 8    106   tea
                day 8    -     home

The hub over time, `tea` and its orders:

    day   0     1     2     3     4     5     6     7     8     9
         tea         1 2   3 4         6 7          9    10    12
"""

from __future__ import annotations

import pyarrow as pa

from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema

DAY = 86_400 * 10**9
FIRST_DAY = 19_723 * DAY  # 2024-01-01

Cells = tuple[int | str | None, ...]

CUSTOMERS: list[Cells] = [
    (101, 1, "FR", None),
    (102, 2, "DE", 101),
    (103, 2, "FR", 103),
    (104, 6, "XX", 102),
    (105, 6, "IN", 106),
    (106, 8, None, 105),
]
PRODUCTS: list[Cells] = [("tea", 0), ("cup", 3), ("pot", 7)]
ORDERS: list[Cells] = [
    (1, 2, "tea", 101, 101),
    (2, 2, "tea", 102, 101),
    (3, 3, "tea", 103, None),
    (4, 3, "tea", 101, 102),
    (5, 4, "pot", 102, 103),
    (6, 5, "tea", 103, 103),
    (7, 5, "tea", 101, 104),
    (8, 6, "cup", 104, 101),
    (9, 7, "tea", 999, 102),
    (10, 8, "tea", 105, 106),
    (11, 9, "cup", 106, 105),
    (12, 9, "tea", 101, None),
]
VISITS: list[Cells] = [
    (1, 101, "home"),
    (1, 101, "home"),
    (3, 102, "tea"),
    (6, 104, "home"),
    (8, 106, "tea"),
    (8, None, "home"),
]


def day(number: int) -> int:
    """A day of the drawing in nanoseconds."""
    return FIRST_DAY + number * DAY


def raw_shop() -> tuple[dict[str, pa.Table], Schema]:
    """The raw tables and their schema."""
    tables = {
        "countries": _table(["code"], [("FR",), ("DE",), ("IN",)]),
        "customers": _table(["id", "joined", "country", "referred_by"], CUSTOMERS),
        "products": _table(["id", "added"], PRODUCTS),
        "orders": _table(["id", "placed", "product", "buyer", "recipient"], ORDERS),
        "visits": _table(["at", "who", "page"], VISITS),
    }
    schema = {
        "countries": TableSchema(("code",), settled=FACTS),
        "customers": _timed("id", "joined", country="countries", referred_by="customers"),
        "products": _timed("id", "added"),
        "orders": _timed("id", "placed", product="products", buyer="customers", recipient="customers"),
        "visits": _timed(None, "at", who="customers"),
    }
    return tables, Schema(schema, name="shop")


def shop() -> Database:
    """The shop, validated."""
    return Database.build(*raw_shop())


def label(database: Database, node: int) -> str:
    """A node as the drawing names it: `tea`, `102`, `#7` for an order, `FR`, `visit 3`."""
    name = next(name for name in reversed(database.tables) if database.offsets[name] <= node)
    row = node - database.offsets[name]
    if name == "visits":
        return f"visit {row + 1}"
    key = str(database[name].data[0][row].as_py())
    return f"#{key}" if name == "orders" else key


def labels(database: Database) -> list[str]:
    """The label of every node."""
    return [label(database, node) for node in range(database.num_rows)]


def _table(names: list[str], rows: list[Cells]) -> pa.Table:
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    for name in {"joined", "added", "placed", "at"} & set(names):
        columns[name] = pa.array([day(number) for number in columns[name]], pa.timestamp("ns"))
    return pa.table(columns)


def _timed(key: str | None, time: str, **links: str) -> TableSchema:
    foreign_keys = tuple(ForeignKey((column,), table) for column, table in links.items())
    return TableSchema((key,) if key else (), foreign_keys, TimeColumn(time), settled=FACTS)
