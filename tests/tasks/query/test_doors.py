"""A query is a task by every door: in Python, in a task file, as SQL written down, in a record, in every verb."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from quartet.database import Database, TimeColumn
from quartet.errors import QueryError, TaskError, UsageError
from quartet.tasks import SPLITS, Task, TaskRecord, is_query, read_query, selected_keys, task_yaml
from quartet.times import show_instant
from tests.tasks.small import CHURN, DAY, START, small_shop, write_small_shop
from tests.trained import invoke, run

QUERY = (
    "PREDICT COUNT(orders.*, 0, 10, days) = 0\n"
    "FOR EACH customers.customer WHERE COUNT(orders.*, -30, 0, days) > 0"
)
NAMED = {"name": "churn", "target_col": "churned", "num_eval_timestamps": 1}


def rows(task: Task) -> list[object]:
    return [task.label_rows(split).to_pydict() for split in SPLITS]


def test_a_query_says_the_task_that_sql_says(tmp_path: Path) -> None:
    shop = small_shop()
    told = Task.from_sql(shop, **CHURN)
    cut_offs = {
        "val_timestamp": show_instant(told.splits.val),
        "test_timestamp": show_instant(told.splits.test),
    }
    given = NAMED | cut_offs
    (tmp_path / "churn.yaml").write_text(yaml.safe_dump({"query": QUERY, **given}))
    wanted = rows(told)
    for task in (
        shop.query(QUERY, **given),
        shop.task(QUERY, **given),
        shop.task(query=QUERY, **given),
        Task.load(shop, {"query": QUERY, **given}),
        Task.load(shop, tmp_path / "churn.yaml"),
    ):
        assert rows(task) == wanted
        assert task.spec.query == QUERY
        assert task.name == "churn"
    assert not shop.query(QUERY).check()


def test_what_follows_from_a_query() -> None:
    spec = small_shop().query(QUERY).spec
    assert spec.name == "customers-no-orders-10-days"
    assert (spec.entity_table, spec.entity_col, spec.time_col) == ("customers", "customer", "timestamp")
    assert (spec.target_col, spec.type, spec.kind) == (
        "no_orders_10_days",
        "binary_classification",
        "forecast",
    )
    assert spec.num_eval_times == 3  # windows of ten days in thirty


@pytest.mark.parametrize(
    ("target", "name", "kind"),
    [
        ("COUNT(orders.*, 0, 10)", "count_orders_10_days", "regression"),
        ("COUNT(orders.*, 0, 3, weeks) > 0", "any_orders_3_weeks", "binary_classification"),
        ("COUNT(orders.*, 7, 14) > 0", "any_orders_7_to_14_days", "binary_classification"),
        (
            "SUM(orders.amount, 0, 1, month) >= 50",
            "sum_orders_amount_from_50_1_months",
            "binary_classification",
        ),
        ("LAST(orders.customer, 0, 10)", "last_orders_customer_10_days", "multiclass_classification"),
        ("COUNT(orders.*, 0, 10) CLASSIFY", "count_orders_10_days", "multiclass_classification"),
    ],
)
def test_names_and_types(target: str, name: str, kind: str) -> None:
    spec = small_shop().query(f"PREDICT {target} FOR EACH customers.customer").spec
    assert (spec.target_col, spec.type) == (name, kind)


def test_a_month_is_as_long_as_the_longest() -> None:
    spec = small_shop().query("PREDICT COUNT(orders.*, 0, 1, month) FOR EACH customers.customer").spec
    assert spec.horizon == 31 * 86_400 * 10**9


def test_a_written_task_gives_the_same_labels_and_is_the_same_task(tmp_path: Path) -> None:
    shop = small_shop()
    for query in (
        QUERY,
        "PREDICT AVG(orders.amount, 0, 10) FOR EACH customers.customer WHERE customers.customer LIKE 'C_%'",
        "PREDICT LIST_DISTINCT(orders.customer, 0, 10) RANK TOP 3 FOR EACH customers.customer",
        "PREDICT orders.amount FOR EACH orders.order",
    ):
        task = shop.query(query)
        (tmp_path / "task.yaml").write_text(task_yaml(task))
        again = Task.load(shop, tmp_path / "task.yaml")
        assert rows(again) == rows(task)
        assert again.definition == task.definition
        assert again.spec.population == task.spec.population


def test_rows_without_a_label_are_counted_not_refused() -> None:
    task = small_shop().query(
        "PREDICT AVG(orders.amount WHERE orders.amount > 60, 0, 10) FOR EACH customers.customer"
    )
    [finding] = task.findings("train")
    assert finding.code == "L08"
    assert finding.count == task.label_rows("train").num_rows - len(task.seeds("train")) > 400


def test_sources_without_items_are_said_to_be_so() -> None:
    task = small_shop().query(
        "PREDICT LIST_DISTINCT(orders.customer, 0, 2) RANK TOP 3 FOR EACH customers.customer"
    )
    [finding] = task.findings("train")
    assert "rows have no item in their window and are left out. Fix: if these need no answer" in str(finding)


def test_a_record_keeps_query_and_population() -> None:
    task = small_shop().query(QUERY)
    record = TaskRecord.from_dict(json.loads(json.dumps(TaskRecord.of(task).to_dict())))
    assert record.spec == task.spec
    assert "SELECT" in record.spec.population
    again = record.reopen(task.full_database)
    assert again.digest == task.digest
    assert rows(again) == rows(task)


def test_a_record_binds_a_query_at_its_own_cut_offs() -> None:
    """Those of a query are its last windows, not a tenth of the data; rows that came later move them no more."""
    shop = small_shop()
    is_old = shop["orders"].known_at <= shop["orders"].known_at.max() - 9 * DAY
    then = shop.taking({"customers": shop["customers"].known_at <= START, "orders": is_old})
    task = then.query("PREDICT COUNT(orders.*, 0, 4, days) = 0 FOR EACH customers.customer")
    record = TaskRecord.of(task)
    for database in (then, shop):
        again = record.as_then(record.reopen(database))
        assert again.splits.is_proposed
        record.check_same(TaskRecord.of(again), "the run")
        assert rows(again) == rows(task)
    asked_again = shop.query(task.spec.query)
    assert asked_again.splits != task.splits
    record.check_same(TaskRecord.of(record.as_then(asked_again)), "the run")


def test_white_space_and_comments_make_no_other_task() -> None:
    shop = small_shop()
    other = shop.query("-- who leaves?\n" + QUERY.replace("\n", "   "))
    assert other.definition == shop.query(QUERY).definition


@pytest.mark.parametrize(
    ("text", "expected"),
    [(QUERY, True), ("predict\tx", True), ("/* a */ -- b\n PREDICT a.b FOR EACH a.id", True), ("predict.yaml", False),
     ("predictions", False), ("churn", False), ("", False)],
)  # fmt: skip
def test_what_is_a_query(text: str, expected: bool) -> None:
    assert is_query(text) is expected


def test_a_query_takes_no_labels() -> None:
    with pytest.raises(UsageError, match="fields of a task besides"):
        small_shop().task(QUERY, labels="labels.csv")


def test_the_verb_query(tmp_path: Path) -> None:
    source = write_small_shop(tmp_path / "shop")
    shown = invoke("query", str(source), QUERY)
    for part in (
        "customers-no-orders-10-days",
        "COUNT(orders.*, -30, 0, days) > 0",
        "roc_auc",
        "positive",
        "3 in val",
    ):
        assert part in shown, shown
    assert invoke("query", str(source), QUERY, "--sql").count("SELECT t.timestamp") == 5
    file = tmp_path / "tasks" / "churn.yaml"
    invoke("query", str(source), QUERY, "--write-task", str(file), "--name", "leaves", "--windows", "1")
    loaded = Task.load(Database.load(source), file)
    assert (loaded.name, loaded.spec.num_eval_times) == ("leaves", 1)
    assert "leaves" in invoke("task", str(source), str(file))


def test_the_verb_query_overwrites_no_other_file_and_hides_what_there_is(tmp_path: Path) -> None:
    source, file = write_small_shop(tmp_path / "shop"), tmp_path / "shop.sqlite"
    file.write_text("theirs")
    for words in (["--write-task", str(file)], ["--hide", "age"], ["--hide", "customers.agee"]):
        done = run("query", str(source), QUERY, *words)
        assert (done.returncode, done.stderr.count("error[")) in ((2, 1), (3, 1)), done.stderr
    assert file.read_text() == "theirs"


def test_columns_of_a_task_that_differ_in_case_alone_are_refused() -> None:
    with pytest.raises(TaskError, match="three different columns"):
        small_shop().query(QUERY, time_col="CUSTOMER")


def test_verbs_that_take_a_task_take_a_query(tmp_path: Path) -> None:
    source = write_small_shop(tmp_path / "shop")
    assert "customers-no-orders-10-days" in invoke("task", str(source), QUERY)


def test_the_verb_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_small_shop(tmp_path / "shop")
    monkeypatch.chdir(tmp_path)
    query = QUERY.replace("FOR EACH customers.customer", "FOR customers.customer IN (1, 2)")
    words = ["--model", "lightgbm", "--time-limit", "1m", "--out", "scores.csv"]
    shown = invoke("ask", str(source), query, *words)
    assert "roc_auc" in shown
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 3
    assert (tmp_path / "runs" / "latest").exists()
    with pytest.raises(QueryError, match="Q09"):
        invoke(
            "ask",
            str(source),
            QUERY.replace("EACH customers.customer", "customers.customer = 99"),
            "--runs",
            "none",
        )
    assert not (tmp_path / "none").exists()


def test_what_cannot_be_answered_is_said_before_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(*_: object, **__: object) -> None:
        raise AssertionError("a training was begun")

    source, secret = write_small_shop(tmp_path / "shop"), "postgresql://me:pa55@host/db"
    monkeypatch.setattr("quartet.runs.fit", trained)
    asked = "PREDICT COUNT(orders.*, 0, 10) = 0 FOR customers.customer"
    for query, words in (
        (f"{asked} = 777", []),
        (f"{asked} = 1", ["--at", "soon"]),
        (f"{asked} = 1", ["--out", f"{secret.replace('postgresql', 'mysql')}#scores"]),
    ):
        done = run("ask", str(source), query, *words)
        assert "error[" in done.stderr
        assert "a training" not in done.stderr
        assert "pa55" not in done.stdout + done.stderr


def test_ask_answers_for_those_who_are_known_and_shows_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = pa.array([START + (200 if row >= 30 else 0) * DAY for row in range(40)], pa.timestamp("ns"))
    shop = small_shop()
    tables = {name: table.data for name, table in shop.tables.items()}
    tables["customers"] = tables["customers"].append_column("joined", joined)
    customers = replace(shop.schema.tables["customers"], time=TimeColumn("joined"))
    schema = replace(shop.schema, tables={**shop.schema.tables, "customers": customers})
    database = Database.build(tables, schema)
    monkeypatch.setattr("quartet.cli.ask.open_database", lambda *_: database)
    monkeypatch.chdir(tmp_path)
    query = "PREDICT COUNT(orders.*, 0, 10) = 0 FOR customers.customer IN ('C01', 'C02', 'C39')"
    words = ["--model", "lightgbm", "--time-limit", "1m", "--at", "2023-06-01", "--out", "scores.csv"]
    done = run("ask", "postgresql://me:pa55@host/db", query, *words, "--drop-early")
    shown = done.stdout + done.stderr
    assert "1 of those who are asked for are not known then" in shown
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 3
    assert "pa55" not in shown
    assert "postgresql://me:***@host/db" in shown


@pytest.mark.parametrize("name", ["households", "Household", "household_id"])
def test_a_query_makes_the_entity_table_that_it_names(name: str) -> None:
    days = [START + day * DAY for day in range(300)]
    visits = {"household_id": [day % 7 for day in range(300)], "on": pa.array(days, pa.timestamp("ns"))}
    schema = {"tables": {"visits": {"pkey": None, "time_col": "on"}}}
    database = Database.load({"visits": pa.table(visits)}, schema)
    query = f"PREDICT COUNT(visits.*, 0, 5) > 0 FOR {name}.household_id IN (1, 9)"
    task = Task.load(database, query)
    assert task.spec.entity_table == "households"
    assert task.full_database["households"].num_rows == 7
    assert selected_keys(read_query(query, database), days[1]) == ([1], 0)
    with pytest.raises(QueryError, match="is known at 2023-01-01"):
        selected_keys(read_query(query, database), days[0])
    with pytest.raises(QueryError, match='did you mean "households"'):
        Task.load(database, query.replace(name, "hosueholds"))


def test_ask_tells_every_finding_of_the_task_once_and_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_small_shop(tmp_path / "shop")
    monkeypatch.chdir(tmp_path)
    query = "PREDICT AVG(orders.amount, 0, 10, days) FOR EACH customers.customer"
    shown = invoke("ask", str(source), query, "--model", "lightgbm") + capsys.readouterr().err
    for finding in Database.load(source).query(query).check():
        assert shown.count(finding.message[:60]) == 1, finding
    assert "L08" in shown[: shown.index("seeds")]


def test_ask_reads_views_hides_columns_and_writes_into_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tables = small_shop().tables
    with closing(sqlite3.connect("shop.sqlite")) as file:
        for name in ("customers", "orders"):
            tables[name].data.to_pandas().to_sql(f"all_{name}", file, index=False)
            file.execute(f"CREATE VIEW {name} AS SELECT * FROM all_{name}")
    Path("schema.yaml").write_text(
        "tables: {customers: {pkey: customer}, orders: {time_col: bought, fkeys: {customer: customers}}, "
        "all_customers: {pkey: null, fkeys: {}, time_col: null}, all_orders: {pkey: null, fkeys: {}, time_col: null}}"
    )
    words = ["--views", "--schema", "schema.yaml", "--name", "leaves", "--windows", "1"]
    given = ["--hide", "all_orders.bought", "--top", "2"]
    shown = invoke(
        "ask", "shop.sqlite", QUERY, *words, *given, "--model", "lightgbm", "--out", "shop.sqlite#scores"
    )
    assert "1 in validation and in test (as given)" in shown
    assert "the highest 2" in shown
    with closing(sqlite3.connect("shop.sqlite")) as file:
        assert file.execute("SELECT COUNT(*) FROM scores WHERE horizon = '10 days'").fetchone()[0] > 2


def test_a_column_is_judged_by_the_last_of_its_rows() -> None:
    """Customers join in the first hundred days, and orders go on for two hundred more."""
    shop = small_shop()
    tables = {name: table.data for name, table in shop.tables.items()}
    joined = pa.array([START + 2 * row * DAY for row in range(40)], pa.timestamp("ns"))
    tables["customers"] = (
        tables["customers"].append_column("joined", joined).append_column("city", pa.array(["a", "b"] * 20))
    )
    customers = replace(shop.schema.tables["customers"], time=TimeColumn("joined"))
    schema = replace(shop.schema, tables={**shop.schema.tables, "customers": customers})
    task = Database.build(tables, schema).query("PREDICT customers.city FOR EACH customers.customer")
    assert task.splits.is_proposed
    assert [len(task.seeds(split)) for split in SPLITS] == [32, 4, 4]
