"""A link that is filled in: candidates and columns of what rows share with earlier ones, causal to the bit."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from quartet.database import Database
from quartet.errors import TaskError
from quartet.features import FeatureTable
from quartet.recommend import Reader, Recommender, candidates, pair_rows
from quartet.recommend.events import Sources
from quartet.tasks import KNOWN_LABELS, Links, Seeds, Task
from quartet.tasks.past_labels import with_past_labels
from quartet.training import View
from tests.recommend.orders import LATE_SHOP, NUM_SHOPS, QUERY, WHO, orders, raw_orders, who
from tests.recommend.small import DAY, START, Raw, view_of
from tests.strategies import scrambled_future, shuffled, without_future

TIME = START + 180 * DAY
STEP = 7 * DAY
LAG = 3 * DAY
PATHS = (
    "all rows", "orders.shop", "orders.shop > shops.town", "orders.channel",
    "orders.shop: visits.shop & visits.customer",
)  # fmt: skip


@pytest.fixture(scope="module")
def task() -> Task:
    return who().under("rolling", past_labels=True)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all customers are candidates."""
    monkeypatch.setattr(candidates, "_FEW", 5)


def world(raw: Raw, task: Task) -> View:
    """A database as the task sees it, with all labels that it ever tells, whoever may see them."""
    whole = Database.build(*raw)
    last = whole.span[1] if whole.span else TIME
    shown = with_past_labels(whole, task.spec, task.splits, last + 10 * DAY)
    return view_of(shown.without(task.spec.hidden_columns), task)


def asked(view: View, time: int = TIME) -> tuple[Reader, Seeds, list[str]]:
    """The orders of a day, each at that time, by their keys; the true customers are of no meaning here."""
    table = view.database["orders"]
    rows = np.flatnonzero(table.known_at == time)
    rows = rows[np.argsort(table.data["number"].to_numpy()[rows])]
    target = Links(np.arange(len(rows) + 1), np.full(len(rows), view.database.offsets["customers"]))
    seeds = Seeds(rows + view.database.offsets["orders"], np.full(len(rows), time), target)
    return Reader.of(view, PATHS, step=STEP), seeds, view.database["customers"].data["customer"].to_pylist()


def seen(raw: Raw, task: Task, time: int = TIME) -> dict[str, Any]:
    view = world(raw, task)
    reader, seeds, customers = asked(view, time)

    def name(place: int) -> str:
        return customers[int(reader.past.items.rows[place])]

    found: dict[str, Any] = {}
    (block,) = reader.blocks(seeds)
    for pool_name, pool in block.moment.candidates(block.sources).items():
        told = zip(pool.source.tolist(), pool.item.tolist(), pool.score.tolist(), strict=True)
        found[f"pool {pool_name}"] = [(source, name(item), score) for source, item, score in told]
    rows = pair_rows(reader, seeds)
    order = sorted(range(len(rows.seed)), key=lambda n: (rows.seed[n], name(rows.item[n])))
    found["pairs"] = [(int(rows.seed[n]), name(rows.item[n])) for n in order]
    for place, column in enumerate(block.columns.names()):
        found[f"column {column}"] = rows.matrix[order, place].tobytes()
    model = Recommender(PATHS, weights={"own past by recency": 0.5, "own past by count": 0.5}, step=STEP)
    first = view.database.offsets["customers"]
    for rule, lists in model.lists(view, seeds.without_target(), 5, with_members=True).items():
        found[f"lists {rule}"] = [
            [customers[n - first] if n >= 0 else "" for n in row] for row in lists.items
        ]
    return found


def relabelled(raw: Raw, time: int, rule: str, rng: random.Random) -> Raw:  # noqa: ARG001
    """The same orders, where the customers of those whose label is not known yet are mixed up."""
    tables, schema = raw
    table = tables["orders"]
    late = np.flatnonzero(table["placed"].cast(pa.int64()).to_numpy() + LAG > time)
    customers = np.array(table["customer"].to_pylist(), dtype=object)
    customers[late] = [customers[n] for n in np.random.default_rng(rng.randrange(99)).permutation(late)]
    place = table.column_names.index("customer")
    return {**tables, "orders": table.set_column(place, "customer", pa.array(customers.tolist()))}, schema


FUTURES = {"taken away": without_future, "scrambled": scrambled_future, "relabelled": relabelled}


@pytest.mark.parametrize("future", FUTURES)
@pytest.mark.parametrize("rng_seed", range(3))
@pytest.mark.usefixtures("few")
def test_another_future_changes_nothing(task: Task, future: str, rng_seed: int) -> None:
    raw = raw_orders()
    other = FUTURES[future](raw, TIME, "<=", random.Random(rng_seed))  # type: ignore[operator]
    one, two = seen(raw, task), seen(other, task)
    assert one.keys() == two.keys()
    for name, told in one.items():
        assert repr(told) == repr(two[name]), name


