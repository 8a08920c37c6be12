"""How memory and time grow with a database: each phase of a task, from reading to scores, at several sizes.

    python benchmarks/scale.py [--rows 1 3] [--limit 4] [--folder /large/disk] [--steps 20]
    python benchmarks/scale.py --rows 1 3 10 30      # 30 M rows and 3 M seeds

A shop is written as Parquet files, in pieces. Each size then runs in a process of its own, under a memory limit of so
many gigabytes where the machine lets us set one (a cgroup; pages of mapped files count, and may be given back), and
tells of each phase: seconds of the processor, the most memory that was the process's own (anonymous pages, looked at
every 10 ms), and the most with pages of mapped files (VmHWM). A network of the preset `small` is trained for some
steps.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

MILLION = 1_000_000
DAYS = 730
PIECE = 1_000_000
QUERY = (
    "PREDICT COUNT(purchases.*, 0, 60, days) > 9 FOR EACH customers.customer "
    "WHERE COUNT(purchases.*, -60, 0, days) > 0"
)
SCHEMA = {
    "name": "shop",
    "tables": {
        "customers": {"pkey": "customer", "time_col": None, "fkeys": {}},
        "products": {"pkey": "product", "time_col": None, "fkeys": {}},
        "purchases": {
            "pkey": "purchase",
            "time_col": "bought",
            "fkeys": {"customer": "customers", "product": "products"},
        },
    },
}
PHASES = ("read", "labels", "features", "graph", "sample", "columns", "train", "score")


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--rows", type=float, nargs="+", default=[0.3, 1], help="millions of rows")
    options.add_argument("--seeds", type=float, default=0.1, help="seeds for each row")
    options.add_argument("--limit", type=float, default=4.0, help="gigabytes that a process may have")
    options.add_argument("--steps", type=int, default=20, help="training steps")
    options.add_argument("--folder", type=Path, help="where files are made (default: a temporary folder)")
    options.add_argument("--json", type=Path, help="where figures are written, too")
    options.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.measure:
        measure(chosen.measure, chosen.steps)
        return
    found = []
    for millions in chosen.rows:
        with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
            write_shop(Path(folder) / "shop", int(millions * MILLION), chosen.seeds)
            found.append(_in_own_process(Path(folder), chosen.limit, chosen.steps))
            print(json.dumps(found[-1]), flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    _show(found, chosen.limit)


def write_shop(folder: Path, num_rows: int, seeds_a_row: float) -> None:
    """Writes customers, products and purchases, some at a time; a customer gives about ten seeds."""
    rng = np.random.default_rng(0)
    customers = max(int(num_rows * seeds_a_row / 10), 10)
    products = max(num_rows // 150, 10)
    purchases = num_rows - customers - products
    folder.mkdir()
    (folder / "quartet.yaml").write_text(json.dumps(SCHEMA), encoding="utf-8")
    cities = np.array([f"city {n}" for n in range(50)])
    told = {"customer": np.arange(customers) * 7, "age": rng.integers(18, 90, customers)}
    told["city"] = cities[rng.integers(0, 50, customers)]
    pq.write_table(pa.table(told), folder / "customers.parquet")
    told = {"product": np.arange(products), "price": rng.gamma(2.0, 20.0, products)}
    pq.write_table(pa.table(told), folder / "products.parquet")
    channels, writer = np.array(["web", "shop", "phone"]), None
    start = np.datetime64("2020-01-01", "s").astype(np.int64)
    for first in range(0, purchases, PIECE):
        count = min(PIECE, purchases - first)
        # in the order of time, as such tables mostly are: a piece is a part of the two years
        second = np.sort(rng.integers(0, DAYS * 86_400 * count // purchases, count))
        second += start + DAYS * 86_400 * first // purchases
        piece = pa.table(
            {
                "purchase": np.arange(first, first + count),
                "customer": (rng.random(count) ** 1.3 * customers).astype(np.int64) * 7,
                "product": (rng.random(count) ** 3 * products).astype(np.int64),
                "amount": rng.gamma(2.0, 20.0, count),
                "channel": channels[rng.integers(0, 3, count)],
                "bought": pa.array(second).cast(pa.timestamp("s")),
            }
        )
        writer = writer or pq.ParquetWriter(folder / "purchases.parquet", piece.schema)
        writer.write_table(piece)
    if writer:
        writer.close()


def measure(folder: Path, steps: int) -> None:
    """Goes through all phases in this process, and prints a line of figures for each."""
    from quartet.config import Recipe
    from quartet.database import Database
    from quartet.runs import TrainedModel
    from quartet.runs.checkpoint import Checkpoint
    from quartet.tasks import TaskRecord
    from quartet.training import Trainer, TrainingData

    with phase("imports"):
        import torch

        torch.set_num_threads(1)
    with phase("read"):
        database = Database.load(str(folder / "shop"))
    with phase("labels"):
        task = database.query(QUERY)
        seeds = {split: len(task.seeds(split)) for split in ("train", "val", "test")}
    _tell("counts", rows=database.num_rows, seeds=sum(seeds.values()))
    recipe = Recipe.load("small", "shop/churn", "quartet", epochs=1, validation_seeds=2000)
    with phase("features"):
        data = TrainingData.prepare(task, recipe, folder / "cache")
    with phase("graph"):
        data.view.graph  # noqa: B018 (it is built when it is first asked for)
    with phase("sample"):
        for split in ("train", "val", "test"):
            data._contexts[split] = _sampled(data, split)
    with phase("columns"):
        if recipe.model.tower:
            data.columns("train"), data.columns("val")
        data._contexts.clear()
    with phase("train"):
        trainer = Trainer(data)
        for places in trainer.epoch_places(0)[:steps]:
            trainer._step(places)
    with phase("score"):
        network = trainer.network.eval()
        statistics = data.features.statistics
        checkpoint = Checkpoint(network, recipe, data.output, statistics, TaskRecord.of(task), 0, 0.0)
        live = TrainedModel([(checkpoint, None)]).on(database, device="cpu")
        live.views = [data.view]
        shards = live.predict_to(folder / "scores")
    _tell("scored", scored=shards.num_rows)


def _sampled(data: Any, split: Any) -> Any:
    from quartet.contexts import task_context

    return task_context(data.task, data.view.graph, data.recipe.sampling, split, data.cache, num_threads=1)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Prints what a block takes: time of the processor, and memory at its height and afterwards."""
    Path("/proc/self/clear_refs").write_text("5")  # the highest of all pages begins anew
    most, done = [_memory()["RssAnon"]], threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            most[0] = max(most[0], _memory()["RssAnon"])

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    begin, cpu = time.perf_counter(), time.process_time()
    try:
        yield
    finally:
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
        done.set()
        watcher.join()
    now = _memory()
    _tell(
        name,
        seconds=seconds,
        cpu=cpu,
        peak=max(most[0], now["RssAnon"]),
        after=now["RssAnon"],
        mapped=now["VmHWM"],
    )


