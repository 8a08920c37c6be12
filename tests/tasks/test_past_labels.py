"""Known labels as rows: which, from when on, by hand and by what must go unnoticed (P3, P6, P20).

The labels of the drawing in `tests/evaluation/small.py`, with those of test and one that crosses its cut-off:

    day    0    10    20    30    40    50  | 60    70    75  | 80    90    95
    ann    1     1     0     1     0     0  |  1     1        |              1
    bob                1                    |  0     0     1  |
    cleo                                    |  1              |
    dan                                     |                 |  1     0

The horizon is 10 days: a label is known 10 days after its day. The last seed asks on day 95.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.causal import TimeRule
from quartet.config import Protocol, SamplingConfig
from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.errors import QuartetError
from quartet.evaluation.rules import PastLabels, entity_mean, last_labels
from quartet.tasks import Seeds, Splits, Task, TaskSpec, past_label_findings
from quartet.tasks.past_labels import derived_labels, with_past_labels
from quartet.tasks.spec import spec_from_dict
from tests.contexts.configs import configs
from tests.contexts.named import Name, Named, World
from tests.evaluation.small import DRAWN, NAMES, Label, asked, label_task, people
from tests.known_labels import WINDOW, Known, counted, known
from tests.shop import DAY, day
from tests.strategies import Raw, examples, is_future, scrambled_future, shuffled, without_future
from tests.tasks.small import CHURN, small_shop

Change = Callable[[Raw, int, TimeRule, random.Random], Raw]
rng_seeds = st.integers(0, 2**32)

LABELS: list[Label] = [*DRAWN, ("bob", 75, 1), ("dan", 80, 1), ("dan", 90, 0), ("ann", 95, 1)]


def known_seeds(seeds: Seeds) -> Counter[tuple[int, int, float]]:
    """Seeds with their labels, in no order."""
    triples = zip(seeds.node.tolist(), seeds.time.tolist(), np.asarray(seeds.target).tolist(), strict=True)
    return Counter(triples)


def with_spec(task: Task, **words: Any) -> Task:
    """The same task with another word in its definition."""
    return replace(task, spec=replace(task.spec, **words), _seeds={})


# --- by hand --------------------------------------------------------------------------------------

FROZEN = sorted((who, day(at + 10), y) for who, at, y in DRAWN)
ROLLING = sorted([*FROZEN, ("bob", day(85), 1), ("dan", day(90), 1)])


@pytest.mark.parametrize(("protocol", "expected"), [("frozen", FROZEN), ("rolling", ROLLING)])
def test_the_rows_of_the_drawing(protocol: Protocol, expected: list[Known]) -> None:
    """On day 80 those of the drawing are known; on day 95 also bob's of day 75 and dan's of day 80, but no more."""
    database = label_task(LABELS).under(protocol, past_labels=True).database
    assert known(database) == expected
    table = database["known_labels"]
    assert table.data.column_names == ["entity", "known_at", "label"]
    assert table.known_at.tolist() == table.data["known_at"].cast(pa.int64()).to_pylist()
    relation = next(relation for relation in database.relations if relation.table == "known_labels")
    assert [NAMES[row] for row in relation.rows] == table.data["entity"].to_pylist()


@pytest.mark.parametrize(("protocol", "last"), [("frozen", 79), ("rolling", 94)])
def test_a_label_without_a_horizon_is_known_a_nanosecond_later(protocol: Protocol, last: int) -> None:
    """That of day 80, at which the database ends, is not known there; nor is that of the last seed."""
    days = (0, 60, 79, 80, 81, 94, 95)
    task = label_task([("ann", number, number % 2) for number in days], horizon_days=0)
    expected = [("ann", day(number) + 1, number % 2) for number in days if number <= last]
    assert known(task.under(protocol, past_labels=True).database) == expected


@pytest.mark.parametrize("horizon_days", [0, 10])
def test_labels_may_be_known_later(horizon_days: int) -> None:
    task = label_task(LABELS, horizon_days=horizon_days)
    later = with_spec(task, known_after=6 * DAY).under("frozen", past_labels=True)
    delay = horizon_days + 6
    expected = sorted((who, day(at + delay), y) for who, at, y in LABELS if at + delay <= 80)
    assert known(later.database) == expected
    assert len(expected) < len(known(task.under("frozen", past_labels=True).database))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({}, 1),
        ({"timedelta": "10 days"}, 10 * DAY),
        ({"known_after": "12 hours"}, DAY // 2),
        ({"timedelta": "10 days", "known_after": "12 hours"}, 10 * DAY + DAY // 2),
    ],
)
def test_when_a_label_is_known(words: dict[str, str], expected: int) -> None:
    words_of_churn = {k: v for k, v in CHURN.items() if k not in ("sql", "timedelta")} | {"kind": "external"}
    spec = spec_from_dict(words_of_churn | words, "test")
    assert spec.known_at(7) == 7 + expected
    assert spec.known_at(np.array([7, -3])).tolist() == [7 + expected, expected - 3]


def test_each_protocol_and_no_past_labels_keep_to_themselves() -> None:
    task = label_task(LABELS)
    frozen, rolling = task.under("frozen", past_labels=True), task.under("rolling", past_labels=True)
    assert [len(known(one.database)) for one in (frozen, rolling)] == [12, 14]
    assert list(task.database.tables) == ["people"]
    assert (
        task.database.fingerprint
        == frozen.visible_database.fingerprint
        == rolling.visible_database.fingerprint
    )
    assert len({one.database.fingerprint for one in (task, frozen, rolling)}) == 3
    rolling.vault.open("see that it is one vault")
    assert task.vault.openings == frozen.vault.openings == ["see that it is one vault"]


# --- a forecast -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shop() -> Database:
    return small_shop()


@pytest.fixture(scope="module")
def churn(shop: Database) -> Task:
    """Validation and test have two windows; ten days lie between the last of validation and the cut-off."""
    return Task.from_sql(shop, **CHURN, num_eval_timestamps=2)


@pytest.fixture(scope="module")
def past(churn: Task) -> dict[str, list[Known]]:
    return {name: known(churn.under(name, past_labels=True).database) for name in ("frozen", "rolling")}


def test_the_windows_of_a_forecast(shop: Database, churn: Task, past: dict[str, list[Known]]) -> None:
    """Frozen ends exactly at the test cut-off; rolling has the first window of test, closed at the last seed."""
    val, test, (first, _) = churn.splits.val, churn.splits.test, shop.span
    assert test - val == 3 * WINDOW
    train = [val - k * WINDOW for k in range(1, 100) if val - k * WINDOW >= first]
    times = [*train, val, val + WINDOW, test - WINDOW]
    assert past["frozen"] == counted(shop, times)
    assert max(at for _, at, _ in past["frozen"]) == test
    assert past["rolling"] == counted(shop, [*times, test])
    assert int(churn.seeds("test").time.max()) == test + WINDOW


def test_every_label_of_the_splits_stands_there(churn: Task, past: dict[str, list[Known]]) -> None:
    keys = churn.full_database["customers"].data["customer"].to_pylist()

    def rows(seeds: Seeds) -> set[Known]:
        return {(keys[node], time + WINDOW, y) for node, time, y in known_seeds(seeds)}

    frozen, rolling = set(past["frozen"]), set(past["rolling"])
    assert rows(churn.seeds("train")) | rows(churn.seeds("val")) < frozen < rolling
    test = replace(churn.seeds("test"), target=churn.vault.open("compare with the past labels"))
    closed = test.select(test.time + WINDOW <= test.time.max())
    assert 0 < len(closed) < len(test)
    assert rolling - frozen == rows(closed)


@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_labels_end_where_they_are_asked_to(churn: Task, shift: int) -> None:
    """Not where the data end, and a window that is open for one more nanosecond is not among them."""
    upto = churn.splits.test + shift
    made = derived_labels(churn.full_database, churn.spec, churn.splits, upto)
    times = np.unique(made["timestamp"].cast(pa.int64()).to_numpy())
    assert times.max() == churn.splits.test - WINDOW * (2 if shift < 0 else 1)
    later = replace(churn.spec, known_after=DAY)
    made = derived_labels(churn.full_database, later, churn.splits, upto)
    assert max(made["timestamp"].cast(pa.int64()).to_pylist()) == churn.splits.test - 2 * WINDOW


def test_a_label_that_is_late_still_tells_of_its_window(shop: Database, churn: Task) -> None:
    late = with_spec(churn, known_after=DAY).under("frozen", past_labels=True)
    times = sorted({at - WINDOW - DAY for _, at, _ in known(late.database)})
    assert (
        times[-1] == churn.splits.test - 2 * WINDOW
    )  # the window before the cut-off ends there, and is not known
    assert [(who, at - DAY, y) for who, at, y in known(late.database)] == counted(shop, times)


# --- the plain twin of the times is in test_splits.py; here is what must go unnoticed (P6) --------

DAYS = 60
HORIZONS = (0, 3, 10)
labels_drawn = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(0, DAYS), st.integers(0, 1)),
    min_size=1,
    max_size=40,
    unique_by=lambda label: label[:2],
)
moments = st.tuples(st.integers(0, DAYS + 10), st.sampled_from([-1, 0, 1])).map(lambda m: day(m[0]) + m[1])


def town() -> Database:
    """The people, and their visits on random days."""
    rng = random.Random(0)
    visits = {
        "id": range(30),
        "who": [rng.choice(NAMES) for _ in range(30)],
        "at": pa.array([day(rng.randrange(DAYS)) for _ in range(30)], pa.timestamp("ns")),
    }
    said = TableSchema(("id",), (ForeignKey(("who",), "people"),), TimeColumn("at"), settled=FACTS)
    return Database.build(
        {"people": people()["people"].data, "visits": pa.table(visits)},
        Schema({"people": TableSchema(("name",), settled=FACTS), "visits": said}),
    )


TOWN = town()


def label_rows(labels: list[Label]) -> pa.Table:
    times = pa.array([day(number) for _, number, _ in labels], pa.timestamp("ns"))
    names, targets = [who for who, *_ in labels], [y for *_, y in labels]
    return pa.table({"name": pa.array(names, pa.string()), "at": times, "y": pa.array(targets, pa.int64())})


def town_with(labels: list[Label], spec: TaskSpec, upto: int) -> Database:
    return with_past_labels(TOWN, spec, Splits(day(30), day(40)), upto, label_rows(labels))


def spec_with(horizon_days: int, known_after: int = 0) -> TaskSpec:
    return replace(label_task(DRAWN).spec, horizon=horizon_days * DAY, known_after=known_after)


def closes(number: int, horizon_days: int) -> int:
    """From when on the label of a day is known."""
    return day(number + horizon_days) if horizon_days else day(number) + 1


def another_future(
    labels: list[Label], horizon_days: int, moment: int, rule: TimeRule, rng: random.Random
) -> list[Label]:
    """The labels with those that are not known at a moment changed, taken out, or joined by others."""
    past = [label for label in labels if not is_future(closes(label[1], horizon_days), moment, rule)]
    others = {}
    for _ in range(rng.randrange(25)):
        who, number = rng.choice(NAMES), rng.randrange(DAYS + 10)
        if is_future(closes(number, horizon_days), moment, rule):
            others[who, number] = rng.randrange(2)
    changed = past + [(who, number, y) for (who, number), y in others.items()]
    return rng.sample(changed, len(changed))


def rows_before(database: Database, moment: int, rule: TimeRule) -> list[Known]:
    return [row for row in known(database) if not is_future(row[1], moment, rule)]


def label_names(found: Named) -> set[Name]:
    """The label rows of a context, wherever they stand in it."""
    names = {name for name, *_ in found.local} | set(found.collab) | set(found.temporal)
    return {name for name in names if name[0] == "known_labels"}


@examples(50)
@given(labels_drawn, st.sampled_from(HORIZONS), moments, configs(), rng_seeds)
def test_labels_that_are_not_known_go_unnoticed(
    labels: list[Label], horizon_days: int, moment: int, config: SamplingConfig, rng_seed: int
) -> None:
    """P6: contexts of seeds at a moment and before, whatever becomes of the labels that are not known then."""
    rng, spec, rule = random.Random(rng_seed), spec_with(horizon_days), config.time_rule
    others = another_future(labels, horizon_days, moment, rule, rng)
    upto = rng.choice([day(DAYS + 30), moment])
    one, other = town_with(labels, spec, upto), town_with(others, spec, rng.choice([upto, day(DAYS + 5)]))
    assert rows_before(other, moment, rule) == rows_before(one, moment, rule)
    world = World(one)
    seeds = world.some_seeds(moment, rule, 10, rng)
    assert World(other).contexts(seeds, config) == world.contexts(seeds, config)


@examples(50)
@given(labels_drawn, st.sampled_from(HORIZONS), configs())
def test_no_seed_sees_its_own_label(labels: list[Label], horizon_days: int, config: SamplingConfig) -> None:
    """P6: the row of (e, t + horizon) stands in no context of (e, t), nor does any that is known later."""
    spec = spec_with(horizon_days)
    world = World(town_with(labels, spec, day(DAYS + 30)))
    seeds = [(("people", who, 0), day(number)) for who, number, _ in labels]
    for (who, number, _), found in zip(labels, world.contexts(seeds, config), strict=True):
        time, own = day(number), ("known_labels", who, closes(number, horizon_days), 0)
        assert own in world.nodes
        assert own not in label_names(found)
        assert not [name for name in label_names(found) if is_future(name[2], time, config.time_rule)]


@pytest.mark.parametrize(("rule", "expected"), [("<=", [False, True, True]), ("<", [False, False, True])])
def test_a_label_is_seen_from_the_moment_at_which_it_is_known(rule: TimeRule, expected: list[bool]) -> None:
    """So the tests above compare something: cleo's first label, of day 60, is known on day 70."""
    world, config = World(town_with(LABELS, spec_with(10), day(100))), SamplingConfig(time_rule=rule)
    own = ("known_labels", "cleo", day(70), 0)
    seen = [world.contexts([(("people", "cleo", 0), day(70) + shift)], config)[0] for shift in (-1, 0, 1)]
    assert [own in {name for name, *_ in found.local} for found in seen] == expected
    assert [own in found.temporal for found in seen] == expected


