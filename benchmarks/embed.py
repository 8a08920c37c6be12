"""What embeddings are worth: do look-alikes share labels that come later, and does another random seed find the same?

    python -m benchmarks.embed [--data FOLDER] [--tasks DATASET/TASK ...] [--neighbours 10] [--seeds 2]
                               [--model quartet] [--time-limit 45s] [--threads 1] [--runs runs/embed] [--table]

The figure is a correlation over test seeds: that of a seed's label with the mean label of its look-alikes among all who
are asked about at the same time, each less the mean label of that time. Labels are known only afterwards: they have no
part in who is like whom.
Look-alikes are found by the embedding, by the standardised cells of an entity's own row, and by all its relational
columns, standardised. A run that is done is not repeated; `--table` only prints what is there.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.past_labels import task_of
from benchmarks.results import SHARED, print_line, source_of
from quartet.listener import SILENT
from quartet.runs import LiveModel, fit, load, vectors_of
from quartet.runs.alike import directions, nearest

TASKS = ("demo/airport-late", "demo/plane-idle", "rel-f1/driver-dnf")
OWN, COLUMNS = "own cells", "relational columns"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--neighbours", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--model", default="quartet")
    parser.add_argument("--time-limit", default="45s")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=Path, default=Path("runs/embed"))
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    print_line("task", "rows", "embedding", COLUMNS, OWN, "the same in two seeds", "by chance", is_head=True)
    for name in asked.tasks:
        for line in measure(name, asked):
            print_line(*line)


def measure(name: str, asked: argparse.Namespace) -> Iterator[list[str]]:
    """Yields the line of a task, trained now if it was not before; none where its data are absent."""
    source, folder = source_of(name, asked.data), asked.runs / name.replace("/", "-")
    is_done = all((folder / f"seed-{seed}" / "latest").exists() for seed in range(asked.seeds))
    if source is None or (asked.table and not is_done):
        return
    task = task_of(name, source)
    database, seeds = task.full_database, task.seeds("test")
    target = np.asarray(task.vault.open("embed"), np.float64)
    rows, times = seeds.node - task.database.offsets[task.spec.entity_table], seeds.time
    found: dict[str, list[float]] = {}
    lists = []
    for seed in range(asked.seeds):
        own = folder / f"seed-{seed}"
        model = load(own / "latest") if (own / "latest").exists() else fit(
            task, asked.model, runs=own, listener=SILENT, threads=asked.threads, rng_seed=seed,
            time_limit=asked.time_limit, protocol="rolling",
        )  # fmt: skip
        live = model.on(database, listener=SILENT)
        live.bind(int(times.max()))
        spaces = {
            "embedding": vectors_of(live, rows, times),
            **(columns_of(live, rows, times) if not seed else {}),
        }
        for space, vectors in spaces.items():
            alike = look_alikes(vectors, times, asked.neighbours)
            found.setdefault(space, []).append(shared_labels(target, times, alike))
            lists += [alike] if space == "embedding" else []
    shared = [overlap(one, other) for place, one in enumerate(lists) for other in lists[place + 1 :]]
    sizes = np.unique(times, return_counts=True)[1]
    chance = float(np.average(np.minimum(1.0, asked.neighbours / np.maximum(1, sizes - 1)), weights=sizes))
    figures = ["–".join(f"{v:.3f}" for v in sorted(found[space])) for space in ("embedding", COLUMNS, OWN)]
    yield [name, f"{len(target):,}", *figures, f"{np.mean(shared):.0%}" if shared else "–", f"{chance:.0%}"]


def columns_of(
    live: LiveModel, rows: NDArray[np.int64], times: NDArray[np.int64]
) -> dict[str, NDArray[np.float64]]:
    """Returns the standardised cells of an entity's own row, and its relational columns."""
    from quartet.features import column_words
    from quartet.tasks import Seeds

    view = live.views[0]
    told, near = column_words(view.columns), view.columns.near
    names = tuple(name for name in view.columns.names if name in near and not told[name].is_shared)
    seeds = Seeds(rows + view.database.offsets[view.entity_table], times, None)
    matrix = view.matrix(seeds, names).astype(np.float64)
    matrix[:, np.isnan(matrix).all(0)] = 0.0
    middle, spread = np.nanmean(matrix, 0), np.nanstd(matrix, 0)
    scaled = np.nan_to_num((matrix - middle) / np.where(spread > 0, spread, 1.0))
    is_own = np.array([told[name].link == "its own row" and not told[name].names for name in names])
    flags = [matrix[:, [place]] == np.unique(matrix[:, place]) for place, name in enumerate(names)
             if told[name].link == "its own row" and told[name].names]  # fmt: skip
    return {
        COLUMNS: scaled,
        OWN: np.concatenate([scaled[:, is_own], *map(np.asarray, flags)], 1).astype(np.float64),
    }


def look_alikes(
    vectors: NDArray[np.floating], times: NDArray[np.int64], most: int
) -> list[NDArray[np.int64]]:
    """Returns for each seed the places of its look-alikes among those who are asked about at the same time."""
    alike: list[NDArray[np.int64]] = [np.empty(0, np.int64)] * len(times)
    for time in np.unique(times):
        of = np.flatnonzero(times == time)
        places, _ = nearest(directions(vectors[of]), most)
        for row, near in zip(of, places, strict=True):
            alike[row] = of[near]
    return alike


def shared_labels(
    target: NDArray[np.float64], times: NDArray[np.int64], alike: list[NDArray[np.int64]]
) -> float:
    """Returns how the labels of seeds and of their look-alikes vary together around the mean of their time."""
    _, number = np.unique(times, return_inverse=True)
    usual = (np.bincount(number, target) / np.bincount(number))[number]
    known = np.array([len(places) > 0 for places in alike])
    theirs = np.array([(target - usual)[places].mean() if len(places) else 0.0 for places in alike])
    return float(np.corrcoef((target - usual)[known], theirs[known])[0, 1])


def overlap(one: list[NDArray[np.int64]], other: list[NDArray[np.int64]]) -> float:
    pairs = [(set(a.tolist()), set(b.tolist())) for a, b in zip(one, other, strict=True) if len(a)]
    return float(np.mean([len(a & b) / len(a) for a, b in pairs]))


if __name__ == "__main__":
    main()
