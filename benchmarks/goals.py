"""One table of what `make bench` has measured and what it should be: goal, figure, and the figure in goals.

    python benchmarks/goals.py [FOLDER] [--json FILE]

FOLDER (default out/bench) holds what `kept.py` and `train.py` wrote with `--json`; what was not measured is not shown.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from quartet.drawing import console, new_grid


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
    if kept := _read(folder / "kept.json"):
        cpu = {name: times["cpu"] for name, times in kept.items()}
        compiling = cpu["predict, nothing compiled (s)"] - cpu["predict, nothing kept (s)"]
        yield Goal("compiling at the first run", compiling, 10, "s")
        yield Goal("predict, the second time", cpu["predict, again (s)"], 4, "s")
        yield Goal("one entity of a bound model, median", cpu["one entity, p50 (ms)"], 30, "ms")
        yield Goal("one entity of a bound model, 99th percentile", cpu["one entity, p99 (ms)"], 60, "ms")
        yield Goal("quartet --help", cpu["--help (s)"], 0.3, "s")
    for row in _read(folder / "train.json") or ():
        if "goal" in row:
            what = f"training at width {row['width']}, {row['threads']} threads"
            yield Goal(f"{what}, by the clock", row["by the clock"], row["goal"], "x", is_least=True)
            yield Goal(f"{what}, longest way", row["ratio"], row["goal"], "x", is_least=True)


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


if __name__ == "__main__":
    main()