def _memory() -> dict[str, int]:
    lines = Path("/proc/self/status").read_text().splitlines()
    pairs = (line.split(":") for line in lines if line.startswith(("RssAnon", "VmHWM")))
    return {name: int(value.split()[0]) * 1024 for name, value in pairs}


def _tell(name: str, **figures: float) -> None:
    print(json.dumps({"phase": name, **figures}), flush=True)


def _in_own_process(folder: Path, limit: float, steps: int) -> dict[str, Any]:
    """Measures in a process of its own, in a cgroup with a memory limit where one can be made."""
    group = Path(f"/sys/fs/cgroup/memory/quartet-scale-{os.getpid()}")
    is_limited = True
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(int(limit * 2**30)))
    except OSError:
        is_limited = False

    def enter() -> None:
        if is_limited:
            (group / "cgroup.procs").write_text(str(os.getpid()))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    try:
        done = subprocess.run(
            [sys.executable, __file__, "--measure", str(folder), "--steps", str(steps)],
            stdout=subprocess.PIPE, text=True, preexec_fn=enter, check=False,
        )  # fmt: skip
    finally:
        if group.exists():
            group.rmdir()
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    found: dict[str, Any] = {line.pop("phase"): line for line in lines}
    cache = folder / "cache"
    found["cache"] = sum(path.stat().st_size for path in cache.glob("*.h5")) if cache.exists() else 0
    found |= {
        "limited": is_limited,
        "ended": "well" if not done.returncode else f"exit code {done.returncode}",
    }
    shutil.rmtree(cache, ignore_errors=True)
    return found


def _show(found: list[dict[str, Any]], limit: float) -> None:
    grid = Table(title=f"Phases, {'limit ' + str(limit) + ' GB' if found[0]['limited'] else 'no limit'}")
    grid.add_column("phase")
    for one in found:
        for name in ("µs CPU/row", "peak MB", "B/row", "with maps MB"):
            grid.add_column(
                f"{one.get('counts', {}).get('rows', 0) / MILLION:.1f} M: {name}", justify="right"
            )
    for name in PHASES:
        cells = []
        for one in found:
            if name not in one:
                cells += ["-"] * 4
                continue
            rows, told, base = one["counts"]["rows"], one[name], one["imports"]["after"]
            cells += [
                f"{told['cpu'] / rows * 1e6:.2f}", f"{told['peak'] / 1e6:,.0f}",
                f"{(told['peak'] - base) / rows:.0f}", f"{told['mapped'] / 1e6:,.0f}",
            ]  # fmt: skip
        grid.add_row(name, *cells)
    Console(width=200).print(grid)
    for one in found:
        if "counts" in one:
            seeds = one["counts"]["seeds"]
            print(f"{one['counts']['rows']:,} rows, {seeds:,} seeds: {one['cache'] / seeds:,.0f} bytes a seed on disk; "
                  f"ended {one['ended']}")  # fmt: skip


if __name__ == "__main__":
    main()
