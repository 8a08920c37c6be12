"""The catalogue of bad input: schema, keys and time. Each case is made for real and its message pinned.

T05 and T11 to T14 belong to tasks and are tested there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quartet.database import Database
from quartet.database.schema import Schema
from quartet.errors import DataError, QuartetError, SchemaError, TimeError, UsageError
from quartet.findings import Level
from quartet.tasks import Task, lint
from tests.tasks.small import CHURN, small_shop

Files = Mapping[str, "str | pa.Table"]


@dataclass(frozen=True)
class Case:
    """Files and a schema, and what is said of them: an error, a finding, or (if accepted) nothing."""

    code: str
    what: str
    files: Files
    schema: str = ""
    error: type[QuartetError] | None = None
    level: Level | None = None
    says: str = ""
    count: int = 0
    links: Mapping[str, list[int]] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.code} {self.what}"


def error(code: str, what: str, files: Files, schema: str, kind: type[QuartetError], says: str) -> Case:
    return Case(code, what, files, schema, error=kind, says=f"error[{code}] {says}")


def note(code: str, what: str, files: Files, schema: str, says: str, count: int = 0) -> Case:
    return Case(code, what, files, schema, level=Level.NOTE, says=f"note[{code}] {says}", count=count)


def warning(code: str, what: str, files: Files, schema: str, says: str, count: int = 0) -> Case:
    return Case(code, what, files, schema, level=Level.WARNING, says=f"warning[{code}] {says}", count=count)


def accepted(code: str, what: str, files: Files, schema: str, **links: list[int]) -> Case:
    """A case without a complaint; links are named `table__column`."""
    return Case(code, what, files, schema, links={k.replace("__", "."): v for k, v in links.items()})


CUSTOMERS = "id,name\n1,Ann\n2,Bob\n3,Cleo\n"
ORDERS = "id,customer_id,ts\n10,1,2024-01-01\n11,2,2024-01-02\n12,2,2024-01-03\n"
SHOP = {"customers.csv": CUSTOMERS, "orders.csv": ORDERS}


def orders(*times: str) -> Files:
    """Orders with these times, and their customers."""
    rows = [f"{10 + place},1,{text}" for place, text in enumerate(times)]
    return {"customers.csv": CUSTOMERS, "orders.csv": "\n".join(["id,customer_id,ts", *rows])}


def about_orders(words: str) -> str:
    return f"tables: {{orders: {{{words}}}}}"


TIMED = about_orders("time_col: ts")
LEFT_OUT = "or on_bad_time: drop for orders in the schema file leaves such rows out, counted"
CITIES = "country,city\nDE,Bonn\nFR,Bonn\n"
MISSING = orders("2024-01-01", "", "2024-01-02", "")
ODD_NAMES = ['say "hi"', "it's", "two words", "名前", "x" * 245, "'; DROP TABLE orders; --"]
MANIFEST = "tables: {order: {pkey: id}}"

CASES = [
    error("S01", "no tables", {"README.md": "nothing here"}, "", SchemaError,
          'no tables found in "{place}". Fix: give a folder of .parquet/.csv or a database URL'),
    error("S01", "file that is no table", {"orders.csv": ""}, "", SchemaError,
          "{place}/orders.csv cannot be read (Empty CSV file). Fix: repair the file"),
    warning("S02", "empty table", {**SHOP, "log.csv": "id,ts\n"}, "", 'table "log" has 0 rows; kept as an empty type'),
    error("S03", "repeated key", {"orders.csv": "id\n1007\n1044\n7\n1007\n1090\n1044\n1090\n1090\n8\n8\n"},
          about_orders("pkey: id"), SchemaError,
          'table "orders": primary key "id" has 4 repeated values (1007, 1044, 1090). '
          "Fix: deduplicate or choose another key"),
    error("S03", "link to a column that repeats",
          {"customers.csv": "id,mail\n1,a@x\n2,a@x\n", "orders.csv": "mail\na@x\n"},
          about_orders("fkeys: {mail: customers.mail}"), SchemaError,
          "orders.mail points to customers.mail, which has 1 repeated values (a@x). Fix: point to a unique column"),
    error("S04", "empty key", {"orders.csv": "id,x\n1,a\n,b\n3,c\n,d\n,e\n,f\n"}, about_orders("pkey: id"), SchemaError,
          'table "orders": primary key "id" is empty in 4 rows (rows 2, 4, 5). Fix: fill it in or choose another key'),
    warning("S05", "no key", {**SHOP, "log.csv": "text,value\nsame,1\nsame,1\n"}, "",
            'table "log" has no primary key; rows get content keys and cannot be prediction targets'),
    note("S05", "no key, as told", {**SHOP, "log.csv": "text,value\nsame,1\nsame,1\n"}, "tables: {log: {pkey: null}}",
         'table "log" has no primary key; rows get content keys and cannot be prediction targets'),
    accepted("S06", "composite key", {"cities.csv": CITIES, "shops.csv": "country,city\nFR,Bonn\n,Bonn\nDE,Bonn\n"},
             'tables: {cities: {pkey: [country, city]}, shops: {fkeys: {"country, city": cities}}}',
             **{"shops__country, city": [1, -1, 0]}),
    error("S06", "too few columns", {"cities.csv": CITIES, "shops.csv": "city\nBonn\n"},
          "tables: {cities: {pkey: [country, city]}, shops: {fkeys: {city: cities}}}", SchemaError,
          'shops.city: foreign key ("city") has 1 column, key of "cities" has 2. '
          "Fix: name as many columns as the key has"),
    warning("S07", "dangling links",
            {"customers.csv": "id\nC1\nC2\n", "orders.csv": "customer_id\nC77\nC1\nC91\nC2\nC77\n"},
            about_orders("fkeys: {customer_id: customers}"),
            'orders.customer_id: 3 of 5 values have no row in "customers" (C77, C91). '
            "Using: drop links (on_dangling: error to stop)", 3),
    error("S07", "dangling links not wanted",
          {"customers.csv": "id\nC1\nC2\n", "orders.csv": "customer_id\nC77\nC1\nC91\nC2\nC77\n"},
          "{on_dangling: error, tables: {orders: {fkeys: {customer_id: customers}}}}", SchemaError,
          'orders.customer_id: 3 of 5 values have no row in "customers" (C77, C91). '
          "Fix: repair the rows, or set on_dangling: drop"),
    error("S08", "text and number", {"customers.csv": CUSTOMERS, "orders.csv": "customer_id\nC1\n"},
          about_orders("fkeys: {customer_id: customers}"), SchemaError,
          "orders.customer_id is text, customers.id is int64. Fix: cast one"),
    error("S08", "fractions", {"orders.csv": "id\n1.5\n2.5\n3.0\n"}, about_orders("pkey: id"), SchemaError,
          "orders.id is a decimal column with 2 values that are not whole (1.5, 2.5) and cannot be a key. "
          "Fix: choose another column"),
    error("S09", "unknown table", SHOP, about_orders("fkeys: {customer_id: costumers}"), SchemaError,
          'orders.customer_id points to an unknown table "costumers" (did you mean "customers"?). '
          "Fix: correct the name in the schema file"),
    error("S09", "unknown column", SHOP, about_orders("fkeys: {customer_id: customers.idd}"), SchemaError,
          'orders.customer_id points to an unknown column "customers.idd" (did you mean "id"?). '
          "Fix: correct the name in the schema file"),
    error("S09", "unknown key column", SHOP, about_orders("fkeys: {costumer_id: customers}"), SchemaError,
          'table "orders" has no key column "costumer_id" (did you mean "customer_id"?). '
          "Fix: correct the name in the schema file"),
    error("S09", "table without a key", {"log.csv": "text\na\na\n", "orders.csv": "text\na\n"},
          about_orders("fkeys: {text: log}"), SchemaError,
          'orders.text points to table "log", which has no primary key. '
          'Fix: give log a pkey, or name the column: "log.column"'),
    error("S09", "schema of another database", SHOP, "tables: {order: {pkey: id}}", SchemaError,
          'the schema names a table "order" that is not in the database (did you mean "orders"?). '
          "Fix: correct the name"),
    error("S09", "manifest without its data",
          {"manifest.yaml": MANIFEST, "db/orders.parquet": pa.table({"id": [1]})}, "", SchemaError,
          '{place}/manifest.yaml declares a table "order", but db/order.parquet is not there '
          '(did you mean "orders"?). Fix: add the file, or take the table out of the manifest'),
    accepted("S10", "self reference", {"people.csv": "id,boss\n1,\n2,1\n3,2\n"},
             "tables: {people: {fkeys: {boss: people}}}", people__boss=[-1, 0, 1]),
    note("S10", "rows that point at themselves", {"people.csv": "id,boss\n1,1\n2,1\n3,3\n"},
         "tables: {people: {fkeys: {boss: people}}}",
         "people.boss: 2 rows point at themselves; these loops are dropped", 2),
    note("S11", "cycle", {"a.csv": "id,b\n1,1\n", "b.csv": "id,a\n1,1\n"},
         "tables: {a: {pkey: id, fkeys: {b: b}}, b: {pkey: id, fkeys: {a: a}}}", "cycle a -> b -> a"),
    accepted("S12", "two links to one table", {"teams.csv": "id\n1\n2\n", "games.csv": "home,away\n1,2\n2,1\n"},
             "tables: {games: {fkeys: {home: teams, away: teams}}}", games__home=[0, 1], games__away=[1, 0]),
    warning("S13", "no links", {"a.csv": "id\n1\n2\n", "b.csv": "name\nx\ny\n"}, "",
            "tables are not linked; a relational model needs at least one foreign key. "
            "Fix: declare links under fkeys in the schema file"),
    error("S15", "columns that differ by case", {"orders.csv": "Id,x,id\n1,2,3\n"}, "", SchemaError,
          'table "orders" has two columns named "Id"/"id". Fix: rename one'),
    error("S15", "two columns of one name", {"orders.csv": "id,x,id\n1,2,3\n"}, "", SchemaError,
          'table "orders" has two columns named "id"/"id". Fix: rename one'),
    error("S15", "tables that differ by case", {"Orders.csv": ORDERS, "orders.csv": ORDERS}, "", SchemaError,
          'two tables are named "Orders"/"orders". Fix: rename one'),
    error("S15", "two files for a table", {"orders.csv": ORDERS, "orders.tsv": ORDERS}, "", SchemaError,
          'two files give a table "orders": orders.csv and orders.tsv. Fix: remove one'),
    accepted("S16", "names with quotes, spaces, letters of the world, 245 letters and SQL",
             {f"{name}.parquet": pa.table({"id": [1, 2], f"{name} id": [2, 1]}) for name in ODD_NAMES}, ""),
    accepted("S17", "ids above 2^31 and 2^32",
             {"customers.csv": "id\n3000000000\n9000000000000000001\n9000000000000000002\n",
              "orders.csv": "customer_id\n9000000000000000002\n3000000000\n"},
             about_orders("fkeys: {customer_id: customers}"), orders__customer_id=[2, 0]),
    error("S18", "key that was a decimal",
          {"customers.parquet": pa.table({"id": [1.0, 9007199254740993.0]})},
          "tables: {customers: {pkey: id}}", SchemaError,
          "customers.id was read as decimal and lost digits near 9007199254740992. Fix: declare it int64 or text"),
    error("S18", "link that was a decimal",
          {"customers.csv": "id\n9007199254740993\n",
           "orders.parquet": pa.table({"customer_id": [9007199254740993.0, None]})},
          about_orders("fkeys: {customer_id: customers}"), SchemaError,
          "orders.customer_id was read as decimal and lost digits near 9007199254740992. "
          "Fix: declare it int64 or text"),
    note("S18", "digits that a number would lose", {"customers.csv": "id\n9007199254740993\n1.5\n007\n"}, "",
         "customers.id is kept as text: as a number it would lose digits or leading zeros"),
    error("T01", "no such time column", SHOP, about_orders("time_col: tss"), TimeError,
          'table "orders" has no time column "tss" (did you mean "ts"?). Fix: correct the name in the schema file'),
    error("T01", "availability without a time", SHOP, about_orders("time_col: null, available_at: ts"), TimeError,
          'table "orders" has available_at "ts" but no time column. Fix: give its time_col too'),
    error("T02", "no dates", orders("01/01/2024", "13/31/2024", "2024-01-01", "soon"), TIMED, TimeError,
          'orders.ts: 3 values are not dates ("01/01/2024" row 1, "13/31/2024" row 2, "soon" row 4). '
          "Fix: say time_format, such as '%d/%m/%Y'"),
    error("T02", "dates of another form", orders("01/02/2024", "13/31/2024"),
          about_orders("time_col: ts, time_format: '%d/%m/%Y'"), TimeError,
          "orders.ts: 1 value is not a date of the form '%d/%m/%Y' (\"13/31/2024\" row 2). "
          "Fix: correct time_format or the values"),
    error("T03", "empty times", MISSING, TIMED, TimeError,
          "orders.ts is empty in 2 rows. A row without a time cannot be placed before or after a prediction. "
          "Fix: on_missing_time: drop | never_visible"),
    warning("T03", "empty times, dropped", MISSING, about_orders("time_col: ts, on_missing_time: drop"),
            "orders.ts is empty in 2 rows; dropped", 2),
    warning("T03", "empty times, hidden", MISSING, about_orders("time_col: ts, on_missing_time: never_visible"),
            "orders.ts is empty in 2 rows; kept, and never visible", 2),
    error("T04", "mixed zones", orders("2024-01-01 10:00:00", "2024-01-01T10:00:00+02:00"), TIMED, TimeError,
          'orders.ts mixes zone-aware and zone-free values ("2024-01-01 10:00:00" row 1, '
          '"2024-01-01T10:00:00+0..." row 2). '
          'Fix: timezone: "Europe/Paris", if that is the zone of the zone-free values'),
    error("T04", "an hour that came twice", orders("2024-10-27 02:30:00"),
          about_orders("time_col: ts, timezone: Europe/Paris"), TimeError,
          "orders.ts: 1 local time of Europe/Paris happened twice, as the clocks went back "
          "(2024-10-27 02:30:00 row 1). "
          "Fix: store the column in UTC, or write such times with their offset (2024-10-27 02:30:00+02:00)"),
    error("T06", "a year that does not fit", orders("2024-01-01", "2024-01-02", "2500-01-01"), TIMED, TimeError,
          "orders.ts row 3: 2500-01-01 is outside the range this version stores, 1678 to 2261. "
          f"Fix: correct it, or leave it empty if it stands for no date; {LEFT_OUT}"),
    error("T07", "seconds", orders("1700000000", "1700000001"), TIMED, TimeError,
          "orders.ts holds numbers without a unit (1700000000 row 1, 1700000001 row 2). "
          "Fix: looks like seconds; say time_unit: s"),
    error("T07", "milliseconds", orders("1700000000000"), TIMED, TimeError,
          "orders.ts holds numbers without a unit (1700000000000 row 1). "
          "Fix: looks like milliseconds; say time_unit: ms"),
    error("T07", "nanoseconds", orders("1700000000000000000"), TIMED, TimeError,
          "orders.ts holds numbers without a unit (1700000000000000000 row 1). "
          "Fix: looks like nanoseconds; say time_unit: ns"),
    warning("T08", "the future", orders("2024-01-01", "2200-01-01", "2201-01-01"), TIMED,
            "orders.ts: 2 rows lie in the future of this machine", 2),
    warning("T09", "one time for all", orders("2024-01-01", "2024-01-01", "2024-01-01"), TIMED,
            "orders.ts: all 3 rows share one time; order is by key", 3),
    warning("T10", "no times", {"customers.csv": CUSTOMERS, "orders.csv": "id,customer_id\n1,1\n"}, "",
            "no table has a time column: temporal branch off; results are not time-safe. "
            "Fix: name a time_col in the schema file"),
]  # fmt: skip
ERRORS = [case for case in CASES if case.error is not None]
FINDINGS = [case for case in CASES if case.level is not None]
ACCEPTED = [case for case in CASES if case.error is None and case.level is None]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "data"


def write(case: Case, place: Path) -> Path | None:
    """Writes the files of a case, and gives its schema file if it has one."""
    for name, content in case.files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        else:
            pq.write_table(content, path)
    if not case.schema:
        return None
    schema = place.parent / "schema.yaml"
    schema.write_text(case.schema)
    return schema


def run_inspect(place: Path, schema: Path | None, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of `quartet inspect`."""
    from quartet.cli import main

    arguments = [str(place), *(["--schema", str(schema)] if schema else [])]
    monkeypatch.setattr("sys.argv", ["quartet", "inspect", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


def of(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.id)


@of(ERRORS)
def test_errors(case: Case, place: Path) -> None:
    schema = write(case, place)
    with pytest.raises(QuartetError) as caught:
        Database.load(place, schema)
    assert type(caught.value) is case.error
    assert (str(caught.value), caught.value.code) == (case.says.replace("{place}", str(place)), case.code)
    assert isinstance(caught.value, DataError)


@of(FINDINGS)
def test_findings(case: Case, place: Path) -> None:
    schema = write(case, place)
    findings = [f for f in Database.load(place, schema).findings if f.code == case.code]
    assert [(str(f), f.level, f.count) for f in findings] == [(case.says, case.level, case.count)]


@of(ACCEPTED)
def test_accepted(case: Case, place: Path) -> None:
    schema = write(case, place)
    database = Database.load(place, schema)
    assert {r.label: r.rows.tolist() for r in database.relations if r.label in case.links} == case.links
    assert not [f for f in database.findings if f.code == case.code]


@of([case for case in CASES if case.code in ("S03", "S10", "S16", "T03")])
def test_the_command_line_shows_the_same(
    case: Case, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_inspect(place, write(case, place), monkeypatch)
    out, err = capsys.readouterr()
    if case.error:
        assert (code, out, err) == (3, "", f"{case.says}\n")
    else:
        assert (code, err) == (0, "")
        assert case.says in " ".join(out.split())


def test_s01_a_source_that_is_not_there(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place.mkdir()
    message = (
        f'error[S01] there is nothing at "{place}a" (did you mean "{place}"?). Fix: give a folder of .parquet/.csv, '
        'a SQLite or DuckDB file, a database URL, a RelBench name, or "demo"'
    )
    with pytest.raises(UsageError) as caught:
        Database.load(f"{place}a")
    assert str(caught.value) == message
    assert run_inspect(Path(f"{place}a"), None, monkeypatch) == 2
    assert capsys.readouterr() == ("", f"{message}\n")


def test_s14_an_entity_without_links() -> None:
    shop = small_shop()
    unlinked = {name: replace(table, foreign_keys=()) for name, table in shop.schema.tables.items()}
    raw = {name: table.data for name, table in shop.tables.items()}
    task = Task.from_sql(Database.build(raw, Schema(unlinked)), **CHURN)
    assert [str(finding) for finding in lint(task) if finding.code == "S14"] == [
        "warning[S14] customers has no links: predictions will use its own columns only"
    ]
    assert "S14" not in {finding.code for finding in lint(Task.from_sql(shop, **CHURN))}


def test_every_code_of_the_catalogue_has_a_case() -> None:
    elsewhere = {"T05", "T11", "T12", "T13", "T14"}
    wanted = {f"S{number:02}" for number in range(1, 19)} | {f"T{number:02}" for number in range(1, 15)}
    assert {case.code for case in CASES} | {"S14"} == wanted - elsewhere
