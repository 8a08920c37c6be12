"""Where a database is, and that nobody who sees a location or an error sees the password."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from quartet.database.readers.address import parse_address
from quartet.database.readers.read import read_source
from quartet.database.readers.sql import read_sql
from quartet.errors import QuartetError, ResourceError, UsageError


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "PostgreSQL"])
def test_servers(scheme: str) -> None:
    address = parse_address(f"{scheme}://ana:p%40ss@db.org:5433/shop%20x?schema=sales&sslmode=require")
    assert address.kind == "postgresql"
    assert address.schema == "sales"
    assert address.location == "postgresql://ana:***@db.org:5433/shop%20x?schema=sales&sslmode=require"
    assert address.connection == {
        "user": "ana", "password": "p@ss", "host": "db.org", "port": "5433", "dbname": "shop x", "sslmode": "require"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("url", "location", "connection"),
    [
        (
            "postgresql://db.org/shop",
            "postgresql://db.org/shop?schema=public",
            {"host": "db.org", "dbname": "shop"},
        ),
        (
            "postgresql:///shop?host=/run/pg&user=ana&password=hu%26+sh",
            "postgresql://ana:***@/shop?schema=public&host=/run/pg",
            {"dbname": "shop", "host": "/run/pg", "user": "ana", "password": "hu&+sh"},
        ),
        (
            "postgresql://ana@[::1]:5433/shop",
            "postgresql://ana@[::1]:5433/shop?schema=public",
            {"user": "ana", "host": "::1", "port": "5433", "dbname": "shop"},
        ),
        ("postgresql://", "postgresql://?schema=public", {}),
    ],
)
def test_parts_that_are_absent(url: str, location: str, connection: dict[str, str]) -> None:
    address = parse_address(url)
    assert address.location == location
    assert address.connection == connection


SECRET = "hush-hush"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ana:{SECRET}@x@db.org/shop",
        f"postgresql://ana:{SECRET}/x@db.org/shop",
        f"postgresql://ana:12/{SECRET}@db.org/shop",
        f"postgresql://ana:{SECRET}?x@db.org/shop",
        f"postgresql://ana:12?{SECRET}=1@db.org/shop",
        f"postgresql://ana:{SECRET}#x@db.org/shop",
        f"postgresql://ana:{SECRET}[x@db.org/shop",
        f"postgresql://ana:{SECRET}\u2100@db.org/shop",
        f"postgresql://ana:{SECRET}@db.org:port/shop",
        f"postgresql://ana:{SECRET}@db.org:0/shop",
        f"postgresql://ana:{SECRET}@db.org/shop?schema",
        f"postgresql://ana:{SECRET}@db.org/shop?a b=1",
    ],
)
def test_a_url_that_may_be_misread_is_refused_unshown(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_sql(url)
    assert str(caught.value) == (
        "error[C13] the database URL is not of the form "
        "postgresql://user:password@host:port/database?schema=name. Fix: write @ as %40, / as %2F, "
        "? as %3F, # as %23, [ as %5B and : as %3A in the user and the password"
    )
    assert SECRET not in _everything(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ana:{SECRET}@127.0.0.1:1/shop",
        f"postgresql://ana@127.0.0.1:1/shop?password={SECRET}",
        f"postgresql://ana:{SECRET}@host.invalid/shop",
        f"postgresql://ana:{SECRET}@127.0.0.1:1/shop?sslmode={SECRET}",
        f"postgresql://ana:{SECRET}@127.0.0.1:1/shop?no_such_word=1",
        f"postgresql://ana@127.0.0.1:1/shop?pwd={SECRET}",
        f"postgresq://ana:{SECRET}@127.0.0.1:1/shop",
        f"postgresql:/ana:{SECRET}@127.0.0.1:1/shop",
        f"ana:{SECRET}@127.0.0.1:1/shop",
        f"postgresql://ana:{SECRET}@127.0.0.1:1/{'shop' * 1000}",
        f"postgresql:/ana:{SECRET}@127.0.0.1:1/{'shop' * 1000}",
        f"sqlite://ana:{SECRET}@shop.db",
        f"sqlite:///shop.db?password={SECRET}",
    ],
)
def test_no_error_shows_the_password(url: str) -> None:
    with pytest.raises(QuartetError) as caught:
        read_source(url)
    assert SECRET not in _everything(caught.value)
    if "//ana" in url and url.startswith("postgresql"):
        assert SECRET not in repr(parse_address(url))


def _everything(error: QuartetError) -> str:
    """All that hangs on an error: its words, and those of every error before it, shown or not."""
    words = [repr(error), str(error), error.what, error.fix]
    before = error.__context__
    while before is not None:
        words.append(repr(before))
        before = before.__context__
    return " ".join(words)


@pytest.mark.parametrize("url", ["//ana:***@db.org/shop", "//ana@db.org/shop?password=***&sslpassword=***"])
def test_a_hidden_password_is_none(url: str) -> None:
    address = parse_address(f"postgresql:{url}")
    assert address.connection == {"user": "ana", "host": "db.org", "dbname": "shop"}
    stars = parse_address("postgresql://ana:%2A%2A%2A@db.org/shop?application_name=a%26b")
    assert stars.connection["password"] == "***"
    again = parse_address(stars.location)
    assert (
        again.location
        == stars.location
        == "postgresql://ana:***@db.org/shop?schema=public&application_name=a%26b"
    )
    assert {**again.connection, "password": "***"} == stars.connection


def test_nobody_listens() -> None:
    with pytest.raises(ResourceError) as caught:
        read_sql("postgresql://ana:hush@127.0.0.1:1/shop")
    assert str(caught.value) == (
        'error[R02] no connection to "postgresql://ana:***@127.0.0.1:1/shop?schema=public": '
        'connection to server at "127.0.0.1", port 1 failed: Connection refused. '
        "Fix: check that the server runs and can be reached at 127.0.0.1, port 1"
    )


def test_unknown_word_for_libpq() -> None:
    with pytest.raises(UsageError) as caught:
        read_sql("postgresql://127.0.0.1:1/shop?no_such_word=1")
    assert str(caught.value) == (
        'error[C01] no connection to "postgresql://127.0.0.1:1/shop?schema=public&no_such_word=1": '
        'invalid connection option "no_such_word". Fix: correct the name in the URL'
    )


def test_unknown_kind() -> None:
    with pytest.raises(UsageError) as caught:
        read_sql("postgresq://ana:hush@db.org/shop")
    assert str(caught.value) == (
        'error[C01] there is no reader for "postgresq://" (did you mean "postgresql"?). '
        "Fix: give a URL that starts with sqlite:///, duckdb:///, postgresql://, mysql:// or mariadb://"
    )
    with pytest.raises(UsageError, match='there is no reader for "oracle://"'):
        read_sql("oracle://db.org/shop")


# Files


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    return path


def test_relative_and_absolute(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop.parent)
    for url in (
        "sqlite:///shop.db",
        f"sqlite:///{shop}",
        "shop.db",
        str(shop),
        "sqlite:///shop.db?schema=main",
    ):
        source = read_sql(url)
        assert list(source.tables) == ["t"]
        assert source.location == url


@pytest.mark.parametrize("name", ["a b.db", "100%.db", "x#y.db", "ü?.db", "it's.db", "file:x?mode=rwc"])
def test_any_file_name(shop: Path, name: str) -> None:
    path = shop.rename(shop.with_name(name))
    assert list(read_sql(str(path)).tables) == ["t"]


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_missing_file_is_not_made(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "missing.db"
    for url in (f"{kind}:///{path}", str(path)):
        with pytest.raises(UsageError) as caught:
            read_sql(url)
        assert str(caught.value) == f'error[C09] there is no file "{path}". Fix: check the path'
    assert list(tmp_path.iterdir()) == []


def test_other_files(shop: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("hello " * 1000)
    with pytest.raises(UsageError) as caught:
        read_sql(str(text))
    assert str(caught.value) == (
        f'error[S01] "{text}" is neither a SQLite nor a DuckDB file. Fix: give a database file or a database URL'
    )
    for url, path, title in (
        (f"sqlite:///{text}", text, "an SQLite"),
        (f"duckdb:///{shop}", shop, "a DuckDB"),
    ):
        with pytest.raises(UsageError) as caught:
            read_sql(url)
        assert str(caught.value) == (
            f'error[S01] "{path}" is not {title} database. Fix: check the path and the kind of the URL'
        )


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match=r'error\[S01\] ".*/pipe" is no regular file'):
        read_source(tmp_path / "pipe")


def test_a_link_to_nothing_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "shop.db").symlink_to(tmp_path / "gone.db")
    with pytest.raises(UsageError, match=r'error\[S01\] ".*/shop.db" is a link to nothing'):
        read_source(tmp_path / "shop.db")


def test_two_slashes() -> None:
    for url in ("sqlite://shop.db", "sqlite://", "sqlite:///"):
        with pytest.raises(UsageError) as caught:
            read_sql(url)
        assert str(caught.value) == (
            f'error[C13] "{url}" names no file. Fix: write sqlite:///relative/path or '
            "sqlite:////absolute/path, with three or four slashes"
        )


def test_unknown_word(shop: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_sql(f"sqlite:///{shop}?shema=main")
    assert str(caught.value) == (
        f'error[C01] "sqlite:///{shop}?shema=main": unknown parameter "shema" (did you mean "schema"?)'
    )
