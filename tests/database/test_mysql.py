"""MySQL and MariaDB, read from a real MariaDB server: rows, types, keys, one moment, hidden passwords."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from quartet.database import ForeignKey
from quartet.database.readers.address import parse_address
from quartet.database.readers.sql import read_sql
from quartet.errors import ResourceError, UsageError
from tests.mariadb import ENCODED_PASSWORD, PASSWORD, NewDatabase, new_mysql_database  # noqa: F401

SHOP = [
    "CREATE TABLE regions (country VARCHAR(9), code VARCHAR(9), name TEXT, PRIMARY KEY (country, code))",
    """CREATE TABLE customers (
         id VARCHAR(9) PRIMARY KEY, email VARCHAR(99) UNIQUE, recommended_by VARCHAR(9), region VARCHAR(9),
         country VARCHAR(9), joined DATE, credit NUMERIC(10, 2),
         FOREIGN KEY (recommended_by) REFERENCES customers(id),
         FOREIGN KEY (country, region) REFERENCES regions(country, code))""",
    """CREATE TABLE orders (
         id BIGINT PRIMARY KEY, buyer VARCHAR(9) NOT NULL, contact VARCHAR(99), placed DATETIME(6), paid TIMESTAMP NULL,
         total DOUBLE, FOREIGN KEY (buyer) REFERENCES customers(id), FOREIGN KEY (contact) REFERENCES customers(email))
    """,
    "INSERT INTO regions VALUES ('FR', 'IDF', 'Île-de-France'), ('DE', 'BE', NULL)",
    """INSERT INTO customers VALUES ('C1', 'ana@x.org', NULL, 'IDF', 'FR', '2023-01-31', 10.25),
         ('C2', NULL, 'C1', NULL, NULL, NULL, NULL)""",
    "SET time_zone = '+02:00'",
    """INSERT INTO orders VALUES (1, 'C1', 'ana@x.org', '2024-03-01 10:00:00.25', '2024-03-01 12:30:00', 13.5),
         (9007199254740993, 'C2', NULL, NULL, NULL, 0.1)""",
]


def test_rows_and_types(new_mysql_database: NewDatabase) -> None:  # noqa: F811
    source = read_sql(new_mysql_database(*SHOP))
    assert list(source.tables) == ["customers", "orders", "regions"]
    assert source.tables["orders"].to_pydict() == {
        "id": [1, 9007199254740993],
        "buyer": ["C1", "C2"],
        "contact": ["ana@x.org", None],
        "placed": [datetime(2024, 3, 1, 10, 0, 0, 250_000), None],
        "paid": [datetime(2024, 3, 1, 10, 30, tzinfo=UTC), None],
        "total": [13.5, 0.1],
    }
    assert source.tables["customers"].to_pylist()[0] == {
        "id": "C1", "email": "ana@x.org", "recommended_by": None, "region": "IDF", "country": "FR",
        "joined": date(2023, 1, 31), "credit": 10.25,
    }  # fmt: skip
    assert sorted(source.tables["regions"]["name"].to_pylist(), key=str) == [None, "Île-de-France"]
    assert source.findings == ()


def test_keys_are_those_of_the_catalogue(new_mysql_database: NewDatabase) -> None:  # noqa: F811
    schema = read_sql(new_mysql_database(*SHOP)).schema.tables
    assert {name: table.primary_key for name, table in schema.items()} == {
        "customers": ("id",),
        "orders": ("id",),
        "regions": ("country", "code"),
    }
    assert set(schema["customers"].foreign_keys) == {
        ForeignKey(("recommended_by",), "customers"),
        ForeignKey(("country", "region"), "regions"),
    }
    assert set(schema["orders"].foreign_keys) == {
        ForeignKey(("buyer",), "customers"),
        ForeignKey(("contact",), "customers", ("email",)),
    }


def test_other_types(new_mysql_database: NewDatabase) -> None:  # noqa: F811
    url = new_mysql_database(
        """CREATE TABLE t (id DECIMAL(18, 0) PRIMARY KEY, big BIGINT UNSIGNED, f FLOAT, y YEAR, b BIT(3),
             e ENUM('a', 'b'), j JSON, raw VARBINARY(9), d DATE, flag BOOLEAN)""",
        """INSERT INTO t VALUES (900719925474099301, 18446744073709551615, 0.1, 2024, b'101', 'b', '{"a": 1}', x'00ff',
             '0000-00-00', TRUE), (2, 5, NULL, NULL, NULL, NULL, NULL, NULL, '2024-02-29', NULL)""",
    )
    source = read_sql(url)
    second, first = sorted(source.tables["t"].to_pylist(), key=lambda row: row["id"])
    assert first.pop("f") == pytest.approx(0.1, rel=1e-7)
    assert first == {
        "id": 900719925474099301, "big": "18446744073709551615", "y": 2024, "b": 5, "e": "b", "j": '{"a": 1}',
        "raw": b"\x00\xff", "d": None, "flag": 1,
    }  # fmt: skip
    assert (second["id"], second["d"], second["raw"]) == (2, date(2024, 2, 29), None)
    assert {(f.code, f.where, f.count) for f in source.findings} == {("V11", "t.big", 2), ("V02", "t.d", 1)}


def test_views_on_request(new_mysql_database: NewDatabase) -> None:  # noqa: F811
    url = new_mysql_database(*SHOP, "CREATE VIEW rich AS SELECT id, credit FROM customers WHERE credit > 1")
    assert "rich" not in read_sql(url).tables
    assert [f.code for f in read_sql(url).findings] == ["S19"]
    assert read_sql(url, views=True).tables["rich"].to_pylist() == [{"id": "C1", "credit": 10.25}]


def test_all_tables_are_of_one_moment(
    new_mysql_database: NewDatabase,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row that is written between two tables is in neither."""
    from quartet.database.readers import mysql

    url = new_mysql_database(
        "CREATE TABLE a (id INT PRIMARY KEY)",
        "CREATE TABLE b (id INT PRIMARY KEY)",
        "INSERT INTO a VALUES (1)",
    )
    words = parse_address(url).connection
    read = mysql._MysqlEngine.read

    def write_between(self: mysql._MysqlEngine, table: mysql.DeclaredTable, keys: frozenset[str]):  # type: ignore[no-untyped-def]
        rows = read(self, table, keys)
        if table.name == "a":
            new_mysql_database.run(f"INSERT INTO {words['dbname']}.b VALUES (2)")  # type: ignore[attr-defined]
        return rows

    monkeypatch.setattr(mysql._MysqlEngine, "read", write_between)
    tables = read_sql(url).tables
    assert (tables["a"].num_rows, tables["b"].num_rows) == (1, 0)
    monkeypatch.undo()
    assert read_sql(url).tables["b"].num_rows == 1


