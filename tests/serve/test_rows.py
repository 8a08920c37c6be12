"""Rows that are added: read as a reader would, seen at once, equal bit for bit to a database that always had them."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.database import Database, rows_as_read
from quartet.errors import IntegrityError, QuartetError, ResourceError, SchemaError
from quartet.listener import Listener
from quartet.runs import LiveModel, TrainedModel, fit
from quartet.serve import Journal
from tests.serve.small import AT, Client, process, running, service_of, shop
from tests.strategies import examples
from tests.tasks.small import CHURN
from tests.trained import SHOP_SCHEMA, TREES, Heard, opened, shop_tables, write_shop

pytestmark = pytest.mark.usefixtures("one_thread")

KEYS = [f"C{n:02d}" for n in range(0, 40, 7)]
TIMES = (
    "2023-02-01",
    "2023-08-31",
    "2023-09-01",
    "2023-09-20T10:00:00",
    "2023-10-27",
    "2023-10-28",
    "2024-02-01",
)


@st.composite
def additions(draw: st.DrawFn) -> list[tuple[str, list[dict[str, Any]]]]:
    """Some requests: customers that may be new, orders in the past, now and later, also of customers still to come."""
    customers = [f"N{n}" for n in range(3)]
    new = draw(st.permutations(customers))
    requests, number = [], 10_000
    for _ in range(draw(st.integers(1, 3))):
        if new and draw(st.booleans()):
            key = new.pop()
            city = draw(st.sampled_from(["Bonn", "Atlantis", "", None]))
            row = {
                "customer": key,
                "age": draw(st.none() | st.integers(18, 80)),
                "city": city,
                "full_name": f"New {key}",
            }
            requests.append(("customers", [row]))
            continue
        rows = []
        for _ in range(draw(st.integers(1, 3))):
            number += 1
            buyer = draw(st.sampled_from([*KEYS[:2], *customers, "nobody", None]))
            amount = draw(st.none() | st.floats(-1e6, 1e6, allow_nan=False))
            rows.append(
                {"order": number, "customer": buyer, "bought": draw(st.sampled_from(TIMES)), "amount": amount}
            )
        requests.append(("orders", rows))
    return requests


def grown_tables(requests: list[tuple[str, list[dict[str, Any]]]]) -> dict[str, pa.Table]:
    """The shop as a source would hold it after all requests: a plain twin of `rows_as_read`."""
    tables = shop_tables()
    for name, rows in requests:
        kinds = tables[name].schema
        columns = {
            field.name: [
                None if row.get(field.name) is None
                else np.datetime64(row[field.name], "ns") if field.name == "bought" else row[field.name]
                for row in rows
            ]
            for field in kinds
        }  # fmt: skip
        more = pa.table({n: pa.array(cells, kinds.field(n).type) for n, cells in columns.items()})
        tables[name] = pa.concat_tables([tables[name], more])
    return tables


def answers(live: LiveModel, keys: list[str]) -> list[dict[str, Any]]:
    """All that a model says of entities at some times, as texts that differ if a bit does."""
    told = []
    for at in ("2023-08-31T12:00:00", "2023-10-28"):
        table = live.predict(keys, at, Listener()).to_arrow()
        told += [{name: repr(cell) for name, cell in row.items()} for row in table.to_pylist()]
    return told


@pytest.fixture(scope="module")
def live(model: TrainedModel) -> LiveModel:
    bound = model.on(shop(), listener=Listener())
    answers(bound, KEYS)
    return bound


@pytest.fixture(scope="module")
def past_label_model(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    folder = tmp_path_factory.mktemp("past")
    recipe = TREES.changed(past_labels=True)
    return fit(shop().task(CHURN), recipe=recipe, runs=folder, cache=folder / "cache", listener=Heard())


@examples(12)
@given(additions())
def test_a_grown_model_answers_as_a_fresh_one(
    live: LiveModel, model: TrainedModel, requests: list[tuple[str, list[dict[str, Any]]]]
) -> None:
    grown, keys = live, list(KEYS)
    for name, rows in requests:
        grown = grown.grown({name: rows_as_read(grown.database[name], rows)})
        keys += [row["customer"] for row in rows if name == "customers"]
        answers(grown, keys[:1])  # what it keeps from one binding to the next is there to be wrong
    fresh = model.on(opened(grown_tables(requests)), listener=Listener())
    assert grown.database.fingerprint == fresh.database.fingerprint
    for mine, other in zip(grown.database.relations, fresh.database.relations, strict=True):
        np.testing.assert_array_equal(mine.rows, other.rows)
    for mine, other in zip(grown.views[0].graph.arrays, fresh.views[0].graph.arrays, strict=True):
        np.testing.assert_array_equal(mine, other)
    for name, table in fresh.views[0].features.tables.items():
        for part in ("numbers", "categories", "calendar", "texts", "vectors"):
            own = getattr(grown.views[0].features.tables[name], part)
            np.testing.assert_equal(own, getattr(table, part))
    assert answers(grown, keys) == answers(fresh, keys)


@examples(3)
@given(additions())
def test_a_grown_model_with_past_labels_answers_as_a_fresh_one(
    past_label_model: TrainedModel, requests: list[tuple[str, list[dict[str, Any]]]]
) -> None:
    grown = past_label_model.on(shop(), listener=Listener())
    answers(grown, KEYS[:1])
    for name, rows in requests:
        grown = grown.grown({name: rows_as_read(grown.database[name], rows)})
        answers(grown, KEYS[:1])
    fresh = past_label_model.on(opened(grown_tables(requests)), listener=Listener())
    assert answers(grown, KEYS) == answers(fresh, KEYS)


def test_a_model_that_others_have_grown_from_goes_on_as_it_was(live: LiveModel, model: TrainedModel) -> None:
    rows = [{"order": 10_000, "customer": "C00", "bought": "2023-02-01", "amount": 5.0}]
    before = answers(live, KEYS)
    assert answers(live.grown({"orders": rows_as_read(live.database["orders"], rows)}), KEYS) != before
    assert answers(live, KEYS) == before == answers(model.on(shop(), listener=Listener()), KEYS)


LINES = {
    "orders": {"pkey": "order", "time_col": "bought", "fkeys": {}},
    "lines": {
        "pkey": "line",
        "time_from": "order",
        "fkeys": {"order": "orders"},
        "on_missing_time": "never_visible",
    },
}


@pytest.mark.parametrize("written", ["stamp", "text", "zone", "number", "day"])
def test_times_are_read_as_the_source_writes_them(written: str) -> None:
    """A line takes its time from its order, which may come after it."""
    told: dict[str, Any] = {"pkey": "order", "time_col": "bought", "fkeys": {}}
    first: list[Any] = ["2023-01-05T10:00:00"]
    second: list[Any] = ["2023-02-05T11:00:00"]
    cells, unit = pa.array(np.array(first, "datetime64[us]")), "us"
    if written == "text":
        first, second, told["time_format"] = ["05/01/2023"], ["05/02/2023"], "%d/%m/%Y"
        cells = pa.array(first)
    elif written == "zone":
        told["timezone"] = "Europe/Paris"
    elif written == "number":
        told["time_unit"], first, second = "s", [1_672_000_000], [1_675_000_000]
        cells = pa.array(first)
    elif written == "day":
        told["known_at"], first, second = "end of period", ["2023-01-05"], ["2023-02-05"]
        cells, unit = pa.array(np.array(first, "datetime64[D]")), "D"

    def database(orders: pa.Array, lines: pa.Table) -> Database:
        schema = {"name": "lines", "tables": {**LINES, "orders": told}}
        table = pa.table({"order": np.arange(len(orders)), "bought": orders})
        return Database.load({"orders": table, "lines": lines}, schema)

    lines = pa.table({"line": [1, 2], "order": [0, 1], "weight": [0.5, 1.5]})
    before = database(cells, lines)
    grown = before.appended({"orders": rows_as_read(before["orders"], [{"order": 1, "bought": second[0]}])})
    more: Any = second if written in ("text", "number") else np.array(second, f"datetime64[{unit}]")
    fresh = database(pa.concat_arrays([cells, pa.array(more)]), lines)
    for name in fresh.tables:
        np.testing.assert_array_equal(grown[name].known_at, fresh[name].known_at)
    assert grown.fingerprint == fresh.fingerprint
    assert grown.relations[0].rows.tolist() == [0, 1]


def test_tables_made_from_values_are_made_again() -> None:
    def database(visits: list[tuple[int, str, str]]) -> Database:
        columns = list(zip(*visits, strict=True))
        seen = pa.array(np.array(columns[2], "datetime64[us]"))
        table = pa.table({"visit": columns[0], "home": columns[1], "seen": seen})
        schema = {
            "tables": {"visits": {"pkey": "visit", "time_col": "seen", "fkeys": {}}},
            "entities": {"homes": "home"},
        }
        return Database.load({"visits": table}, schema)

    old = [(0, "b", "2023-01-02"), (1, "a", "2023-01-03"), (2, "b", "2023-01-04")]
    new = [(3, "c", "2023-01-01"), (4, "d", "2023-02-01")]
    rows = [{"visit": visit, "home": home, "seen": seen} for visit, home, seen in new]
    before = database(old)
    grown = before.appended({"visits": rows_as_read(before["visits"], rows)})
    assert grown.fingerprint == database(old + new).fingerprint
    with pytest.raises(SchemaError, match="S22"):
        rows_as_read(before["homes"], [{"home": "e"}])


@pytest.mark.parametrize(
    ("kind", "cell", "expected"),
    [
        (pa.float64(), 2**53 + 1, float(2**53)), (pa.float64(), -(2**63), -(2.0**63)), (pa.float32(), 2**62, 2.0**62),
        (pa.list_(pa.float64()), [2**60 + 1, None], [2.0**60, None]), (pa.list_(pa.int8()), [-128, 127], [-128, 127]),
        (pa.list_(pa.int8()), [128], None), (pa.list_(pa.int32()), [2**31], None), (pa.int64(), 2**63 - 1, 2**63 - 1),
    ],
)  # fmt: skip
def test_numbers_are_those_that_their_column_can_hold(kind: pa.DataType, cell: Any, expected: Any) -> None:
    """A whole number that decimals lack is the nearest; one that is too large is an error, not a failure inside."""
    table = pa.table({"key": [1], "cell": pa.nulls(1, kind)})
    links = pa.table({"link": [1], "key": [1]})
    schema = {"tables": {"cells": {"pkey": "key"}, "links": {"pkey": "link", "fkeys": {"key": "cells"}}}}
    database = Database.load({"cells": table, "links": links}, schema)
    if expected is None:
        with pytest.raises(SchemaError, match="V06"):
            rows_as_read(database["cells"], [{"key": 2, "cell": cell}])
    else:
        assert rows_as_read(database["cells"], [{"key": 2, "cell": cell}])["cell"].to_pylist() == [expected]


@pytest.mark.parametrize(
    ("table", "row", "code"),
    [
        ("orders", {"order": 0, "customer": "C00", "bought": AT}, "S03"),
        ("orders", {"customer": "C00", "bought": AT}, "S04"),
        ("orders", {"order": 10**6, "customer": "C00"}, "T03"),
        ("orders", {"order": 10**6, "bought": "soon"}, "T02"),
        ("orders", {"order": 10**6, "bought": "2023-02-30"}, "T02"),
        ("orders", {"order": 10**6, "bought": "1500-01-01"}, "T06"),
        ("orders", {"order": 10**6, "bought": 5}, "V06"),
        ("orders", {"order": "7", "bought": AT}, "V06"),
        ("orders", {"order": 2**63, "bought": AT}, "V06"),
        ("orders", {"order": True, "bought": AT}, "V06"),
        ("orders", {"order": 1.5, "bought": AT}, "V06"),
        ("orders", {"order": 10**6, "bought": AT, "amount": "much"}, "V06"),
        ("orders", {"order": 10**6, "bought": AT, "amount": 10**400}, "V06"),
        ("orders", {"order": 10**6, "bought": AT, "customer": ["C00"]}, "V06"),
        ("orders", {"order": 10**6, "bought": AT, "colour": "red"}, "V05"),
        ("order", {"order": 10**6, "bought": AT}, "S09"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_read_change_nothing(
    client: Client, table: str, row: dict[str, Any], code: str
) -> None:
    before = client.ask("/model").json
    good = {"order": 10**7, "customer": "C00", "bought": AT}
    answer = client.ask("/rows", {"table": table, "rows": [row] if table == "order" else [good, row]})
    assert (answer.status, answer.json["error"]["code"]) == (422, code)
    assert client.ask("/model").json == before


def test_rows_count_at_once_and_what_is_odd_is_counted(client: Client, model: TrainedModel) -> None:
    rows = [
        {"order": 20_000, "customer": "C05", "bought": "2023-08-30", "amount": 12.5},
        {"order": 20_001, "customer": "ghost", "bought": "2023-08-30"},
    ]
    at_first = client.ask("/model").json["version"]
    told = client.ask("/rows", {"table": "orders", "rows": rows}).json
    assert (told["rows"], told["version"]) == (2, at_first + 1)
    assert [each["code"] for each in told["findings"]] == ["S07"]
    answer = client.ask("/predict", {"entities": ["C05"], "at": AT}).json
    fresh = model.on(opened(grown_tables([("orders", rows)])), listener=Listener())
    assert repr(answer["predictions"][0]["score"]) == repr(
        fresh.predict(["C05"], AT).to_arrow()["score"][0].as_py()
    )
    assert (
        client.ask("/rows", {"table": "customers", "rows": [{"customer": "ghost", "city": "Rome"}]}).status
        == 200
    )
    assert client.ask("/predict", {"entities": ["ghost"], "at": AT}).status == 200


def test_kill_loses_nothing_that_was_acknowledged(model: TrainedModel, tmp_path: Path) -> None:
    """A real process is killed while requests are on the way; the next one knows all rows it has acknowledged."""
    source, journal, acknowledged = write_shop(tmp_path / "shop"), tmp_path / "rows.journal", []
    with process(model.folder, source, journal) as (child, client, _):

        def send() -> None:
            for number in range(30_000, 40_000):
                row = {"order": number, "customer": "C05", "bought": "2023-08-30", "amount": 1.0}
                try:
                    if client.ask("/rows", {"table": "orders", "rows": [row]}).status == 200:
                        acknowledged.append(number)
                except OSError:
                    return

        sender = threading.Thread(target=send)
        sender.start()
        while len(acknowledged) < 5:
            assert sender.is_alive()
        child.send_signal(signal.SIGKILL)
        sender.join()
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'00000000 {"table":"orders","rows":[{"ord')  # as if it had been cut short
    with process(model.folder, source, journal) as (child, client, _):
        told = client.ask("/model").json
        assert told["rows_added"] in (len(acknowledged), len(acknowledged) + 1)
        again = {"order": acknowledged[-1], "customer": "C05", "bought": "2023-08-30"}
        assert client.ask("/rows", {"table": "orders", "rows": [again]}).json["error"]["code"] == "S03"
        rows = [json.loads(line.partition(b" ")[2])["rows"] for line in whole.splitlines()[1:]]
        fresh = model.on(opened(grown_tables([("orders", each) for each in rows])), listener=Listener())
        score = client.ask("/predict", {"entities": ["C05"], "at": AT}).json["predictions"][0]["score"]
        assert repr(score) == repr(fresh.predict(["C05"], AT).to_arrow()["score"][0].as_py())
        child.send_signal(signal.SIGTERM)  # and it ends in order
        assert child.wait(30) == 0
    assert journal.read_bytes() == whole


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "rows.journal"
    journal = Journal(path)
    given_rows = [("a", [{"x": 1, "é": "\u2028"}]), ("b", [{"y": None}, {"y": 0.1}])]
    for table, rows in given_rows:
        journal.add(table, rows)
    with pytest.raises(ResourceError, match="C08"):
        Journal(path)
    journal.close()
    whole = path.read_bytes()
    assert path.stat().st_mode & 0o077 == 0
    for cut in range(len(whole) + 1):  # wherever a crash may have cut it
        path.write_bytes(whole[:cut])
        journal = Journal(path)
        kept = whole[:cut].count(b"\n")
        assert list(journal.entries()) == given_rows[: max(0, kept - 1)]
        journal.close()
        assert path.read_bytes() == whole[: whole[:cut].rfind(b"\n") + 1] or kept == 0
    path.write_bytes(whole.replace(b'"x":1', b'"x":2'))
    with pytest.raises(IntegrityError, match="C06"):
        Journal(path)


@pytest.mark.parametrize("text", ["hello\n", "no line break", "two\nlines\n", "00000000 {}\n", "\n", "1"])
def test_a_file_that_is_no_journal_stays_as_it_is(tmp_path: Path, text: str) -> None:
    """Nothing of it is taken for a line that was cut short."""
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(IntegrityError, match="C10"):
        Journal(path)
    assert path.read_text() == text


def test_a_source_that_has_grown_is_read_again(model: TrainedModel, tmp_path: Path) -> None:
    """With rows of its own, one of which had come through the service before."""
    source = write_shop(tmp_path / "shop")
    service = service_of(model, tmp_path / "j", read=lambda: model.record.open(source))
    with running(service, watch=(str(source), 0.05)) as client:
        rows = [
            {"order": n, "customer": "C05", "bought": "2023-08-30", "amount": 1.0} for n in (50_000, 50_001)
        ]
        assert client.ask("/rows", {"table": "orders", "rows": rows[:1]}).status == 200
        (source / "orders.parquet").write_bytes(b"half of a file")
        while not service.num_watch_errors:
            pass
        assert client.ask("/predict", {"entities": ["C05"], "at": AT}).status == 200
        pq.write_table(grown_tables([("orders", rows)])["orders"], tmp_path / "orders.parquet")
        (tmp_path / "orders.parquet").replace(source / "orders.parquet")
        while service.bound.version < 2:
            pass
        told = client.ask("/model").json
        assert (told["rows_added"], told["tables"]["orders"]["rows"]) == (0, len(shop()["orders"].data) + 2)
        score = client.ask("/predict", {"entities": ["C05"], "at": AT}).json["predictions"][0]["score"]
    fresh = model.on(opened(grown_tables([("orders", rows)]), SHOP_SCHEMA), listener=Listener())
    assert repr(score) == repr(fresh.predict(["C05"], AT).to_arrow()["score"][0].as_py())


def test_without_a_journal_no_rows_are_taken(model: TrainedModel) -> None:
    with pytest.raises(QuartetError, match="H13"):
        service_of(model).add("orders", [{"order": 1}])
