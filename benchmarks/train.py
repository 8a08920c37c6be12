"""What a step of training takes, with one thread and with several: seeds a second, and how much threads bring.

    python benchmarks/train.py [--data FOLDER TASK] [--width 64 512] [--threads 1 2] [--seconds 20] [--json FILE]

Steps of the trainer itself, tokens and Adam included, on random batches of the task (default: the demo's airport-late)
with the preset `small`; above width 128 contexts and layers are the paper's. Steps with one number of threads and with
another follow each other in one process. Three figures, medians of the steps:

    seeds/s       by the clock: means something on idle cores alone
    CPU           milliseconds a seed of all threads together: what threads cost
    critical      seeds a second of CPU time on the longest way: the main thread, and of those that take parts the one
                  that takes longest. What the clock would show if each thread had a core
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from quartet.config import Recipe
from quartet.database import Database
from quartet.drawing import console, new_grid
from quartet.tasks import Task
from quartet.training import Trainer, TrainingData

GOAL = 1.7  # of two threads, on two idle cores
PAPER = {
    "local_budget": 300,
    "num_latents": 32,
    "latent_layers": 4,
    "encoder_width": 128,
    "encoder_layers": 4,
}


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--data", nargs=2, default=("demo", "airport-late"), metavar=("FOLDER", "TASK"))
    options.add_argument("--width", type=int, nargs="+", default=[64, 512])
    options.add_argument("--batch", type=int, default=256)
    options.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options.add_argument("--seconds", type=float, default=20.0, help="of each width")
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    right = ("threads", "seeds/s", "CPU ms/seed", "critical", "against the first", "goal")
    table, rows = new_grid("Training", "width", *right, right=right), []
    task = Task.load(Database.load(chosen.data[0]), chosen.data[1])
    for width in chosen.width:
        changes = {"width": width, "batch_size": chosen.batch} | (PAPER if width > 128 else {})
        recipe = Recipe.load("small", **changes)
        with TemporaryDirectory() as cache:
            found = measured(TrainingData.prepare(task, recipe, Path(cache)), chosen.threads, chosen.seconds)
        for threads, row in found.items():
            by_clock, critical = (
                row[name] / found[chosen.threads[0]][name] for name in ("seeds/s", "critical")
            )
            goal = {"goal": GOAL} if threads == 2 and chosen.threads[0] == 1 else {}
            row |= {"width": width, "threads": threads, "by the clock": by_clock, "ratio": critical} | goal
            ratio = f"{by_clock:.2f}x by the clock, {critical:.2f}x critical"
            table.add_row(
                str(width), str(threads), f"{row['seeds/s']:,.0f}", f"{row['CPU ms/seed']:.2f}",
                f"{row['critical']:,.0f}", ratio, f"{GOAL}x" if goal else "",
            )  # fmt: skip
            rows.append(row)
    console().print(table)
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(rows, indent=1))


def measured(data: TrainingData, threads: list[int], seconds: float) -> dict[int, dict[str, Any]]:
    """Returns the figures of each number of threads: steps of all follow each other, on the same batches."""
    trainer, spent = Trainer(data), {}
    of_part = trainer._part_gradient

    def timed(*words: Any) -> Any:
        begin = time.thread_time()
        result = of_part(*words)
        me = threading.get_ident()
        spent[me] = spent.get(me, 0.0) + time.thread_time() - begin
        return result

    trainer._part_gradient = timed  # type: ignore[method-assign]
    batches = trainer.epoch_places(0)
    steps: dict[int, list[tuple[float, float, float]]] = {number: [] for number in threads}
    before = torch.get_num_threads()
    for number in threads:  # compiles, loads, and counts what fits
        torch.set_num_threads(number)
        trainer._step(batches[0])
    end, step = time.perf_counter() + seconds, 0
    while time.perf_counter() < end or step < 2:
        places = batches[step % len(batches)]
        for number in threads:
            torch.set_num_threads(number)
            spent.clear()
            begin = time.perf_counter(), time.process_time(), time.thread_time()
            trainer._step(places)
            wall, cpu, own = (
                now() - then
                for now, then in zip(
                    (time.perf_counter, time.process_time, time.thread_time), begin, strict=True
                )
            )
            spent.pop(threading.get_ident(), None)  # with one thread the main one takes the parts
            longest = own + max(spent.values(), default=0.0)
            steps[number].append((wall / len(places), cpu / len(places), longest / len(places)))
        step += 1
    torch.set_num_threads(before)
    medians = {
        number: [statistics.median(column) for column in zip(*found, strict=True)]
        for number, found in steps.items()
    }
    return {
        number: {"seeds/s": 1 / wall, "CPU ms/seed": 1e3 * cpu, "critical": 1 / longest}
        for number, (wall, cpu, longest) in medians.items()
    }


if __name__ == "__main__":
    main()
