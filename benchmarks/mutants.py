"""Whether the tests notice a leak: each mutant is one plausible mistake, and some test must fail by it.

    python -m benchmarks.mutants [--processes 2] [--only 3 17] [--list]

The package and its tests are copied to a temporary folder, one mutation is applied there (an exact replacement of
source text, an error if the source has changed), and the tests that ought to notice run until the first of them
fails, with a numba cache of their own. The first row is no mutation at all: it must survive. A mutant that does not
compile is broken, not killed. Exit code 1 unless all are killed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT = 1200
BROKEN = re.compile(r"TypingError|LoweringError|NameError|SyntaxError|ImportError|UnsupportedError")

FUTURE = "tests/samplers/test_causality.py"
TWINS = "tests/samplers/test_twins.py"
LAWS = "tests/samplers/test_laws.py"
BUDGETS = "tests/samplers/test_budgets.py"
HUBS = "tests/samplers/test_hubs.py"
DIGESTS = "tests/samplers/test_digests.py"
ENDS = "tests/samplers/test_ends.py"
FEATURES = "tests/features/test_causality.py"
LINKS = "tests/samplers/test_recent_links.py"
RELATIONAL = "tests/baselines/test_relational.py"
HISTORY = "tests/tasks/test_history.py"

# Failures are shown as found: making them small takes minutes and tells the runner nothing.
NO_SHRINKING = """
from hypothesis import Phase
settings.register_profile(
    "mutants", settings.get_profile("suite"), phases=(Phase.explicit, Phase.generate), database=None
)
settings.load_profile("mutants")
"""


@dataclass(frozen=True)
class Mutant:
    """One mistake: what it is, the replacements that make it, and the tests that must notice."""

    name: str
    tests: tuple[str, ...]
    changes: tuple[tuple[str, str, str], ...]  # file below quartet/, old text, new text


def mutant(name: str, tests: str, *changes: tuple[str, str, str]) -> Mutant:
    return Mutant(name, tuple(tests.split()), changes)


MUTANTS = [
    mutant("no mutation", f"{FUTURE} {TWINS} {LAWS} {BUDGETS} {HUBS} {DIGESTS} {FEATURES}"),
    # --- the leaks of the catalogue, with their numbers there ---
    mutant(
        "1: `<= t` becomes `< t + 1 day`",
        FUTURE,
        (
            "causal.py",
            "np.searchsorted(sorted_known_at, time, side=side)",
            'np.searchsorted(sorted_known_at, np.asarray(time) + 86_400 * 10**9, side="left")',
        ),
    ),
    mutant(
        "2: no filter from the second hop on (walk)",
        FUTURE,
        (
            "samplers/walk.py",
            "end = visible_end(entries, begin[number], width[number], last_rank)",
            "end = visible_end(entries, begin[number], width[number], last_rank if number == 0 else 2**31)",
        ),
    ),
    mutant(
        "2: no filter at the second hop (collab)",
        FUTURE,
        (
            "samplers/collab.py",
            "wide = visible_end(entries, start, indptr[middle + 1], last_rank) - start",
            "wide = indptr[middle + 1] - start",
        ),
    ),
    mutant(
        "2: no filter at the third hop (collab, four hops)",
        FUTURE,
        (
            "samplers/collab.py",
            "wide = visible_end(entries, start, indptr[shared + 1], last_rank) - start",
            "wide = indptr[shared + 1] - start",
        ),
    ),
    mutant(
        "2: no filter at the second hop (BFS2)",
        FUTURE,
        (
            "samplers/bfs.py",
            "        begin, total = _visible(graph, ids[first], last_rank)\n",
            "        begin, total = _visible(graph, ids[first], 2**31)\n",
        ),
    ),
    mutant(
        "3: filter after hub truncation (walk)",
        FUTURE,
        (
            "samplers/walk.py",
            "        end = visible_end(entries, begin[number], width[number], last_rank)\n"
            "        count = end - begin[number]\n",
            "        if most_recent and not is_random:\n"
            "            begin[number] = max(begin[number], width[number] - most_recent)\n"
            "        end = visible_end(entries, begin[number], width[number], last_rank)\n"
            "        count = end - begin[number]\n",
        ),
    ),
    mutant(
        "3: filter after hub truncation (BFS2)",
        HUBS,
        (
            "samplers/bfs.py",
            "            entry = begin + member(key, (first + 2) << 32, place, total, SECOND_CAP)\n",
            "            full = graph[0][ids[first] + 1] - begin\n"
            "            entry = begin + member(key, (first + 2) << 32, place, full, SECOND_CAP)\n"
            "            if entry >= begin + total:\n"
            "                continue\n",
        ),
    ),
    mutant(
        "4: fallback over all rows",
        FUTURE,
        (
            "samplers/fallback.py",
            'np.searchsorted(part, last_ranks[seed], side="right")',
            "len(part)",
        ),
    ),
    mutant(
        "5: contexts keyed by the entity alone",
        FUTURE,
        (
            "samplers/context.py",
            "        last = last_visible_rank(self.graph.times, time, self.config.time_rule)\n",
            "        time = np.array([time[node == one][-1] for one in node], np.int64)\n"
            "        last = last_visible_rank(self.graph.times, time, self.config.time_rule)\n",
        ),
    ),
    mutant(
        "6: the wrong side of searchsorted",
        FUTURE,
        ("causal.py", '"right" if rule == "<=" else "left"', '"left" if rule == "<=" else "right"'),
    ),
    mutant(
        "7: a missing time means always known",
        FUTURE,
        (
            "database/table.py",
            "known_at = np.maximum(known_at, parsed.ns)",
            "known_at = np.maximum(known_at, np.where(parsed.missing, STATIC, parsed.ns))",
        ),
    ),
    mutant(
        "13: lists unsorted in the middle only",
        FUTURE,
        (
            "graph/temporal.py",
            "    merge_parents(rank, key, parents, start, num_fks, offsets, indptr, entries)\n",
            "    merge_parents(rank, key, parents, start, num_fks, offsets, indptr, entries)\n"
            "    for node in np.flatnonzero(np.diff(indptr) >= 4):\n"
            "        middle = (indptr[node] + indptr[node + 1]) // 2\n"
            "        entries[[middle - 1, middle]] = entries[[middle, middle - 1]]\n",
        ),
    ),
    mutant(
        "14: the time of an edge is the earlier of its ends",
        FUTURE,
        ("graph/kernels.py", "edge = max(rank[node], rank[parent])", "edge = min(rank[node], rank[parent])"),
        (
            "graph/kernels.py",
            "np.int64(max(rank[node], rank[parent])) << 32",
            "np.int64(min(rank[node], rank[parent])) << 32",
        ),
    ),
    # --- leaks of samplers ---
    mutant(
        "a draw depends on the full degree (walk)",
        FUTURE,
        (
            "samplers/walk.py",
            "                spot = below(bits, width[now])\n",
            "                full = graph[0][ids[now] + 1] - graph[0][ids[now]]\n"
            "                spot = below(draw(bits, full), width[now])\n",
        ),
    ),
    mutant(
        "a draw depends on the full degree (collab)",
        FUTURE,
        (
            "samplers/collab.py",
            "        num_far = choose(key, count, wide, settings[1], far)\n        count += settings[1]\n",
            "        num_far = choose(key, count + indptr[middle + 1] - start, wide, settings[1], far)\n"
            "        count += settings[1]\n",
        ),
    ),
    mutant(
        "a draw depends on the number of rows (fallback)",
        FUTURE,
        (
            "samplers/fallback.py",
            "number = below(draw(key, attempt), total)",
            "number = below(draw(key, attempt + len(stream)), total)",
        ),
    ),
    mutant(
        "random truncation by the full degree",
        FUTURE,
        (
            "samplers/walk.py",
            "    return member(key ^ row_key, 0, spot, total, most)\n",
            "    full = graph[0][node + 1] - begin\n"
            "    return min(member(key ^ row_key, 0, spot, full, most), total - 1)\n",
        ),
    ),
    mutant(
        "the window of the temporal pool is open at the future end",
        FUTURE,
        ("samplers/temporal.py", "nodes[begin[place] : end[place]]", "nodes[begin[place] :]"),
    ),
    mutant(
        "peers of four hops without a look at their time",
        FUTURE,
        ("samplers/collab.py", " and node_rank[peer] <= last_rank", ""),
    ),
    mutant(
        "edges for links to rows that are not known yet",
        FUTURE,
        (
            "samplers/walk.py",
            "            if number >= 0 and place_of[number] >= 0:\n",
            "            if number < 0:\n"
            "                edges[found, 0], edges[found, 1] = child[spot], 0\n"
            "                found += 1\n"
            "            elif place_of[number] >= 0:\n",
        ),
    ),
    mutant(
        "the sketch counts all neighbours",
        FUTURE,
        (
            "samplers/sketch.py",
            "end = visible_end(entries, begin, indptr[nodes[seed] + 1], last_ranks[seed])",
            "end = indptr[nodes[seed] + 1]",
        ),
    ),
    mutant(
        "the sketch reads the next checkpoint",
        HUBS,
        (
            "samplers/sketch.py",
            "            row[NUM_SCALARS:] = counts[starts[nodes[seed]] + full - 1]\n",
            "            row[NUM_SCALARS:] = counts[min(starts[nodes[seed]] + full, len(counts) - 1)]\n",
        ),
    ),
    mutant(
        "the visible prefix is one entry too long",
        FUTURE,
        (
            "graph/kernels.py",
            "            high = middle\n    return low\n",
            "            high = middle\n    return low + 1\n",
        ),
    ),
    mutant(
        "the key of the draws is the row number",
        FUTURE,
        ("samplers/draws.py", "graph.stable_key[nodes]", "nodes.astype(np.uint64)"),
    ),
    mutant(
        "ties by row number",
        FUTURE,
        ("graph/temporal.py", "    _sort_ties(order, is_new, rank, stable_key)\n", ""),
    ),
    mutant(
        "of two rows that name each other, the first keeps the link",
        FUTURE,
        ("graph/kernels.py", "(key[parent], parent) < (key[node], node)", "parent < node"),
    ),
    mutant(
        "the place in the batch enters the draws",
        FUTURE,
        (
            "samplers/context.py",
            "        keys = seed_keys(self.graph, node, time, config.rng_seed, config.local_sampler)\n",
            "        keys = seed_keys(self.graph, node, time, config.rng_seed, config.local_sampler)\n"
            "        keys = keys + np.arange(len(keys), dtype=np.uint64)\n",
        ),
    ),
    mutant(
        "Python's hash in the key of the draws",
        DIGESTS,
        ("samplers/draws.py", "salt_of(sampler)", "np.uint64(hash(sampler) % 2**64)"),
    ),
    mutant(
        "the depths of one seed are left to the next",
        FUTURE,
        ("samplers/walk.py", "depth = np.empty(most, np.uint8)", "depth = np.full(most, 255, np.uint8)"),
        (
            "samplers/walk.py",
            "ids[num], visits[num], depth[num] = target[walk], 0, UNREACHED",
            "ids[num], visits[num] = target[walk], 0",
        ),
    ),
    # --- other laws than the documented ones ---
    mutant(
        "a restart is a visit of the row it leaves",
        LAWS,
        (
            "samplers/walk.py",
            "                at[walk], steps[walk] = 0, 0\n                continue\n",
            "                visits[at[walk]] += 1\n"
            "                at[walk], steps[walk] = 0, 0\n"
            "                continue\n",
        ),
    ),
    mutant(
        "a walk goes on where a restart would be",
        LAWS,
        ("samplers/walk.py", "if chance(bits) < restart or width[now] == 0:", "if width[now] == 0:"),
    ),
    mutant(
        "restart and step from the same half of the bits",
        LAWS,
        ("samplers/draws.py", "    return np.int64(bits >> _HALF)\n", "    return np.int64(bits & _LOW)\n"),
    ),
    mutant(
        "one of the oldest neighbours, not of the most recent",
        TWINS,
        (
            "samplers/walk.py",
            "                begin[number] = end - count\n",
            "                begin[number] += 0\n",
        ),
    ),
    mutant(
        "ties by the last discovery",
        TWINS,
        (
            "samplers/nodes.py",
            "    for number in range(1, num):\n        place = starts[counts[number]]\n",
            "    for number in range(num - 1, 0, -1):\n        place = starts[counts[number]]\n",
        ),
    ),
    mutant(
        "hops by the walk alone",
        f"{TWINS} {BUDGETS}",
        (
            "samplers/walk.py",
            "        hop[place] = min(hop[place], far[place])",
            "        hop[place] = hop[place]",
        ),
    ),
    mutant(
        "the fallback stands in hop 1",
        FUTURE,
        ("samplers/fallback.py", "hop[seed, place] = hop_bin", "hop[seed, place] = 1"),
    ),
    mutant(
        "draws with replacement",
        LAWS,
        ("samplers/draws.py", "                number = last\n", "                number = number\n"),
    ),
    mutant(
        "strata that start at zero favour the short ones",
        LAWS,
        ("samplers/draws.py", "    start = below(draw(key, count), total)\n", "    start = 0\n"),
    ),
    mutant(
        "peers next to the seed are kept",
        TWINS,
        ("samplers/collab.py", "        if not are_linked(", "        if True or not are_linked("),
    ),
    mutant(
        "the first table takes what is left",
        LAWS,
        (
            "samplers/temporal.py",
            "        for place in hungry[:left]:\n",
            "        for place in hungry[:1]:\n",
        ),
    ),
    mutant(
        "the earlier tables take the remainder of every round",
        LAWS,
        (
            "samplers/temporal.py",
            "        each = max(left // len(hungry), 1)\n"
            "        for place in hungry[:left]:\n"
            "            more = min(each, available[place] - parts[place])\n",
            "        each, rest = divmod(left, len(hungry))\n"
            "        for number, place in enumerate(hungry):\n"
            "            more = min(each + (number < rest), available[place] - parts[place])\n",
        ),
    ),
    mutant(
        "a long look back passes the first instant",
        ENDS,
        (
            "samplers/temporal.py",
            "first = np.maximum(times, STATIC + span) - span",
            "first = times - np.int64(span)",
        ),
    ),
    mutant(
        "the fallback gives up drawing and takes the rest in order",
        ENDS,
        (
            "samplers/fallback.py",
            "    while count < wanted:\n        number = below(draw(key, attempt), total)\n",
            "    while count < wanted:\n"
            "        number = below(draw(key, attempt), total)\n"
            "        if attempt >= 8 * wanted:\n"
            "            number = attempt - 8 * wanted\n",
        ),
    ),
    mutant(
        "9: column statistics over the full table",
        FEATURES,
        (
            "features/cells.py",
            "data = data if known.all() else data.filter(pa.array(known))",
            "data = data if known.all() else data",
        ),
    ),
    mutant(
        "9: kinds of columns from the full table",
        FEATURES,
        (
            "features/fit.py",
            "kinds = kinds_of(table, cells)",
            "kinds = kinds_of(table, visible_cells(table, feature_columns(table), 2**63 - 1))",
        ),
    ),
    mutant(
        "numbers are summed in the order of the rows",
        FEATURES,
        (
            "features/columns.py",
            "values = cells.sorted.astype(np.float64)",
            "values = as_numpy(cells.data.drop_null()).astype(np.float64)",
        ),
    ),
    mutant(
        "categories of the same frequency stand in the order of the rows",
        FEATURES,
        ("features/columns.py", ', ("value", "ascending")', ""),
    ),
    mutant(
        "texts are learned in the order of the rows",
        FEATURES,
        ("features/text.py", "return sorted(chosen[: max(int(end), 1)])", "return texts"),
    ),
    mutant(
        "the sketch in seconds",
        f"{TWINS} {BUDGETS}",
        ("samplers/sketch.py", "row[1] = span / DAY", "row[1] = span / 10**9"),
    ),
    mutant(
        "the sketch in single precision",
        TWINS,
        (
            "samplers/sketch.py",
            "row = np.empty(sketch.shape[1], np.float64)",
            "row = np.empty(sketch.shape[1], np.float32)",
        ),
    ),
    # --- baselines ---
    mutant(
        "newest links are known with their child alone",
        LINKS,
        (
            "samplers/temporal.py",
            "rank = graph.node_rank[links].max(1)  # known when both ends are",
            "rank = graph.node_rank[links[:, 0]]",
        ),
    ),
    mutant(
        "newest links of the whole table, then filtered",
        LINKS,
        (
            "samplers/temporal.py",
            "links[max(end[place] - count, 0) : end[place]][::-1]",
            "links[max(len(links) - count, 0) : end[place]][::-1]",
        ),
    ),
    mutant(
        "children count before their parent is known (relational columns)",
        RELATIONAL,
        (
            "baselines/relational.py",
            "        known_at = np.maximum(\n"
            "            database[relation.table].known_at[child], database[relation.parent].known_at[parent]\n"
            "        )\n",
            "        known_at = database[relation.table].known_at[child]\n",
        ),
    ),
    mutant(
        "cells of a child's other parent before it is known (relational columns)",
        RELATIONAL,
        (
            "baselines/relational.py",
            "known_at = np.maximum(self.known_at[has], database[relation.parent].known_at[parent[has]])",
            "known_at = self.known_at[has]",
        ),
    ),
    mutant(
        "grandchildren count with their parent (relational columns)",
        RELATIONAL,
        (
            "baselines/relational.py",
            "known_at = np.maximum(self.known_at[of], database[relation.table].known_at[child])",
            "known_at = self.known_at[of]",
        ),
    ),
    mutant(
        "averages carry bits of rows outside (relational columns)",
        RELATIONAL,
        (
            "baselines/relational.py",
            "np.rint(np.where(is_there, values, 0.0) * _ONE).astype(np.int64)",
            "np.where(is_there, values, 0.0).astype(np.float64) * _ONE / 3 * 3",
        ),
    ),
    mutant(
        "links go from parent to child only (message passing)",
        "tests/nn/test_message.py tests/nn/test_hgt.py",
        (
            "nn/message.py",
            "return torch.cat([there, there + self.num_links])",
            "return torch.cat([there, there])",
        ),
    ),
    # --- labels that are known as rows ---
    mutant(
        "11: label rows are timed at t, not at t + horizon",
        HISTORY,
        ("tasks/spec.py", "return time + (self.horizon + self.known_after or 1)", "return time"),
    ),
    mutant(
        "a label without a horizon is known at its own time",
        HISTORY,
        (
            "tasks/spec.py",
            "return time + (self.horizon + self.known_after or 1)",
            "return time + (self.horizon + self.known_after)",
        ),
    ),
    mutant(
        "labels count as known when their window closes, although they come later",
        HISTORY,
        (
            "tasks/spec.py",
            "return time + (self.horizon + self.known_after or 1)",
            "return time + (self.horizon or 1)",
        ),
    ),
    mutant(
        "known labels are made from the whole database",
        HISTORY,
        (
            "tasks/labels.py",
            "query(past.tables(known_at), np.array([time]))",
            "query(past.data, np.array([time]))",
        ),
    ),
    mutant(
        "known labels are made up to the last row",
        HISTORY,
        (
            "tasks/history.py",
            "last = upto - (spec.known_at(0) - spec.horizon)",
            "last = database.span[1] if database.span else upto",
        ),
    ),
    mutant(
        "windows that are still open have labels",
        f"tests/tasks/test_splits.py {HISTORY}",
        ("splits.py", "return times[times + horizon <= upto]", "return times[times <= upto]"),
    ),
    mutant(
        "all labels are rows, known or not",
        HISTORY,
        ("tasks/history.py", "pa.array(visible(known_at, upto))", "pa.array(known_at == known_at)"),
    ),
    mutant(
        "a frozen database has the labels of test",
        HISTORY,
        (
            "tasks/task.py",
            'if self.history == "rolling":',
            "if True:",
        ),
    ),
    mutant(
        "predictions know labels up to the cut-off of training alone",
        "tests/test_history_models.py",
        (
            "checkpoint.py",
            "with_past_labels(database, spec, splits, upto, labels)",
            "with_past_labels(database, spec, splits, min(upto, splits.test), labels)",
        ),
    ),
]


@dataclass(frozen=True)
class Outcome:
    verdict: str  # killed, survived, broken, hung
    test: str
    seconds: float


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    options.add_argument("--only", type=int, nargs="+", help="numbers of mutants, as --list shows them")
    options.add_argument("--list", action="store_true", help="show the mutants and check that each applies")
    chosen = options.parse_args()
    numbers = chosen.only or range(len(MUTANTS))
    if chosen.list:
        for number in numbers:
            with tempfile.TemporaryDirectory() as folder:
                plant(MUTANTS[number], Path(folder))
            print(number, MUTANTS[number].name)
        return 0
    outcomes = run_all(list(numbers), chosen.processes)
    report(outcomes)
    return 0 if all(is_right(number, outcome) for number, outcome in outcomes.items()) else 1


def run_all(numbers: list[int], processes: int) -> dict[int, Outcome]:
    def one(number: int) -> tuple[int, Outcome]:
        outcome = run(MUTANTS[number])
        print(f"{number:3} {outcome.verdict:9} {MUTANTS[number].name}", file=sys.stderr, flush=True)
        return number, outcome

    with ThreadPoolExecutor(processes) as pool:
        return dict(pool.map(one, numbers))


def run(planted: Mutant) -> Outcome:
    """Plants a mutant in a copy of the project and runs its tests until one fails."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        plant(planted, folder)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *planted.tests]
        environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "numba"), "PYTHONPATH": str(folder)}
        environment.pop("QUARTET_TESTS", None)
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT
            )
        except subprocess.TimeoutExpired:
            return Outcome("hung", "", time.perf_counter() - begin)
    return judge(done.returncode, done.stdout + done.stderr, time.perf_counter() - begin)


