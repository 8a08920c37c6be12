"""Random databases for Hypothesis, seeds to ask about them, and other futures and orders of them.

A drawn database is a pair (raw tables, schema), ready for `Database.build(*raw)`. Hypothesis draws
its shape, which shrinks well: tables, sizes, kinds of key, links, times. The cells come from one
drawn number. The names of the tables are hostile on purpose.

`without_future`, `scrambled_future` and `shuffled` change a raw database in a way that nothing seen
at a time may notice (P1, P2 and P3).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st

from quartet.causal import TimeRule
from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import MissingTime, Schema
from quartet.times import NEVER, STATIC
from tests.reference.graph import Cell, Row, dated_rows, key_of, rows_of, unit_of

Raw = tuple[dict[str, pa.Table], Schema]
Seed = tuple[str, int, int]  # table, row, time
KeyKind = Literal["small", "sparse", "text", "composite", "code", "none"]
TimeKind = Literal["static", "timed", "available"]
Key = tuple[Cell, ...]

SECOND = 10**9
FIRST_TIME = 1_700_000_000 * SECOND
MOST_ROWS = [8] * 12 + [60] * 7 + [400]
NAMES = ("ant", "bee hive", 'cat"s', "dög", "e.mu", "fly;--")
KEY_COLUMNS: dict[KeyKind, tuple[str, ...]] = {
    "small": ("id",),
    "sparse": ("id",),
    "text": ("id",),
    "composite": ("part", "number"),
    "code": ("code",),  # unique, but not the primary key: there is none
    "none": (),
}
KEY_TYPES: dict[str, pa.DataType] = {"part": pa.string(), "number": pa.int64(), "code": pa.string()}
CELLS: dict[str, tuple[Cell, ...]] = {
    "amount": (None, 0.0, -0.0, 1.5, float("nan"), 1e300),
    "flag": (None, False, True),
    "note": (None, "", "x", "x:?", "é"),
}


def examples(count: int) -> settings:
    """`@examples(200)`: two hundred examples in the suite, as many times more as the profile asks."""
    return settings(max_examples=count * settings().max_examples // 100)


@dataclass(frozen=True)
class Plan:
    """The shape of one table."""

    name: str
    num_rows: int
    key: KeyKind
    targets: tuple[int, ...]  # the plan that each foreign key points to
    time: TimeKind
    missing: MissingTime
    unit: Literal["s", "ns"]
    is_number: bool  # its times are plain numbers

    @property
    def key_columns(self) -> tuple[str, ...]:
        return KEY_COLUMNS[self.key]

    @property
    def time_columns(self) -> tuple[str, ...]:
        return {"static": (), "timed": ("at",), "available": ("at", "loaded")}[self.time]


# --- the shape ------------------------------------------------------------------------------------


@st.composite
def random_db(draw: st.DrawFn) -> Raw:
    """2 to 6 tables with all that a real database may do to us, and sometimes a hub of hundreds."""
    kinds = draw(st.lists(st.sampled_from(list(KEY_COLUMNS)), min_size=2, max_size=6))
    step = draw(st.sampled_from([SECOND, 1, 86_400 * SECOND]))
    plans = [draw(_plans(number, kinds, whole_seconds=step >= SECOND)) for number in range(len(kinds))]
    num_times = draw(st.sampled_from([3, 1, 20, 1000]))
    rng = random.Random(draw(st.integers(0, 2**32)))

    def moment() -> int:
        return FIRST_TIME + step * rng.randrange(num_times)

    return _fill(plans, rng, moment), _schema(plans)


@st.composite
def _plans(draw: st.DrawFn, number: int, kinds: list[KeyKind], whole_seconds: bool) -> Plan:
    known = [place for place, kind in enumerate(kinds) if kind != "none"]
    targets = draw(st.lists(st.sampled_from(known), max_size=3)) if known else []
    return Plan(
        name=NAMES[number],
        num_rows=draw(st.sampled_from(MOST_ROWS).flatmap(lambda most: st.integers(0, most))),
        key=kinds[number],
        targets=tuple(targets),
        time=draw(st.sampled_from(["timed", "static", "timed", "available"])),
        missing=draw(st.sampled_from(["error", "drop", "never_visible"])),
        unit=draw(st.sampled_from(["s", "ns"])) if whole_seconds else "ns",
        is_number=draw(st.booleans()),
    )


def _schema(plans: list[Plan]) -> Schema:
    return Schema({plan.name: _table_schema(plan, plans) for plan in plans})


def _table_schema(plan: Plan, plans: list[Plan]) -> TableSchema:
    links = [
        ForeignKey(_link_columns(slot, plans[target]), plans[target].name, _references(plans[target]))
        for slot, target in enumerate(plan.targets)
    ]
    unit = plan.unit if plan.is_number else None
    return TableSchema(
        primary_key=() if plan.key == "code" else plan.key_columns,
        foreign_keys=tuple(links),
        time=TimeColumn("at", unit=unit, on_missing=plan.missing) if plan.time != "static" else None,
        available_at="loaded" if plan.time == "available" else None,
        settled=FACTS,
    )


def _link_columns(slot: int, target: Plan) -> tuple[str, ...]:
    return tuple(f"to{slot}_{column}" for column in target.key_columns)


def _references(target: Plan) -> tuple[str, ...]:
    return target.key_columns if target.key == "code" else ()


# --- the cells ------------------------------------------------------------------------------------


def _fill(plans: list[Plan], rng: random.Random, moment: Callable[[], int]) -> dict[str, pa.Table]:
    keys = [_keys(plan, rng) for plan in plans]
    return {plan.name: _table(plan, plans, number, keys, rng, moment) for number, plan in enumerate(plans)}


def _keys(plan: Plan, rng: random.Random) -> list[Key]:
    """A key for each row, all different, in no order; an empty one where the table has none."""
    if plan.key == "none":
        return [()] * plan.num_rows
    if plan.key == "small":
        return [(number,) for number in rng.sample(range(plan.num_rows), plan.num_rows)]
    keys: dict[Key, None] = {}
    while len(keys) < plan.num_rows:
        keys[new_key(plan.key, rng)] = None
    return list(keys)


def new_key(kind: KeyKind, rng: random.Random) -> Key:
    """A key of a kind, out of so many that two are seldom the same."""
    if kind == "small":
        return (rng.randrange(-3, 1000),)
    if kind == "sparse":
        size = rng.choice([8, 20, 53, 62])
        return (rng.choice([-1, 1]) * (2**size + rng.randrange(1000)),)
    mark = rng.choice(["", ":", "?", "ü", "0:"])
    if kind == "composite":
        return mark, rng.randrange(-99, 99)
    return (f"{mark}{rng.randrange(10**6)}",)


def _table(
    plan: Plan,
    plans: list[Plan],
    number: int,
    keys: list[list[Key]],
    rng: random.Random,
    moment: Callable[[], int],
) -> pa.Table:
    rows = []
    for own in keys[number]:
        row: Row = {name: rng.choice(values) for name, values in CELLS.items()}
        row |= dict(zip(plan.key_columns, own, strict=True))
        row |= _times(plan, rng, moment)
        named: dict[int, Key] = {}
        for slot, target in enumerate(plan.targets):
            columns = _link_columns(slot, plans[target])
            to_itself = own if target == number else None
            named[target] = _named(plans[target].key, keys[target], to_itself, named.get(target), rng)
            row |= dict(zip(columns, named[target], strict=True))
        rows.append(row)
    return table_of(rows, _types(plan, plans, rng))


def _times(plan: Plan, rng: random.Random, moment: Callable[[], int]) -> Row:
    times: Row = {}
    for name in plan.time_columns:
        is_missing = plan.missing != "error" and rng.random() < 0.15
        times[name] = None if is_missing else moment() // (SECOND if plan.unit == "s" else 1)
    return times


def _named(kind: KeyKind, keys: list[Key], own: Key | None, before: Key | None, rng: random.Random) -> Key:
    """The value of a foreign key: mostly a key there is, the first ones most often, which makes hubs."""
    case = rng.random()
    nothing = (None,) * len(KEY_COLUMNS[kind])
    if case < 0.1:
        return nothing if rng.random() < 0.5 else (*new_key(kind, rng)[:-1], None)
    if case < 0.2 or not keys:
        return new_key(kind, rng)
    if case < 0.25 and own is not None:
        return own
    if case < 0.4 and before is not None:
        return before
    return keys[int(len(keys) * rng.random() ** 2)]


def _types(plan: Plan, plans: list[Plan], rng: random.Random) -> pa.Schema:
    """Column types, in any order; a whole number that may be empty sometimes arrives as a decimal."""
    time = pa.int64() if plan.is_number else pa.timestamp(plan.unit)
    text = rng.choice([pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
    types = {"amount": pa.float64(), "flag": pa.bool_(), "note": text}
    types |= {column: _key_type(plan, column) for column in plan.key_columns}
    types |= dict.fromkeys(plan.time_columns, time)
    for slot, target in enumerate(plan.targets):
        for name, column in zip(_link_columns(slot, plans[target]), plans[target].key_columns, strict=True):
            is_decimal = plans[target].key == "small" and rng.random() < 0.3
            types[name] = pa.float64() if is_decimal else _key_type(plans[target], column)
    return pa.schema(rng.sample(list(types.items()), len(types)))


def _key_type(plan: Plan, column: str) -> pa.DataType:
    return KEY_TYPES.get(column, pa.string() if plan.key == "text" else pa.int64())


def table_of(rows: Sequence[Row], types: pa.Schema) -> pa.Table:
    """The table of plain rows: what `rows_of` takes apart."""
    columns = [[_fitting(row[f.name], f.type) for row in rows] for f in types]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, types, strict=True)], schema=types)


def _fitting(cell: Cell, kind: pa.DataType) -> Cell:
    return float(cell) if pa.types.is_floating(kind) and cell is not None else cell


# --- seeds ----------------------------------------------------------------------------------------


def interesting_times(database: Database) -> list[int]:
    """Every time of a row, the nanosecond before it and the one after."""
    known = {int(t) for table in database.tables.values() for t in np.unique(table.known_at)}
    times = {time + shift for time in known - {STATIC, NEVER} for shift in (-1, 0, 1)}
    return sorted(times) or [FIRST_TIME]


def seeds_of(database: Database, max_size: int = 8) -> st.SearchStrategy[list[Seed]]:
    """Lists of seeds: any row of any table (not always visible yet), at times that matter."""
    rows = [(name, row) for name, table in database.tables.items() for row in range(table.num_rows)]
    if not rows:
        return st.just([])
    pairs = st.tuples(st.sampled_from(rows), st.sampled_from(interesting_times(database)))
    return st.lists(pairs.map(lambda pair: (*pair[0], pair[1])), max_size=max_size)


# --- other futures, other orders ------------------------------------------------------------------


def is_future(known_at: int | None, time: int, rule: TimeRule) -> bool:
    """Whether a row is not knowable at a time; one without a time never is."""
    return known_at is None or (known_at > time if rule == "<=" else known_at >= time)


def without_future(raw: Raw, time: int, rule: TimeRule, rng: random.Random) -> Raw:
    """The database with some, mostly all, of the rows deleted that are not knowable at a time."""
    tables, schema = raw
    share = rng.choice([1.0, 1.0, 0.5])

    def kept(name: str, table: pa.Table) -> pa.Table:
        _, known_at = dated_rows(table, schema.tables[name])
        mask = [not is_future(t, time, rule) or rng.random() > share for t in known_at]
        return table.filter(pa.array(mask, pa.bool_()))

    return {name: kept(name, table) for name, table in tables.items()}, schema


def scrambled_future(raw: Raw, time: int, rule: TimeRule, rng: random.Random) -> Raw:
    """The database with every row that is not knowable at a time replaced, and new ones put among them.

    Their cells, keys, links and times all change; only that they lie in the future does not.
    """
    tables, schema = raw
    return {name: _scrambled(name, raw, time, rule, rng) for name in tables}, schema


def _scrambled(name: str, raw: Raw, time: int, rule: TimeRule, rng: random.Random) -> pa.Table:
    tables, schema = raw
    table, said = tables[name], schema.tables[name]
    if said.time is None:
        return table
    _, known_at = dated_rows(table, said)
    rows = rows_of(table)
    future = [is_future(t, time, rule) for t in known_at]
    past = [row for row, is_late in zip(rows, future, strict=True) if not is_late]
    pools = {f.name: [row[f.name] for row in rows] for f in table.schema}
    unique = _unique_columns(name, schema)
    wanted = [key for key in _wanted_keys(name, raw) if None not in key]
    used = {key_of(row, unique) for row in past}
    for _ in range(sum(future) + rng.randrange(4)):
        row = {f.name: _any_cell(f.type, pools[f.name], rng) for f in table.schema}
        row |= _later(table, said, time, rule, rng)
        row |= dict(zip(unique, _unused_key(table, unique, used, wanted, rng), strict=True))
        past.insert(rng.randrange(len(past) + 1), row)
    return table_of(past, table.schema)


def _unique_columns(name: str, schema: Schema) -> tuple[str, ...]:
    """The columns that must name a row: of the primary key, or those that others refer to."""
    links = [fk for said in schema.tables.values() for fk in said.foreign_keys if fk.table == name]
    referred = [fk.references for fk in links if fk.references]
    return schema.tables[name].primary_key or (referred[0] if referred else ())


def _wanted_keys(name: str, raw: Raw) -> list[Key]:
    """What the foreign keys to a table say, so that a new row may be the one that dangles."""
    tables, schema = raw
    return [
        key_of(row, fk.columns)
        for child, said in schema.tables.items()
        for fk in said.foreign_keys
        if fk.table == name
        for row in rows_of(tables[child])
    ]


def _unused_key(
    table: pa.Table, columns: tuple[str, ...], used: set[Key], wanted: list[Key], rng: random.Random
) -> Key:
    if not columns:
        return ()
    types = [table.schema.field(column).type for column in columns]
    while True:
        key = rng.choice(wanted) if wanted and rng.random() < 0.5 else tuple(_new_cell(t, rng) for t in types)
        if key not in used:
            used.add(key)
            return key


def _any_cell(kind: pa.DataType, pool: list[Cell], rng: random.Random) -> Cell:
    return rng.choice(pool) if pool and rng.random() < 0.7 else _new_cell(kind, rng)


def _new_cell(kind: pa.DataType, rng: random.Random) -> Cell:
    if pa.types.is_boolean(kind):
        return rng.random() < 0.5
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        return rng.randrange(-(2**40), 2**40)
    return float(rng.randrange(2000)) if pa.types.is_floating(kind) else f"new{rng.randrange(10**6)}"


def _later(table: pa.Table, said: TableSchema, time: int, rule: TimeRule, rng: random.Random) -> Row:
    """Times of a row that keep it in the future: one of the two is late, or missing where that is allowed."""
    assert said.time is not None
    columns = [name for name in (said.time.column, said.available_at) if name is not None]
    late = rng.choice(columns)
    times: Row = {}
    for name in columns:
        unit = unit_of(table, said, name)
        first = time // unit + 1 if rule == "<=" else -(-time // unit)
        shift = rng.choice([0, 0, 1, 10, 10**6])
        times[name] = first + shift if name == late else first + rng.choice([-1, 1]) * shift
        if said.time.on_missing != "error" and rng.random() < 0.2:
            times[name] = None
    return times


def shuffled(raw: Raw, rng: random.Random) -> Raw:
    """The database with the rows of every table in another order and cut into other chunks."""
    tables, schema = raw

    def order(table: pa.Table) -> pa.Array:
        return pa.array(rng.sample(range(table.num_rows), table.num_rows), pa.int64())

    return rechunked(({name: table.take(order(table)) for name, table in tables.items()}, schema), rng)


def rechunked(raw: Raw, rng: random.Random) -> Raw:
    """The same database, its columns cut into other chunks, some of them empty."""
    tables, schema = raw
    return {name: _rechunked(table, rng) for name, table in tables.items()}, schema


def _rechunked(table: pa.Table, rng: random.Random) -> pa.Table:
    cuts = [rng.randrange(table.num_rows + 1) for _ in range(rng.randrange(4))]
    pieces = [table.slice(a, b - a) for a, b in pairwise(sorted([0, *cuts, table.num_rows]))]
    return pa.concat_tables(pieces)