@pytest.mark.parametrize("future", FUTURES)
@pytest.mark.usefixtures("few")
def test_groups_count_before_their_first_event(task: Task, future: str) -> None:
    """No label is known yet, nobody has visited a shop, and no order has named one: paths are empty, not absent."""
    tables, schema = raw_orders()
    time = START + DAY
    old = pc.less_equal(tables["orders"]["placed"].cast(pa.int64()), time)
    orders_ = tables["orders"].set_column(
        tables["orders"].column_names.index("shop"), "shop", pc.if_else(old, None, tables["orders"]["shop"])
    )
    visits = tables["visits"].filter(pc.greater(tables["visits"]["at"].cast(pa.int64()), time))
    later = pa.array(START + 30 * DAY + np.arange(NUM_SHOPS), pa.timestamp("ns"))  # nor is there a shop
    shops = tables["shops"].set_column(tables["shops"].column_names.index("opened"), "opened", later)
    raw = {**tables, "orders": orders_, "visits": visits, "shops": shops}, schema
    one = seen(raw, task, time)
    two = seen(FUTURES[future](raw, time, "<=", random.Random(0)), task, time)  # type: ignore[operator]
    assert {name: repr(told) for name, told in one.items()} == {
        name: repr(told) for name, told in two.items()
    }


@pytest.mark.usefixtures("few")
def test_another_order_of_rows_changes_nothing(task: Task) -> None:
    one, two = (seen(raw, task) for raw in (raw_orders(), shuffled(raw_orders(), random.Random(0))))  # type: ignore[arg-type]
    assert {name: repr(told) for name, told in one.items()} == {
        name: repr(told) for name, told in two.items()
    }


GROUPS = {
    "all rows": lambda _: "any",
    "orders.shop": lambda row: row["shop"],
    "orders.shop > shops.town": lambda row: int(row["shop"][1:]) % 4,
    "orders.channel": lambda row: row["channel"],
}


@pytest.mark.parametrize("day", [20, 44, 180])
def test_columns_are_those_of_their_definition(task: Task, day: int) -> None:
    """How often, when last and which share, by loops over plain rows; a shop counts once it is known."""
    tables, _ = raw_orders()
    rows, time = tables["orders"].to_pylist(), START + day * DAY
    view = world(raw_orders(), task)
    reader, seeds, customers = asked(view, time)
    (block,) = reader.blocks(seeds)
    opened = {row["shop"]: row["opened"] for row in tables["shops"].to_pylist()}
    joined = {row["customer"]: row["joined"] for row in tables["customers"].to_pylist()}
    numbers = view.database["orders"].data["number"].to_pylist()
    pairs = pair_rows(reader, seeds)
    names = block.columns.names()
    for path, group in GROUPS.items():
        for place, node in enumerate(seeds.node.tolist()):
            own = rows[numbers[node - view.database.offsets["orders"]]]
            has_group = group(own) is not None
            if "shop" in path:
                has_group &= opened[own["shop"]].value <= time
            known = [
                row
                for row in rows
                if has_group
                and group(row) == group(own)
                and row["placed"].value + LAG <= time
                and joined[row["customer"]].value <= time
                and ("shop" not in path or opened[row["shop"]].value <= time)
            ][-500:]
            count = Counter(row["customer"] for row in known)
            mine = np.flatnonzero(pairs.seed == place)
            for at in mine.tolist():
                who_ = customers[int(reader.past.items.rows[pairs.item[at]])]
                told = dict(zip(names, pairs.matrix[at].tolist(), strict=True))
                assert told[f"{path}: times"] == count[who_]
                assert told[f"{path}: share"] == pytest.approx(count[who_] / max(1, len(known)), abs=1e-6)
                last = [
                    max(
                        row["placed"].value + LAG,
                        joined[who_].value,
                        opened[row["shop"]].value if "shop" in path else 0,
                    )
                    for row in known
                    if row["customer"] == who_
                ]
                if last:
                    assert told[f"{path}: last"] == pytest.approx((time - max(last)) / reader.unit, abs=1e-5)
                else:
                    assert np.isnan(told[f"{path}: last"])


