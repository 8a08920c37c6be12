"""PostgreSQL: its types, its many kinds of tables, one moment for all, and its refusals."""

from __future__ import annotations

from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from quartet.database import Database, ForeignKey
from quartet.database.readers.address import parse_address
from quartet.database.readers.postgresql import open_postgresql
from quartet.database.readers.sql import read_sql
from quartet.errors import QuartetError, ResourceError, SchemaError, UsageError
from quartet.findings import counted
from tests.postgres import ENCODED_PASSWORD, PASSWORD, USER, NewDatabase, new_database  # noqa: F401


@pytest.fixture
def url(new_database: NewDatabase) -> str:  # noqa: F811
    return new_database()


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url) as server:
        for statement in statements:
            server.execute(statement)


def read_cell(url: str, kind: str, value: str) -> tuple[pa.DataType, Any]:
    """The type and the value that come back of a cell of some type."""
    execute(url, f"CREATE TABLE t (c {kind})", f"INSERT INTO t VALUES ({value}), (NULL)")
    column = read_sql(url).tables["t"].column("c")
    assert column[1].as_py() is None
    return column.type, column[0].as_py()


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("bool", "TRUE", (pa.bool_(), True)),
        ("int2", "-3", (pa.int16(), -3)),
        ("int8", "9007199254740993", (pa.int64(), 9007199254740993)),
        ("oid", "4294967295", (pa.int64(), 4294967295)),
        ("float4", "1.5", (pa.float32(), 1.5)),
        ("float8", "'-Infinity'", (pa.float64(), float("-inf"))),
        ("numeric", "1.25", (pa.float64(), 1.25)),
        ("money", "12.5", (pa.float64(), 12.5)),
        ("char(5)", "'x'", (pa.string(), "x")),
        ("varchar(5)", "'x '", (pa.string(), "x ")),
        ("json", """'{"a":  1}'""", (pa.string(), '{"a":  1}')),
        ("jsonb", """'{"a":  1}'""", (pa.string(), '{"a": 1}')),
        ("xml", "'<a/>'", (pa.string(), "<a/>")),
        ("inet", "'1.2.3.4'", (pa.string(), "1.2.3.4/32")),
        ("date", "'1999-12-31'", (pa.date32(), date(1999, 12, 31))),
        ("time", "'10:30'", (pa.time64("us"), time(10, 30))),
        ("timestamp(0)", "'1969-12-31 23:59:59'", (pa.timestamp("us"), datetime(1969, 12, 31, 23, 59, 59))),
        ("interval", "'1 day 2 hours'", (pa.float64(), 93600.0)),
        ("bytea", "'\\x00ff'", (pa.binary(), b"\x00\xff")),
        ("int4[]", "'{1,NULL,3}'", (pa.list_(pa.int32()), [1, None, 3])),
    ],
)  # fmt: skip
def test_types(url: str, kind: str, value: str, expected: tuple[pa.DataType, Any]) -> None:
    assert read_cell(url, kind, value) == expected


def ask(url: str, sql: str) -> Any:
    with psycopg.connect(url) as server:
        return server.execute(sql).fetchone()[0]


def test_dates_that_python_does_not_know(url: str) -> None:
    execute(url, "CREATE TABLE t (c date)", "INSERT INTO t VALUES ('0044-03-15 BC'), ('5874897-12-31')")
    days = read_sql(url).tables["t"].column("c").cast(pa.int32()).to_pylist()
    assert days == [
        ask(url, "SELECT min(c) - '1970-01-01' FROM t"),
        ask(url, "SELECT max(c) - '1970-01-01' FROM t"),
    ]


@pytest.mark.parametrize("kind", ["int4range", "point", "tsvector", "bit(3)", "timetz"])
def test_types_without_a_counterpart_come_as_bytes(url: str, kind: str) -> None:
    value = {
        "int4range": "'[1,5)'",
        "point": "'(1,2)'",
        "tsvector": "'a'",
        "bit(3)": "B'101'",
        "timetz": "'10:00+02'",
    }
    assert read_cell(url, kind, value[kind])[0] == pa.binary()
    assert read_sql(url).findings == ()


def test_domains_and_citext(url: str) -> None:
    execute(
        url,
        "CREATE EXTENSION citext",
        "CREATE DOMAIN amount AS numeric(10, 2)",
        "CREATE DOMAIN small_amount AS amount CHECK (VALUE < 100)",
        "CREATE DOMAIN number AS numeric(9, 0)",
        "CREATE TABLE t (id number PRIMARY KEY, a small_amount, b citext, c amount[])",
        "INSERT INTO t VALUES (7, 1.25, 'Ana', '{1.5}')",
    )
    table = read_sql(url).tables["t"]
    assert table.select(["id", "a", "b"]).to_pylist() == [{"id": 7, "a": 1.25, "b": "Ana"}]
    assert [str(kind) for kind in table.schema.types[:3]] == ["int64", "double", "string"]


