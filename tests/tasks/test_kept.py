"""Kept labels are those that would be made: bit for bit, whatever has happened to the data in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.database import Database, exact_rows
from quartet.errors import TaskError
from quartet.machine import Store, store_findings
from quartet.tasks import Splits, TaskSpec
from quartet.tasks.kept import KeptAnswers
from quartet.tasks.labels import closed_labels, forecast_labels
from quartet.tasks.past_labels import derived_labels
from quartet.tasks.population import population_at
from quartet.tasks.sandbox import TaskTables
from quartet.tasks.spec import spec_from_dict
from tests.shop import DAY
from tests.strategies import examples
from tests.tasks.small import CHURN, START, small_shop

SPENT = CHURN | {
    "task_type": "regression",
    "target_col": "spent",
    "sql": """
        SELECT t.timestamp, o.customer AS customer, SUM(o.amount) AS spent, FIRST(o."order") AS one
        FROM timestamps t JOIN orders o ON o.bought <= t.timestamp + INTERVAL '{timedelta}'
        GROUP BY t.timestamp, o.customer
    """,
}
SPLITS = Splits(START + 200 * DAY, START + 230 * DAY)
TIMES = START + DAY * np.arange(20, 260, 40)


def spec_of(words: dict[str, Any]) -> TaskSpec:
    return spec_from_dict({"kind": "forecast", **words}, "test")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The times of each query that reaches SQL."""
    times: list[list[int]] = []
    query = TaskTables.query

    def counted(self: TaskTables, sql: str, at: Any, *others: Any, **more: Any) -> pa.Table:
        times.append(at.tolist())
        return query(self, sql, at, *others, **more)

    monkeypatch.setattr(TaskTables, "query", counted)
    return times


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("QUARTET_CACHE", str(tmp_path))
    return tmp_path


def again(database: Database, orders: pa.Table | None = None) -> Database:
    """The same database as another process would read it, or with other orders."""
    tables = {name: table.data for name, table in database.tables.items()}
    return Database.build(tables | ({} if orders is None else {"orders": orders}), database.schema)


def made(spec: TaskSpec, database: Database, monkeypatch: pytest.MonkeyPatch) -> pa.Table:
    """Labels made from nothing."""
    with monkeypatch.context() as patch:
        patch.setenv("QUARTET_CACHE", "off")
        return closed_labels(spec, again(database), TIMES)


Change = Callable[[pa.Table, np.random.Generator], pa.Table]


def _new_rows(orders: pa.Table, days: np.ndarray[Any, Any]) -> pa.Table:
    count = len(days)
    columns = {
        "order": pa.array(orders["order"].to_numpy().max() + 1 + np.arange(count)),
        "customer": pa.array([f"C{k % 40:02d}" for k in range(count)]),
        "bought": pa.array(START + DAY * days, pa.timestamp("ns")),
        "amount": pa.array(np.arange(count) + 0.25),
    }
    return pa.concat_tables([orders, pa.table(columns)])


def later(orders: pa.Table, rng: np.random.Generator) -> pa.Table:
    return _new_rows(orders, rng.integers(250, 300, 5))


def late(orders: pa.Table, rng: np.random.Generator) -> pa.Table:
    return _new_rows(orders, rng.integers(0, 250, 2))


def changed(orders: pa.Table, rng: np.random.Generator) -> pa.Table:
    name = rng.choice(["amount", "customer", "bought"])
    cells, row = orders[str(name)].to_pylist(), int(rng.integers(orders.num_rows))
    cells[row] = next(cell for cell in cells if cell != cells[row])
    place = orders.column_names.index(str(name))
    return orders.set_column(place, str(name), pa.chunked_array([pa.array(cells, orders[str(name)].type)]))


def removed(orders: pa.Table, rng: np.random.Generator) -> pa.Table:
    return orders.filter(pa.array(np.arange(orders.num_rows) != rng.integers(orders.num_rows)))


