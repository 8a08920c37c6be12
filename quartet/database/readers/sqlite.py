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
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from quartet.database.readers.address import Address
from quartet.database.readers.engine import (
    DeclaredTable,
    Engine,
    Link,
    QueryError,
    Tables,
    driver,
    driver_errors,
    literal,
    quote,
    reason_of,
    scale_of,
)
from quartet.errors import ResourceError
from quartet.findings import Finding, warning

_Form = Literal["integer", "real", "text", "blob"]
# How SQLite stores the values of a column: the first and the last of its storage classes in the
# order blob, integer, real, text; None if it holds no value.
_Held = tuple[_Form, _Form] | None

_BLANK: dict[_Form, str] = {"integer": "0", "real": "0.0", "text": "''", "blob": "x''"}
_NUMBERS: _Held = ("integer", "real")
_KINDS = ("table", "view", "virtual", "shadow")
_COLUMNS_AT_ONCE = 300  # SQLite gives at most 2,000 columns, and up to five are asked for each
_FIXES = {
    "locked": "wait for the program that writes to it, then run again",
    "readonly": "its last writer was interrupted; open it once with a program that may write, to repair it",
}


@contextmanager
def open_sqlite(address: Address) -> Iterator[Engine]:
    """Opens a file in one transaction that sees one state of it."""
    dbapi = driver("adbc_driver_sqlite.dbapi", "adbc-driver-sqlite")
    with _undisturbed(address.path.resolve()) as uri, closing(dbapi.connect(uri)) as connection:
        yield _SqliteEngine(connection, address.schema, address.location)


@contextmanager
def _undisturbed(path: Path) -> Iterator[str]:
    """Yields a URI by which reading changes nothing and leaves nothing beside the file.

    A file in write-ahead mode is the difficult one: SQLite makes `-wal` and `-shm` beside it as
    soon as it is read, unless they are there or the file is promised not to change.
    """
    wal, shm = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    with path.open("rb") as file:
        header = file.read(20)
    is_write_ahead = header[18:] == b"\x02\x02"
    page_size = {1: 65536}.get(size := int.from_bytes(header[16:18]), size)
    if page_size and path.stat().st_size % page_size:
        raise ResourceError(
            "R02", f'"{path}" cannot be read: it ends in the middle of a page', "check that the file is whole"
        )
    if not is_write_ahead or (wal.exists() and shm.exists()):
        yield f"{path.as_uri()}?mode=ro"
    elif wal.exists():
        with tempfile.TemporaryDirectory() as folder:
            for file_path in (path, wal):
                shutil.copy(file_path, folder)
            yield f"{(Path(folder) / path.name).as_uri()}?mode=ro"
    else:
        before = path.stat()
        yield f"{path.as_uri()}?mode=ro&immutable=1"
        after = path.stat()
        if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
            raise ResourceError("R02", f'"{path}" was written to while it was read', "run again")


