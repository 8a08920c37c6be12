"""Whether the tests notice a leak: each mutant is one plausible mistake, and some test must fail by it.

    python -m benchmarks.mutants [--processes 2] [--only 3 17] [--check]

The mutants stand in mutants.txt. The package and its tests are copied to a temporary folder, one mutation is applied
there (an error if the source has changed), and the tests that ought to notice run until the first of them fails, with
a numba cache of their own. The first row is no mutation at all: it must survive all of these tests. A mutant that does
not compile is broken, not killed. Exit code 1 unless all are killed. `--check` runs nothing: it lists the mutants and
says which of them the source no longer fits.
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
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from quartet.machine import usable_cores

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT = 1200
BROKEN = re.compile(r"TypingError|LoweringError|NameError|SyntaxError|ImportError|UnsupportedError")

# Failures are shown as found: making them small takes minutes and tells the runner nothing.
NO_SHRINKING = """
from hypothesis import Phase
settings.register_profile(
    "mutants", settings.get_profile("suite"), phases=(Phase.explicit, Phase.generate), database=None
)
settings.load_profile("mutants")
"""


@dataclass
class Change:
    """A replacement in a file of the package."""

    file: str
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)

    def applied(self, source: str) -> str:
        """Returns the changed source; an error unless the old text stands there just once."""
        old = "\n".join(self.old)
        if source.count(old) != 1:
            raise ValueError(f"{self.file} has {source.count(old)} times, not once: {old!r}")
        return source.replace(old, "\n".join(self.new))


@dataclass
class Mutant:
    """One mistake: what it is, the tests that must notice, and the replacements that make it."""

    name: str
    tests: list[str]
    changes: list[Change] = field(default_factory=list)

    def sources(self) -> dict[Path, str]:
        """Returns the changed files, by their paths below the root."""
        sources: dict[Path, str] = {}
        for change in self.changes:
            path = Path("quartet", change.file)
            sources[path] = change.applied(sources.get(path) or (ROOT / path).read_text(encoding="utf-8"))
        return sources

    def problem(self) -> str | None:
        """Returns why the mutant cannot be planted, if it cannot."""
        try:
            self.sources()
        except (OSError, ValueError) as error:
            return str(error)
        return next((f"there is no {test}" for test in self.tests if not (ROOT / test).is_file()), None)


def read_mutants() -> list[Mutant]:
    """Returns the mutants of mutants.txt, whose head tells its format."""
    mutants: list[Mutant] = []
    for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        mark, text = line[:1], line[2:]
        if mark == "[":
            name, tests = line[1:].rsplit("]", 1)
            mutants.append(Mutant(name, [f"tests/{test}" for test in tests.split()]))
        elif mark == "@":
            mutants[-1].changes.append(Change(text))
        elif mark == "-":
            if mutants[-1].changes[-1].new:  # another change of the same file
                mutants[-1].changes.append(Change(mutants[-1].changes[-1].file))
            mutants[-1].changes[-1].old.append(text)
        elif mark == "+":
            mutants[-1].changes[-1].new.append(text)
        elif mark not in ("", "#"):
            raise ValueError(f"mutants.txt: {line!r} begins with none of [ @ - + #")
    for mutant in mutants:
        if not mutant.changes:
            mutant.tests = sorted({test for other in mutants for test in other.tests})
    return mutants


MUTANTS = read_mutants()


@dataclass(frozen=True)
class Outcome:
    verdict: str  # killed, survived, broken, hung
    test: str
    seconds: float


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--processes", type=int, default=usable_cores())
    options.add_argument("--only", type=int, nargs="+", help="numbers of mutants, as --check shows them")
    options.add_argument("--check", action="store_true", help="list the mutants, and check that each applies")
    chosen = options.parse_args()
    numbers = chosen.only or range(len(MUTANTS))
    if chosen.check:
        problems = [MUTANTS[number].problem() for number in numbers]
        for number, problem in zip(numbers, problems, strict=True):
            print(f"{number:3} {MUTANTS[number].name}" + (f": {problem}" if problem else ""))
        return 1 if any(problems) else 0
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


def run(mutant: Mutant) -> Outcome:
    """Plants a mutant in a copy of the project and runs its tests until one fails."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        plant(mutant, folder)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutant.tests]
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


def plant(mutant: Mutant, folder: Path) -> None:
    """Copies the project into a folder and applies the replacements."""
    for name in ("quartet", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    with (folder / "tests" / "conftest.py").open("a", encoding="utf-8") as conftest:
        conftest.write(NO_SHRINKING)
    for path, source in mutant.sources().items():
        (folder / path).write_text(source, encoding="utf-8")


def is_right(number: int, outcome: Outcome) -> bool:
    return outcome.verdict == ("killed" if MUTANTS[number].changes else "survived")


def report(outcomes: dict[int, Outcome]) -> None:
    table = Table(title="mutants")
    for name in ("", "mutant", "verdict", "by", "s"):
        table.add_column(name, overflow="fold")
    for number, outcome in outcomes.items():
        seconds = f"{outcome.seconds:.0f}"
        table.add_row(str(number), MUTANTS[number].name, outcome.verdict, outcome.test, seconds)
    console = Console(width=150)
    console.print(table)
    planted = [number for number in outcomes if MUTANTS[number].changes]
    killed = [number for number in planted if outcomes[number].verdict == "killed"]
    console.print(f"{len(killed)}/{len(planted)} killed")


if __name__ == "__main__":
    sys.exit(main())
