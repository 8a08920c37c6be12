"""Where a database is: the URL or the path of a file, taken apart.

    sqlite:///relative.db       sqlite:////absolute/path.db       duckdb:///relative.duckdb
    postgresql://user:password@host:port/database?schema=shop
    mysql://user:password@host:port/database        mariadb://user:password@host:port/database
    snowflake://user:password@account/database/schema?warehouse=name        bigquery://project/dataset

`schema` is our own parameter (default: `public` in PostgreSQL, `main` in the others). Any other parameter
after the question mark is for the driver. A password is never shown or stored: `***` stands in its place, and means
that it is found elsewhere: in the variable PGPASSWORD, in the file .pgpass, in the variable MYSQL_PWD, or by asking.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from quartet.errors import UsageError, did_you_mean

_TITLES = {
    "sqlite": "an SQLite",
    "postgresql": "a PostgreSQL",
    "duckdb": "a DuckDB",
    "mysql": "a MySQL",
    "mariadb": "a MariaDB",
    "snowflake": "a Snowflake",
    "bigquery": "a BigQuery",
}
_SAME = {"postgres": "postgresql", "mariadb": "mysql"}
_FORMS = {
    "postgresql": "postgresql://user:password@host:port/database?schema=name",
    "mysql": "mysql://user:password@host:port/database",
    "snowflake": "snowflake://user:password@account/database/schema?warehouse=name",
    "bigquery": "bigquery://project/dataset",
}
_HIDDEN = "***"
_SECRET_WORD = r"\w*(?:pass(?!file)|pw|secret|token)\w*"


@dataclass(frozen=True)
class Address:
    """Where a database is. `location` is fit to be shown; `connection` holds the password."""

    kind: str
    location: str
    schema: str
    path: Path = Path()
    connection: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def secrets(self) -> list[str]:
        """What no message may show."""
        return [
            value for word, value in self.connection.items() if re.fullmatch(_SECRET_WORD, word) and value
        ]


def hide_passwords(source: str) -> str:
    """Returns a source without its passwords, wherever in a URL they are, also in one that is malformed."""
    text = re.sub(r"^((?:[\w+]+:/+)?+[^:/@]*):.*@", rf"\1:{_HIDDEN}@", source, flags=re.DOTALL)
    return re.sub(rf"(?i)([?&]{_SECRET_WORD}=)[^&]*", rf"\1{_HIDDEN}", text)


def kind_of_file(path: Path) -> str | None:
    """Returns the kind of database that the first bytes of a file show, if any."""
    try:
        if not path.is_file():  # a pipe would wait for bytes
            return None
        with path.open("rb") as file:
            start = file.read(16)
    except (OSError, ValueError):
        return None
    if start == b"SQLite format 3\x00":
        return "sqlite"
    return "duckdb" if start[8:12] == b"DUCK" else None


def parse_address(url: str) -> Address:
    """Returns the address in a URL or in the path of an SQLite or DuckDB file."""
    scheme, is_url, rest = url.partition("://")
    if not is_url:
        path = _existing(Path(url).expanduser())
        kind = kind_of_file(path)
        if kind is None:
            fix = "give a database file or a database URL"
            raise UsageError("S01", f'"{url}" is neither a SQLite nor a DuckDB file', fix)
        return Address(kind, url, "main", path)
    kind = scheme.partition("+")[0].lower()
    kind = _SAME.get(kind, kind)
    if kind not in _TITLES:
        raise UsageError(
            "C01",
            f'there is no reader for "{scheme}://"' + did_you_mean(scheme, _TITLES),
            "give a URL that starts with sqlite:///, duckdb:///, postgresql://, mysql:// or mariadb://",
        )
    return _file_address(kind, rest, url) if kind in ("sqlite", "duckdb") else _server_address(kind, rest)


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise UsageError("C09", f'there is no file "{path}"', "check the path")
    return path


def _file_address(kind: str, rest: str, url: str) -> Address:
    name, _, query = rest.partition("?")
    if not name.startswith("/") or name == "/":
        raise UsageError(
            "C13",
            f'"{hide_passwords(url)}" names no file',
            f"write {kind}:///relative/path or {kind}:////absolute/path, with three or four slashes",
        )
    parameters = dict(parse_qsl(query, keep_blank_values=True))
    schema = parameters.pop("schema", "main")
    for word in parameters:
        text = f'"{hide_passwords(url)}": unknown parameter "{word}"'
        raise UsageError("C01", text + did_you_mean(word, ["schema"]))
    path = _existing(Path(name[1:]))
    # A file without a byte is an SQLite database without a table.
    if kind_of_file(path) != kind and not (kind == "sqlite" and path.stat().st_size == 0):
        fix = "check the path and the kind of the URL"
        raise UsageError("S01", f'"{path}" is not {_TITLES[kind]} database', fix)
    return Address(kind, url, schema, path)


def _server_address(kind: str, rest: str) -> Address:
    # The URL is never shown, since nobody can say which part of a malformed one is the password.
    malformed = UsageError(
        "C13",
        f"the database URL is not of the form {_FORMS[kind]}",
        "write @ as %40, / as %2F, ? as %3F, # as %23, [ as %5B and : as %3A in the user and the password",
    )
    try:
        parts = urlsplit(f"{kind}://{rest}")
        port = parts.port
    except ValueError:  # which shows the URL, so the error is raised outside
        port = 0
    # A password that is not encoded is refused before it is taken for a host.
    if port == 0 or parts.fragment or rest.count("@") > min(1, parts.netloc.count("@")):
        raise malformed
    pairs = [pair.partition("=") for pair in parts.query.split("&")] if parts.query else []
    if not all(word.isidentifier() and equals for word, equals, _ in pairs):
        raise malformed
    parameters = {word: unquote(value) for word, _, value in pairs if value != _HIDDEN}
    path = [unquote(part) for part in parts.path[1:].split("/")] if parts.path[1:] else []
    depth = {"snowflake": 2}.get(kind, 1)
    has_host = parts.hostname or (kind == "mysql" and "unix_socket" in parameters)
    if kind != "postgresql" and (len(path) != depth or not all(path) or not has_host):
        raise malformed
    schema = parameters.pop("schema", "public") if kind == "postgresql" else path[-1]
    named = {
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or "") if parts.password != _HIDDEN else "",
        "host": unquote(parts.hostname or ""),
        "port": str(port or ""),
        "dbname": unquote(parts.path[1:]),
    }
    connection = {**{word: value for word, value in named.items() if value}, **parameters}
    user = quote(connection.get("user", ""), safe="")
    secret = f":{_HIDDEN}" if parts.password or "password" in parameters else ""
    host = parts.netloc.rpartition("@")[2]
    location = f"{kind}://{user}{secret}{'@' if user or secret else ''}{host}{parts.path}"
    address = Address(kind, location, schema, connection=connection)
    others = {word: value for word, value in parameters.items() if word not in ("user", "password")}
    shown = [f"{word}={quote(value)}" for word, value in others.items() if value not in address.secrets]
    shown = [f"schema={quote(schema)}", *shown] if kind == "postgresql" else shown
    return replace(address, location=hide_passwords("?".join(filter(None, (location, "&".join(shown))))))