# --- P6 of a forecast -----------------------------------------------------------------------------

SLOPPY_SQL = """
    SELECT t.timestamp, o.customer AS customer,
           CAST(COUNT(*) FILTER (WHERE o.bought > t.timestamp) = 0 AS BIGINT) AS churned
    FROM timestamps t JOIN orders o ON o.bought > t.timestamp - INTERVAL '30 days'
    GROUP BY t.timestamp, o.customer
"""
SPEC = spec_from_dict({**CHURN, "kind": "forecast", "timedelta": "15 days"}, "test")
SLOPPY = replace(SPEC, sql=SLOPPY_SQL)
CUTS = Splits(day(60), day(90))
LATE = day(150)


def raw_orders(rng: random.Random) -> Raw:
    """Six customers with orders on days of four months, the first of them on day 0."""
    names = [f"C{k}" for k in range(6)]
    days = [0, *(rng.randrange(120) for _ in range(rng.randrange(40)))]
    orders = {
        "order": range(len(days)),
        "customer": [rng.choice(names) for _ in days],
        "bought": pa.array(list(map(day, days)), pa.timestamp("ns")),
    }
    link = (ForeignKey(("customer",), "customers"),)
    said = {
        "customers": TableSchema(("customer",), settled=FACTS),
        "orders": TableSchema(("order",), link, TimeColumn("bought"), settled=FACTS),
    }
    return {"customers": pa.table({"customer": names}), "orders": pa.table(orders)}, Schema(said)


