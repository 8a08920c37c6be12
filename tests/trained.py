"""Small trainings for tests: recipes of a second, a listener that remembers, and the command in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
from typer.testing import CliRunner

from quartet.cli.app import app, main
from quartet.config import Recipe
from quartet.database import FACTS, Database, ForeignKey, Schema, TableSchema
from quartet.drawing import set_verbosity
from quartet.findings import Finding
from quartet.listener import Listener
from quartet.machine import user_cache
from quartet.runs import Predictions, TrainedModel
from quartet.tasks import SPLITS, Task
from quartet.times import show_instant
from quartet.training import Epoch
from tests.tasks.small import CHURN, small_shop

ROOT = Path(__file__).parents[1]

SIZES: dict[str, Any] = {
    "width": 16, "heads": 2, "encoder_width": 8, "encoder_layers": 1, "num_latents": 2, "latent_layers": 1,
    "num_archetypes": 4, "num_frequencies": 4, "position_layers": 1, "local_budget": 20, "temporal_budget": 10,
    "collab_budget": 5,
}  # fmt: skip
QUICK: dict[str, Any] = {**SIZES, "batch_size": 32, "seeds_per_epoch": 64, "epochs": 1}
TINY = Recipe.load("small", **SIZES, batch_size=32, seeds_per_epoch=150, epochs=2)  # five steps an epoch
TREES = Recipe.load("small", model="lightgbm")

_COUNTED = "CAST(COUNT(*) FILTER (WHERE o.bought > t.timestamp) = 0 AS BIGINT)"
AMOUNT_SQL = CHURN["sql"].replace(
    _COUNTED, "COALESCE(SUM(o.amount) FILTER (WHERE o.bought > t.timestamp), 0)"
)
SIZE_SQL = CHURN["sql"].replace(
    _COUNTED,
    "(CASE COUNT(*) FILTER (WHERE o.bought > t.timestamp) WHEN 0 THEN 'none' WHEN 1 THEN 'one' ELSE 'more' END)",
)
KINDS: dict[str, dict[str, Any]] = {
    "binary_classification": CHURN,
    "regression": CHURN | {"sql": AMOUNT_SQL, "task_type": "regression"},
    "multiclass_classification": CHURN | {"sql": SIZE_SQL, "task_type": "multiclass_classification"},
}


def churn(**changes: Any) -> Task:
    """The task churn of the small shop."""
    return Task.from_sql(small_shop(), **(CHURN | changes))


def from_labels(task: Task, **other: pa.Table) -> Task:
    """A task from the table of its labels, which nobody can make again; those of some splits may be other ones."""
    rows = [other.get(split, task.label_rows(split)) for split in SPLITS]
    return Task.from_labels(
        task.full_database, pa.concat_tables(rows), name="given", task_type=task.spec.type,
        entity_table=task.spec.entity_table, entity_col="customer", time_col="timestamp", target_col="churned",
        timedelta="10 days", val_timestamp=show_instant(task.splits.val), test_timestamp=show_instant(task.splits.test),
    )  # fmt: skip


class Heard(Listener):
    """A listener that remembers what it was told, and stops before step `stop_at`."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.calls: list[str] = []
        self.findings: list[Finding] = []
        self.work: dict[str, list[tuple[int, int]]] = {}
        self.steps: list[int] = []
        self.epochs: list[Epoch] = []
        self.begun: list[Any] = []
        self.ended: list[tuple[Any, Path]] = []

    def finding(self, finding: Finding) -> None:
        self.calls.append("finding")
        self.findings.append(finding)

    def progress(self, what: str, done: int, total: int) -> None:
        self.work.setdefault(what, []).append((done, total))

    def begin(self, training: Any) -> None:
        self.calls.append("begin")
        self.begun.append(training)

    def step(self, num_seeds: int) -> None:
        self.calls.append("step")
        self.steps.append(num_seeds)

    def epoch(self, epoch: Epoch) -> None:
        self.calls.append("epoch")
        self.epochs.append(epoch)

    def end(self, fitted: Any, folder: Path) -> None:
        self.calls.append("end")
        self.ended.append((fitted, folder))

    def should_stop(self) -> bool:
        return self.stop_at is not None and len(self.steps) >= self.stop_at


def without_seconds(epochs: list[Epoch]) -> list[Epoch]:
    return [replace(epoch, seconds=0, validation_seconds=0) for epoch in epochs]


