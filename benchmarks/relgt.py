"""What a training step of QUARTET costs beside one of RelGT, both by our own pipeline, and which branches it goes into.

    python benchmarks/relgt.py [--width 512] [--layers 1 4] [--batch 128] [--repeats 3] [--data FOLDER] [--json FILE]

Random batches of rel-f1's driver-top3 (where the dataset is absent, of the demo's plane-idle) with the paper's sizes;
each model has contexts of what it reads alone. CPU milliseconds of a seed, forward and backward, on one thread: medians
of rounds in which all take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from step import REL_F1, loss

from quartet.config import BRANCHES, ModelConfig
from quartet.contexts import sample
from quartet.database import Database
from quartet.drawing import console, new_grid
from quartet.features import FeatureTable
from quartet.graph import TemporalGraph
from quartet.models.quartet import Quartet
from quartet.models.relgt import RelGT
from quartet.tasks import Seeds, Task
from quartet.tokens import Tokenizer
from quartet.training import ModelSchema, backward_by_group

GOAL = 1.5


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--data", type=Path, default=REL_F1, help="folder of rel-f1")
    options.add_argument("--width", type=int, default=512)
    options.add_argument("--layers", type=int, nargs="+", default=[1, 4])
    options.add_argument("--batch", type=int, nargs="+", default=[128])
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    found = []
    source, name = (str(chosen.data), "driver-top3") if chosen.data.is_dir() else ("demo", "plane-idle")
    task = Task.load(Database.load(source), name)
    graph = TemporalGraph.build(task.database)
    tokenizer = Tokenizer(graph, FeatureTable.fit(task.database, task.splits.val))
    for layers in chosen.layers:
        for batch in chosen.batch:
            spent = measured(tokenizer, task.seeds("train"), chosen.width, layers, batch, chosen.repeats)
            found.append({"layers": layers, "batch": batch, "goal": GOAL, "ms": spent})
    show(f"{task.name}, width {chosen.width}: CPU ms of a seed", found)
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


def measured(
    tokenizer: Tokenizer, seeds: Seeds, width: int, layers: int, batch: int, repeats: int
) -> dict[str, float]:
    """Returns the milliseconds of a seed of each model: RelGT, and QUARTET with more and more branches."""
    chosen = np.random.default_rng(0).permutation(len(seeds))[:batch]
    some = Seeds(seeds.node[chosen], seeds.time[chosen], None)
    kinds: dict[str, tuple[Any, tuple[Any, ...]]] = {"RelGT": (RelGT, ())}
    kinds["local"] = (Quartet, ())
    for number, name in enumerate(BRANCHES, 1):
        kinds[f"+ {name}"] = (Quartet, BRANCHES[:number])
    steps = {}
    for name, (kind, branches) in kinds.items():
        config = ModelConfig(width=width, local_layers=layers, branches=branches)
        sampling = config.sampling()
        torch.manual_seed(0)
        network = kind(config, ModelSchema(tokenizer.features.layouts, sampling.num_hops))
        steps[name] = network, tokenizer(sample(tokenizer.graph, some, sampling))
    spent: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(repeats + 1):
        for name, (network, tokens) in steps.items():
            network.zero_grad()
            begin = time.process_time()
            backward_by_group(network, tokens, loss)
            if number:  # the first one loads
                spent[name].append(1e3 * (time.process_time() - begin) / batch)
            if hasattr(network, "memory"):
                network.memory.seen = []
    return {name: statistics.median(times) for name, times in spent.items()}


def show(title: str, found: list[dict[str, Any]]) -> None:
    models = list(found[0]["ms"])
    right = ("batch", *models, "QUARTET / RelGT", "goal")
    table = new_grid(title, "L", *right, right=right)
    for row in found:
        times = list(row["ms"].values())
        cells = (f"{time:.1f}" for time in times)
        table.add_row(
            str(row["layers"]), str(row["batch"]), *cells, f"{times[-1] / times[0]:.2f}x", f"{GOAL}x"
        )
    console().print(table)


if __name__ == "__main__":
    main()