def test_odd_names(new_mysql_database: NewDatabase) -> None:  # noqa: F811
    names = ["it's", 'we"ird', "a, b", "a.b", "`tick`", "back\\slash", "%s", "名前", "select"]
    quoted = ["`" + name.replace("`", "``") + "`" for name in names]
    source = read_sql(
        new_mysql_database(
            *(f"CREATE TABLE {q} ({q} INT PRIMARY KEY)" for q in quoted),
            *(f"INSERT INTO {q} VALUES (7)" for q in quoted),
        )
    )
    assert sorted(source.tables) == sorted(names)
    for name in names:
        assert source.tables[name].to_pylist() == [{name: 7}]
        assert source.schema.tables[name].primary_key == (name,)


def test_passwords_are_hidden(new_mysql_database: NewDatabase, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    url = new_mysql_database(*SHOP)
    assert PASSWORD not in read_sql(url).location
    assert ":***@127.0.0.1" in read_sql(url).location
    hidden = url.replace(ENCODED_PASSWORD, "***")
    with pytest.raises(UsageError, match=r"C13.*MYSQL_PWD"):
        read_sql(hidden)
    monkeypatch.setenv("MYSQL_PWD", PASSWORD)
    assert len(read_sql(hidden).tables) == 3
    with pytest.raises(UsageError) as caught:
        read_sql(url.replace(ENCODED_PASSWORD, "wrong-hush"))
    assert "wrong-hush" not in str(caught.value)


def test_nobody_listens() -> None:
    with pytest.raises(
        ResourceError, match=r'R02.*no connection to "mysql://ana:\*\*\*@127.0.0.1:1/shop"'
    ) as caught:
        read_sql("mariadb://ana:hush@127.0.0.1:1/shop")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["mysql://ana:hush@db.org", "bigquery://project", "snowflake://a:hush@account/db"]
)
def test_malformed(url: str) -> None:
    with pytest.raises(UsageError, match="C13") as caught:
        read_sql(url)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("kind", ["snowflake://a:hush@account/db/schema", "bigquery://project/dataset"])
def test_a_warehouse_needs_its_driver(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = kind.partition(":")[0]
    monkeypatch.setitem(__import__("sys").modules, f"adbc_driver_{name}.dbapi", None)
    with pytest.raises(ResourceError, match=f"R01.*pip install adbc-driver-{name}"):
        read_sql(kind)