def test_numeric_keys_of_any_scale_are_written_in_one_way(url: str) -> None:
    execute(
        url,
        "CREATE TABLE parent (id numeric PRIMARY KEY)",
        "CREATE TABLE child (parent numeric(8, 3) REFERENCES parent(id), n int)",
        "INSERT INTO parent VALUES (1.50), (2), (100.00)",
        "INSERT INTO child VALUES (1.5), (2), (100)",
    )
    tables = read_sql(url).tables
    assert tables["parent"].to_pydict() == {"id": ["1.5", "2", "100"]}
    assert tables["child"].column("parent").to_pylist() == ["1.5", "2", "100"]


def test_times_beyond_what_can_be_held(url: str) -> None:
    execute(
        url,
        "CREATE TABLE t (a timestamp, b timestamptz)",
        "INSERT INTO t VALUES ('294276-12-31', '294276-12-31 00:00+00'), ('294246-12-31', NULL)",
    )
    source = read_sql(url)
    assert source.tables["t"].column("a").null_count == 1
    assert source.tables["t"].column("a").cast(pa.int64())[1].as_py() == ask(
        url, "SELECT (extract(epoch FROM timestamp '294246-12-31') * 1000000)::int8"
    )
    assert [(f.code, f.where, f.count) for f in source.findings] == [("V02", "t.a", 1), ("V02", "t.b", 1)]


def test_a_column_that_cannot_be_brought_is_text(url: str) -> None:
    execute(
        url,
        "CREATE TABLE t (id int, rights aclitem, huge numeric)",
        f"INSERT INTO t VALUES (1, '{USER}=r/{USER}', 1e400), (2, NULL, 5)",
    )
    source = read_sql(url)
    assert source.tables["t"].to_pydict() == {
        "id": [1, 2],
        "rights": [f"{USER}=r/{USER}", None],
        "huge": ["1" + "0" * 400, "5"],
    }
    assert [(f.level.value, f.code, f.where, f.count) for f in source.findings] == [
        ("note", "V11", "t.rights", 2), ("note", "V11", "t.huge", 2)
    ]  # fmt: skip
    assert source.findings[0].message == (
        "t.rights (aclitem) is read as text: no binary output function available for type aclitem"
    )


def test_schemas_and_links_between_them(url: str) -> None:
    execute(
        url,
        "CREATE SCHEMA shop",
        "CREATE TABLE countries (id int PRIMARY KEY)",
        "CREATE TABLE shop.countries (id int PRIMARY KEY, same int REFERENCES shop.countries)",
        "CREATE TABLE shop.customers (id int PRIMARY KEY, country int REFERENCES public.countries(id))",
        "CREATE TABLE visits (id int PRIMARY KEY, customer int REFERENCES shop.customers(id))",
    )
    public, shop = read_sql(url), read_sql(f"{url}?schema=shop")
    assert shop.location.endswith("?schema=shop")
    assert list(public.tables) == ["countries", "visits"]
    assert list(shop.tables) == ["countries", "customers"]
    assert public.schema.tables["visits"].foreign_keys == ()
    assert shop.schema.tables["countries"].foreign_keys == (ForeignKey(("same",), "countries"),)
    assert [str(finding) for finding in public.findings + shop.findings] == [
        'note[S19] tables of other schemas are not read: "shop". Fix: to read one, add ?schema=shop to the URL',
        "warning[S09] visits.customer: the foreign key leads into another schema "
        '("shop"."customers"); it is left out',
        'note[S19] tables of other schemas are not read: "public". Fix: to read one, add ?schema=public to the URL',
        "warning[S09] customers.country: the foreign key leads into another schema "
        '("public"."countries"); it is left out',
    ]


def test_schema_names_are_quoted(url: str) -> None:
    execute(url, 'CREATE SCHEMA "My ""shop"" & co"', 'CREATE TABLE "My ""shop"" & co".t (id int PRIMARY KEY)')
    assert list(read_sql(f"{url}?schema=My%20%22shop%22%20%26%20co").tables) == ["t"]


def test_unknown_schema_lists_those_there_are(url: str) -> None:
    execute(url, "CREATE SCHEMA shop")
    with pytest.raises(UsageError, match=r'there is no schema "shp" in .* \(did you mean "shop"\?\)'):
        read_sql(f"{url}?schema=shp")
    with pytest.raises(UsageError, match=r'\(there are: "public", "shop"\)'):
        read_sql(f"{url}?schema=zzzzzz")


