"""How fast a model scores: seeds a second in batches, and the time from process start to the first score.

    python benchmarks/score.py [--data FOLDER TASK]... [--seeds 4096] [--repeats 3]

Nothing is trained: the model is the preset `small` with random weights, whose speed is that of a trained one. Seeds
are random training seeds of the task (default: the demo's plane-idle), from seeds to scores, sampled live.

Seeds a second are by the clock, medians of the repeats, with 1 and with 2 threads; CPU milliseconds a seed are what to
compare where other programs keep the cores busy. Shares are those of one thread. The first score is that of
`quartet predict MODEL SRC --entities X` in a fresh process, with what another fresh process takes for each step
of the same work. Compiled loops are taken from disk: the first run on a machine makes them, which is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STEPS = ("python", "imports", "model", "data", "features", "graph", "answer")


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--data", nargs=2, action="append", metavar=("FOLDER", "TASK"))
    options.add_argument("--seeds", type=int, default=4096)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--first", nargs=4, help=argparse.SUPPRESS)  # model, source, entity, time of start
    chosen = options.parse_args()
    if chosen.first:
        model, source, entity, start = chosen.first
        print(json.dumps(first_score(Path(model), source, entity, float(start))))
        return
    from quartet.drawing import console, new_grid

    right = ("seeds/s", "2 threads", "CPU ms/seed", "with 2", "sampling", "tokens", "model")
    rates = new_grid("Batch scoring", "task", *right, right=right)
    right = ("predict", "CPU", *STEPS)
    firsts = new_grid("To the first score, seconds", "task", *right, right=right)
    for source, name in chosen.data or [("demo", "plane-idle")]:
        with tempfile.TemporaryDirectory() as folder:
            work = Work.of(source, name, chosen.seeds)
            work.checkpoint.save(Path(folder) / "model")
            rates.add_row(name, *scoring(work, chosen.repeats))
            firsts.add_row(name, *first_scores(Path(folder) / "model", source, work.entity, chosen.repeats))
    console().print(rates, "", firsts)


# --- batches --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """A model with random weights, and seeds to be scored."""

    checkpoint: Any
    view: Any
    seeds: Any
    entity: str

    @staticmethod
    def of(source: str, name: str, count: int) -> Work:
        import numpy as np

        import quartet
        from quartet.registry import model_row
        from quartet.runs import Checkpoint
        from quartet.tasks import Seeds, TaskRecord
        from quartet.training import TrainingData

        task, recipe = quartet.open(source).task(name), quartet.Recipe.load("small")
        data = TrainingData.prepare(task, recipe)
        network = model_row("quartet").model_class.new(data, recipe).eval()
        record = TaskRecord.of(task)
        checkpoint = Checkpoint(network, recipe, data.output, data.features.statistics, record, 0, 0.5)
        seeds = task.seeds("train")
        places = np.random.default_rng(0).choice(len(seeds), count)
        table = task.database[task.spec.entity_table]
        entity = str(table.data[table.primary_key[0]][0].as_py())
        return Work(checkpoint, data.view, Seeds(seeds.node[places], seeds.time[places], None), entity)


@dataclass
class Laps:
    """Seconds by the clock of some kinds of work."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - begin


def scoring(work: Work, repeats: int) -> list[str]:
    """Seeds a second and CPU milliseconds a seed with 1 and 2 threads, and the share of each kind of work."""
    num_seeds = len(work.seeds)
    score(work, 1)  # code is loaded, and memory claimed
    found = {threads: [score(work, threads) for _ in range(repeats)] for threads in (1, 2)}
    medians = [[statistics.median(values) for values in zip(*found[n], strict=True)] for n in (1, 2)]
    laps = shares(work).seconds
    return [
        *(f"{num_seeds / wall:,.0f}" for wall, _ in medians),
        *(f"{1e3 * cpu / num_seeds:.2f}" for _, cpu in medians),
        *(f"{laps[what] / sum(laps.values()):.0%}" for what in ("sampling", "tokens", "model")),
    ]


def score(work: Work, threads: int) -> tuple[float, float]:
    """Seconds by the clock and of CPU for the scores of all seeds, once the graph is there."""
    import torch

    torch.set_num_threads(threads)
    work.view.graph  # noqa: B018 (built when first asked for)
    wall, cpu = time.perf_counter(), time.process_time()
    work.checkpoint.output.scores(work.checkpoint.model.logits(work.view, work.seeds))
    return time.perf_counter() - wall, time.process_time() - cpu


def shares(work: Work) -> Laps:
    """The same work step by step, with one thread."""
    import numpy as np
    import torch

    from quartet.contexts import select
    from quartet.training.data import BATCH

    laps, tokenizer = Laps(), work.view.tokenizer
    torch.set_num_threads(1)
    with laps.of("sampling"):
        contexts = list(work.view.contexts(work.seeds))
    for context in contexts:
        for first in range(0, len(context), BATCH):
            with laps.of("tokens"):
                batch = tokenizer(select(context, np.arange(len(context))[first : first + BATCH]))
            with laps.of("model"), torch.inference_mode():
                work.checkpoint.output.scores(work.checkpoint.model(batch).double().numpy())
    return laps


# --- the first score ------------------------------------------------------------------------------


def first_scores(model: Path, source: str, entity: str, repeats: int) -> list[str]:
    """Seconds of `quartet predict` for one entity, and of the steps of the same work; medians of fresh processes."""
    predict = ["-m", "quartet", "predict", str(model), source, "--entities", entity, "--threads", "1"]
    run(*predict)  # compiles what is not yet on disk
    whole = [run(*predict)[:2] for _ in range(repeats)]
    steps = []
    for _ in range(repeats):
        first = ["--first", str(model), source, entity, str(time.time())]
        steps.append(json.loads(run(__file__, *first)[2]))
    found = [statistics.median(values) for values in zip(*whole, strict=True)]
    found += [statistics.median(one[step] for one in steps) for step in STEPS]
    return [f"{seconds:.2f}" for seconds in found]


def run(*words: str) -> tuple[float, float, str]:
    """Seconds until a fresh process of Python prints its first line, CPU seconds of all of it, and that line."""
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        wall = time.perf_counter() - begin
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, line


def first_score(model: Path, source: str, entity: str, start: float) -> dict[str, float]:
    """Seconds of each step from the start of a process to one score."""
    laps = Laps({"python": time.time() - start})
    with laps.of("imports"):
        import torch

        import quartet
        from quartet.runs import load
        from quartet.training import graph_of
    torch.set_num_threads(1)
    with laps.of("model"):
        loaded = load(model)
    with laps.of("data"):
        database = quartet.open(source)
    with laps.of("features"):
        live = loaded.on(database, device="cpu", listener=quartet.Listener())
    with laps.of("graph"):
        graph_of(live.views[0].database)
    with laps.of("answer"):
        live.predict([entity]).grid()
    return laps.seconds


if __name__ == "__main__":
    main()