class _SqliteEngine(Engine):
    def catalogue(self) -> tuple[Tables, list[Finding]]:
        self._check_schema(["main"])
        # A table that breaks its own constraints is still whole; a page that is lost would read as no rows.
        if self._rows("PRAGMA main.quick_check(1)")[0]["quick_check"].startswith("***"):
            raise QueryError("database disk image is malformed", "check that the file is whole")
        listed = self._rows(
            "SELECT name, type FROM pragma_table_list "
            "WHERE schema = 'main' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
        )
        names = {kind: [row["name"] for row in listed if row["type"] == kind] for kind in _KINDS}
        tables = {name: self._declared(name) for name in names["table"]}
        broken = []
        for name in names["view"] if self.reads_views else []:
            try:
                tables[name] = replace(self._declared(name), is_view=True)
            except QueryError as error:  # it shows what is no longer there
                text = f'view "{name}" cannot be read and is left out: {error.reason}'
                broken.append(warning("S19", name, text))
        findings = self._left_out("views", names["view"])
        findings += self._left_out("virtual tables", names["virtual"] + names["shadow"])
        return {name: _resolved(table, tables) for name, table in tables.items()}, findings + broken

    def _declared(self, name: str) -> DeclaredTable:
        columns = self._rows(
            "SELECT name, upper(type) AS type, pk "
            f"FROM pragma_table_xinfo({literal(name)}) WHERE hidden <> 1 ORDER BY cid"
        )
        keys = sorted((row["pk"], row["name"]) for row in columns if row["pk"])
        links: dict[int, Link] = {}
        for row in self._rows(f"SELECT * FROM pragma_foreign_key_list({literal(name)}) ORDER BY id, seq"):
            link = links.get(row["id"], Link((), "main", row["table"]))
            references = (row["to"],) if row["to"] is not None else ()
            links[row["id"]] = Link(
                (*link.columns, row["from"]), "main", link.table, (*link.references, *references)
            )
        return DeclaredTable(
            name,
            {row["name"]: row["type"] for row in columns},
            tuple(key for _, key in keys),
            tuple(links.values()),
        )

    def read(self, table: DeclaredTable, keys: frozenset[str]) -> tuple[pa.Table, list[Finding]]:
        asked = "min(typeof({0})) FILTER (WHERE {0} NOT NULL), max(typeof({0})) FILTER (WHERE {0} NOT NULL)"
        ends = self._statistics(table, list(table.columns), asked, 2)
        held = {name: None if first is None else (first, last) for name, (first, last) in ends.items()}
        mixed = self._mixed(table, held)
        forms: dict[str, _Form] = {
            name: "text" if name in mixed else _form(kind, held[name], name in keys)
            for name, kind in table.columns.items()
        }
        expressions = [_expression(name, form, held[name]) for name, form in forms.items()]
        # The row of blanks shows the driver the type of every column, even if rows of nulls follow.
        blanks = ", ".join(_BLANK[form] for form in forms.values())
        rows = self.query(
            f"SELECT 1, {blanks} UNION ALL SELECT 0, {', '.join(expressions)} FROM {quote(table.name)}"
        )
        rows = rows.filter(pc.equal(rows.column(0), 0)).remove_column(0)
        columns = [_as_declared(kind, rows.column(i)) for i, kind in enumerate(table.columns.values())]
        findings = []
        for name, counts in mixed.items():
            where = f"{table.name}.{name}"
            types = ", ".join(f"{count:,} {form}" for form, count in counts.items() if count)
            message = f"{where} holds values of several types ({types}); they are read as text"
            findings.append(warning("V11", where, message, sum(counts.values())))
        return pa.table(columns, names=list(forms)), findings

    def _mixed(self, table: DeclaredTable, held: Mapping[str, _Held]) -> dict[str, dict[_Form, int]]:
        """Returns how many values of each class there are, for the columns that only text can hold unharmed."""
        doubtful = [
            name
            for name, classes in held.items()
            if classes
            and classes[0] != classes[1]
            and not (classes == _NUMBERS and _is_decimal(table.columns[name]))
        ]
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
        """Returns the `width` answers to what is `asked` of each column."""
        answers = {}
        for start in range(0, len(columns), _COLUMNS_AT_ONCE):
            part = columns[start : start + _COLUMNS_AT_ONCE]
            row = self.query(
                f"SELECT {', '.join(asked.format(quote(name)) for name in part)} FROM {quote(table.name)}"
            )
            values = [column[0].as_py() for column in row.columns]
            answers.update({name: values[i * width : (i + 1) * width] for i, name in enumerate(part)})
        return answers

    def query(self, sql: str) -> pa.Table:
        with closing(self._connection.cursor()) as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": "65536"})
            try:
                cursor.execute(sql)
                return cursor.fetch_arrow_table()
            except driver_errors() as error:
                reason = reason_of(error)
                fixes = (fix for word, fix in _FIXES.items() if word in reason)
                raise QueryError(reason, next(fixes, "check that the file is whole")) from None


def _resolved(table: DeclaredTable, tables: Mapping[str, DeclaredTable]) -> DeclaredTable:
    """Returns the table with its links spelt as their targets are: SQLite does not tell A from a."""
    names = {name.lower(): name for name in tables}
    links = []
    for link in table.links:
        target = tables.get(names.get(link.table.lower(), ""))
        if target:
            spelt = {column.lower(): column for column in target.columns}
            references = tuple(spelt.get(name.lower(), name) for name in link.references)
            link = replace(link, table=target.name, references=references)
        links.append(link)
    return replace(table, links=tuple(links))


# The type as which a column is read


def _form(declared: str, held: _Held, is_key: bool) -> _Form:
    if held is not None:
        if held[1] in ("text", "blob") or not _is_decimal(declared):
            return held[1]
        is_whole = held[1] == "integer" and not scale_of(declared)
        return "real" if not is_key else "integer" if is_whole else "text"
    # A column without values is read by its declared type, as SQLite itself would guess.
    if "INT" in declared or declared.startswith("BOOL"):
        return "integer"
    if "BLOB" in declared:
        return "blob"
    if _is_decimal(declared) and is_key:
        return "text" if scale_of(declared) else "integer"
    is_number = _is_decimal(declared) or any(word in declared for word in ("REAL", "FLOA", "DOUB"))
    return "real" if is_number else "text"


def _is_decimal(declared: str) -> bool:
    return declared.startswith(("NUMERIC", "DECIMAL", "NUMBER"))


def _expression(name: str, form: _Form, held: _Held) -> str:
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


def _as_declared(declared: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns the column as truth values or times, if it was declared so and every value is one.

    ISO text becomes dates, times without a zone or times in UTC; any other text stays as it is.
    """
    if declared.startswith("BOOL") and pa.types.is_integer(column.type):
        ends = pc.min_max(column).as_py()
        is_truth = ends["min"] is None or (ends["min"] >= 0 and ends["max"] <= 1)
        return column.cast(pa.bool_()) if is_truth else column
    if not (pa.types.is_string(column.type) and declared.startswith(("DATE", "TIMESTAMP"))):
        return column
    zones = ["UTC", None] if declared.endswith(("TZ", "WITH TIME ZONE")) else [None, "UTC"]
    kinds = [pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in zones]
    for kind in [pa.date32(), *kinds] if declared == "DATE" else kinds:
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            continue
    return column
