"""The SQL reader: the same database gives the same tables and keys from every engine.

The shop: a customer may be recommended by another; an order has a buyer and a receiver, and is
reached through an e-mail address, which is unique but not the primary key.

    regions (country, code) <-- customers (id) <--+-- orders (id) <-- lines (order, line)
                                  |  ^  email <---+
                                  +--+ recommended_by
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
import psycopg
import pytest

from quartet.database import Database, ForeignKey, canonical, schema_facts
from quartet.database.readers.engine import quote, reason_of, scale_of
from quartet.database.readers.sql import is_sql, read_sql
from quartet.database.schema import DECLARED
from quartet.errors import ResourceError, SchemaError, UsageError
from tests.postgres import NewDatabase, new_database  # noqa: F401

ENGINES = ("sqlite", "duckdb", "postgresql")

SHOP = [
    """CREATE TABLE regions (country TEXT, code TEXT, name TEXT, PRIMARY KEY (country, code))""",
    """CREATE TABLE customers (
         id TEXT PRIMARY KEY, email TEXT UNIQUE, recommended_by TEXT REFERENCES customers(id),
         region TEXT, country TEXT, joined DATE, vip BOOLEAN, credit NUMERIC(10, 2),
         FOREIGN KEY (country, region) REFERENCES regions(country, code))""",
    """CREATE TABLE orders (
         id BIGINT PRIMARY KEY, buyer TEXT NOT NULL REFERENCES customers(id),
         receiver TEXT REFERENCES customers(id), contact TEXT REFERENCES customers(email),
         placed TIMESTAMP, paid TIMESTAMP WITH TIME ZONE, total DOUBLE PRECISION, remark TEXT)""",
    """CREATE TABLE lines (
         "order" BIGINT REFERENCES orders(id), line INTEGER, price NUMERIC(10, 2),
         PRIMARY KEY ("order", line))""",
    "INSERT INTO regions VALUES ('FR', 'IDF', 'Île-de-France'), ('DE', 'BE', 'Berlin'), ('DE', 'BY', NULL)",
    "INSERT INTO customers VALUES ('C1', 'ana@x.org', NULL, 'IDF', 'FR', '2023-01-31', TRUE, 10.25)",
    """INSERT INTO customers VALUES
         ('C2', 'bob@x.org', 'C1', 'BE', 'DE', '2023-02-28', FALSE, 3),
         ('C3', NULL, 'C1', NULL, NULL, NULL, NULL, NULL)""",
    """INSERT INTO orders VALUES
         (1, 'C1', 'C2', 'ana@x.org', '2024-03-01 10:00:00', '2024-03-01 12:30:00.250+02:00', 13.5, 'quick'),
         (2, 'C2', NULL, NULL, '2024-03-02 23:59:59', NULL, NULL, NULL),
         (9007199254740993, 'C3', 'C3', 'bob@x.org', NULL, '2024-03-04 00:00:00+00:00', 0.1, '')""",
    "INSERT INTO lines VALUES (1, 1, 13), (1, 2, 0.5), (9007199254740993, 1, 0.1)",
]

CUSTOMERS = [
    {"id": "C1", "email": "ana@x.org", "recommended_by": None, "region": "IDF", "country": "FR",
     "joined": date(2023, 1, 31), "vip": True, "credit": 10.25},
    {"id": "C2", "email": "bob@x.org", "recommended_by": "C1", "region": "BE", "country": "DE",
     "joined": date(2023, 2, 28), "vip": False, "credit": 3.0},
    {"id": "C3", "email": None, "recommended_by": "C1", "region": None, "country": None,
     "joined": None, "vip": None, "credit": None},
]  # fmt: skip
ORDERS = [
    {"id": 1, "buyer": "C1", "receiver": "C2", "contact": "ana@x.org",
     "placed": datetime(2024, 3, 1, 10), "paid": datetime(2024, 3, 1, 10, 30, 0, 250_000, UTC),
     "total": 13.5, "remark": "quick"},
    {"id": 2, "buyer": "C2", "receiver": None, "contact": None,
     "placed": datetime(2024, 3, 2, 23, 59, 59), "paid": None, "total": None, "remark": None},
    {"id": 9007199254740993, "buyer": "C3", "receiver": "C3", "contact": "bob@x.org",
     "placed": None, "paid": datetime(2024, 3, 4, tzinfo=UTC), "total": 0.1, "remark": ""},
]  # fmt: skip


class Maker:
    """Makes a database of any engine from SQL statements, and gives its URL."""

    def __init__(self, folder: Path, new_database: NewDatabase) -> None:  # noqa: F811
        self.folder = folder
        self.new_database = new_database

    def __call__(self, engine: str, statements: list[str]) -> str:
        if engine == "postgresql":
            url = self.new_database()
            with psycopg.connect(url) as server:
                for statement in statements:
                    server.execute(statement.encode())
            return url
        path = self.folder / f"base.{engine}"
        connect = sqlite3.connect if engine == "sqlite" else duckdb.connect
        with closing(connect(path)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()
        return f"{engine}:///{path}"


@pytest.fixture
def make(tmp_path: Path, request: pytest.FixtureRequest) -> Maker:
    # The server is started only when a test asks for it, so that the others run without one.
    return Maker(tmp_path, lambda: request.getfixturevalue("new_database")())


@pytest.mark.parametrize("engine", ENGINES)
class TestShop:
    def test_rows(self, make: Maker, engine: str) -> None:
        tables = read_sql(make(engine, SHOP)).tables
        assert list(tables) == ["customers", "lines", "orders", "regions"]
        assert tables["customers"].to_pylist() == CUSTOMERS
        assert tables["orders"].to_pylist() == ORDERS
        assert tables["lines"].to_pylist() == [
            {"order": 1, "line": 1, "price": 13.0},
            {"order": 1, "line": 2, "price": 0.5},
            {"order": 9007199254740993, "line": 1, "price": 0.1},
        ]
        assert tables["regions"].column("name").to_pylist() == ["Île-de-France", "Berlin", None]

    def test_types(self, make: Maker, engine: str) -> None:
        tables = read_sql(make(engine, SHOP)).tables
        assert [str(kind) for kind in tables["customers"].schema.types] == [
            "string", "string", "string", "string", "string", "date32[day]", "bool", "double"
        ]  # fmt: skip
        assert [str(kind) for kind in tables["orders"].schema.types] == [
            "int64", "string", "string", "string", "timestamp[us]", "timestamp[us, tz=UTC]", "double", "string"
        ]  # fmt: skip

    def test_keys(self, make: Maker, engine: str) -> None:
        source = read_sql(make(engine, SHOP))
        schema = source.schema.tables
        assert {name: table.primary_key for name, table in schema.items()} == {
            "customers": ("id",),
            "lines": ("order", "line"),
            "orders": ("id",),
            "regions": ("country", "code"),
        }
        assert {name: table.foreign_keys for name, table in schema.items()} == {
            "customers": (
                ForeignKey(("recommended_by",), "customers"),
                ForeignKey(("country", "region"), "regions"),
            ),
            "lines": (ForeignKey(("order",), "orders"),),
            "orders": (
                ForeignKey(("buyer",), "customers"),
                ForeignKey(("receiver",), "customers"),
                ForeignKey(("contact",), "customers", ("email",)),
            ),
            "regions": (),
        }
        assert all(table.settled == {"pkey"} for table in schema.values())
        assert all(table.key_origin == DECLARED for table in schema.values())
        assert all(key.origin == DECLARED for table in schema.values() for key in table.foreign_keys)
        assert source.findings == ()

    def test_what_is_not_declared_stays_open(self, make: Maker, engine: str) -> None:
        schema = read_sql(make(engine, ["CREATE TABLE log (happened TIMESTAMP, what TEXT)"])).schema.tables[
            "log"
        ]
        assert (schema.primary_key, schema.foreign_keys, schema.time) == ((), (), None)
        assert schema.settled == frozenset()

    def test_views_are_left_out(self, make: Maker, engine: str) -> None:
        views = ["CREATE VIEW rich AS SELECT * FROM customers", 'CREATE VIEW "it\'s" AS SELECT 1 AS x']
        source = read_sql(make(engine, SHOP + views))
        assert list(source.tables) == ["customers", "lines", "orders", "regions"]
        assert [str(finding) for finding in source.findings] == [
            'note[S19] left out, because only tables are read: views "it\'s", "rich". '
            "Fix: to read them, say --views, or views: true in the schema"
        ]
        assert source.findings[0].count == 2

    def test_views_on_request(self, make: Maker, engine: str) -> None:
        views = [
            "CREATE VIEW rich AS SELECT id, credit FROM customers",
            'CREATE VIEW "it\'s" AS SELECT 1 AS x',
        ]
        url = make(engine, SHOP + views)
        source = read_sql(url, views=True)
        assert source.views == {"it's", "rich"}
        assert source.tables["it's"].to_pylist() == [{"x": 1}]
        assert source.tables["rich"].num_rows == source.tables["customers"].num_rows
        assert [f.code for f in source.findings] == ["D04", "D04"]
        database = Database.load(url, views=True)
        assert database["rich"].primary_key == ("id",)
        assert {r.parent for r in database.relations if r.table == "orders"} == {"customers"}
        assert schema_facts(database)["views"] is True
        assert set(Database.load(url, schema_facts(database)).tables) == set(database.tables)

    def test_no_tables(self, make: Maker, engine: str) -> None:
        url = make(engine, [])
        with pytest.raises(SchemaError) as caught:
            read_sql(url)
        shown = "?schema=public" if engine == "postgresql" else url
        assert str(caught.value).startswith('error[S01] no tables found in "')
        assert str(caught.value).endswith(f'{shown}". Fix: give a folder of .parquet/.csv or a database URL')

    def test_only_views(self, make: Maker, engine: str) -> None:
        with pytest.raises(
            SchemaError, match=r'S01.* \(left out, because only tables are read: views "v"\)\. Fix'
        ):
            read_sql(make(engine, ["CREATE VIEW v AS SELECT 1 AS x"]))

    def test_empty_tables_keep_their_types(self, make: Maker, engine: str) -> None:
        empty = read_sql(make(engine, SHOP[:4])).tables["orders"]
        assert empty.num_rows == 0
        assert [str(kind) for kind in empty.schema.types] == [
            "int64", "string", "string", "string", "timestamp[us]", "timestamp[us, tz=UTC]", "double", "string"
        ]  # fmt: skip

    def test_unknown_schema(self, make: Maker, engine: str) -> None:
        usual = "public" if engine == "postgresql" else "main"
        url = make(engine, SHOP)
        with pytest.raises(UsageError) as caught:
            read_sql(f"{url}?schema={usual}s")
        assert str(caught.value).startswith(f'error[C01] there is no schema "{usual}s" in "')
        assert str(caught.value).endswith(f'(did you mean "{usual}"?)')
        assert len(read_sql(f"{url}?schema={usual}").tables) == 4


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_a_link_follows_the_order_of_the_key(make: Maker, engine: str) -> None:
    link = "CREATE TABLE t (r TEXT, c TEXT, FOREIGN KEY (r, c) REFERENCES regions(code, country))"
    schema = read_sql(make(engine, [SHOP[0], link])).schema.tables["t"]
    assert schema.foreign_keys == (ForeignKey(("c", "r"), "regions"),)


def test_all_engines_agree(make: Maker) -> None:
    sources = [read_sql(make(engine, SHOP)) for engine in ENGINES]
    for other in sources[1:]:
        assert other.schema == sources[0].schema
        for name, table in sources[0].tables.items():
            assert canonical(other.tables[name]).equals(canonical(table)), name


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_keys_are_those_that_sqlalchemy_reflects(make: Maker, engine: str) -> None:
    import sqlalchemy

    url = make(engine, SHOP)
    schema = read_sql(url).schema.tables
    reflected = sqlalchemy.inspect(
        sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    )
    for name, table in schema.items():
        assert tuple(reflected.get_pk_constraint(name)["constrained_columns"]) == table.primary_key
        expected = {
            frozenset(zip(key["constrained_columns"], key["referred_columns"], strict=True))
            for key in reflected.get_foreign_keys(name)
        }
        assert expected == {
            frozenset(zip(key.columns, key.references or schema[key.table].primary_key, strict=True))
            for key in table.foreign_keys
        }
    reflected.engine.dispose()


NAMES = [
    'we"ird', "it's", "a, b", "a.b", "par(en)", "[br]", "`tick`", "back\\slash", "%s", ":x", "?", "{0}", "$1",
    "x); DROP TABLE y; --", "REFERENCES z(q)", "two\nlines", "名前", "Ünï ", "  ", "select", "items", "order",
]  # fmt: skip


def _named(name: str) -> list[str]:
    """A table, a key, a link and a text column, all of that name or nearly."""
    table, link, text = quote(name), quote(f"{name}>"), quote(f"{name}!")
    return [
        f"CREATE TABLE {table} ({table} INTEGER PRIMARY KEY, {link} INTEGER REFERENCES {table}({table}), {text} TEXT)",
        f"INSERT INTO {table} VALUES (1, NULL, 'one')",
        f"INSERT INTO {table} VALUES (2, 1, 'two')",
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_any_name(make: Maker, engine: str) -> None:
    longest = "n" * (62 if engine == "postgresql" else 255)  # a letter is added to it
    names = [*NAMES, longest]
    source = read_sql(make(engine, [line for name in names for line in _named(name)]))
    assert sorted(source.tables) == sorted(names)
    for name in names:
        assert source.schema.tables[name].primary_key == (name,)
        assert source.schema.tables[name].foreign_keys == (ForeignKey((f"{name}>",), name),)
        assert source.tables[name].to_pylist() == [
            {name: 1, f"{name}>": None, f"{name}!": "one"},
            {name: 2, f"{name}>": 1, f"{name}!": "two"},
        ]


@pytest.mark.parametrize("engine", ENGINES)
def test_decimals_are_floats_and_keys_are_exact(make: Maker, engine: str) -> None:
    source = read_sql(
        make(
            engine,
            [
                "CREATE TABLE whole (id NUMERIC(18, 0) PRIMARY KEY, x NUMERIC(18, 0), y DECIMAL(6, 3))",
                "CREATE TABLE broken (id NUMERIC(8, 2) PRIMARY KEY, whole NUMERIC(18, 0) REFERENCES whole(id))",
                "INSERT INTO whole VALUES (900719925474099301, 5, 1.125), (2, NULL, 2)",
                "INSERT INTO broken VALUES (1.5, 900719925474099301), (10, 2), (0.25, NULL)",
            ],
        )
    )
    assert source.tables["whole"].to_pydict() == {
        "id": [900719925474099301, 2],
        "x": [5.0, None],
        "y": [1.125, 2.0],
    }
    assert [str(kind) for kind in source.tables["whole"].schema.types] == ["int64", "double", "double"]
    assert source.tables["broken"].to_pydict() == {
        "id": ["1.5", "10", "0.25"],
        "whole": [900719925474099301, 2, None],
    }
    assert source.findings == ()


@pytest.mark.parametrize("engine", ["duckdb", "postgresql"])
def test_keys_too_large_for_a_number_are_text_at_both_ends(make: Maker, engine: str) -> None:
    source = read_sql(
        make(
            engine,
            [
                "CREATE TABLE parent (id NUMERIC(38, 0) PRIMARY KEY)",
                "CREATE TABLE child (parent NUMERIC(38, 0) REFERENCES parent(id))",
                "INSERT INTO parent VALUES (7), (12345678901234567890123456789012345678)",
                "INSERT INTO child VALUES (7)",
            ],
        )
    )
    assert source.tables["parent"].to_pydict() == {"id": ["7", "12345678901234567890123456789012345678"]}
    assert source.tables["child"].to_pydict() == {"parent": ["7"]}
    first, second = source.findings
    assert (first.code, first.where, first.count) == ("V11", "parent.id", 2)
    assert first.message.lower().startswith("parent.id (numeric(38,0)) is read as text: ") or (
        first.message.startswith("parent.id (DECIMAL(38,0)) is read as text: ")
    )
    assert str(second) == "note[V11] child.parent is read as text, as parent.id is, to which it is linked"


@pytest.mark.parametrize("engine", ["duckdb", "postgresql"])
def test_infinite_times_are_empty_and_counted(make: Maker, engine: str) -> None:
    source = read_sql(
        make(
            engine,
            [
                "CREATE TABLE t (a TIMESTAMP, b TIMESTAMP WITH TIME ZONE, c DATE)",
                "INSERT INTO t VALUES ('infinity', '-infinity', 'infinity'), ('-infinity', NULL, '2024-01-01'),"
                "('2024-01-01', '2024-01-01 00:00:00+00', NULL)",
            ],
        )
    )
    assert source.tables["t"].to_pydict() == {
        "a": [None, None, datetime(2024, 1, 1)],
        "b": [None, None, datetime(2024, 1, 1, tzinfo=UTC)],
        "c": [None, date(2024, 1, 1), None],
    }
    assert [(f.code, f.where, f.count) for f in source.findings] == [
        ("V02", "t.a", 2), ("V02", "t.b", 1), ("V02", "t.c", 1)
    ]  # fmt: skip
    assert str(source.findings[0]) == (
        "warning[V02] t.a: infinite or out-of-range times in 2 rows; they are read as empty"
    )


@pytest.mark.parametrize("engine", ["duckdb", "postgresql"])
def test_uuids_enums_and_json_are_text(make: Maker, engine: str) -> None:
    source = read_sql(
        make(
            engine,
            [
                "CREATE TYPE mood AS ENUM ('sad', 'glad')",
                "CREATE TABLE t (u UUID PRIMARY KEY, m mood, j JSON, i INTERVAL)",
                "INSERT INTO t VALUES ('A0EEBC999C0B4EF8BB6D6BB9BD380A11', 'glad', '{\"a\": 1}', '1 day 2 hours')",
            ],
        )
    )
    assert source.tables["t"].to_pylist() == [
        {"u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "m": "glad", "j": '{"a": 1}', "i": 93600.0}
    ]


@pytest.mark.parametrize(
    ("module", "package", "engine"),
    [
        ("adbc_driver_sqlite.dbapi", "adbc-driver-sqlite", "sqlite"),
        ("adbc_driver_postgresql.dbapi", "adbc-driver-postgresql", "postgresql"),
    ],
)
def test_missing_package(
    make: Maker, monkeypatch: pytest.MonkeyPatch, module: str, package: str, engine: str
) -> None:
    url = make("sqlite", SHOP) if engine == "sqlite" else "postgresql://localhost/shop"
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(ResourceError) as caught:
        read_sql(url)
    assert str(caught.value) == (
        f'error[R01] reading this database needs the package "{package}", which is not installed. '
        'Fix: pip install "quartet-rdl[sql]"'
    )


def test_a_source_is_known_by_its_first_bytes(make: Maker, tmp_path: Path) -> None:
    for engine in ("sqlite", "duckdb"):
        plain = tmp_path / f"{engine}.csv"
        Path(make(engine, SHOP).partition(":///")[2]).rename(plain)
        assert is_sql(str(plain))
        assert read_sql(str(plain)).location == str(plain)
        assert len(read_sql(str(plain)).tables) == 4
    text = tmp_path / "text.db"
    text.write_text("id,name\n1,SQLite format 3\n")
    assert not is_sql(str(text))
    assert not is_sql(str(tmp_path))
    assert not is_sql(str(tmp_path / "missing.db"))
    assert not is_sql("rel-f1")
    assert not is_sql("nul\0byte")
    assert is_sql("postgresql://localhost/shop")


def test_scales() -> None:
    assert [scale_of(t) for t in ("numeric", "NUMERIC(10)", "numeric(10,2)", "DECIMAL(5, 0)", "numeric(3,-2)")] == [
        None, 0, 2, 0, -2
    ]  # fmt: skip


def test_reasons_are_the_words_of_the_database() -> None:
    said = "INVALID_ARGUMENT: [SQLite] Failed to prepare query: no such table: x\nquery: SELECT * FROM x"
    assert reason_of(Exception(said)) == "no such table: x"
    said = 'IO: [libpq] Failed to connect: connection to server failed: FATAL:  role "x" does not exist\n'
    assert reason_of(Exception(said)) == 'role "x" does not exist'