def judge(code: int, text: str, seconds: float) -> Outcome:
    failed = re.findall(r"^FAILED (\S+)", text, re.MULTILINE)
    if code == 0:
        return Outcome("survived", "", seconds)
    if code != 1 or not failed or BROKEN.search(text):
        return Outcome("broken", text.strip().splitlines()[-1][:60] if text.strip() else "", seconds)
    return Outcome("killed", failed[0].removeprefix("tests/"), seconds)


def plant(planted: Mutant, folder: Path) -> None:
    """Copies the project into a folder and applies the replacements; an error if one does not apply just once."""
    for name in ("quartet", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    conftest = folder / "tests" / "conftest.py"
    conftest.write_text(conftest.read_text() + NO_SHRINKING)
    for name, old, new in planted.changes:
        path = folder / "quartet" / name
        source = path.read_text()
        if source.count(old) != 1:
            raise ValueError(f"{planted.name}: {name} has {source.count(old)} times, not once: {old!r}")
        path.write_text(source.replace(old, new))


def is_right(number: int, outcome: Outcome) -> bool:
    return outcome.verdict == ("killed" if MUTANTS[number].changes else "survived")


def report(outcomes: dict[int, Outcome]) -> None:
    table = Table(title="mutants")
    for name in ("", "mutant", "verdict", "by", "s"):
        table.add_column(name, overflow="fold")
    for number, outcome in outcomes.items():
        table.add_row(
            str(number), MUTANTS[number].name, outcome.verdict, outcome.test, f"{outcome.seconds:.0f}"
        )
    console = Console(width=150)
    console.print(table)
    planted = [number for number in outcomes if MUTANTS[number].changes]
    killed = [number for number in planted if outcomes[number].verdict == "killed"]
    console.print(f"{len(killed)}/{len(planted)} killed")


if __name__ == "__main__":
    sys.exit(main())