def test_an_empty_schema_names_the_others(url: str) -> None:
    execute(url, "CREATE SCHEMA shop", "CREATE SCHEMA empty", "CREATE TABLE shop.t (id int PRIMARY KEY)")
    with pytest.raises(SchemaError) as caught:
        read_sql(url)
    assert str(caught.value) == (
        f'error[S01] no tables found in "{parse_address(url).location}" '
        '(tables of other schemas are not read: "shop"). '
        "Fix: to read one, add ?schema=shop to the URL"
    )


def test_every_row_is_read_once(url: str) -> None:
    execute(
        url,
        "CREATE TABLE events (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
        "CREATE TABLE events_old PARTITION OF events FOR VALUES FROM ('2023-01-01') TO ('2024-01-01')",
        "CREATE TABLE events_new PARTITION OF events FOR VALUES FROM ('2024-01-01') TO ('2025-01-01')",
        "INSERT INTO events VALUES (1, '2023-05-05'), (2, '2024-05-05')",
        "CREATE TABLE notes (event int, day date, FOREIGN KEY (event, day) REFERENCES events (id, day))",
        "CREATE TABLE people (name text)",
        "CREATE TABLE staff (salary int) INHERITS (people)",
        "INSERT INTO people VALUES ('Ana')",
        "INSERT INTO staff VALUES ('Bob', 5)",
    )
    source = read_sql(url)
    assert list(source.tables) == ["events", "notes", "people", "staff"]
    assert sorted(source.tables["events"].column("id").to_pylist()) == [1, 2]
    assert source.tables["people"].to_pydict() == {"name": ["Ana"]}
    assert source.tables["staff"].to_pydict() == {"name": ["Bob"], "salary": [5]}
    assert source.schema.tables["events"].primary_key == ("id", "day")
    assert source.schema.tables["notes"].foreign_keys == (ForeignKey(("event", "day"), "events"),)
    assert source.findings == ()


def test_only_tables_with_columns_are_read(url: str) -> None:
    execute(
        url,
        "CREATE TABLE t (id int)",
        "CREATE MATERIALIZED VIEW m AS SELECT * FROM t",
        "CREATE FOREIGN DATA WRAPPER nothing",
        "CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing",
        "CREATE FOREIGN TABLE far (id int) SERVER nowhere",
        "CREATE TABLE bare ()",
    )
    source = read_sql(url)
    assert list(source.tables) == ["t"]
    assert [finding.message for finding in source.findings] == [
        'left out, because only tables are read: views "m"',
        'left out, because only tables are read: foreign tables "far"',
        'left out, because only tables are read: tables without columns "bare"',
    ]


def test_all_tables_are_of_one_moment(url: str) -> None:
    execute(url, "CREATE TABLE a (x int)", "CREATE TABLE b (x int)", "INSERT INTO b VALUES (1)")
    with open_postgresql(parse_address(url)) as engine:
        tables = engine.catalogue()[0]
        engine.read(tables["a"], frozenset())
        execute(url, "INSERT INTO b VALUES (2)")
        rows, _ = engine.read(tables["b"], frozenset())
    assert rows.to_pydict() == {"x": [1]}
    assert read_sql(url).tables["b"].to_pydict() == {"x": [1, 2]}


def test_the_transaction_cannot_write(url: str) -> None:
    execute(url, "CREATE TABLE t (x int)")
    with open_postgresql(parse_address(url)) as engine:
        settings = "SELECT current_setting('transaction_read_only') AS a, current_setting('transaction_isolation') AS b"
        assert engine.query(settings).to_pylist() == [{"a": "on", "b": "repeatable read"}]
        with pytest.raises(Exception, match="cannot execute INSERT in a read-only transaction"):
            engine.query("INSERT INTO public.t VALUES (1) RETURNING x")


