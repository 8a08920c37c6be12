"""CPU milliseconds that a training step and a prediction take for each seed, beside the same network written literally.

    python benchmarks/step.py [--width 512] [--layers 1 4] [--batch 128] [--seeds 32] [--data FOLDER]
    python benchmarks/step.py --full

Data: random batches of training seeds of rel-f1's driver-top3 and driver-dnf (where the dataset is absent: of a task of
the demo database), and of customers of the synthetic shop with seven random columns in each table. The literal form
(`literal.py`) has the same parameters; it takes `--seeds` of the batch, in micro-batches of 16, because its time for a
seed does not depend on how many there are. Ours does: a batch is encoded once, so a larger `--batch` is cheaper.

Times are medians of interleaved repeats in one process; a training step is forward and backward. Memory is the peak of
a step in a process of its own, less what that process held before: parameters, gradients, the batch. It is compared for
the same seeds, which the literal form takes at once and ours in groups. `--full` measures the peak of a whole process
instead, at batches of 512 with an optimiser. Memory is read from /proc, so this runs on Linux alone.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from literal import literal_backward, literal_batches, literal_logits
from rich.console import Console
from rich.table import Table
from shop import START, YEARS, shop
from torch import Tensor

from quartet.config import ModelConfig
from quartet.contexts import Context, sample, select
from quartet.database import Database
from quartet.features import FeatureTable
from quartet.graph import TemporalGraph
from quartet.models.quartet import Quartet
from quartet.tasks import Seeds, Task
from quartet.tokens import Tokenizer
from quartet.training import ModelSchema, backward_by_group

CONSOLE = Console(width=130)
REL_F1 = Path(__file__).resolve().parents[2] / "shared" / "data" / "rel-f1"
WEEK = 7 * 86_400
GB = 2**30
FULL_BATCH, MEMORY_LIMIT = 512, 24


@dataclass(frozen=True)
class Case:
    """A batch of training seeds of some data."""

    name: str
    tokenizer: Tokenizer
    context: Context

    @property
    def schema(self) -> ModelSchema:
        return ModelSchema(self.tokenizer.features.layouts, ModelConfig().sampling().num_hops)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--data", type=Path, default=REL_F1, help="folder of rel-f1")
    options.add_argument("--width", type=int, default=512)
    options.add_argument("--layers", type=int, nargs="+", default=[1, 4])
    options.add_argument("--batch", type=int, default=128, help="seeds of our batch")
    options.add_argument("--seeds", type=int, default=32, help="seeds of the literal form")
    options.add_argument("--links", type=int, default=6_000_000, help="of the shop")
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--full", action="store_true", help="peak memory at batches of 512 instead")
    options.add_argument("--peak", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    torch.set_num_threads(chosen.threads)
    if chosen.peak:
        print(peak_of(chosen.peak))
    elif chosen.full:
        full(cases_of_tasks(chosen.data, FULL_BATCH), chosen)
    else:
        cases = [*cases_of_tasks(chosen.data, chosen.batch), case_of_shop(chosen.links, chosen.batch)]
        compare(cases, chosen)


# --- data -------------------------------------------------------------------------------------------


def cases_of_tasks(folder: Path, batch: int) -> list[Case]:
    """A random batch of the training seeds of each task."""
    tasks = ("driver-top3", "driver-dnf")
    if not folder.is_dir():
        CONSOLE.print(f"rel-f1 is not at {folder}: the demo database instead")
        folder, tasks = Path("demo"), ("plane-idle",)
    database = Database.load(str(folder))
    graph = TemporalGraph.build(database)
    loaded = [Task.load(database, name) for name in tasks]
    tokenizer = Tokenizer(graph, FeatureTable.fit(database, loaded[0].splits.val))
    return [Case(task.spec.name, tokenizer, batch_of(graph, task.seeds("train"), batch)) for task in loaded]


def case_of_shop(links: int, batch: int) -> Case:
    """Customers of the shop, drawn uniformly, at the 104 weeks of its last two years."""
    database, rng = _with_columns(shop(links)), np.random.default_rng(0)
    graph = TemporalGraph.build(database)
    nodes, first = graph.nodes("customers"), int(START) + (YEARS - 2) * 365 * 86_400
    when = (first + rng.integers(0, 104, batch) * WEEK) * 10**9
    seeds = Seeds(rng.integers(nodes.start, nodes.stop, batch), when, None)
    tokenizer = Tokenizer(graph, FeatureTable.fit(database, int(when.max())))
    return Case(f"shop, {links / 1e6:g} M links", tokenizer, batch_of(graph, seeds, batch))


def _with_columns(database: Database, numbers: int = 4, categories: int = 3) -> Database:
    """The database with random columns beside its own."""
    rng, tables = np.random.default_rng(1), {}
    for name, table in database.tables.items():
        data = table.data
        for number in range(numbers):
            data = data.append_column(f"amount {number}", pa.array(rng.normal(size=len(data))))
        for number in range(categories):
            data = data.append_column(f"kind {number}", pa.array(rng.integers(0, 10, len(data))))
        tables[name] = data
    return Database.build(tables, database.schema, location="benchmark")


def batch_of(graph: TemporalGraph, seeds: Seeds, batch: int) -> Context:
    chosen = np.random.default_rng(0).permutation(len(seeds))[:batch]
    return sample(graph, Seeds(seeds.node[chosen], seeds.time[chosen], None), ModelConfig().sampling())


# --- the comparison ---------------------------------------------------------------------------------

Work = Callable[[], object]
Seconds = dict[str, float]


def loss(logits: Tensor, places: Tensor) -> Tensor:
    """Cross-entropy against labels that are as good as any."""
    return F.binary_cross_entropy_with_logits(logits[:, 0], (places % 2).to(logits.dtype), reduction="sum")


def compare(cases: list[Case], chosen: argparse.Namespace) -> None:
    """Prints both tables, one row for each case and number of local layers."""
    setting = (
        f"width {chosen.width}, {chosen.threads} thread(s), batch of {chosen.batch}, literal {chosen.seeds}"
    )
    times = Table(title=f"CPU ms for each seed, {setting}")
    memory = Table(title=f"Peak memory of a training step, MB: of the same {chosen.seeds} seeds, then others")
    for case in cases:
        for layers in chosen.layers:
            config = ModelConfig(width=chosen.width, local_layers=layers)
            label = {"data": case.name, "L": str(layers)}
            cells = label | measured_times(case, config, chosen)
            _add(times, cells)
            _add(memory, label | measured_memory(case, config, chosen))
            CONSOLE.print(", ".join(f"{name} {cell}" for name, cell in cells.items()), style="dim")
    for table in (times, memory):
        CONSOLE.print(table)


def _add(table: Table, cells: dict[str, str]) -> None:
    if not table.columns:
        for name in cells:
            table.add_column(name, justify="left" if name == "data" else "right")
    table.add_row(*cells.values())


def some_of(case: Case, chosen: argparse.Namespace) -> Context:
    return select(case.context, np.arange(min(chosen.seeds, len(case.context))))


def measured_times(case: Case, config: ModelConfig, chosen: argparse.Namespace) -> dict[str, str]:
    torch.manual_seed(0)
    model, ours, few = Quartet(config, case.schema), case.tokenizer(case.context), some_of(case, chosen)
    literal = list(literal_batches(case.tokenizer, few))
    train: dict[str, tuple[Work, int]] = {
        "literal": (lambda: literal_backward(model, literal, loss), len(few)),
        "ours": (lambda: backward_by_group(model, ours, loss), len(ours)),
    }
    predict: dict[str, tuple[Work, int]] = {
        "literal": (lambda: [literal_logits(model, batch) for batch in literal], len(few)),
        "ours": (lambda: model(ours), len(ours)),
    }
    backward_by_group(model, ours, loss)  # warms up
    literal_backward(model, literal[:1], loss)
    cells = _time_cells("train", *interleaved(train, chosen.repeats, model))
    model.eval()
    with torch.inference_mode():
        cells |= _time_cells("predict", *interleaved(predict, chosen.repeats, model))
    return cells | {"tokens/row": f"{900 * len(ours) / len(ours.row_type):.1f}"}


def _time_cells(what: str, cpu: Seconds, wall: Seconds) -> dict[str, str]:
    return {
        f"{what} literal": f"{cpu['literal'] * 1e3:.1f}",
        f"{what} ours": f"{cpu['ours'] * 1e3:.1f}",
        f"{what} ratio": f"{cpu['literal'] / cpu['ours']:.2f}x",
        f"{what} (wall)": f"{wall['literal'] / wall['ours']:.2f}x",
    }


def measured_memory(case: Case, config: ModelConfig, chosen: argparse.Namespace) -> dict[str, str]:
    few = some_of(case, chosen)
    batches = {
        "literal": list(literal_batches(case.tokenizer, few, size=len(few))),
        "ours": case.tokenizer(few),
        "literal, 16 at a time": list(literal_batches(case.tokenizer, few))[:1],
        "ours, whole batch": case.tokenizer(case.context),
    }
    peaks = {name: peak(name.split(",")[0], config, case.schema, batch) for name, batch in batches.items()}
    ratio = {"ours/literal": f"{peaks['ours'] / peaks['literal']:.2f}"}
    return {name: f"{value / 1e6:,.0f}" for name, value in peaks.items()} | ratio


def interleaved(works: dict[str, tuple[Work, int]], repeats: int, model: Quartet) -> tuple[Seconds, Seconds]:
    """Returns CPU and wall seconds of each work, divided by its number: medians of repeats, one after the other."""
    cpu: dict[str, list[float]] = {name: [] for name in works}
    wall: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, (work, number) in works.items():
            model.zero_grad()
            begin = time.process_time(), time.perf_counter()
            work()
            cpu[name].append((time.process_time() - begin[0]) / number)
            wall[name].append((time.perf_counter() - begin[1]) / number)
    return _medians(cpu), _medians(wall)


def _medians(times: dict[str, list[float]]) -> Seconds:
    return {name: statistics.median(found) for name, found in times.items()}


# --- memory -----------------------------------------------------------------------------------------


def peak(form: str, config: ModelConfig, schema: ModelSchema, batch: Any, optimise: bool = False) -> int:
    """Bytes that a training step needs at its peak, measured in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.pt"
        torch.save((form, config, schema, batch, optimise), path)
        words = [sys.executable, __file__, "--peak", str(path), "--threads", str(torch.get_num_threads())]
        return int(subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout)


