"""How much two threads bring where one core each is free: contexts, features, columns, training, scores, trees.

    python benchmarks/threads.py [--data FOLDER TASK] [--threads 1 2] [--rounds 5] [--json FILE]

Each job runs with one number of threads and then with the other, round by round, in one process; figures are of the
best rounds. By the clock they mean something on idle cores alone: `busy` is what other programs had of all cores
meanwhile. The longest way is the CPU time of the main thread and of the one of the others that takes longest: what the
clock would show if each had a core. LightGBM's own threads are not counted: its main one takes part in all they do.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import torch
from features import database_of, mixed_table

from quartet.config import Recipe
from quartet.contexts import sample
from quartet.database import Database
from quartet.drawing import console, new_grid
from quartet.evaluation.boosting import column_settings, task_settings
from quartet.features import FeatureStatistics, FeatureTable
from quartet.machine import import_lightgbm
from quartet.tasks import Seeds, Task
from quartet.times import NEVER
from quartet.training import Trainer, TrainingData

GOAL = 1.7
_SEEDS = 4096
_TREES = 30
Job = Callable[[int], object]


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--data", nargs=2, default=("demo", "airport-late"), metavar=("FOLDER", "TASK"))
    options.add_argument("--threads", type=int, nargs=2, default=[1, 2])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    few, many = chosen.threads
    right = (f"{few} thread, s", f"{many} threads, s", "brings", "longest way", "goal", "busy")
    table, found = new_grid("Threads", "what", *right, right=right), []
    with TemporaryDirectory() as folder:
        for name, job in jobs(chosen.data, Path(folder)):
            spent, longest, busy = timed(job, chosen.threads, chosen.rounds)
            brings, way = spent[few] / spent[many], longest[few] / longest[many]
            row = {
                "what": name,
                "seconds": spent,
                "brings": brings,
                "longest way": way,
                "busy": busy,
                "goal": GOAL,
            }
            cells = (f"{spent[few]:.3f}", f"{spent[many]:.3f}", f"{brings:.2f}x", f"{way:.2f}x", f"{GOAL}x")
            table.add_row(name, *cells, f"{busy:.0%}")
            found.append(row)
    console().print(table)
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


class Counted(ThreadPoolExecutor):
    """A pool that tells how long each of its threads has computed."""

    spent: ClassVar[Counter[int]] = Counter()

    def submit(self, work: Any, /, *given: Any, **named: Any) -> Any:
        def counted() -> Any:
            begin = time.thread_time()
            try:
                return work(*given, **named)
            finally:
                self.spent[threading.get_ident()] += time.thread_time() - begin

        return super().submit(counted)


def timed(job: Job, threads: list[int], rounds: int) -> tuple[dict[int, float], dict[int, float], float]:
    """Returns the best seconds of each number of threads by the clock and on the longest way, and what others had."""
    for number in threads:
        job(number)  # compiles
    spent = {number: float("inf") for number in threads}
    longest = dict(spent)
    begin, own, all_ = time.perf_counter(), time.process_time(), _busy_seconds()
    for _ in range(rounds):
        for number in threads:
            Counted.spent.clear()
            first, way, cpu = time.perf_counter(), time.thread_time(), time.process_time()
            with patch("quartet.machine.cores.ThreadPoolExecutor", Counted):
                job(number)
            way = time.thread_time() - way + max(Counted.spent.values(), default=0.0)
            way = max(way, (time.process_time() - cpu) / number)  # threads of threads stand in no line
            spent[number] = min(spent[number], time.perf_counter() - first)
            longest[number] = min(longest[number], way)
    others = _busy_seconds() - all_ - (time.process_time() - own)
    return spent, longest, max(0.0, others) / (time.perf_counter() - begin) / (os.cpu_count() or 1)


def _busy_seconds() -> float:
    """Returns what all processes together have had of all cores, where the system tells; 0 elsewhere."""
    try:
        words = Path("/proc/stat").read_text(encoding="ascii").split("\n")[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system = map(int, words[:3])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def jobs(source: tuple[str, str], folder: Path) -> Iterator[tuple[str, Job]]:
    """Yields each job by its name; it takes a number of threads."""
    recipe = Recipe.load("small", batch_size=256)
    data = TrainingData.prepare(Task.load(Database.load(source[0]), source[1]), recipe, folder)
    seeds = data.seeds["train"]
    places = np.resize(np.arange(len(seeds)), _SEEDS)
    some = Seeds(seeds.node[places], seeds.time[places], None)
    yield "sample", lambda number: sample(data.view.graph, some, recipe.sampling, number)

    mixed = database_of(mixed_table(300_000))
    learned = FeatureStatistics.fit(mixed, NEVER)

    def encode(number: int) -> None:
        with (
            patch("quartet.features.table.usable_cores", lambda: number),
            patch("quartet.features.text.usable_cores", lambda: number),
        ):
            FeatureTable.encode(mixed, learned)

    yield "features", encode
    columns = data.view.columns
    yield "columns", lambda number: columns.matrix(some, None, number)

    trainer = Trainer(data)
    batch = trainer.epoch_places(0)[0]

    def step(number: int) -> None:
        with torch_threads(number):
            trainer._step(batch)

    yield "train", step
    asked = some.select(np.arange(len(some)) < 1024)

    def score(number: int) -> None:
        with torch_threads(number):
            trainer.network.logits(data.view, asked)

    yield "score", score
    yield "trees", trees(data)


def trees(data: TrainingData) -> Job:
    """Returns what grows trees on the columns of training, with the settings that they have in `auto`."""
    lightgbm = import_lightgbm()
    matrix, labels = data.columns("train"), np.asarray(data.seeds["train"].target)
    kind = data.task.spec.type

    def grow(number: int) -> None:
        settings = column_settings(kind, len(matrix), matrix.shape[1], False, number)
        settings |= {"seed": 0, **task_settings(kind, data.output.num_outputs, len(matrix))}
        lightgbm.train(settings, lightgbm.Dataset(matrix, labels), _TREES)

    return grow


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


if __name__ == "__main__":
    main()
