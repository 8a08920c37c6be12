"""How long a training step and a prediction take for each seed, against the same network written literally.

    python benchmarks/step.py [--width 512] [--layers 1 4] [--batch 128] [--seeds 32] [--data FOLDER]
    python benchmarks/step.py --full

Data: random batches of training seeds of rel-f1's driver-top3 and driver-dnf (where the dataset is absent: of
a task of the demo database), and of customers of the synthetic shop with seven random columns in each table.
The literal form (`literal.py`) has the same parameters; it takes `--seeds` of the batch, in micro-batches of
16, because its time for a seed does not depend on how many there are. Ours does: a batch is encoded
once, so a larger `--batch` is cheaper for each seed.

Times are medians of interleaved repeats in one process, CPU milliseconds for each seed; a training step is
forward and backward. Memory is the peak of a step in a process of its own, less what that process held before:
parameters, gradients, the batch. It is compared for the same seeds, which the literal form takes at once and
ours in groups; the literal form 16 at a time needs little whatever the batch, since it shares nothing. Shares
are of our step, forward by part. The last table but one has the multiplications that our step does each
second, beside what one large matrix product reached in between.

`--full` measures the peak of a whole process instead, at batches of 512 with an optimiser.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from literal import literal_logits, literal_backward, literal_batches
from rich.console import Console
from rich.table import Table
from shop import START, YEARS, shop
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

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
PARTS = ("encode", "position", "mix", "local", "codebooks", "global tokens", "perceivers", "fusion")
RELGT = 6.39e6, 2.105e6  # parameters of RelGT besides its table encoders: always, and for each layer
PAPER_RATIO = 2.2  # parameters of QUARTET to those of RelGT, at four layers
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
        parameters(cases[0].schema)


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
    """Prints all tables, one row for each case and number of local layers."""
    times = Table(title=f"CPU ms for each seed, {_setting(chosen)}")
    memory = Table(title=f"Peak memory of a training step, MB: of the same {chosen.seeds} seeds, then others")
    shares = Table(title="Share of our training step, %")
    speed = Table(title="Multiplications of our training step")
    for case in cases:
        for layers in chosen.layers:
            config = ModelConfig(width=chosen.width, local_layers=layers)
            label = (case.name, str(layers))
            found = measure(case, config, chosen)
            _add(times, ("data", "L", *_TIMES), (*label, *_time_cells(found)))
            _add(memory, ("data", "L", *_MEMORY), (*label, *_memory_cells(found)))
            _add(
                shares,
                ("data", "L", *found.shares),
                (*label, *(f"{x:.1%}"[:-1] for x in found.shares.values())),
            )
            _add(speed, ("data", "L", *_SPEEDS), (*label, *_speed_cells(found)))
            CONSOLE.print(f"{case.name}, L={layers}: " + ", ".join(_time_cells(found)), style="dim")
    for table in (times, memory, shares, speed):
        CONSOLE.print(table)


def _setting(chosen: argparse.Namespace) -> str:
    return (
        f"width {chosen.width}, fp32, {chosen.threads} thread(s): ours in a batch of {chosen.batch}, "
        f"literal with {chosen.seeds} of its seeds"
    )


def _add(table: Table, names: tuple[str, ...], cells: tuple[str, ...]) -> None:
    if not table.columns:
        for name in names:
            table.add_column(name, justify="left" if name == "data" else "right")
    table.add_row(*cells)


@dataclass(frozen=True)
class Found:
    """What was measured of one model on one batch; seconds are for one seed."""

    cpu: Seconds
    wall: Seconds
    peak: dict[str, int]
    shares: dict[str, float]
    flops: float  # of a training step, for one seed
    distinct: float  # tokens of the literal form for each distinct row of ours


_TIMES = (
    "train literal",
    "ours",
    "ratio",
    "(wall)",
    "predict literal",
    "ours",
    "ratio",
    "(wall)",
    "tokens/row",
)
_MEMORY = ("literal", "ours", "ours/literal", "literal, 16 at a time", "ours, whole batch")
_SPEEDS = ("GFLOP/seed", "GFLOP/s", "large product GFLOP/s", "share")
PRODUCT = 2048


def _time_cells(found: Found) -> list[str]:
    cells = []
    for kind in ("train", "predict"):
        names = f"{kind} literal", f"{kind} ours"
        cells += [f"{found.cpu[name] * 1e3:.1f}" for name in names]
        cells += [f"{times[names[0]] / times[names[1]]:.2f}x" for times in (found.cpu, found.wall)]
    return [*cells, f"{found.distinct:.1f}"]


def _memory_cells(found: Found) -> list[str]:
    peak = found.peak
    literal, ours, *more = (f"{value / 1e6:,.0f}" for value in peak.values())
    return [literal, ours, f"{peak['ours'] / peak['literal']:.2f}", *more]


def _speed_cells(found: Found) -> list[str]:
    ours, most = found.flops / found.cpu["train ours"], 2 * PRODUCT**3 / found.cpu["product"]
    return [f"{found.flops / 1e9:.2f}", f"{ours / 1e9:.1f}", f"{most / 1e9:.1f}", f"{ours / most:.0%}"]


def measure(case: Case, config: ModelConfig, chosen: argparse.Namespace) -> Found:
    torch.manual_seed(0)
    model = Quartet(config, case.schema)
    ours = case.tokenizer(case.context)
    few = select(case.context, np.arange(min(chosen.seeds, len(case.context))))
    literal = list(literal_batches(case.tokenizer, few))
    whole = list(literal_batches(case.tokenizer, few, size=len(few)))
    matrix = torch.randn(PRODUCT, PRODUCT)
    clock = Clock()
    train: dict[str, tuple[Work, int]] = {
        "train literal": (lambda: literal_backward(model, literal, loss), len(few)),
        "train ours": (lambda: clock.timed("backward", backward_by_group)(model, ours, loss), len(ours)),
        "product": (lambda: matrix @ matrix, 1),
    }
    predict: dict[str, tuple[Work, int]] = {
        "predict literal": (lambda: [literal_logits(model, batch) for batch in literal], len(few)),
        "predict ours": (lambda: model(ours), len(ours)),
    }
    with FlopCounterMode(display=False) as counter:  # warms up, too
        backward_by_group(model, ours, loss)
    literal_backward(model, literal[:1], loss)
    with watched(model, clock):
        cpu, wall = interleaved(train, chosen.repeats, model)
    model.eval()
    with torch.inference_mode():
        for found, more in zip((cpu, wall), interleaved(predict, chosen.repeats, model), strict=True):
            found.update(more)
    return Found(
        cpu=cpu,
        wall=wall,
        peak={
            "literal": peak("literal", config, case.schema, whole),
            "ours": peak("ours", config, case.schema, case.tokenizer(few)),
            "literal, 16 at a time": peak("literal", config, case.schema, literal[:1]),
            "ours, whole batch": peak("ours", config, case.schema, ours),
        },
        shares=clock.shares(),
        flops=counter.get_total_flops() / len(ours),
        distinct=900 * len(ours) / len(ours.row_type),
    )


def interleaved(works: dict[str, tuple[Work, int]], repeats: int, model: Quartet) -> tuple[Seconds, Seconds]:
    """CPU and wall seconds of each work, divided by its number: medians of repeats, one after the other."""
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


# --- shares -----------------------------------------------------------------------------------------


class Clock:
    """CPU seconds by what is being done; what is called inside of something is not counted for both."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self.doing: list[str] = []
        self.since = 0.0

    def timed(self, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time counted as `what`."""

        def counted(*inputs: Any) -> Any:
            self._turn()
            self.doing.append(what)
            try:
                return function(*inputs)
            finally:
                self._turn()
                self.doing.pop()

        return counted

    def timed_inside(self, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time counted as `what` while something else is being timed."""
        counted = self.timed(what, function)
        return lambda *inputs: (counted if self.doing else function)(*inputs)

    def _turn(self) -> None:
        """Counts the time since the last turn for what was being done."""
        now = time.process_time()
        if self.doing:
            self.spent[self.doing[-1]] += now - self.since
        self.since = now

    def shares(self) -> dict[str, float]:
        whole = sum(self.spent.values())
        return {what: self.spent[what] / whole for what in (*PARTS, "backward")}


@contextmanager
def watched(model: Quartet, clock: Clock) -> Iterator[None]:
    """The model with its parts timed, forward; the time of a step that is not theirs is the way back."""
    functions = [(what, owner, name) for what, part in _parts(model).items() for owner, name in part]
    for what, owner, name in functions:
        setattr(owner, name, clock.timed_inside(what, getattr(owner, name)))
    yield
    for _, owner, name in functions:
        delattr(owner, name)


def _parts(model: Quartet) -> dict[str, list[tuple[Any, str]]]:
    """Which functions of which modules do what."""
    functions: list[list[tuple[Any, str]]] = [
        [(encoder, "forward") for encoder in model.tables],
        [(model.tokens.position, "inputs")],
        [(model.tokens, "encode"), (model.tokens, "forward")],
        [(model.branches["local"], "forward")],
        [(model.branches["feature"], "encode"), (model.branches["topology"], "encode")],
        [(model.global_tokens, "forward")],
        [(model.branches["perceivers"], "encode"), (model.branches["perceivers"], "forward")],
        [(model.fusion, "forward"), (model.readout, "forward")],
    ]
    return dict(zip(PARTS, functions, strict=True))


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
            names = ("data", "L", "distinct rows", "global tokens", "GB", f"below {MEMORY_LIMIT} GB")
            sizes = f"{len(batch.row_type):,}", f"{len(batch.global_row):,}"
            _add(table, names, (case.name, str(layers), *sizes, f"{gigabytes:.1f}", verdict))
    CONSOLE.print(table)


# --- parameters -------------------------------------------------------------------------------------


def parameters(schema: ModelSchema) -> None:
    """Prints the parameters of each configuration, beside RelGT's with the same table encoders."""
    table = Table(title=f"Parameters, M (the paper at L=4: {PAPER_RATIO}x RelGT)")
    for name in ("configuration", "L", "all", "of it table encoders", "RelGT", "ratio"):
        table.add_column(name, justify="left" if name == "configuration" else "right")
    for name, changes in configurations().items():
        for layers in (1, 4):
            model = Quartet(ModelConfig(local_layers=layers).changed(**changes), schema)
            whole, tables = _count(model), _count(model.tables)
            relgt = RELGT[0] + RELGT[1] * layers + tables
            figures = (f"{number / 1e6:.2f}" for number in (whole, tables, relgt))
            table.add_row(name, str(layers), *figures, f"{whole / relgt:.2f}x")
    CONSOLE.print(table)


def configurations() -> dict[str, dict[str, Any]]:
    """The paper's sweep and ablations, each as changes of the defaults."""
    everything = ModelConfig().branches
    sweep: dict[str, dict[str, Any]] = {
        "Z=32, R=512": {},
        **{f"Z={number}": {"num_latents": number} for number in (16, 64)},
        **{f"R={number}": {"num_archetypes": number} for number in (128, 256)},
    }
    without = {
        f"without {name}": {"branches": tuple(b for b in everything if b != name)} for name in everything
    }
    others = {
        "without local": {"local": False},
        "without perceivers": {"perceiver": False},
        "linear mix": {"mix": "linear"},
    }
    return {**sweep, **without, **others}


def _count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


if __name__ == "__main__":
    main()