def peak_of(path: Path) -> int:
    """The peak of one step above what was held before it, or with an optimiser the whole of it."""
    form, config, schema, batch, optimise = torch.load(path, weights_only=False)
    model = Quartet(config, schema)
    optimiser = torch.optim.AdamW(model.parameters()) if optimise else None
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    torch.nn.Linear(512, 512)(torch.randn(512, 512)).sum().backward()  # libraries are loaded at first use
    before = 0 if optimise else _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    literal_backward(model, batch, loss) if form == "literal" else backward_by_group(model, batch, loss)
    if optimiser is not None:
        optimiser.step()
    return _memory("VmHWM") - before


def _memory(name: str) -> int:
    (kilobytes,) = re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kilobytes) * 1024


def full(cases: list[Case], chosen: argparse.Namespace) -> None:
    """Prints whether whole training steps at the batch size of the paper fit in memory."""
    table = Table(title=f"Peak of a process at batches of {FULL_BATCH}, width {chosen.width}, with AdamW")
    for case in cases:
        batch = case.tokenizer(case.context)
        for layers in chosen.layers:
            config = ModelConfig(width=chosen.width, local_layers=layers)
            gigabytes = peak("ours", config, case.schema, batch, optimise=True) / GB
            verdict = "yes" if gigabytes < MEMORY_LIMIT else "NO"
            cells = {"data": case.name, "L": str(layers), "distinct rows": f"{len(batch.row_type):,}"}
            cells |= {"global tokens": f"{len(batch.global_row):,}", "GB": f"{gigabytes:.1f}"}
            _add(table, cells | {f"below {MEMORY_LIMIT} GB": verdict})
    CONSOLE.print(table)


if __name__ == "__main__":
    main()
