"""Runs the arms of a study: each training in a process of its own, several side by side, none twice.

A result is one line of `results.jsonl`. Its key is a digest of all that decides the training (data, task, recipe), so
a study that is started again goes on where it stood, and an arm that two studies have in common is trained once.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from quartet.config import Recipe, with_tuples
from quartet.database import Database
from quartet.paper.arms import STUDIES, Arm, Result, Study, read_results
from quartet.runs import Predictor, Run, fit, score_on_test
from quartet.tasks import Task

RESULTS = "results.jsonl"
_PEAK_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of what the system counts the peak in


@dataclass(frozen=True)
class Plan:
    """What is asked of a study: where the data are, which preset with which changes, how many random seeds."""

    study: Study
    source: str
    schema: str | None
    tasks: tuple[str, ...]
    preset: str
    changes: dict[str, Any]
    num_seeds: int
    folder: Path

    @property
    def results(self) -> Path:
        return self.folder / RESULTS

    def recipe(self, dataset: str, task: str, arm: Arm, rng_seed: int) -> Recipe:
        """The recipe of one training: where the arm and the user's changes meet, the arm decides."""
        changes = self.changes | arm.changes | {"rng_seed": rng_seed}
        return Recipe.load(self.preset, f"{dataset}/{task}", arm.model, **changes)


@dataclass(frozen=True)
class Job:
    """One training, as a process is told of it."""

    key: str
    study: str
    source: str
    schema: str | None
    dataset: str
    task: str
    path: str  # of the task, as the user named it
    arm: str
    preset: str
    recipe: dict[str, Any]
    fingerprint: str
    runs: str


@dataclass(frozen=True)
class Failure:
    """A training that ended without a result."""

    job: Job
    reason: str


def jobs_of(plan: Plan) -> list[Job]:
    """All trainings of a study: first all arms with one random seed, then with the next.

    So whenever the budget ends, the arms have been tried equally often.
    """
    database = Database.load(plan.source, None if plan.schema is None else Path(plan.schema))
    tasks = {path: Task.load(database, path) for path in plan.tasks}
    dataset = database.schema.name
    return [
        _job(plan, dataset, path, task, arm, rng_seed)
        for rng_seed in range(plan.num_seeds)
        for path, task in tasks.items()
        for arm in STUDIES[plan.study]
    ]


def _job(plan: Plan, dataset: str, path: str, task: Task, arm: Arm, rng_seed: int) -> Job:
    recipe = plan.recipe(dataset, task.name, arm, rng_seed)
    fingerprint = task.visible_database.fingerprint
    words = json.dumps([dataset, task.name, fingerprint, recipe.digest()])
    return Job(
        key=hashlib.sha256(words.encode()).hexdigest(),
        study=plan.study,
        source=plan.source,
        schema=plan.schema,
        dataset=dataset,
        task=task.name,
        path=path,
        arm=arm.name,
        preset=plan.preset,
        recipe=recipe.to_dict(),
        fingerprint=fingerprint,
        runs=str(plan.folder / "runs"),
    )


def results_of(plan: Plan, jobs: Sequence[Job]) -> list[Result]:
    """What is known of some trainings, whichever study has made it, under the names of this one."""
    known = {result.key: result for result in read_results(plan.results)}
    return [replace(known[job.key], study=job.study, arm=job.arm) for job in jobs if job.key in known]


def run_study(
    plan: Plan,
    jobs: Sequence[Job],
    processes: int,
    budget: float = float("inf"),
    on_result: Callable[[Result], None] = lambda _: None,
) -> list[Failure]:
    """Trains what is missing until it is done or the budget of seconds is spent; returns what failed.

    A training is begun only if one like it would end within the budget, and none is cut: figures never depend on
    how fast the machine was.
    """
    plan.folder.mkdir(parents=True, exist_ok=True)
    known = {result.key: result for result in read_results(plan.results)}
    missing = list({job.key: job for job in jobs if job.key not in known}.values())
    clock = _Clock(budget, list(known.values()))
    failed: list[Failure] = []
    with ThreadPoolExecutor(processes) as pool, _children() as children:
        running: set[Future[Result | Failure]] = set()
        while missing or running:
            while missing and len(running) < processes and clock.has_time_for(missing[0]):
                running.add(pool.submit(children.train, missing.pop(0)))
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for found in (future.result() for future in done):
                if isinstance(found, Failure):
                    failed.append(found)
                    continue
                with plan.results.open("a", encoding="utf-8") as file:
                    file.write(found.line() + "\n")
                clock.results.append(found)
                on_result(found)
    return failed


@dataclass
class _Clock:
    """Says whether there is time for another training, by what those before it took."""

    budget: float
    results: list[Result]

    def __post_init__(self) -> None:
        self.begin = time.perf_counter()

    def has_time_for(self, job: Job) -> bool:
        of_task = [
            result for result in self.results if (result.dataset, result.task) == (job.dataset, job.task)
        ]
        alike = [result.seconds for result in of_task if result.arm == job.arm]
        others = [result.seconds for result in of_task]
        expected = max(alike, default=sum(others) / len(others) if others else 0.0)
        return time.perf_counter() - self.begin + expected <= self.budget


class _Children:
    """The processes that train just now."""

    def __init__(self) -> None:
        self.running: set[subprocess.Popen[str]] = set()

    def train(self, job: Job) -> Result | Failure:
        child = subprocess.Popen(
            [sys.executable, "-m", "quartet.paper.runner"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self.running.add(child)
        try:
            out, error = child.communicate(json.dumps(asdict(job)))
        finally:
            self.running.discard(child)
        if child.returncode:
            return Failure(
                job, error.strip().splitlines()[-1] if error.strip() else f"exit {child.returncode}"
            )
        return Result.of_line(out.splitlines()[-1])

    def stop(self) -> None:
        for child in list(self.running):
            child.terminate()


@contextmanager
def _children() -> Iterator[_Children]:
    """Within it processes may train; whoever leaves it early, by Ctrl-C or an error, leaves none behind."""
    children = _Children()
    try:
        yield children
    except BaseException:
        children.stop()
        raise


def train_job(job: Job) -> Result:
    """One training and its figures, in this process: the test labels are opened once, at its end."""
    task = Task.load(Database.load(job.source, None if job.schema is None else Path(job.schema)), job.path)
    recipe = Recipe().changed(**with_tuples(job.recipe))
    run = fit(task, recipe, Path(job.runs) / job.key[:12])
    model = Predictor.load(run.folder).checkpoint.model
    lines = list(_history(run))
    best = [line["validation"] for line in lines if line["is_best"]][-1]
    metric, test = score_on_test(run, task)
    return Result(
        key=job.key,
        study=job.study,
        dataset=job.dataset,
        task=job.task,
        arm=job.arm,
        rng_seed=recipe.rng_seed,
        metric=metric,
        protocol=recipe.protocol,
        validation=best,
        test=test,
        history=tuple(line["validation"] for line in lines),
        seconds=sum(line["seconds"] + line["validation_seconds"] for line in lines),
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _PEAK_UNIT,
        num_parameters=model.num_parameters,
        preset=job.preset,
        fingerprint=job.fingerprint,
        recipe=job.recipe,
    )


def _history(run: Run) -> Iterator[dict[str, Any]]:
    for line in (run.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def main() -> None:
    """The process of one training: a job in, a result out."""
    torch.set_num_threads(1)
    print(train_job(Job(**json.loads(sys.stdin.read()))).line())


if __name__ == "__main__":
    main()