def same_weights(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    """Whether two networks are equal, bit for bit."""
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def network_of(model: TrainedModel) -> Any:
    return model.members[0][0].model


def nanoseconds(table: pa.Table) -> list[int]:
    return [int(time) for time in table["time"].cast(pa.int64()).to_pylist()]


def asked_again(
    model: TrainedModel, database: Database, kept: pa.Table, labels: pa.Table | None = None
) -> pa.Table:
    """The live predictions of the rows that a run has kept, without the names beside the keys."""
    live = model.on(database, labels=labels, listener=Listener())
    return plain(live.predict(kept[0].to_pylist(), nanoseconds(kept)))


def plain(scores: Predictions) -> pa.Table:
    """Predictions without what a run does not keep: names, and how sure they are by what is known then."""
    table = scores.to_arrow()
    return table.drop_columns([n for n in ("name", "low", "high", "set") if n in table.column_names])


Tables = dict[str, pa.Table]
SHOP_SCHEMA: dict[str, Any] = {
    "customers": {"pkey": "customer", "time_col": None, "fkeys": {}},
    "orders": {"pkey": "order", "time_col": "bought", "fkeys": {"customer": "customers"}},
}


def shop_tables() -> Tables:
    """The small shop, with a city and a name for each customer: C00 is Person Aa of Bonn."""
    cities = [("Bonn", "Köln", "Lyon")[k % 3] for k in range(40)]
    names = [f"Person {chr(65 + k // 26)}{chr(97 + k % 26)}" for k in range(40)]
    shop = small_shop(city=cities, full_name=names)
    return {name: table.data for name, table in shop.tables.items()}


def opened(tables: Tables, schema: dict[str, Any] = SHOP_SCHEMA) -> Database:
    return Database.load(tables, {"name": "shop", "tables": schema})


def write_shop(folder: Path) -> Path:
    """The shop of `shop_tables` as a folder of files with a schema file, and beside it the task churn.yaml."""
    folder.mkdir(parents=True)
    for name, table in shop_tables().items():
        pq.write_table(table, folder / f"{name}.parquet")
    (folder / "quartet.yaml").write_text(yaml.safe_dump({"name": "shop", "tables": SHOP_SCHEMA}))
    (folder.parent / "churn.yaml").write_text(yaml.safe_dump({"kind": "forecast", **CHURN}))
    return folder


def named_shop(names: list[str]) -> Database:
    """The small shop with a table of clerks, each of whom has a name, and who take orders by turns."""
    shop = small_shop()
    orders = shop["orders"].data
    clerks = pa.table({"clerk": np.arange(len(names)), "name": names, "age": np.arange(len(names)) % 7})
    served = orders.append_column("clerk", pa.array(np.arange(len(orders)) % len(names)))
    tables = dict(shop.schema.tables)
    links = (*tables["orders"].foreign_keys, ForeignKey(("clerk",), "clerks"))
    tables["orders"] = replace(tables["orders"], foreign_keys=links)
    tables["clerks"] = TableSchema(("clerk",), settled=FACTS)
    data = {"customers": shop["customers"].data, "orders": served, "clerks": clerks}
    return Database.build(data, Schema(tables, name="named"))


# --- the command line ---------------------------------------------------------------------------------


def invoke(*words: object) -> str:
    """What a verb prints on standard output, in this process; its errors are raised."""
    done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done.stdout


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def run(*words: object) -> Done:
    """The whole command in this process: what it prints, and with which code it ends."""
    out, err, before = StringIO(), StringIO(), sys.argv
    sys.argv, code = ["quartet", *map(str, words)], 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv = before
        set_verbosity(0)
    return Done(code, out.getvalue(), err.getvalue())


def command_environment(cache: Path | None = None) -> dict[str, str]:
    """An environment for a process of its own: contexts are cached apart, compiled loops taken from where they are."""
    compiled = os.environ.get("NUMBA_CACHE_DIR", str(user_cache() / "compiled"))
    apart = {"XDG_CACHE_HOME": str(cache), "NUMBA_CACHE_DIR": compiled} if cache else {}
    return {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **apart}


def quartet(*words: object, env: dict[str, str] | None = None, **options: Any) -> Any:
    """A run of the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "quartet", *map(str, words)],
        env={**command_environment(), **(env or {})},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        **options,
    )
