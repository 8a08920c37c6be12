"""SQLite files, read through ADBC.

Any cell of an SQLite column may hold any type, and the driver settles the type of a column by its
first rows. So the database is asked first what each column holds, and every column is then
selected as one type.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from quartet.database.readers.engine import (
    Catalogue,
    Column,
    DeclaredTable,
    Link,
    QueryError,
    driver,
    driver_errors,
    left_out,
    literal,
    quote,
    reason_of,
    scale_of,
)
from quartet.errors import ResourceError, UsageError, did_you_mean
from quartet.findings import Finding, warning

Form = Literal["integer", "real", "text", "blob"]
# How SQLite stores the values of a column: the first and the last of its storage classes in the
# order blob, integer, real, text; nothing if it holds no value.
Held = tuple[Form, Form] | None

_BLANK: dict[Form, str] = {"integer": "0", "real": "0.0", "text": "''", "blob": "x''"}
_NUMBERS: Held = ("integer", "real")
_COLUMNS_AT_ONCE = 300  # SQLite gives at most 2,000 columns, and up to five are asked for each
_FIXES = {
    "locked": "wait for the program that writes to it, then run again",
    "readonly": "its last writer was interrupted; open it once with a program that may write, to repair it",
}


@contextmanager
def open_sqlite(path: Path, schema: str, location: str) -> Iterator[SqliteEngine]:
    """The open file, in one transaction that sees one state of it."""
    if schema != "main":
        raise UsageError(
            "C01", f'there is no schema "{schema}" in "{location}"' + did_you_mean(schema, ["main"])
        )
    dbapi = driver("adbc_driver_sqlite.dbapi", "adbc-driver-sqlite")
    with _undisturbed(path.resolve()) as uri, closing(dbapi.connect(uri)) as connection:
        yield SqliteEngine(connection)


@contextmanager
def _undisturbed(path: Path) -> Iterator[str]:
    """A URI by which reading changes nothing and leaves nothing beside the file.

    A file in write-ahead mode is the difficult one: SQLite makes `-wal` and `-shm` beside it as
    soon as it is read, unless they are there or the file is promised not to change.
    """
    wal, shm = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    if not _is_write_ahead(path) or (wal.exists() and shm.exists()):
        yield f"{path.as_uri()}?mode=ro"
    elif wal.exists():
        with tempfile.TemporaryDirectory() as folder:
            for file in (path, wal):
                shutil.copy(file, folder)
            yield f"{(Path(folder) / path.name).as_uri()}?mode=ro"
    else:
        before = path.stat()
        yield f"{path.as_uri()}?mode=ro&immutable=1"
        after = path.stat()
        if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
            raise ResourceError("R02", f'"{path}" was written to while it was read', "run again")


def _is_write_ahead(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(20)[18:] == b"\x02\x02"


class SqliteEngine:
    """An open SQLite file."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def catalogue(self) -> Catalogue:
        kinds = self._rows(
            "SELECT name, type FROM pragma_table_list "
            "WHERE schema = 'main' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        )
        tables = {row["name"]: self._declared(row["name"]) for row in kinds if row["type"] == "table"}
        names = {
            kind: sorted(row["name"] for row in kinds if row["type"] == kind)
            for kind in ("view", "virtual", "shadow")
        }
        findings = left_out("main", "views", names["view"])
        findings += left_out("main", "virtual tables", names["virtual"] + names["shadow"])
        return Catalogue("main", {name: _resolved(table, tables) for name, table in tables.items()}, findings)

    def _declared(self, name: str) -> DeclaredTable:
        columns = self._rows(
            "SELECT name, upper(type) AS type, pk "
            f"FROM pragma_table_xinfo({literal(name)}) WHERE hidden <> 1 ORDER BY cid"
        )
        keys = sorted((row["pk"], row["name"]) for row in columns if row["pk"])
        links: dict[int, list[dict[str, Any]]] = {}
        for row in self._rows(f"SELECT * FROM pragma_foreign_key_list({literal(name)}) ORDER BY id, seq"):
            links.setdefault(row["id"], []).append(row)
        return DeclaredTable(
            name,
            tuple(Column(row["name"], row["type"]) for row in columns),
            tuple(key for _, key in keys),
            tuple(_link(rows) for rows in links.values()),
        )

    def read(self, table: DeclaredTable, keys: frozenset[str]) -> tuple[pa.Table, list[Finding]]:
        held = self._held(table)
        mixed = self._mixed(table, held)
        forms: dict[str, Form] = {
            c.name: "text" if c.name in mixed else _form(c, held[c.name], c.name in keys)
            for c in table.columns
        }
        expressions = [_expression(name, form, held[name]) for name, form in forms.items()]
        # The row of blanks shows the driver the type of every column, even if rows of nulls follow.
        blanks = ", ".join(_BLANK[form] for form in forms.values())
        rows = self.query(
            f"SELECT 1, {blanks} UNION ALL SELECT 0, {', '.join(expressions)} FROM {quote(table.name)}"
        )
        rows = rows.filter(pc.equal(rows.column(0), 0)).remove_column(0)
        columns = [_as_declared(c, rows.column(i)) for i, c in enumerate(table.columns)]
        findings = [_mixed_finding(f"{table.name}.{name}", counts) for name, counts in mixed.items()]
        return pa.table(columns, names=list(forms)), findings

    def _held(self, table: DeclaredTable) -> dict[str, Held]:
        asked = "min(typeof({0})) FILTER (WHERE {0} NOT NULL), max(typeof({0})) FILTER (WHERE {0} NOT NULL)"
        found = self._statistics(table, [c.name for c in table.columns], asked, 2)
        return {name: None if first is None else (first, last) for name, (first, last) in found.items()}

    def _mixed(self, table: DeclaredTable, held: Mapping[str, Held]) -> dict[str, dict[Form, int]]:
        """How many values of each class there are, for the columns that only text can hold unharmed."""
        several = [c for c in table.columns if (classes := held[c.name]) and classes[0] != classes[1]]
        doubtful = [c.name for c in several if held[c.name] != _NUMBERS or not _is_decimal(c)]
        asked = ", ".join(f"sum(typeof({{0}}) = '{form}')" for form in _BLANK)
        # Beyond 2^53 a whole number is not always a float.
        asked += ", sum(typeof({0}) = 'integer' AND {0} NOT BETWEEN -9007199254740992 AND 9007199254740992)"
        return {
            name: dict(zip(_BLANK, counts, strict=True))
            for name, (*counts, large) in self._statistics(table, doubtful, asked, 5).items()
            if held[name] != _NUMBERS or large
        }

    def _statistics(
        self, table: DeclaredTable, columns: list[str], asked: str, width: int
    ) -> dict[str, list[Any]]:
        """The `width` answers to what is `asked` of each column."""
        found = {}
        for start in range(0, len(columns), _COLUMNS_AT_ONCE):
            part = columns[start : start + _COLUMNS_AT_ONCE]
            row = self.query(
                f"SELECT {', '.join(asked.format(quote(name)) for name in part)} FROM {quote(table.name)}"
            )
            values = [column[0].as_py() for column in row.columns]
            found.update({name: values[i * width : (i + 1) * width] for i, name in enumerate(part)})
        return found

    def _rows(self, sql: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.query(sql).to_pylist()
        return rows

    def query(self, sql: str) -> pa.Table:
        with closing(self._connection.cursor()) as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": "65536"})
            try:
                cursor.execute(sql)
                return cursor.fetch_arrow_table()
            except driver_errors() as error:
                reason = reason_of(error)
                fix = next(
                    (fix for word, fix in _FIXES.items() if word in reason), "check that the file is whole"
                )
                raise QueryError(reason, fix) from None


def _link(rows: list[dict[str, Any]]) -> Link:
    references = tuple(row["to"] for row in rows if row["to"] is not None)
    return Link(tuple(row["from"] for row in rows), "main", rows[0]["table"], references)


def _resolved(table: DeclaredTable, tables: Mapping[str, DeclaredTable]) -> DeclaredTable:
    """The table with its links spelt as their targets are: SQLite does not tell A from a."""
    names = {name.lower(): name for name in tables}
    links = []
    for link in table.links:
        target = tables.get(names.get(link.table.lower(), ""))
        if target:
            spelt = {column.name.lower(): column.name for column in target.columns}
            references = tuple(spelt.get(name.lower(), name) for name in link.references)
            link = Link(link.columns, link.schema, target.name, references)
        links.append(link)
    return DeclaredTable(table.name, table.columns, table.primary_key, tuple(links))


def _mixed_finding(where: str, counts: Mapping[Form, int]) -> Finding:
    types = ", ".join(f"{count:,} {form}" for form, count in counts.items() if count)
    message = f"{where} holds values of several types ({types}); they are read as text"
    return warning("V11", where, message, sum(counts.values()))


# Which type a column is read as


def _form(column: Column, held: Held, is_key: bool) -> Form:
    if held is None:
        return _declared_form(column, is_key)
    if held[1] in ("text", "blob") or not _is_decimal(column):
        return held[1]
    if not is_key:
        return "real"
    return "integer" if held[1] == "integer" and not scale_of(column.type) else "text"


def _declared_form(column: Column, is_key: bool) -> Form:
    """The form of a column without values: by its declared type, as SQLite itself would guess."""
    if "INT" in column.type or column.type.startswith("BOOL"):
        return "integer"
    if "BLOB" in column.type:
        return "blob"
    if _is_decimal(column) and is_key:
        return "text" if scale_of(column.type) else "integer"
    is_number = _is_decimal(column) or any(word in column.type for word in ("REAL", "FLOA", "DOUB"))
    return "real" if is_number else "text"


def _is_decimal(column: Column) -> bool:
    return column.type.startswith(("NUMERIC", "DECIMAL", "NUMBER"))


def _expression(name: str, form: Form, held: Held) -> str:
    column = quote(name)
    if form == "real":
        return f"CAST({column} AS REAL)"
    if form != "text" or held == ("text", "text"):
        return column
    text = f"CAST({column} AS TEXT)"
    # Older SQLite writes a real with 15 digits; where that is another number, 17 are needed.
    real = f"CASE WHEN CAST({text} AS REAL) = {column} THEN {text} ELSE printf('%!.17g', {column}) END"
    return (
        f"CASE typeof({column}) WHEN 'real' THEN {real} WHEN 'blob' THEN '0x' || hex({column}) "
        f"ELSE {text} END"
    )


def _as_declared(declared: Column, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column as truth values or times, if it was declared so and every value is one."""
    if declared.type.startswith("BOOL") and pa.types.is_integer(column.type):
        ends = pc.min_max(column).as_py()
        is_truth = ends["min"] is None or (ends["min"] >= 0 and ends["max"] <= 1)
        return column.cast(pa.bool_()) if is_truth else column
    if pa.types.is_string(column.type) and declared.type.startswith(("DATE", "TIMESTAMP")):
        return _times(declared, column)
    return column


def _times(declared: Column, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """ISO text as dates, as times without a zone or as times in UTC; any other text as it is."""
    zones = ["UTC", None] if declared.type.endswith(("TZ", "WITH TIME ZONE")) else [None, "UTC"]
    kinds = [pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in zones]
    for kind in [pa.date32(), *kinds] if declared.type == "DATE" else kinds:
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            continue
    return column
