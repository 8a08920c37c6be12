"""One table of what `make bench` has measured and what it should be: goal, figure, and the figure in goals.

    python benchmarks/goals.py [FOLDER] [--json FILE]

FOLDER (default out/bench) holds what `kept.py`, `threads.py`, `train.py`, `native.py`, `cache.py`, `relgt.py` and
`scale.py` wrote with `--json`, each under its own name; what was not measured is not shown.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from quartet.drawing import console, new_grid

PHASES = ("read", "labels", "features", "graph", "sample", "columns", "score")


class Goal(NamedTuple):
    """A figure, and the most it may be, or the least where more is better."""

    what: str
    figure: float
    goal: float
    unit: str
    is_least: bool = False

    @property
    def is_reached(self) -> bool:
        return self.figure >= self.goal if self.is_least else self.figure <= self.goal


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("folder", nargs="?", type=Path, default=Path("out/bench"))
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    found = list(goals(chosen.folder))
    right = ("figure", "goal", "figure / goal")
    table = new_grid("Goals", "what", *right, "reached", right=right)
    for row in found:
        sign = "≥" if row.is_least else "≤"
        cells = (
            f"{row.figure:.2f} {row.unit}",
            f"{sign} {row.goal:g} {row.unit}",
            f"{row.figure / row.goal:.2f}",
        )
        table.add_row(row.what, *cells, "yes" if row.is_reached else "no")
    console().print(table)
    if chosen.json:
        rows = [
            row._asdict() | {"ratio": row.figure / row.goal, "is_reached": row.is_reached} for row in found
        ]
        chosen.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def goals(folder: Path) -> Iterator[Goal]:
    """Yields the figures that have a goal. Times are of the CPU, which other programs do not lengthen."""
    for part in (of_kept, of_threads, of_samplers, of_relgt, of_scale):
        yield from part(folder)


def of_kept(folder: Path) -> Iterator[Goal]:
    """What is made once, and what a first run waits for."""
    if kept := _read(folder / "kept.json"):
        cpu = {name: times["cpu"] for name, times in kept.items()}
        compiling = cpu["predict, nothing compiled (s)"] - cpu["predict, nothing kept (s)"]
        yield Goal("one entity of a bound model, median", cpu["one entity, p50 (ms)"], 30, "ms")
        yield Goal("one entity of a bound model, 99th percentile", cpu["one entity, p99 (ms)"], 60, "ms")
        yield Goal("predict, the second time", cpu["predict, again (s)"], 4, "s")
        yield Goal("compiling at the first run", compiling, 10, "s")
        yield Goal("quartet --help", cpu["--help (s)"], 0.3, "s")


def of_threads(folder: Path) -> Iterator[Goal]:
    """What a second core brings."""
    for row in _read(folder / "threads.json") or ():
        what = f"two threads, {row['what']}"
        clock = f"{what}, by the clock ({row['busy']:.0%} of the cores were busy)"
        yield Goal(clock, row["brings"], row["goal"], "x", is_least=True)
        yield Goal(f"{what}, longest way", row["longest way"], row["goal"], "x", is_least=True)
    for row in _read(folder / "train.json") or ():
        what = f"training at width {row['width']}"
        if "goal" in row:
            yield Goal(f"two threads, {what}, longest way", row["ratio"], row["goal"], "x", is_least=True)


def of_samplers(folder: Path) -> Iterator[Goal]:
    """Walks beside C++, how many there are, and the bytes of their contexts."""
    for row in _read(folder / "native.json") or ():
        what = f"seeds of {row['seeds of']}, {row['entries'] / 1e6:.0f} M entries"
        yield Goal(f"sample() / C++, {what}", row["sample()"] / row["C++"], 1.3, "x")
        yield Goal(
            f"sample() / C++ without prefetching, {what}", row["sample()"] / row["plain C++"], 1.3, "x"
        )
        yield Goal(f"walks, {what}", 1e3 / row["sample()"], 20, "k seeds/s", is_least=True)
    for name, size in (_read(folder / "cache.json") or {}).items():
        yield Goal(f"contexts on disk, {name}", size / 1e3, 3.0, "kB a seed")


def of_relgt(folder: Path) -> Iterator[Goal]:
    """A training step of QUARTET beside one of RelGT."""
    for row in _read(folder / "relgt.json") or ():
        first, *_, last = row["ms"].values()
        yield Goal(
            f"QUARTET / RelGT, L = {row['layers']}, batch {row['batch']}", last / first, row["goal"], "x"
        )


def of_scale(folder: Path) -> Iterator[Goal]:
    """How the time of a row grows from the smallest database to the largest."""
    rows = [row for row in _read(folder / "scale.json") or () if "counts" in row]
    if len(rows) > 1:
        sizes = [row["counts"]["rows"] for row in (rows[0], rows[-1])]
        for name in PHASES:
            if all(name in row for row in (rows[0], rows[-1])):
                few, many = (
                    row[name]["cpu"] / size for row, size in zip((rows[0], rows[-1]), sizes, strict=True)
                )
                what = f"{name}, time of a row, {sizes[1] / 1e6:g} M rows / {sizes[0] / 1e6:g} M"
                yield Goal(what, many / few, 1.3, "x")


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


if __name__ == "__main__":
    main()
