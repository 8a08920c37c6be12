"""A cell that comes later cannot change how earlier ones are read: training refuses, and the fix it names works."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pytest
import yaml

import quartet
from quartet.errors import SchemaError
from tests.tasks.small import CHURN, small_shop
from tests.trained import TREES, Heard, invoke, run


def test_a_word_in_a_later_row_does_not_make_text_of_numbers(tmp_path: Path) -> None:
    shop = small_shop()
    amount = [f"{value:.2f}" for value in shop["orders"].data["amount"].to_pylist()]
    folder = tmp_path / "shop"
    folder.mkdir()
    pa.csv.write_csv(shop["customers"].data, folder / "customers.csv")

    def trained(amounts: list[str], schema: dict[str, object] | None = None) -> bytes:
        orders = shop["orders"].data
        place = orders.column_names.index("amount")
        pa.csv.write_csv(orders.set_column(place, "amount", pa.array(amounts)), folder / "orders.csv")
        database = quartet.open(folder, schema)
        model = quartet.fit(database.task(**CHURN), recipe=TREES, runs=tmp_path / "runs", listener=Heard())
        return model.run.predictions("val")["score"].to_numpy().tobytes()

    honest = trained(amount)
    with pytest.raises(
        SchemaError,
        match=r"S21\] orders.amount would hold no text .*but double.*orders: {kinds: {amount: number}}",
    ):
        trained([*amount[:-1], "unknown"])
    told = {"tables": {"orders": {"kinds": {"amount": "number"}}}}
    assert trained([*amount[:-1], "unknown"], told) == trained(amount, told)
    assert len(honest)


def test_a_run_keeps_the_schema_by_which_it_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, neither key nor link would be found: names and values say nothing of them."""
    monkeypatch.chdir(tmp_path)
    shop = small_shop()
    (tmp_path / "shop").mkdir()
    customers = shop["customers"].data.rename_columns(["x1", "x2"])
    orders = shop["orders"].data.rename_columns(["y1", "y2", "y3", "y4"])

    def write(more: int) -> None:
        last = orders.slice(orders.num_rows - more) if more else orders.slice(0, 0)
        again = [pa.array(range(10**6, 10**6 + more), orders["y1"].type), last["y2"], last["y3"], last["y4"]]
        later = pa.compute.add(last["y3"], pa.scalar(10 * 86_400 * 10**9, pa.duration("ns")))
        again[2] = later
        pa.csv.write_csv(pa.concat_tables([orders, pa.table(again, orders.schema)]), "shop/b.csv")

    pa.csv.write_csv(customers, "shop/a.csv")
    write(0)
    sql = CHURN["sql"].replace("orders", "b").replace("o.customer", "o.y2").replace("o.bought", "o.y3")
    task = CHURN | {"kind": "forecast", "sql": sql, "entity_table": "a"}
    Path("churn.yaml").write_text(yaml.safe_dump(task))
    schema = {
        "a": {"pkey": "x1", "time_col": None},
        "b": {"pkey": "y1", "time_col": "y3", "fkeys": {"y2": "a"}},
    }
    Path("schema.yaml").write_text(yaml.safe_dump({"tables": schema}))
    invoke("train", "shop", "churn.yaml", "--schema", "schema.yaml", "--model", "lightgbm")
    Path("schema.yaml").unlink()
    before = invoke("evaluate", "runs/latest")
    assert "churn, test (frozen)" in before
    assert "40 predictions" in invoke("predict", "runs/latest", "shop", "--all")
    write(20)  # it has grown, and that is no reason to refuse
    told = run("evaluate", "runs/latest")
    assert told.stdout == before
    assert (
        "note[C15] the database has grown by 20 rows since training; the rows of then are used" in told.stderr
    )