@pytest.mark.parametrize(
    "spec", [SPEC, replace(SPEC, known_after=2 * DAY), SLOPPY], ids=["", "late", "sloppy"]
)
@examples(6)
@given(
    st.sampled_from([without_future, scrambled_future]),
    configs(),
    st.integers(15, 130),
    st.sampled_from([-1, 0, 1]),
    rng_seeds,
)
def test_rows_after_a_moment_change_no_label_that_is_known_then(
    spec: TaskSpec, change: Change, config: SamplingConfig, number: int, shift: int, rng_seed: int
) -> None:
    """P6, even where the SQL looks at everything: each label is made from what was known when it became known."""
    rng, moment, rule = random.Random(rng_seed), day(number) + shift, config.time_rule
    raw = raw_orders(rng)
    one, other = (
        with_past_labels(Database.build(*tables), spec, CUTS, LATE)
        for tables in (raw, change(raw, moment, rule, rng))
    )
    assert rows_before(other, moment, rule) == rows_before(one, moment, rule)
    world = World(one)
    seeds = world.some_seeds(moment, rule, 8, rng)
    assert World(other).contexts(seeds, config) == world.contexts(seeds, config)


@examples(4)
@given(configs(), st.sampled_from([SPEC, SLOPPY]), rng_seeds)
def test_the_order_of_rows_makes_no_other_label(
    config: SamplingConfig, spec: TaskSpec, rng_seed: int
) -> None:
    """P3"""
    rng = random.Random(rng_seed)
    raw = raw_orders(rng)
    one, other = (
        with_past_labels(Database.build(*tables), spec, CUTS, LATE) for tables in (raw, shuffled(raw, rng))
    )
    assert known(one) == known(other)
    seeds = World(one).some_seeds(day(100), config.time_rule, 8, rng)
    assert World(other).contexts(seeds, config) == World(one).contexts(seeds, config)


