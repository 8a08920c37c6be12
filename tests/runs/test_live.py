"""A model bound to a database: built once, asked many times; grown data are scored, changed schemas are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
import torch

from quartet.database import Database
from quartet.errors import QuartetError, SchemaError, UsageError
from quartet.features import FeatureTable
from quartet.graph import TemporalGraph
from quartet.runs import Ensemble, TrainedModel, fit, load
from quartet.tasks import KNOWN_LABELS
from quartet.times import parse_instant
from tests.shop import day
from tests.tasks.small import CHURN, small_shop
from tests.trained import QUICK, SHOP_SCHEMA, TINY, TREES, Heard, Tables, opened, plain, shop_tables

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in the same order: bits are compared here

AT = "2023-09-01"


@pytest.fixture(scope="module")
def shop() -> Database:
    return opened(shop_tables())


@pytest.fixture(scope="module")
def model(shop: Database, tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    folder = tmp_path_factory.mktemp("runs")
    return fit(shop.task(CHURN), recipe=TINY, runs=folder, cache=folder / "cache", listener=Heard())


@pytest.fixture(scope="module")
def past_label_models(shop: Database, tmp_path_factory: pytest.TempPathFactory) -> list[TrainedModel]:
    """Two networks and trees that see past labels, and one that does not."""
    folder, task = tmp_path_factory.mktemp("past"), shop.task(CHURN)
    recipes = [
        TINY.changed(past_labels=True, epochs=1),
        TINY.changed(past_labels=True, epochs=1, rng_seed=1),
        TREES.changed(past_labels=True),
        TINY.changed(epochs=1, rng_seed=2),
    ]
    return [
        fit(task, recipe=recipe, runs=folder, cache=folder / "cache", listener=Heard()) for recipe in recipes
    ]


def test_the_time_rule_of_training_is_that_of_predictions(model: TrainedModel, shop: Database) -> None:
    """Strictly before: rows of the asked moment itself might as well not be there."""
    checkpoint = model.members[0][0]
    strict = TrainedModel([(replace(checkpoint, recipe=checkpoint.recipe.changed(time_rule="<")), None)])
    at = int(np.median(shop["orders"].known_at))
    assert at in shop["orders"].known_at

    def scores(asked: TrainedModel, database: Database) -> bytes:
        return asked.on(database, listener=Heard()).predict(at=at).table["score"].to_numpy().tobytes()

    assert scores(strict, shop) == scores(strict, shop.upto(at, "<"))
    assert scores(model, shop) != scores(model, shop.upto(at, "<"))


# --- asked many times, built once ---------------------------------------------------------------------


class Counted:
    """How often the parts of a binding are built."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.calls = {"graph": 0, "features": 0, "labels": 0}
        self._count(patched, "graph", TemporalGraph, "build")
        self._count(patched, "features", FeatureTable, "encode")
        import quartet.tasks.record as record

        self._count(patched, "labels", record, "with_past_labels")

    def _count(self, patched: pytest.MonkeyPatch, name: str, owner: Any, attribute: str) -> None:
        original = getattr(owner, attribute)

        def counted(*args: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return original(*args, **options)

        patched.setattr(owner, attribute, staticmethod(counted) if isinstance(owner, type) else counted)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def test_graph_and_features_are_built_once(model: TrainedModel, shop: Database, counted: Counted) -> None:
    live = model.on(shop, listener=Heard())
    assert counted.calls["features"] == 1  # what cannot be read is said at once
    first = live.predict(["C03", "C07"], AT)
    for at in ("2023-06-01", "2023-10-01", None, AT):
        last = live.predict(["C03", "C07"], at)
    assert counted.calls == {"graph": 1, "features": 1, "labels": 0}
    assert last.table.equals(first.table)
    assert model.on(shop, listener=Heard()).predict(["C03", "C07"], AT).table.equals(first.table)


def test_an_ensemble_makes_past_labels_once_and_shares_the_graph(
    past_label_models: list[TrainedModel], shop: Database, counted: Counted
) -> None:
    one, other, _, _ = past_label_models
    live = Ensemble(one, other).on(shop, listener=Heard())
    later = live.predict(at="2023-10-01").table
    together = live.predict(at=AT).table
    assert live.predict(at="2023-10-01").table.equals(later)
    assert counted.calls == {"graph": 1, "features": 1, "labels": 1}
    assert together.equals(Ensemble(one, other).on(shop, listener=Heard()).predict(at=AT).table)


def test_labels_after_the_asked_time_are_not_made(
    past_label_models: list[TrainedModel], shop: Database, counted: Counted
) -> None:
    """A later row may hold what the task's SQL cannot read. A second, later time binds to the end of the data."""
    live = past_label_models[0].on(shop, listener=Heard())
    live.predict(at=AT)
    known_at = live.views[0].database[KNOWN_LABELS].known_at
    assert len(known_at)
    assert known_at.max() <= parse_instant(AT, "AT")
    for at in ("2023-09-10", "2023-10-01", "2023-09-20"):
        live.predict(at=at)
    assert counted.calls["labels"] == 2


def test_an_ensemble_of_unequal_members_builds_each_thing_once(
    past_label_models: list[TrainedModel], shop: Database, counted: Counted
) -> None:
    """With past labels and without: two databases, two graphs, two tables of features, labels once."""
    live = Ensemble(*past_label_models).on(shop, listener=Heard())
    live.predict(at="2023-10-01")
    together = live.predict(at=AT).table
    assert counted.calls["labels"] == 1
    assert counted.calls["graph"] == 2
    alone = [each.on(shop, listener=Heard()).predict(at=AT).table for each in past_label_models]
    for name in ("score", "calibrated"):
        mean = np.mean([table[name].to_numpy() for table in alone], axis=0)
        assert np.array_equal(together[name].to_numpy(), mean)


@pytest.mark.parametrize("number", [0, 2])
def test_earlier_and_later_questions_have_the_bits_of_fresh_bindings(
    number: int, past_label_models: list[TrainedModel], shop: Database
) -> None:
    """Also past the end of the data, for which more labels are made."""
    model, times = past_label_models[number], ("2023-10-01", "2023-06-01", "2023-12-24", AT)
    live = model.on(shop, listener=Heard())
    for at in times:
        fresh = model.on(shop, listener=Heard()).predict(at=at)
        assert live.predict(at=at).table.equals(fresh.table)


def test_members_that_know_the_tables_in_another_order_read_them_in_their_own(
    shop: Database, model: TrainedModel, tmp_path: Path
) -> None:
    turned = opened(dict(reversed(shop_tables().items())))
    assert list(turned.tables) != list(shop.tables)
    other = fit(turned.task(CHURN), "quartet", runs=tmp_path, cache=tmp_path, listener=Heard(), **QUICK)
    alone = [
        plain(each.on(shop, listener=Heard()).predict(at=AT))["score"].to_numpy() for each in (model, other)
    ]
    together = plain(Ensemble(model, other).on(shop, listener=Heard()).predict(at=AT))["score"].to_numpy()
    assert np.array_equal(together, np.mean(alone, axis=0))


def test_members_with_other_cut_offs_know_the_labels_of_their_own(shop: Database, tmp_path: Path) -> None:
    """Windows of labels are counted from the cut-offs."""
    cuts = [("2023-07-01", "2023-08-15"), ("2023-08-05", "2023-09-10")]
    models = [
        fit(shop.task(CHURN, val_timestamp=val, test_timestamp=test), "lightgbm", past_labels=True, runs=tmp_path,
            listener=Heard())
        for val, test in cuts
    ]  # fmt: skip
    alone = [plain(each.on(shop, listener=Heard()).predict(at=AT))["score"].to_numpy() for each in models]
    together = plain(Ensemble(*models).on(shop, listener=Heard()).predict(at=AT))["score"].to_numpy()
    assert np.array_equal(together, np.mean(alone, axis=0))


def test_many_seeds_are_asked_some_at_a_time_with_the_same_bits(
    model: TrainedModel, shop: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do the bits depend on the number of threads."""
    who = [f"C{k:02d}" for k in range(40)] * 15
    when = [f"2023-09-{1 + number:02d}" for number in range(15) for _ in range(40)]
    live, heard = model.on(shop, listener=Heard()), Heard()
    together = live.predict(who, when).table
    monkeypatch.setattr("quartet.training.data._AT_ONCE", 512)
    assert live.predict(who, when, listener=heard).table.equals(together)
    assert heard.work == {"scores": [(512, 600), (88, 600)]}
    torch.set_num_threads(2)
    by_two = live.predict(who, when).table
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    assert by_two.equals(together)


# --- entities and times -------------------------------------------------------------------------------


def test_keys_come_with_names_where_the_table_has_them(model: TrainedModel, shop: Database) -> None:
    scores = model.on(shop, listener=Heard()).predict(["C03", "C30"], AT)
    assert scores.table.column_names == ["customer", "name", "time", "score", "calibrated", "set"]
    assert scores.table["name"].to_pylist() == ["Person Ad", "Person Be"]
    frame = scores.to_pandas()
    assert list(frame["customer"]) == ["C03", "C30"]
    assert len(scores) == 2
    assert "Person Ad" in str(scores)


def test_entities_and_times(model: TrainedModel, shop: Database) -> None:
    live = model.on(shop, listener=Heard())
    everyone = live.predict(at="2023-06-01", everyone=True).table
    assert everyone.num_rows == 40
    two = live.predict(["C03", "C07"], at="2023-06-01").table
    scores = dict(zip(everyone["customer"].to_pylist(), everyone["score"].to_pylist(), strict=True))
    assert two["score"].to_pylist() == pytest.approx([scores["C03"], scores["C07"]], abs=1e-6)
    later = live.predict(["C03", "C03"], ["2023-06-01", "2023-08-01"]).table
    assert later["score"][0] != later["score"][1]
    last = live.predict(["C03"]).table["time"].cast(pa.int64()).to_pylist()
    assert last == [shop.span[1]]  # type: ignore[index]
    assert len(live.predict([], AT)) == 0


@pytest.mark.parametrize(
    "at",
    [
        "2023-06-01", date(2023, 6, 1), datetime(2023, 6, 1), datetime(2023, 6, 1, tzinfo=UTC),
        np.datetime64("2023-06-01"), 1685577600 * 10**9, ["2023-06-01"], np.array(["2023-06-01"], "datetime64[ns]"),
    ],
)  # fmt: skip
def test_a_time_may_be_written_in_many_ways(at: Any, model: TrainedModel, shop: Database) -> None:
    asked = model.on(shop, listener=Heard()).predict(["C03"], at).table
    assert asked["time"].cast(pa.int64()).to_pylist() == [1685577600 * 10**9]


def test_pandas_keys_and_times_are_keys_and_times(model: TrainedModel, shop: Database) -> None:
    pd = pytest.importorskip("pandas")
    live = model.on(shop, listener=Heard())
    expected = live.predict(["C03", "C07"], "2023-06-01").table
    assert live.predict(pd.Series(["C03", "C07"]), pd.Timestamp("2023-06-01")).table.equals(expected)
    assert live.predict(np.array(["C03", "C07"]), pd.to_datetime(["2023-06-01"] * 2)).table.equals(expected)


@pytest.mark.parametrize(
    ("entities", "at", "message"),
    [
        (["C03", "C99"], AT, r'L11.*1 of 2 entities are not in "customers".*C99'),
        ([3, 7], AT, r"(S08|L11)"),
        (["C03"], "noon", r"T02"),
        (["C03", "C04", "C05"], [AT, "2023-06-02"], r"C02.*3 entities and 2 times"),
        (None, [AT, "2023-06-02"], r"C02.*several times.*no entities"),
    ],
)
def test_a_wrong_question_is_refused(
    model: TrainedModel, shop: Database, entities: Any, at: Any, message: str
) -> None:
    with pytest.raises(QuartetError, match=message):
        model.on(shop, listener=Heard()).predict(entities, at)


def test_entities_that_are_not_there_yet_are_refused(tmp_path: Path) -> None:
    """Orders come to be known on their day; who asks for all gets those that are known."""
    fields = {"name": "amount", "task_type": "regression", "entity_table": "orders", "target_col": "amount"}
    shop = small_shop()
    task = shop.task({**fields, "kind": "autocomplete"})
    model = fit(task, "lightgbm", runs=tmp_path, listener=Heard())
    live = model.on(shop, listener=Heard())
    last = shop["orders"].num_rows - 1
    with pytest.raises(QuartetError, match=r"T05.*orders"):
        live.predict([0, last], at="2023-01-10")
    assert 0 < len(live.predict(at="2023-01-10")) < last


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_predictions_are_written(suffix: str, model: TrainedModel, shop: Database, tmp_path: Path) -> None:
    scores = model.on(shop, listener=Heard()).predict(["C03", "C07"], AT)
    path = tmp_path / "new" / f"scores{suffix}"
    scores.write(path)
    read = pq.read_table(path) if suffix == ".parquet" else csv.read_csv(path)
    assert read["score"].to_pylist() == scores.table["score"].to_pylist()
    with pytest.raises(UsageError, match=r'C02.*cannot be written as "\.xls"'):
        scores.write(tmp_path / "scores.xls")


# --- a database that has changed ----------------------------------------------------------------------


def test_new_rows_entities_and_categories_are_scored_and_reported(
    model: TrainedModel, shop: Database
) -> None:
    tables = shop_tables()
    new = {
        "customer": ["C98", "C99"],
        "age": [33, None],
        "city": ["Bonn", "Rome"],
        "full_name": ["Ann", "Bo"],
    }
    last = int(tables["orders"]["order"].to_numpy().max())
    times = pa.array(np.array(["2023-10-28", "2023-10-29"], "datetime64[ns]"))
    more = {"order": [last + 1, last + 2], "customer": ["C98", "C99"], "bought": times, "amount": [5.0, 7.5]}
    grown = opened(
        {
            "customers": pa.concat_tables(
                [tables["customers"], pa.table(new).cast(tables["customers"].schema)]
            ),
            "orders": pa.concat_tables([tables["orders"], pa.table(more).cast(tables["orders"].schema)]),
        }
    )
    heard = Heard()
    live = model.on(grown, listener=heard)
    scores = live.predict().table
    assert scores["customer"].to_pylist()[-2:] == ["C98", "C99"]
    assert np.isfinite(scores["score"].to_numpy()).all()
    (finding,) = (finding for finding in heard.findings if finding.code == "V03" and "city" in str(finding))
    assert "Rome" in finding.message
    before = model.on(shop, listener=Heard()).predict(["C03", "C07"], AT)
    assert live.predict(["C03", "C07"], AT).table.equals(before.table)


def test_the_past_is_answered_as_it_was(model: TrainedModel, shop: Database) -> None:
    then = shop.upto(int(np.datetime64("2023-09-01", "ns").astype(np.int64)))
    assert then.num_rows < shop.num_rows
    one, other = (model.on(one, listener=Heard()).predict(at=AT) for one in (then, shop))
    assert one.table.equals(other.table)


def test_the_order_of_tables_decides_nothing(model: TrainedModel, shop: Database) -> None:
    turned = replace(shop, tables=dict(reversed(shop.tables.items())))
    one, other = (model.on(one, listener=Heard()).predict() for one in (shop, turned))
    assert one.table.equals(other.table)


def renamed(tables: Tables, table: str, **names: str) -> Tables:
    columns = [names.get(name, name) for name in tables[table].column_names]
    return {**tables, table: tables[table].rename_columns(columns)}


def retyped(tables: Tables, table: str, column: str, kind: pa.DataType) -> Tables:
    place = tables[table].column_names.index(column)
    cast = tables[table][column].cast(kind)
    return {**tables, table: tables[table].set_column(place, column, cast)}


def schema_with(table: str, **words: Any) -> dict[str, Any]:
    return {**SHOP_SCHEMA, table: {**SHOP_SCHEMA[table], **words}}


@pytest.mark.parametrize(
    ("change", "schema", "message"),
    [
        (
            lambda tables: renamed(tables, "customers", age="ages"),
            SHOP_SCHEMA,
            r'V04.*"customers": column "age".*absent \(did you mean "ages"\?\)',
        ),
        (
            lambda tables: {**tables, "orders": tables["orders"].drop_columns(["amount"])},
            SHOP_SCHEMA,
            r'V04.*"orders": column "amount" was used in training and is absent',
        ),
        (
            lambda tables: retyped(tables, "customers", "age", pa.string()),
            SHOP_SCHEMA,
            r"V06.*customers\.age held numbers in training and holds text now",
        ),
        (
            lambda tables: {"customers": tables["customers"], "purchases": tables["orders"]},
            {"customers": SHOP_SCHEMA["customers"], "purchases": SHOP_SCHEMA["orders"]},
            r'V04.*table "orders" was used in training and is absent',
        ),
        (
            lambda tables: {**tables, "visits": pa.table({"customer": ["C01", "C02"]})},
            {**SHOP_SCHEMA, "visits": {"pkey": None, "time_col": None, "fkeys": {"customer": "customers"}}},
            r'V05.*table "visits" was not there in training',
        ),
        (
            lambda tables: renamed(tables, "orders", customer="buyer"),
            schema_with("orders", fkeys={"buyer": "customers"}),
            r'V04.*"orders\.customer links to customers" held in training.*"orders\.buyer links to customers"',
        ),
        (
            lambda tables: tables,
            schema_with("orders", time_col=None),
            r'V04.*"orders is dated by bought" held in training and does not now',
        ),
        (
            lambda tables: tables,
            schema_with("orders", fkeys={"customer": "customers", "order": "orders"}),
            r'V05.*"orders\.order links to orders" did not hold in training',
        ),
    ],
)  # fmt: skip
def test_a_changed_schema_is_refused_by_name(
    change: Callable[[Tables], Tables],
    schema: dict[str, Any],
    message: str,
    model: TrainedModel,
    past_label_models: list[TrainedModel],
) -> None:
    """When it is bound. The last three are about what is no feature, and would change predictions in silence."""
    changed = opened(change(shop_tables()), schema)
    with pytest.raises(SchemaError, match=message):
        model.on(changed, listener=Heard())
    with pytest.raises(QuartetError, match=message.split('"')[0].split(".*")[0]):
        past_label_models[0].on(changed, listener=Heard()).predict(["C03"])


def test_a_task_of_labels_alone_needs_no_time_of_the_database(tmp_path: Path) -> None:
    """A database without times has no last one: the time must be said."""
    people = pa.table({"id": np.arange(60), "age": np.arange(60) % 7})
    labels = pa.table(
        {
            "who": np.tile(np.arange(60), 3),
            "at": pa.array(np.repeat([day(0), day(30), day(60)], 60), pa.timestamp("ns")),
            "y": np.tile(np.arange(60) % 7 > 3, 3).astype(int),
        }
    )
    database = Database.load(
        {"people": people}, {"tables": {"people": {"pkey": "id", "time_col": None, "fkeys": {}}}}
    )
    task = database.task(
        name="old", task_type="binary_classification", entity_table="people", entity_col="who", time_col="at",
        target_col="y", labels=labels, val_timestamp="2024-01-20", test_timestamp="2024-02-20",
    )  # fmt: skip
    model = fit(task, "lightgbm", runs=tmp_path, listener=Heard())
    live = load(model.folder).on(database, listener=Heard())
    with pytest.raises(UsageError, match=r"C02.*no time was given"):
        live.predict([1])
    assert len(live.predict([1], "2024-03-01")) == 1
