"""Where a database is: the URL or the path of a file, taken apart.

    sqlite:///relative.db       sqlite:////absolute/path.db       duckdb:///relative.duckdb
    postgresql://user:password@host:port/database?schema=shop

`schema` is our own word (default: `public` in PostgreSQL, `main` in the others). Any other word
after the question mark is for libpq.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from quartet.errors import UsageError, did_you_mean

_KINDS = ("sqlite", "postgresql", "duckdb")
SECRETS = ("password", "sslpassword")
_SQLITE_MAGIC = b"SQLite format 3\x00"
_DUCKDB_MAGIC = b"DUCK"  # at byte 8


@dataclass(frozen=True)
class Address:
    """Where a database is. `location` is fit to be shown; `connection` holds the password."""

    kind: str
    location: str
    schema: str
    path: Path = Path()
    connection: Mapping[str, str] = field(default_factory=dict, repr=False)


def parse_address(url: str) -> Address:
    scheme, is_url, rest = url.partition("://")
    if not is_url:
        return _address_of_file(url)
    kind = scheme.partition("+")[0].lower()
    kind = "postgresql" if kind == "postgres" else kind
    if kind not in _KINDS:
        raise UsageError(
            "C01",
            f'there is no reader for "{scheme}://"' + did_you_mean(scheme, _KINDS),
            "give a URL that starts with sqlite:///, duckdb:/// or postgresql://",
        )
    return _address_of_server(rest) if kind == "postgresql" else _address_of_file_url(kind, rest, url)


# Files


def _address_of_file(text: str) -> Address:
    path = _existing(Path(text).expanduser())
    kind = kind_of_file(path)
    if kind is None:
        raise UsageError(
            "S01", f'"{text}" is neither a SQLite nor a DuckDB file', "give a database file or a database URL"
        )
    return Address(kind, text, "main", path)


def _address_of_file_url(kind: str, rest: str, url: str) -> Address:
    name, _, query = rest.partition("?")
    if not name.startswith("/") or name == "/":
        raise UsageError(
            "C13",
            f'"{url}" names no file',
            f"write {kind}:///relative/path or {kind}:////absolute/path, with three or four slashes",
        )
    words = dict(parse_qsl(query, keep_blank_values=True))
    schema = words.pop("schema", "main")
    for word in words:
        raise UsageError("C01", f'"{url}": unknown word "{word}"' + did_you_mean(word, ["schema"]))
    path = _existing(Path(name[1:]))
    # A file without a byte is an SQLite database without a table.
    if kind_of_file(path) != kind and not (kind == "sqlite" and path.stat().st_size == 0):
        title = {"sqlite": "an SQLite", "duckdb": "a DuckDB"}[kind]
        raise UsageError("S01", f'"{path}" is not {title} database', "check the path and the kind of the URL")
    return Address(kind, url, schema, path)


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise UsageError("C09", f'there is no file "{path}"', "check the path")
    return path


def kind_of_file(path: Path) -> str | None:
    """The kind of database that the first bytes of a file show, if any."""
    try:
        with path.open("rb") as file:
            start = file.read(16)
    except (OSError, ValueError):
        return None
    if start == _SQLITE_MAGIC:
        return "sqlite"
    return "duckdb" if start[8:12] == _DUCKDB_MAGIC else None


# Servers


def _address_of_server(rest: str) -> Address:
    parts = _split(rest)
    words = _words(parts.query)
    schema = words.pop("schema", "public")
    named = {
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "host": unquote(parts.hostname or ""),
        "port": str(parts.port or ""),
        "dbname": unquote(parts.path[1:]),
    }
    connection = {**{word: value for word, value in named.items() if value}, **words}
    return Address("postgresql", _shown(parts, connection, schema), schema, connection=connection)


def _split(rest: str) -> SplitResult:
    """The parts of the URL. A password that is not encoded is refused before it is taken for a host."""
    parts = _parsed(rest)
    if parts is None or parts.fragment or rest.count("@") > min(1, parts.netloc.count("@")):
        raise _malformed()
    return parts


def _parsed(rest: str) -> SplitResult | None:
    try:
        parts = urlsplit(f"postgresql://{rest}")
        return parts if parts.port != 0 else None
    except ValueError:
        return None


def _words(query: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in query.split("&")] if query else []
    if not all(word.isidentifier() and equals for word, equals, _ in pairs):
        raise _malformed()
    return {word: unquote(value) for word, _, value in pairs}


def _malformed() -> UsageError:
    # The URL is not shown, since nobody can say which part of it is the password.
    return UsageError(
        "C13",
        "the database URL is not of the form postgresql://user:password@host:port/database?schema=name",
        "write @ as %40, / as %2F, ? as %3F, # as %23, [ as %5B and : as %3A in the user and the password",
    )


def _shown(parts: SplitResult, connection: Mapping[str, str], schema: str) -> str:
    user = quote(connection.get("user", ""), safe="")
    secret = ":***" if any(word in connection for word in SECRETS) else ""
    host = parts.netloc.rpartition("@")[2]
    at = "@" if user or secret else ""
    return f"postgresql://{user}{secret}{at}{host}{parts.path}?schema={quote(schema)}"