def shuffled(orders: pa.Table, rng: np.random.Generator) -> pa.Table:
    return orders.take(pa.array(rng.permutation(orders.num_rows)))


CHANGES: tuple[Change, ...] = (later, late, changed, removed, shuffled)


@given(
    st.sampled_from([CHURN, SPENT]),
    st.lists(st.sampled_from(CHANGES), min_size=1, max_size=2),
    st.integers(0, 2**32),
)
@examples(6)
def test_kept_labels_are_those_made_from_nothing(
    tmp_path_factory: pytest.TempPathFactory, words: dict[str, Any], changes: list[Change], rng_seed: int
) -> None:
    """After each change of the data: new rows, late rows, other cells, rows that are gone, another order of rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUARTET_CACHE", str(tmp_path_factory.mktemp("cache")))
        spec, rng, database = spec_of(words), np.random.default_rng(rng_seed), small_shop()
        closed_labels(spec, database, TIMES)
        for change in changes:
            database = again(database, change(database["orders"].data, rng))
            expected = made(spec, database, patch)
            assert closed_labels(spec, again(database), TIMES).equals(expected)  # what is new is made
            assert closed_labels(spec, again(database), TIMES).equals(expected)  # all is found
            if change is later:  # a label that is shown early would be one of the whole database
                assert closed_labels(spec, again(database), TIMES[:3]).equals(
                    expected.filter(
                        pa.array(expected["timestamp"].cast(pa.int64()).to_numpy() <= int(TIMES[2]))
                    )
                )
    assert not list(store_findings())


@pytest.mark.usefixtures("kept")
def test_only_windows_that_read_other_rows_are_made_again(asked: list[list[int]]) -> None:
    spec, database = spec_of(CHURN), small_shop()
    closed_labels(spec, database, TIMES)
    assert len(asked) == len(TIMES) + 1
    asked.clear()
    closed_labels(spec, database, TIMES)
    closed_labels(spec, again(database), TIMES)
    assert asked == []
    orders, rng = database["orders"].data, np.random.default_rng(0)
    closed_labels(spec, again(database, later(orders, rng)), TIMES)
    assert asked == []  # all windows have closed before
    more = np.append(TIMES, TIMES[-1] + 40 * DAY)
    closed_labels(spec, again(database, later(orders, rng)), more)
    assert asked == [[more[-1]]]
    asked.clear()
    closed_labels(spec, again(database, _new_rows(orders, np.array([100]))), TIMES)
    assert [time for (time,) in asked] == [time for time in TIMES if time + 10 * DAY >= START + 100 * DAY]


@pytest.mark.usefixtures("kept")
def test_other_questions_have_other_answers(asked: list[list[int]]) -> None:
    database = small_shop()
    closed_labels(spec_of(CHURN), database, TIMES)
    asked.clear()
    for words in ({"timedelta": "11 days"}, {"sql": CHURN["sql"] + " "}, {"known_after": "1 hour"}):
        closed_labels(spec_of(CHURN | words), again(database), TIMES)
    assert len(asked) >= 2 * (len(TIMES) + 1)
    asked.clear()
    split = forecast_labels(spec_of(CHURN), database, SPLITS, "train")
    assert forecast_labels(spec_of(CHURN), again(database), SPLITS, "train").equals(split)
    assert len(asked) == 1
    rows = population_at(spec_of(CHURN), database, SPLITS.test).rows
    asked.clear()
    np.testing.assert_array_equal(population_at(spec_of(CHURN), again(database), SPLITS.test).rows, rows)
    assert asked == []


@pytest.mark.parametrize(
    "volatile",
    [
        "random()",
        "now()",
        "current_date",
        "uuid()",
        "age(DATE '2020-01-01')",
        "age /* ; */ (DATE '2020-01-01')",
    ],
)
@pytest.mark.usefixtures("kept")
def test_sql_that_is_not_the_same_each_time_is_made_each_time(asked: list[list[int]], volatile: str) -> None:
    words = CHURN | {"sql": CHURN["sql"] + f" AND {volatile} IS NOT NULL"}
    for _ in range(2):
        asked.clear()
        closed_labels(spec_of(words), small_shop(), TIMES[:2])
        assert len(asked) == 3


@pytest.mark.parametrize("word", ["age", "current", "nowhere", "sample", "daily_random_id"])
def test_names_that_sound_like_it_are_kept(word: str) -> None:
    assert KeptAnswers(f"SELECT {word} FROM orders", {}).is_kept


def test_a_damaged_file_is_made_anew_with_a_word(kept: Path, asked: list[list[int]]) -> None:
    spec, database = spec_of(CHURN), small_shop()
    expected = closed_labels(spec, database, TIMES)
    (path,) = (kept / "kept" / "labels").iterdir()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    asked.clear()
    assert closed_labels(spec, again(database), TIMES).equals(expected)
    assert len(asked) == len(TIMES) + 1
    assert [finding.code for finding in store_findings()] == ["C06"]
    assert closed_labels(spec, again(database), TIMES).equals(expected)
    assert len(asked) == len(TIMES) + 1


@pytest.mark.usefixtures("kept")
def test_an_error_is_an_error_the_second_time_too() -> None:
    words = CHURN | {"sql": "SELECT TIMESTAMP '1999-01-01' AS timestamp, 'C00' AS customer, 1 AS churned"}
    for _ in range(2):
        with pytest.raises(TaskError, match="L22"):
            derived_labels(small_shop(), spec_of(words), SPLITS, SPLITS.test)


@given(st.integers(0, 2**32), st.integers(0, 4), st.integers(0, 9))
@examples(60)
def test_a_changed_cell_changes_its_row_alone(rng_seed: int, column: int, row: int) -> None:
    rng = np.random.default_rng(rng_seed)
    cells: list[tuple[pa.DataType, list[Any]]] = [
        (pa.int64(), [None, 0, 1, -1, 2**62]),
        (pa.float64(), [None, 0.0, -0.0, 1.5, float("inf"), float("nan")]),
        (pa.string(), [None, "", "a", "aa", "é"]),
        (pa.list_(pa.string()), [None, [], [""], [None], ["a", "b"], ["b", "a"], ["ab"]]),
        (pa.bool_(), [None, False, True]),
    ]
    places = [rng.integers(len(values), size=10) for _, values in cells]

    def hashes() -> Any:
        columns = [
            pa.chunked_array([pa.array([values[p] for p in chosen], kind)])
            for chosen, (kind, values) in zip(places, cells, strict=True)
        ]
        sliced = [pa.chunked_array([c.slice(0, 3).chunk(0), c.slice(3).chunk(0)]) for c in columns]
        np.testing.assert_array_equal(exact_rows(columns, 10), exact_rows(sliced, 10))
        return exact_rows(columns, 10)

    before = hashes()
    places[column][row] = (places[column][row] + 1) % len(cells[column][1])
    assert (before != hashes()).tolist() == [number == row for number in range(10)]


def test_rows_that_have_no_hash_are_not_kept() -> None:
    nested = pa.chunked_array([pa.array([{"a": 1}])])
    assert exact_rows([nested], 1) is None


def test_a_store_of_old_answers_does_not_grow_for_ever(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quartet.tasks.kept._MORE_ANSWERS", 0)
    spec, database = spec_of(CHURN), small_shop()
    for number in range(6):
        orders = _new_rows(database["orders"].data, np.array([0]))
        database = again(database, orders.set_column(0, "order", pa.array(np.arange(orders.num_rows))))
        closed_labels(spec, database, TIMES[:3])
        store = Store(kept / "kept")
        (entry,) = store.entries()
        answers = store.read("labels", entry.path.name)
        assert answers is not None
        assert len(answers.facts["keys"]) <= 4 * 4
        assert number < 5 or len(answers.facts["keys"]) > 4
