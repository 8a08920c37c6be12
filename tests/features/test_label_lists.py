"""What past lists tell of each class: against a plain twin, another future, a database without rows, and in words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.causal import TimeRule
from quartet.database import Database
from quartet.features import FeatureTable, RelationalColumns, column_words, columns_without, list_column
from quartet.features.lists import LIST_WAYS, MOST_CLASSES
from quartet.tasks import Seeds
from quartet.times import NEVER
from tests.shop import DAY, FIRST_DAY, day
from tests.strategies import examples

HORIZON = 3 * DAY
NUM_DAYS, NUM_CUSTOMERS = 60, 6
PATH = "known_labels by entity -> label has "
Lists = list[tuple[int, int, list[str]]]  # whose, known on which day, which classes


def some_lists(rng: np.random.Generator, num_classes: int = 7) -> Lists:
    """Lists of customers on some days, each day once; a third are empty, and the last customer has none."""
    asked = [(who, at) for who in range(NUM_CUSTOMERS - 1) for at in range(NUM_DAYS) if rng.random() < 0.3]
    return [
        (who, at, sorted({f"c{k}" for k in rng.integers(0, num_classes, 3)}) if rng.random() < 0.67 else [])
        for who, at in asked
    ]


def with_lists(lists: Lists) -> Database:
    whose, days, classes = zip(*lists, strict=True)
    at = pa.array(FIRST_DAY + np.array(days) * DAY).cast(pa.timestamp("ns"))
    label = pa.array(classes, pa.list_(pa.string()))
    tables = {
        "customers": pa.table({"id": np.arange(NUM_CUSTOMERS)}),
        "known_labels": pa.table({"entity": np.array(whose), "known_at": at, "label": label}),
    }
    schema = {
        "customers": {"pkey": "id", "time_col": None},
        "known_labels": {
            "pkey": ["entity", "known_at"], "time_col": "known_at", "fkeys": {"entity": "customers"},
            "kinds": {"label": "multicategory"},
        },
    }  # fmt: skip
    return Database.load(tables, {"tables": schema})


def columns_of(database: Database, rule: TimeRule = "<=", cut_off: int = 20) -> RelationalColumns:
    return RelationalColumns.of(
        database, "customers", FeatureTable.fit(database, day(cut_off)), rule, HORIZON
    )


def every_customer(database: Database, rng: np.random.Generator, first: int = -2) -> Seeds:
    rows = np.repeat(np.arange(NUM_CUSTOMERS), 8) + database.offsets["customers"]
    return Seeds(rows, FIRST_DAY + rng.integers(first, NUM_DAYS + 5, len(rows)) * DAY, None)


def plain(lists: Lists, who: int, time: int, rule: TimeRule, name: str) -> list[float]:
    """The share of all lists and of the last twelve that have a class, and the horizons since the last that has it."""
    known = sorted((FIRST_DAY + at * DAY, classes) for owner, at, classes in lists if owner == who)
    known = [(at, classes) for at, classes in known if (at <= time if rule == "<=" else at < time)]
    if not known:
        return [np.nan] * 3
    shares = [sum(name in classes for _, classes in some) / len(some) for some in (known, known[-12:])]
    there = [at for at, classes in known if name in classes]
    return [*shares, (time - there[-1]) / HORIZON if there else np.nan]


@pytest.mark.parametrize("rule", ["<=", "<"])
@examples(20)
@given(st.integers(0, 2**32))
def test_they_are_those_of_the_plain_twin(rule: TimeRule, rng_seed: int) -> None:
    rng = np.random.default_rng(rng_seed)
    lists = some_lists(rng)
    database = with_lists(lists)
    seeds = every_customer(database, rng)
    found = columns_of(database, rule).of_seeds(seeds)
    asked = list(zip((seeds.node - database.offsets["customers"]).tolist(), seeds.time.tolist(), strict=True))
    named = {name.removeprefix(PATH).partition(": ")[0] for name in found if name.endswith(LIST_WAYS[0])}
    assert named
    for name in named:
        expected = np.array([plain(lists, who, time, rule, name) for who, time in asked], np.float32)
        for place, way in enumerate(LIST_WAYS):
            assert np.array_equal(found[f"{PATH}{name}: {way}"], expected[:, place], equal_nan=True)


@examples(20)
@given(st.integers(0, 2**32), st.sampled_from(["scrambled", "taken away", "more"]))
def test_another_future_changes_no_bit(rng_seed: int, change: str) -> None:
    """After day 30 other lists, none, or more of them, of classes never seen: what is asked by then stays."""
    rng = np.random.default_rng(rng_seed)
    lists = some_lists(rng)
    later = [(who, at, ["never seen", *classes[:1]]) for who, at, classes in lists if at > 30]
    more = [(NUM_CUSTOMERS - 1, at, ["c0"]) for at in range(31, 40)]
    kept = [one for one in lists if one[1] <= 30]
    other = kept + {"scrambled": later, "taken away": [], "more": later + more}[change]
    twins = [with_lists(lists), with_lists([other[at] for at in rng.permutation(len(other))])]
    seeds = every_customer(twins[0], rng)
    seeds = replace(seeds, time=np.minimum(seeds.time, day(30)))
    one, two = (columns_of(database).of_seeds(seeds) for database in twins)
    assert list(one) == list(two)
    own = [name for name in one if name.startswith("known_labels")]
    assert any(np.isfinite(one[name]).any() for name in own if name.endswith(LIST_WAYS[2]))
    assert all(one[name].tobytes() == two[name].tobytes() for name in own)


@examples(20)
@given(st.integers(0, 2**32))
def test_without_rows_they_are_those_of_a_database_without_them(rng_seed: int) -> None:
    rng = np.random.default_rng(rng_seed)
    database = with_lists(some_lists(rng))
    columns = columns_of(database)
    node, time = int(rng.integers(0, NUM_CUSTOMERS)) + database.offsets["customers"], day(50)
    others = np.setdiff1d(np.arange(database.num_rows), [node])
    gone = [rng.choice(others, size, replace=False) for size in (0, 1, 8, 30, len(others))]
    found = columns_without(columns, database, node, time, gone)
    places = [
        columns.names.index(name)
        for name in columns.names
        if name.startswith(PATH) and name.endswith(LIST_WAYS)
    ]
    for variant, nodes in enumerate(gone):
        tables = {}
        for name, table in database.tables.items():
            known_at, own = table.known_at.copy(), nodes - database.offsets[name]
            known_at[own[(own >= 0) & (own < len(known_at))]] = NEVER
            tables[name] = replace(table, known_at=known_at) if name == "known_labels" else table
        twin = RelationalColumns.of(
            replace(database, tables=tables), "customers", FeatureTable.fit(database, day(20)), "<=", HORIZON
        )
        expected = twin.matrix(Seeds(np.array([node]), np.array([time]), None))[0, places]
        assert np.array_equal(found[variant, places], expected, equal_nan=True), variant


def test_they_are_of_the_commonest_classes() -> None:
    lists: Lists = [(0, at, [f"c{k:03d}" for k in range(80 - at)]) for at in range(20)]
    columns = columns_of(with_lists(lists))
    told = [name for name in columns.names if name.endswith(LIST_WAYS[1]) and "has" in name]
    assert told == [list_column(f"c{k:03d}") for k in range(MOST_CLASSES)]
    assert set(told) <= columns.near


def test_they_are_told_in_words() -> None:
    database = with_lists(some_lists(np.random.default_rng(0)))
    columns = columns_of(database)
    words = column_words(columns)
    assert set(words) == set(columns.names)
    share, last, since = (words[f"{PATH}c1: {way}"] for way in LIST_WAYS)
    assert (share.words, share.show(0.25)) == ("share of past labels that had c1", "25%")
    assert last.words == "share of the last 12 past labels that had c1"
    assert since.words == "days since a past label that had c1 became known"
    assert since.show(2.0) == "6"
    said = {one.words for one in words.values()}
    first = next(one.cell for one in words.values() if one.cell.startswith("label has "))  # the commonest
    assert f"its latest past {first}" in said
    assert f"its label 1 before the latest {first.removeprefix('label ')}" in said
    assert (
        f"number of past labels in the last 12 days that {first.removeprefix('label ').replace('has', 'had')}"
        in said
    )
    assert "parts of label of its latest past label" in said
    assert not [text for text in said if text.endswith((" is ", " were ", "that"))]
