"""Odd databases and odd values: finite logits, or an error that says why; and where numbers are computed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from quartet.config import ModelConfig, SamplingConfig
from quartet.contexts import sample
from quartet.database import FACTS, Database, ForeignKey, TableSchema, TimeColumn
from quartet.database.schema import Schema
from quartet.errors import UsageError
from quartet.features import FeatureTable
from quartet.graph import TemporalGraph
from quartet.machine import devices as precision
from quartet.models.quartet import Quartet
from quartet.tasks import Seeds
from quartet.tokens import Tokenizer
from quartet.training import ModelSchema
from tests.models.data import SMALL, randomise

HOUR = 3600 * 10**9
START = 1_700_000_000 * 10**9


def time_of(hours: int) -> int:
    return START + hours * HOUR


def items(num_sales: int = 6, **changed: list[object]) -> Database:
    """Items and their sales, one each hour. Both tables bear names that methods of modules have."""
    columns = {
        "id": pa.array(range(num_sales), pa.int64()),
        "item": pa.array([0] * num_sales, pa.int64()),
        "at": pa.array([START // 10**9 + 3600 * n for n in range(num_sales)], pa.int64()),
        "price": pa.array([1.5 * n for n in range(num_sales)]),
        "colour": pa.array(["red", "blue"] * (num_sales // 2) + ["red"] * (num_sales % 2)),
    }
    columns |= {name: pa.array(values) for name, values in changed.items()}
    tables = {"items": pa.table({"id": [0, 1, 2]}), "forward": pa.table(columns)}
    said = {
        "items": TableSchema(("id",), settled=FACTS),
        "forward": TableSchema(
            ("id",), (ForeignKey(("item",), "items"),), TimeColumn("at", unit="s"), settled=FACTS
        ),
    }
    return Database.build(tables, Schema(said))


def finite_logits(
    database: Database,
    seeds: list[tuple[int, int]],
    config: ModelConfig = SMALL,
    sampler: SamplingConfig | None = None,
    statistics: object = None,
) -> torch.Tensor:
    """What a model with random weights says of seeds; that it is finite is checked here."""
    graph = TemporalGraph.build(database)
    features = (
        FeatureTable.encode(database, statistics)  # type: ignore[arg-type]
        if statistics is not None
        else FeatureTable.fit(database, time_of(3))
    )
    chosen = config.sampling(sampler)
    context = sample(
        graph, Seeds(np.array([n for n, _ in seeds]), np.array([t for _, t in seeds]), None), chosen
    )
    torch.manual_seed(0)
    model = Quartet(config, ModelSchema(features.layouts, chosen.num_hops)).eval()
    randomise(model)
    with torch.no_grad():
        found = model(Tokenizer(graph, features)(context))
    assert found.isfinite().all()
    return found


def test_names_of_tables_break_no_module() -> None:
    assert finite_logits(items(), [(0, time_of(4)), (1, time_of(4))]).std() > 0


def test_a_seed_without_history_draws_from_what_is_visible_or_stands_alone() -> None:
    """Items 1 and 2 were never sold."""
    seeds = [(1, time_of(2)), (2, time_of(2))]
    assert len(finite_logits(items(), seeds)) == 2
    assert len(finite_logits(items(), seeds, sampler=SamplingConfig(fallback="null"))) == 2


def test_nothing_at_all_is_visible() -> None:
    """Before the first sale: no temporal, no collaborative context, only items to fall back on."""
    seeds = [(0, time_of(-5))]
    assert len(finite_logits(items(), seeds)) == 1
    assert len(finite_logits(items(), seeds, SMALL.changed(perceiver=False))) == 1
    assert len(finite_logits(items(), seeds, sampler=SamplingConfig(fallback="null"))) == 1


@pytest.mark.parametrize("is_timed", [False, True])
def test_a_database_of_one_table(is_timed: bool) -> None:
    table = pa.table({"id": [0, 1, 2], "at": [START // 10**9] * 3, "weight": [1.0, 2.0, 5.0]})
    time = TimeColumn("at", unit="s") if is_timed else None
    said = Schema({"alone": TableSchema(("id",), (), time, settled=FACTS)})
    found = finite_logits(Database.build({"alone": table}, said), [(n, time_of(1)) for n in range(3)])
    assert len(found.unique()) == 3


def test_a_table_of_one_row() -> None:
    assert len(finite_logits(items(num_sales=1), [(0, time_of(1)), (1, time_of(1))])) == 2


def test_an_unseen_category_an_infinity_and_an_empty_cell_get_an_answer() -> None:
    """Statistics were fitted on the first four sales; the fifth brings all that they do not know."""
    before = items()
    statistics = FeatureTable.fit(before, time_of(3)).statistics
    colours = ["red", "blue", "red", "blue", "ultraviolet", ""]
    prices = [0.0, 1.5, 3.0, 4.5, float("inf"), float("nan")]
    after = items(colour=colours, price=prices)
    seeds = [(0, time_of(hour)) for hour in (3, 4, 5)]
    known, unknown = (finite_logits(db, seeds, statistics=statistics) for db in (before, after))
    assert unknown[0].equal(known[0]) or (unknown[0] - known[0]).abs().max() < 1e-6
    assert not unknown[1].equal(known[1])


def test_a_column_of_nothing_but_nan() -> None:
    assert len(finite_logits(items(price=[float("nan")] * 6), [(0, time_of(4))])) == 1


def test_the_sizes_of_a_sketch_follow_the_tables() -> None:
    features = FeatureTable.fit(items(), time_of(3))
    schema = ModelSchema(features.layouts, SamplingConfig().num_hops)
    assert schema.sketch_size == 4 + 2
    assert Quartet(SMALL, replace(schema, num_outputs=7)).readout.out_features == 7


def test_a_model_must_read_something() -> None:
    with pytest.raises(UsageError, match=r"C02.*reads nothing"):
        Quartet(SMALL.changed(local=False, branches=()), ModelSchema((), 12))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dropout": 1.0}, r"C02.*dropout is 1\.0.*from 0 to below 1"),
        ({"attention_dropout": -0.1}, r"C02.*attention_dropout is -0\.1"),
        ({"heads": 0}, r"C02.*heads is 0"),
        ({"mix": "sum"}, r"C02.*mix is 'sum'.*mlp, linear"),
        ({"branches": ("features",)}, r'C02.*no branch "features".*feature'),
        ({"latents": 3}, r'C01.*unknown field "latents".*num_latents'),
        ({"width": 100, "heads": 8}, r"C03.*width 100.*8 heads.*multiple of 32"),
    ],
)
def test_a_wrong_shape_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ModelConfig().changed(**changes)


# --- precision ------------------------------------------------------------------------------------


def test_a_cpu_computes_in_single_precision_unless_asked() -> None:
    with precision.autocast("cpu"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def test_bf16_is_tried_in_another_process_before_it_is_used() -> None:
    """Whatever this machine can do, asking does not kill the process, and an answer close to fp32 comes back."""
    if not precision.has_bf16("cpu"):
        with pytest.raises(UsageError, match=r"C02.*cannot compute in bf16.*precision=fp32"):
            precision.autocast("cpu", "bf16")
        return
    seeds = [(0, time_of(4)), (1, time_of(5))]
    exact = finite_logits(items(), seeds)
    with precision.autocast("cpu", "bf16"):
        rough = finite_logits(items(), seeds)
    assert (rough.float().sigmoid() - exact.sigmoid()).abs().max() < 0.05
    assert not rough.float().equal(exact)


def test_a_process_that_dies_means_no_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with SIGILL on machines that announce what they do not have."""
    monkeypatch.setattr(precision, "_TRIAL", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert precision.has_bf16.__wrapped__("cpu") is False
