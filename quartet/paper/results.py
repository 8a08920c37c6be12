"""Results: one line of `results.jsonl` for each training of a study."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from quartet.config import with_tuples


@dataclass(frozen=True, kw_only=True)
class StudyTraining:
    """One training of a study. `key` is a digest of everything that decides it."""

    key: str
    study: str
    dataset: str
    task: str
    arm: str
    rng_seed: int
    preset: str
    fingerprint: str  # of the data
    recipe: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Result(StudyTraining):
    """The outcome of a training; figures are of the task's main metric."""

    metric: str
    protocol: str
    validation: float  # of the best epoch, by which it was selected
    test: float | None  # None where the test labels stayed closed
    curve: tuple[float, ...]  # validation by epoch
    seconds: float  # of training and validation
    peak_bytes: int | None  # of the process; None where the system does not count it
    num_parameters: int

    def line(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def of_line(line: str) -> Result:
        return Result(**with_tuples(json.loads(line)))


def read_results(path: Path) -> Iterator[Result]:
    """Yields the results that a study has written so far; a line that was cut off by a crash is no result."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield Result.of_line(line)
        except (ValueError, TypeError, AttributeError):
            continue


def add_results(path: Path, results: Iterable[Result]) -> None:
    """Writes more results; they begin a line of their own, also where a crash has cut off the last one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        is_cut = file.read(1) not in (b"", b"\n")
        file.write(("\n" * is_cut + "".join(f"{result.line()}\n" for result in results)).encode())