def test_a_sloppy_label_was_true_when_it_was_made() -> None:
    """Ann orders on days 1 and 50. On day 45, when the label of day 30 is made, nothing tells of the second order."""
    times = pa.array([day(1), day(50)], pa.timestamp("ns"))
    raw = pa.table({"order": [1, 2], "customer": ["C0", "C0"], "bought": times})
    tables, schema = raw_orders(random.Random(0))
    database = with_past_labels(Database.build(tables | {"orders": raw}, schema), SLOPPY, CUTS, LATE)
    labels = {at: y for _, at, y in known(database)}
    assert labels[day(30)] == 1  # of day 15: no order up to day 30
    assert labels[day(45)] == 1
    assert labels[day(60)] == 0  # of day 45: the order of day 50


# --- a column to fill in --------------------------------------------------------------------------

RESULTS = [(0, "ann", 0, 1.0), (1, "bob", 0, 2.0), (2, "ann", 1, 3.0), (3, "bob", 2, 4.0), (4, "ann", 2, 5.0)]
RESULTS += [(5, "bob", 2, None), (6, "ann", 3, 7.0), (7, "bob", 4, 8.0), (8, "ann", 5, 9.0)]


def raw_races(key: tuple[str, ...] = ("id",)) -> Raw:
    """Results of races: (id, who, day, place)."""
    number, who, days, place = zip(*RESULTS, strict=True)
    times = pa.array([day(d) for d in days], pa.timestamp("ns"))
    results = pa.table({"id": number, "lane": [1] * len(number), "who": who, "at": times, "place": place})
    said = TableSchema(key, (ForeignKey(("who",), "people"),), TimeColumn("at"), settled=FACTS)
    tables = {"people": people()["people"].data, "results": results}
    return tables, Schema({"people": TableSchema(("name",), settled=FACTS), "results": said})