def test_other_encodings(new_database: NewDatabase) -> None:  # noqa: F811
    url = new_database("ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    execute(url, "CREATE TABLE é (ü text)", "INSERT INTO é VALUES ('ÿ')")
    assert read_sql(url).tables["é"].to_pylist() == [{"ü": "ÿ"}]
    url = new_database("ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    execute(url, "CREATE TABLE t (c text)", "INSERT INTO t VALUES (E'\\xff' || 'A'), ('B')")
    database = Database.load(url)
    assert database["t"].data.to_pydict() == {"c": ["\ufffdA", "B"]}
    assert counted(database.findings, "V08", "t.c") == 1


# Refusals


@pytest.fixture
def limited(url: str) -> str:
    """The URL of a database for a user who may read `seen`, a part of `filtered`, and not `secret`."""
    name = "limited_" + url.rpartition("_")[2]
    execute(
        url,
        "CREATE TABLE seen (id int PRIMARY KEY, hidden int)",
        "CREATE TABLE secret (id int PRIMARY KEY)",
        "CREATE TABLE filtered (id int)",
        "INSERT INTO filtered VALUES (1), (2)",
        "ALTER TABLE seen ADD FOREIGN KEY (hidden) REFERENCES secret(id)",
        "ALTER TABLE filtered ENABLE ROW LEVEL SECURITY",
        f"CREATE ROLE {name} LOGIN PASSWORD 'x'",
        f"CREATE POLICY one ON filtered TO {name} USING (id = 1)",
        f"GRANT SELECT ON seen, filtered TO {name}",
    )
    return url.replace(f"{USER}:{ENCODED_PASSWORD}", f"{name}:x")


def test_what_the_user_may_not_see_is_reported(limited: str) -> None:
    source = read_sql(limited)
    assert list(source.tables) == ["filtered", "seen"]
    assert source.tables["filtered"].to_pydict() == {"id": [1]}
    assert [str(finding) for finding in source.findings] == [
        'warning[S20] table "filtered": row security is on, so only the rows that this user may see are read. '
        "Fix: connect as a user who may read it all",
        'warning[S20] table "secret": this user may not read it, so it is left out. '
        "Fix: connect as a user who may read it all",
        'warning[S09] seen.hidden: the foreign key leads to "secret", which is not read '
        '(did you mean "seen"?); it is left out',
    ]


def test_a_schema_that_may_not_be_used(url: str, limited: str) -> None:
    execute(url, "REVOKE USAGE ON SCHEMA public FROM PUBLIC")
    with pytest.raises(ResourceError) as caught:
        read_sql(limited)
    assert str(caught.value).endswith(
        "cannot be read: permission denied for schema public. "
        "Fix: check that this user may read the tables, and run again"
    )


def refusal(url: str) -> QuartetError:
    with pytest.raises(QuartetError) as caught:
        read_sql(url)
    assert PASSWORD not in str(caught.value)
    assert ENCODED_PASSWORD not in str(caught.value)
    return caught.value


def test_wrong_password(url: str) -> None:
    error = refusal(url.replace(ENCODED_PASSWORD, "not-the-password"))
    assert isinstance(error, UsageError)
    assert "not-the-password" not in str(error)
    assert str(error) == (
        f'error[C13] no connection to "{parse_address(url).location}": password authentication failed for '
        f'user "{USER}". Fix: correct the user and the password in the URL'
    )


def test_no_password(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    for hidden in ("", ":***"):
        error = refusal(url.replace(f":{ENCODED_PASSWORD}", hidden))
        assert isinstance(error, UsageError)
        assert error.code == "C13"
        assert error.fix == "give the password in the variable PGPASSWORD, in the file .pgpass, or in the URL"


@pytest.mark.parametrize("place", ["PGPASSWORD", "PGPASSFILE", "terminal"])
def test_a_stored_location_is_opened_again(
    url: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(url, "CREATE TABLE t (id int PRIMARY KEY)")
    location = read_sql(f"{url}?sslmode=prefer").location
    assert location == f"{url.replace(ENCODED_PASSWORD, '***')}?schema=public&sslmode=prefer"
    if place == "PGPASSWORD":
        monkeypatch.setenv(place, PASSWORD)
    elif place == "PGPASSFILE":
        (tmp_path / "pgpass").touch(0o600)
        (tmp_path / "pgpass").write_text("*:*:*:*:" + PASSWORD.replace(":", "\\:"))
        monkeypatch.setenv(place, str(tmp_path / "pgpass"))
    else:
        monkeypatch.setattr("sys.stdin.isatty", lambda: True)
        monkeypatch.setattr("quartet.database.readers.postgresql.getpass", lambda _: PASSWORD)
    again = read_sql(location)
    assert (list(again.tables), again.location) == (["t"], location)


def test_unknown_database(url: str) -> None:
    error = refusal(f"{url}x")
    assert isinstance(error, UsageError)
    name = url.rpartition("/")[2]
    assert error.what.endswith(f'database "{name}x" does not exist')
    assert (error.code, error.fix) == ("C01", "correct the name in the URL")


def test_a_lost_connection(url: str) -> None:
    execute(url, "CREATE TABLE t (x int)")

    def read_and_lose() -> None:
        with open_postgresql(parse_address(url)) as engine:
            table = engine.catalogue()[0]["t"]
            own = engine.query("SELECT pg_backend_pid() AS pid")["pid"][0].as_py()
            execute(url, f"SELECT pg_terminate_backend({own}, 5000)")
            engine.read(table, frozenset())

    with pytest.raises(Exception, match="terminating connection due to administrator command"):
        read_and_lose()
