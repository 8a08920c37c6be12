"""Whether any of many random databases shows a seed anything of its future (P1 to P5), and how fast that is known.

    python -m benchmarks.leakcheck [--count 10000] [--processes 2] [--rng-seed 0]
    python -m benchmarks.leakcheck --digests

For each database: contexts of visible rows at a time that matters in it, by a drawn configuration; the same after
the future was deleted, after it was scrambled, and after all rows changed places; each of some seeds alone; and
no row in any context that was not visible. A difference is printed, counted, and makes the exit code 1.

`--digests` prints the digest of all contexts under 120 combinations of threads, processes, start method and
PYTHONHASHSEED (P10).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from quartet.config import SamplingConfig
from quartet.database import Database
from quartet.machine import usable_cores
from tests.contexts.configs import configs
from tests.contexts.named import Named, NamedSeed, World, future_rows
from tests.strategies import Raw, interesting_times, random_db, scrambled_future, shuffled, without_future

ROOT = Path(__file__).resolve().parents[1]
BATCH = 100  # databases that a process draws from one random seed
PROPERTIES = ("P1 delete", "P2 scramble", "P3 permute", "P4 alone", "P5 visible")


@dataclass
class Found:
    """What a batch of databases had to show."""

    num_databases: int = 0
    num_seeds: int = 0
    num_compared: Counter[str] = field(default_factory=Counter)
    num_different: Counter[str] = field(default_factory=Counter)
    stories: list[str] = field(default_factory=list)

    def add(self, other: Found) -> None:
        self.num_databases += other.num_databases
        self.num_seeds += other.num_seeds
        self.num_compared += other.num_compared
        self.num_different += other.num_different
        self.stories += other.stories


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--count", type=int, default=10_000, help="databases")
    options.add_argument("--processes", type=int, default=usable_cores())
    options.add_argument("--rng-seed", type=int, default=0)
    options.add_argument("--digests", action="store_true", help="the digest matrix instead")
    chosen = options.parse_args()
    if chosen.digests:
        return check_digests()
    begin = time.perf_counter()
    found = check_databases(chosen.count, chosen.processes, chosen.rng_seed)
    report(found, time.perf_counter() - begin)
    return 1 if found.num_different else 0


# --- the future -------------------------------------------------------------------------------------


def check_databases(count: int, processes: int, rng_seed: int) -> Found:
    sizes = [min(BATCH, count - first) for first in range(0, count, BATCH)]
    work = [(rng_seed * 10**6 + number, size) for number, size in enumerate(sizes)]
    total = Found()
    columns = (TextColumn("databases"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    context = multiprocessing.get_context("spawn")
    with Progress(*columns, console=Console(stderr=True)) as progress, context.Pool(processes) as pool:
        bar = progress.add_task("", total=count)
        for found in pool.imap_unordered(check_batch, work):
            total.add(found)
            progress.update(bar, completed=total.num_databases)
    return total


def check_batch(work: tuple[int, int]) -> Found:
    """Some random databases, drawn from one number."""
    rng_seed, size = work
    found = Found()

    @seed(rng_seed)
    @settings(
        max_examples=size,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(random_db(), configs(), st.integers(0, 2**32))
    def check(raw: Raw, config: SamplingConfig, number: int) -> None:
        check_database(raw, config, random.Random(number), found)

    check()
    return found


def check_database(raw: Raw, config: SamplingConfig, rng: random.Random, found: Found) -> None:
    database = Database.build(*raw)
    world, moment, rule = World(database), rng.choice(interesting_times(database)), config.time_rule
    seeds = world.some_seeds(moment, rule, 8, rng)
    found.num_databases += 1
    found.num_seeds += len(seeds)
    context = world.sample(seeds, config)
    seen = [world.named(context, place) for place in range(len(seeds))]
    changed = {
        "P1 delete": without_future(raw, moment, rule, rng),
        "P2 scramble": scrambled_future(raw, moment, rule, rng),
        "P3 permute": shuffled(raw, rng),
    }
    for name, other in changed.items():
        after = World(Database.build(*other)).contexts(seeds, config)
        _compare(name, seeds, seen, after, config, found)
    few = list(dict.fromkeys([*seeds[:1], *seeds[len(seeds) // 2 :][:1], *seeds[-1:]]))
    alone = [world.contexts([asked], config)[0] for asked in few]
    together = dict(zip(seeds, seen, strict=True))
    _compare("P4 alone", few, [together[asked] for asked in few], alone, config, found)
    _compare("P4 alone", seeds[::-1], seen[::-1], world.contexts(seeds[::-1], config), config, found)
    late = future_rows(world, context, rule)
    found.num_compared["P5 visible"] += len(seeds)
    if late:
        found.num_different["P5 visible"] += late
        found.stories.append(f"P5 visible: {late} rows at {moment} by {config}")


def _compare(
    name: str,
    seeds: list[NamedSeed],
    seen: list[Named],
    other: list[Named],
    config: SamplingConfig,
    found: Found,
) -> None:
    found.num_compared[name] += len(seeds)
    for asked, one, two in zip(seeds, seen, other, strict=True):
        if one != two:
            found.num_different[name] += 1
            found.stories.append(f"{name}: {asked[0]} at {asked[1]} by {config}")


def report(found: Found, seconds: float) -> None:
    table = Table(title=f"{found.num_databases:,} databases, {found.num_seeds:,} seeds, {seconds:.0f} s")
    for name in ("property", "contexts compared", "differences"):
        table.add_column(name, justify="left" if name == "property" else "right")
    for name in PROPERTIES:
        table.add_row(name, f"{found.num_compared[name]:,}", f"{found.num_different[name]:,}")
    console = Console(width=110)
    for story in found.stories[:5]:
        console.print(story, markup=False, highlight=False)
    console.print(table)
    console.print(
        f"{found.num_databases:,} databases, {found.num_seeds:,} seeds, {found.num_compared.total():,} contexts "
        f"compared, {found.num_different.total():,} differences, {found.num_databases / seconds:.1f} databases/s"
    )


# --- the digests ------------------------------------------------------------------------------------


def combinations() -> Iterator[tuple[str, list[str]]]:
    """For each PYTHONHASHSEED all combinations of threads, processes and start method."""
    for hash_seed in range(5):
        yield (
            str(hash_seed),
            [f"{t},{p},{start}" for t in (1, 2, 4, 8) for p in (1, 2, 4) for start in ("fork", "spawn")],
        )


def check_digests() -> int:
    digests: Counter[str] = Counter()
    for hash_seed, wanted in combinations():
        command = [sys.executable, "-m", "tests.contexts.digests", *wanted]
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        lines = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        digests.update(line.split()[1] for line in lines.splitlines())
        print(
            f"PYTHONHASHSEED={hash_seed}: {digests.total()} combinations, {len(digests)} digest(s)",
            flush=True,
        )
    for digest, count in digests.items():
        print(f"{count:4} {digest}")
    return 0 if len(digests) == 1 and digests.total() == 120 else 1


if __name__ == "__main__":
    sys.exit(main())