def place_task(raw: Raw | None = None, **words: Any) -> Task:
    """The places of the results; validation begins on day 1, test on day 3."""
    said = {
        "name": "place",
        "kind": "autocomplete",
        "task_type": "regression",
        "entity_table": "results",
        "target_col": "place",
        "val_timestamp": "2024-01-02",
        "test_timestamp": "2024-01-04",
    }
    return Task.of(
        spec_from_dict(said | words, "test"), Database.build(*(raw or raw_races())), None, {}, "error"
    )


def test_the_cells_of_a_column_are_known_after_their_rows() -> None:
    """The last seed is that of day 5: labels of that very time are not known there."""
    database = place_task().under("rolling", past_labels=True).database
    expected = [
        (number, day(at) + 1, place) for number, _, at, place in RESULTS if at <= 4 and place is not None
    ]
    assert known(database) == expected
    assert "place" not in database["results"].data.column_names
    kept = place_task().visible_database["results"]
    assert kept.data.equals(database["results"].data)


def test_which_tasks_tell_their_past_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those whose labels the database tells, at a time that is said, of rows with one key, by not too many queries."""
    churn = Task.from_sql(small_shop(), **CHURN)
    assert churn.tells_past_labels
    assert not label_task(LABELS).tells_past_labels  # labels that somebody brought
    assert not place_task().tells_past_labels  # when are they filled in?
    assert place_task(known_after="12 hours").tells_past_labels
    assert not place_task(raw_races(("id", "lane")), known_after="12 hours").tells_past_labels
    (tables, schema) = raw_races()
    taken = tables | {"known_labels": pa.table({"x": [1]})}
    other = replace(schema, tables=dict(schema.tables) | {"known_labels": TableSchema(settled=FACTS)})
    assert not place_task((taken, other), known_after="12 hours").tells_past_labels
    windows = (churn.splits.test - churn.full_database.span[0]) // churn.spec.horizon  # type: ignore[index]
    for most, is_told in ((windows, True), (windows - 1, False)):
        monkeypatch.setattr("quartet.tasks.task._MOST_WINDOWS", most)
        assert churn.tells_past_labels is is_told
        assert place_task(known_after="12 hours").tells_past_labels  # which takes no query


def labels_seen(task: Task, config: SamplingConfig) -> dict[int, set[int]]:
    """For each result the results whose label it sees at its own time."""
    world = World(task.database)
    seeds = [(("results", number, 0), day(at)) for number, _, at, _ in RESULTS]
    found = world.contexts(seeds, config)
    return {seed[0][1]: {name[1] for name in label_names(f)} for seed, f in zip(seeds, found, strict=True)}


@pytest.mark.parametrize("rule", ["<=", "<"])
def test_a_row_sees_labels_of_earlier_rows_alone(rule: TimeRule) -> None:
    """Neither its own nor those of its race: with all of the time before it, it sees all of them and no more."""
    seen = labels_seen(place_task().under("rolling", past_labels=True), SamplingConfig(time_rule=rule))
    early, late = {0, 1, 2}, {0, 1, 2, 3, 4}  # that of result 5 is empty
    assert seen == {
        0: set(), 1: set(), 2: {0, 1}, 3: early, 4: early, 5: early, 6: late, 7: {*late, 6}, 8: {*late, 6, 7},
    }  # fmt: skip


def test_a_column_may_be_filled_in_later() -> None:
    """36 hours later: a day is too early, two days are enough."""
    task = place_task(known_after="36 hours").under("rolling", past_labels=True)
    seen = labels_seen(task, SamplingConfig())
    assert seen == {
        0: set(), 1: set(), 2: set(), 3: {0, 1}, 4: {0, 1}, 5: {0, 1}, 6: {0, 1, 2}, 7: {0, 1, 2, 3, 4},
        8: {0, 1, 2, 3, 4, 6},
    }  # fmt: skip


@examples(30)
@given(configs(), st.integers(0, 6), st.sampled_from([-1, 0, 1]), rng_seeds)
def test_cells_after_a_moment_go_unnoticed(
    config: SamplingConfig, number: int, shift: int, rng_seed: int
) -> None:
    """P6 of a column: its cells are rows, and rows after a moment may be others or none."""
    rng, moment, rule = random.Random(rng_seed), day(number) + shift, config.time_rule
    raw, spec = raw_races(), place_task().spec
    changed = rng.choice([without_future, scrambled_future])(raw, moment, rule, rng)
    one, other = (
        with_past_labels(Database.build(*tables), spec, CUTS, day(200)).without(spec.hidden_columns)
        for tables in (raw, changed)
    )
    assert rows_before(other, moment, rule) == rows_before(one, moment, rule)
    world = World(one)
    seeds = world.some_seeds(moment, rule, 8, rng)
    assert World(other).contexts(seeds, config) == world.contexts(seeds, config)


# --- errors and findings --------------------------------------------------------------------------


def task_with_such_a_table() -> Task:
    """A database that has a table `known_labels` of its own."""
    tables = {"people": people()["people"].data, "known_labels": pa.table({"id": [1]})}
    said = {
        "people": TableSchema(("name",), settled=FACTS),
        "known_labels": TableSchema(("id",), settled=FACTS),
    }
    return replace(label_task(DRAWN), full_database=Database.build(tables, Schema(said)))


@pytest.mark.parametrize(
    ("task", "labels", "message"),
    [
        (
            task_with_such_a_table,
            label_rows(DRAWN),
            'error[S15] the past labels of task "small" become a table "known_labels", but the database has one of '
            "that name. Fix: rename that table, or train without past labels",
        ),
        (
            lambda: place_task(raw_races(())),
            None,
            'error[L11] table "results" has no single primary key, so past labels cannot link to its rows',
        ),
        (
            lambda: place_task(raw_races(("id", "lane"))),
            None,
            'error[L11] table "results" has no single primary key, so past labels cannot link to its rows',
        ),
        (
            lambda: label_task(DRAWN),
            None,
            'error[L01] the labels of task "small" are in a table of their own and do not follow from the '
            "database. Fix: give the label rows that are known by now: `--labels FILE`, in Python `labels=`",
        ),
        (
            lambda: label_task(DRAWN),
            label_rows(DRAWN).rename_columns(["name", "when", "y"]),
            'error[L12] the past labels of task "small" has no column "at"; task SQL must return (entity, time, '
            'label) (there are: "name", "when", "y"). Fix: rename the column, or correct entity_col, time_col or '
            "target_col of the task",
        ),
    ],
    ids=["S15", "L11 no key", "L11 two columns", "L01", "L12"],
)
def test_what_cannot_be_done_is_said(task: Callable[[], Task], labels: pa.Table | None, message: str) -> None:
    made = task()
    with pytest.raises(QuartetError) as refused:
        with_past_labels(made.full_database, made.spec, made.splits, day(80), labels)
    assert str(refused.value) == message
    assert refused.value.exit_code == 3


def test_a_user_hears_when_labels_count_as_known() -> None:
    (found,) = past_label_findings(place_task().spec)
    assert str(found) == (
        'note[L13] labels of "place" count as known right after the time of their rows. '
        "Fix: if they are filled in later, say `known_after: 12 hours` in the task's YAML file"
    )
    assert past_label_findings(place_task(known_after="1 day").spec) == []
    assert past_label_findings(SPEC) == []
    assert len(past_label_findings(label_task(DRAWN, horizon_days=0).spec)) == 1


def test_no_window_has_closed_yet() -> None:
    """At the first row nothing is known, and that is a table without rows."""
    database = Database.build(*raw_orders(random.Random(1)))
    assert known(with_past_labels(database, SPEC, CUTS, day(0))) == []
    assert known(with_past_labels(database.upto(day(-1)), SPEC, CUTS, day(0))) == []


def test_without_a_seed_of_test_rolling_past_labels_end_at_its_cut_off() -> None:
    assert known(label_task(DRAWN).under("rolling", past_labels=True).database) == FROZEN


# --- conservation (P20) ---------------------------------------------------------------------------


@examples(50)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([*NAMES, "zoe", "yves"]), st.integers(0, 20), st.sampled_from([0.5, 2.0, None])
        ),
        min_size=1,
        max_size=30,
        unique_by=lambda label: label[:2],
    ),
    st.integers(0, 40),
    st.integers(0, 3),
    rng_seeds,
)
def test_every_label_is_a_row_or_accounted_for(
    labels: list[Label], number: int, repeats: int, rng_seed: int
) -> None:
    """P20: rows are the known labels with a value, each once; those about nobody are counted and have no seed."""
    rng = random.Random(rng_seed)
    spec = replace(spec_with(10), type="regression")
    given_labels = rng.sample(labels * (1 + repeats), len(labels) * (1 + repeats))
    table = label_rows([(who, at, 0) for who, at, _ in given_labels])
    table = table.set_column(2, "y", pa.array([y for *_, y in given_labels], pa.float64()))
    database = with_past_labels(TOWN, spec, Splits(day(5), day(9)), day(number), table)
    expected = [(who, day(at + 10), y) for who, at, y in labels if at + 10 <= number and y is not None]
    assert known(database) == sorted(expected)
    lost = [who for who, *_ in expected if who not in NAMES]
    found = [(f.code, f.count) for f in database.findings if f.code == "S07"]
    assert found == ([("S07", len(lost))] if lost else [])
    links = next(relation for relation in database.relations if relation.table == "known_labels")
    assert links.num_links == len(expected) - len(lost)


def test_labels_about_nobody_are_named() -> None:
    database = label_task([*LABELS, ("zoe", 75, 1)]).under("rolling", past_labels=True).database
    assert [str(finding) for finding in database.findings if finding.code == "S07"] == [
        'warning[S07] known_labels.entity: 1 of 15 values have no row in "people" (zoe). '
        "Using: drop links (on_dangling: error to stop)"
    ]


def test_a_label_that_is_no_number_is_no_row() -> None:
    """As no split has a seed of it."""
    labels = [
        ("ann", 0, 1.0),
        ("bob", 0, float("nan")),
        ("cleo", 0, None),
        ("bob", 1, 4.0),
        ("ann", 60, 2.0),
        ("ann", 80, 3.0),
    ]
    task = label_task(labels, "regression")
    assert len(task.seeds("train")) == 2
    past = [("ann", day(10), 1.0), ("ann", day(70), 2.0), ("bob", day(11), 4.0)]
    assert known(task.under("frozen", past_labels=True).database) == past


def test_a_label_without_a_time_is_refused() -> None:
    """It is known at no time, and not from the beginning."""
    task = label_task(DRAWN)
    times = pa.array([day(0), None], pa.timestamp("ns"))
    labels = pa.table({"name": ["ann", "bob"], "at": times, "y": [1, 0]})
    with pytest.raises(QuartetError, match=r"T03.*the prediction time is empty in 1 rows"):
        with_past_labels(task.full_database, task.spec, task.splits, day(80), labels)


def test_the_cell_of_a_row_without_a_time_is_never_known() -> None:
    tables, schema = raw_races()
    times = pa.array([*(day(at) for _, _, at, _ in RESULTS[:-1]), None], pa.timestamp("ns"))
    tables["results"] = tables["results"].set_column(3, "at", times)
    said = replace(schema.tables["results"], time=TimeColumn("at", on_missing="never_visible"))
    database = Database.build(tables, replace(schema, tables={**schema.tables, "results": said}))
    found = known(with_past_labels(database, place_task().spec, CUTS, day(200)))
    assert [number for number, *_ in found] == [0, 1, 2, 3, 4, 6, 7]


def test_two_labels_of_one_window_contradict_each_other() -> None:
    """As in a split: which of them is meant nobody knows, and the order of rows must not decide it."""
    task = label_task(DRAWN)
    with pytest.raises(QuartetError, match=r"^error\[L10\]"):
        with_past_labels(
            task.full_database, task.spec, task.splits, day(80), label_rows([*DRAWN, ("ann", 0, 0)])
        )


# --- the rules know what the models know ----------------------------------------------------------


@pytest.mark.parametrize("horizon_days", [0, 10])
def test_the_labels_of_the_rules_are_the_rows(horizon_days: int) -> None:
    """Without a label between the splits they are those of train and validation."""
    task = label_task([label for label in LABELS if label[1] not in (75, 80)], horizon_days=horizon_days)
    expected = known_seeds(task.seeds("train").joined_with(task.seeds("val")))
    assert (
        known_seeds(task.under("frozen", past_labels=True).known_labels())
        == expected
        == known_seeds(task.known_labels())
    )
    crossing = label_task(LABELS, horizon_days=10).under("rolling", past_labels=True).known_labels()
    assert known_seeds(crossing)[NAMES.index("bob"), day(75), 1] == 1


def test_a_class_that_training_does_not_have_is_no_label_of_a_rule() -> None:
    labels = [
        ("ann", 0, "red"),
        ("bob", 0, "blue"),
        ("ann", 55, "green"),
        ("ann", 60, "red"),
        ("ann", 80, "red"),
    ]
    task = label_task(labels, "multiclass_classification").under("frozen", past_labels=True)
    assert [label for *_, label in known(task.database)] == ["red", "green", "red", "blue"]
    assert known_seeds(task.known_labels()) == Counter([(0, day(0), 1), (0, day(60), 1), (1, day(0), 0)])


@pytest.mark.parametrize("rule", [entity_mean, last_labels])
@pytest.mark.parametrize("protocol", ["frozen", "rolling"])
def test_rules_of_past_labels_are_those_that_were_told(
    rule: Callable[[Task], PastLabels], protocol: Protocol
) -> None:
    """Rolling: the same as those that were given the labels of test; frozen: as those that were not."""
    task = label_task([label for label in LABELS if label[1] != 75])
    test = replace(task.seeds("test"), target=task.vault.open("tell the rules"))
    told, alone = rule(task).knowing(test), rule(task.under(protocol, past_labels=True))
    assert alone.knowing(test) is alone
    seeds = [
        task.under(protocol).asked_seeds("test"),
        asked(*[(who, at) for who in NAMES for at in range(0, 96, 5)]),
    ]
    plain = told if protocol == "rolling" else rule(task)
    for some in seeds:
        assert alone.predict(some).tolist() == plain.predict(some).tolist()
    dan = told.predict(asked(("dan", 90))).tolist()
    assert (rule(task).predict(asked(("dan", 90))).tolist() == dan) is False


def test_a_rule_knows_labels_between_the_splits() -> None:
    """Bob's of day 75 belongs to no split, and is a row from day 85 on."""
    rule = entity_mean(label_task(LABELS).under("rolling", past_labels=True))
    assert rule.predict(asked(("bob", 84), ("bob", 85))).tolist() == [1 / 3, 1 / 2]
    plain = entity_mean(label_task(LABELS))
    assert plain.predict(asked(("bob", 84), ("bob", 85))).tolist() == [1 / 3, 1 / 3]