def test_cells_are_compared_with_those_of_the_last_rows_of_an_item(task: Task) -> None:
    tables, _ = raw_orders()
    rows, view = tables["orders"].to_pylist(), world(raw_orders(), task)
    reader, seeds, customers = asked(view)
    (block,) = reader.blocks(seeds)
    joined = {row["customer"]: row["joined"] for row in tables["customers"].to_pylist()}
    numbers = view.database["orders"].data["number"].to_pylist()
    told = view.features.statistics.tables["orders"].columns["amount"]
    pairs, place = pair_rows(reader, seeds), block.columns.names().index("amount beside the item's")
    num_told = 0
    for seed, item, values in zip(pairs.seed.tolist(), pairs.item.tolist(), pairs.matrix, strict=True):
        own = rows[numbers[int(seeds.node[seed]) - view.database.offsets["orders"]]]["amount"]
        who_ = customers[int(reader.past.items.rows[item])]
        known = [row for row in rows if row["customer"] == who_ and row["placed"].value + LAG <= TIME]
        known.sort(key=lambda row: max(row["placed"].value + LAG, joined[who_].value))
        amounts = [row["amount"] for row in known[-8:] if row["amount"] is not None]
        if own is None or not amounts:
            assert np.isnan(values[place])
        else:
            num_told += 1
            assert values[place] == pytest.approx((own - np.mean(amounts)) / told.std, abs=1e-4)  # type: ignore[union-attr]
    assert num_told > 100


def test_orders_at_a_shop_that_is_not_known_yet_share_nothing_by_it(task: Task) -> None:
    view = world(raw_orders(), task)
    table = view.database["orders"]
    reader = Reader.of(view, PATHS, step=STEP)
    row = next(n for n, shop in enumerate(table.data["shop"].to_pylist()) if shop == f"S{LATE_SHOP:02d}")
    node = np.array([row + view.database.offsets["orders"]])
    path = reader.past.paths[1]
    for day, has_group in ((39, False), (40, True)):
        sources = Sources(reader.past.sources.of_nodes(node), np.array([START + day * DAY]))
        assert (path.groups.at(sources, "<=")[0] < path.groups.size) == has_group


def test_the_link_is_hidden_and_labels_are_rows(task: Task) -> None:
    assert "customer" not in task.database["orders"].data.column_names
    assert {r.parent for r in task.database.relations if r.table == "orders"} == {"shops"}
    assert {r.parent for r in task.database.relations if r.table == KNOWN_LABELS} == {"orders", "customers"}
    labels = task.database[KNOWN_LABELS]
    placed = task.database["orders"].known_at
    of = next(r.rows for r in task.database.relations if r.label == f"{KNOWN_LABELS}.entity")
    assert (labels.known_at == placed[of] + LAG).all()


def test_paths_are_found_without_being_told(task: Task) -> None:
    statistics = FeatureTable.fit(task.database, task.splits.val).statistics
    recipe = view_of(task.database, task).recipe
    view = View(task.database, FeatureTable.encode(task.database, statistics), task.spec, recipe)
    reader = Reader.of(view, labels=task.seeds("train"))
    assert {path.name for path in reader.past.paths} == set(PATHS)
    assert reader.past.paths[0].name == "all rows"
    assert reader.past.main.name in ("orders.shop", "orders.shop: visits.shop & visits.customer")
    assert reader.step == np.ptp(task.seeds("train").time) // 64


def test_many_rows_are_listed_and_few_are_classes() -> None:
    assert orders().task(QUERY).spec.type == "recommendation"
    assert orders().task(QUERY.replace("FOR", "RANK TOP 3 FOR")).spec.eval_k == 3
    assert orders().task(QUERY.replace("FOR", "CLASSIFY FOR")).spec.type == "multiclass_classification"
    assert (
        orders().task("PREDICT orders.shop FOR EACH orders.number").spec.type == "multiclass_classification"
    )
    ranked = orders().task("PREDICT orders.shop RANK TOP 2 FOR EACH orders.number").spec
    assert (ranked.type, ranked.item_table, ranked.eval_k) == ("recommendation", "shops", 2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target_col": "channel"}, r'L02.*is no link, and rows of "customers"'),
        ({"target_col": "shop"}, r'L02.*a link to "shops", and rows of "customers"'),
        ({"val_timestamp": "2023-01-02"}, r"L05.*no training labels"),
    ],
)
def test_what_cannot_be_filled_in_says_why(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(TaskError, match=said):
        who(**changes).check()


def test_a_column_that_tells_the_link_is_a_finding() -> None:
    tables, schema = raw_orders()
    orders_ = tables["orders"]
    badge = pa.array([f"badge {name}" for name in orders_["customer"].to_pylist()])
    raw = {**tables, "orders": orders_.append_column("badge", badge)}, schema
    task = Task.load(Database.build(*raw), WHO)
    assert [f.where for f in task.check() if f.code == "L04"] == ["orders.badge"]
