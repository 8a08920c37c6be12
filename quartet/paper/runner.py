"""Trains the arms of a study: each training in a process of its own, several side by side or on machines, none twice.

A result is one line of `results.jsonl`. Its key is a digest of everything that decides the training (data, task,
recipe), so a study that is started again goes on where it stopped, and studies that have an arm in common share it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from quartet.config import Recipe, with_tuples
from quartet.database import Database
from quartet.errors import QuartetError, UsageError
from quartet.listener import SILENT
from quartet.machine import Processes, choose_device, map_shards, use_threads
from quartet.paper.arms import Arm
from quartet.paper.results import Result, StudyTraining, add_results, read_results
from quartet.paper.statistics import comparisons
from quartet.tasks import Task


@dataclass(frozen=True, kw_only=True)
class Job(StudyTraining):
    """A training that is to be done, as a process is told of it."""

    source: str
    schema: str | None
    path: str  # of the task, as the user named it
    runs: str
    opens_test: bool


@dataclass(frozen=True)
class Failure:
    """A training that ended without a result."""

    job: Job
    reason: str

    @property
    def key(self) -> str:
        return self.job.key


@dataclass(frozen=True)
class Study:
    """Trainings of some tasks: where the data are, which preset with which changes, which random seeds."""

    name: str
    source: str
    tasks: tuple[str, ...]
    folder: Path
    schema: Path | None = None
    preset: str = "small"
    changes: dict[str, Any] = field(default_factory=dict)
    rng_seeds: tuple[int, ...] = (0,)
    opens_test: bool = True

    @cached_property
    def loaded(self) -> dict[str, Task]:
        """The tasks, as the user named them."""
        database = Database.load(self.source, self.schema)
        return {path: Task.load(database, path) for path in self.tasks}

    @property
    def file_stem(self) -> str:
        """How the files of this study begin, and how processes that share it find each other."""
        names = [name for task in self.loaded.values() for name in (dataset_name(task), task.name)]
        return "-".join(dict.fromkeys([self.name, *names]))

    def jobs(self, arms: Iterable[Arm]) -> list[Job]:
        """Returns all trainings of some arms: first of all arms with one random seed, then with the next.

        So whenever the budget ends, the arms have been tried equally often.
        """
        every = list(arms)
        jobs = [
            self._job(path, task, arm, rng_seed)
            for rng_seed in self.rng_seeds
            for path, task in self.loaded.items()
            for arm in every
        ]
        for name, value in self.changes.items():
            is_numbered = name == "rng_seed" and value not in self.rng_seeds
            setting = [arm.name for arm in every if name in arm.changes]
            # Arms without a branch have all others, whatever branches are given.
            if is_numbered or (setting and (name == "branches" or len(setting) == len(every))):
                who = f'"{setting[0]}"' if setting and len(setting) < len(every) else "every arm"
                raise UsageError("C02", f"{who} sets {name} itself", f"leave out --set {name}={value}")
        arm_of: dict[str, str] = {}
        for job in jobs:
            if arm_of.setdefault(job.key, job.arm) != job.arm:
                given = ", ".join(f"{name}={value}" for name, value in self.changes.items())
                what = f'with {given} "{job.arm}" would be the same as "{arm_of[job.key]}"'
                raise UsageError("C02", what, "leave out the setting in which they differ")
        return jobs

    def _job(self, path: str, task: Task, arm: Arm, rng_seed: int) -> Job:
        """Returns one training. Where the arm and the user's changes meet, the arm decides."""
        name = f"{task.full_database.schema.name}/{task.name}"
        # As the paper's, without a tower, at each seed's own time. What tuning trains has the preset's settings.
        base = (
            {} if self.name == "tune" else {"tower": 0, "late_seeds": "own"} | arm.settings(self.preset, name)
        )
        changes = base | self.changes | arm.changes | {"rng_seed": rng_seed}
        recipe = Recipe.load(self.preset, name, arm.model, **changes)
        recipe = recipe.changed(protocol=task.under(recipe.protocol).protocol)
        dataset, fingerprint = dataset_name(task), task.visible_database.fingerprint
        decisive = [
            dataset,
            task.name,
            task.digest,
            recipe.digest(),
            *([] if self.opens_test else ["no test"]),
        ]
        return Job(
            key=hashlib.sha256(json.dumps(decisive).encode()).hexdigest(),
            study=self.name,
            dataset=dataset,
            task=task.name,
            arm=arm.name,
            rng_seed=rng_seed,
            preset=self.preset,
            fingerprint=fingerprint,
            recipe=recipe.to_dict(),
            source=self.source,
            schema=None if self.schema is None else str(self.schema),
            path=path,
            runs=str(self.folder / "runs"),
            opens_test=self.opens_test,
        )

    @property
    def results_file(self) -> Path:
        return self.folder / "results.jsonl"

    def results(self, jobs: Sequence[Job]) -> list[Result]:
        """Returns the known results of some trainings, whichever study made them, under the names of this one."""
        known = {result.key: result for result in read_results(self.results_file)}
        return [replace(known[job.key], study=job.study, arm=job.arm) for job in jobs if job.key in known]

    def lock(self) -> AbstractContextManager[Any]:
        """Keeps other processes from working on the same study until the context is left."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            return FileLock(self.folder / f".{self.file_stem}.lock").acquire(timeout=0)
        except Timeout:
            what = f'another process is working on "{self.file_stem}" in {self.folder}'
            fix = "wait for it, or name another folder with --folder"
            raise UsageError("C08", what, fix) from None


def first_jobs(study: Study, jobs: Sequence[Job]) -> list[Job]:
    """Returns the trainings that come before any choice: all, but of arms to tune those with the first random seed."""
    return [job for job in jobs if study.name != "sampler" or job.rng_seed == study.rng_seeds[0]]


def chosen_jobs(study: Study, jobs: Sequence[Job]) -> list[Job]:
    """Returns the first trainings, and all others of the arms that validation selects by what is known of the first."""
    first = first_jobs(study, jobs)
    compared = comparisons("sampler", study.results(first))
    chosen = {(one.dataset, one.task, arm) for one in compared for arm in one.selected}
    is_whole = len(study.results(first)) == len(first)
    later = [job for job in jobs if job not in first and (job.dataset, job.task, job.arm) in chosen]
    return [*first, *(later if is_whole else [])]


def dataset_name(task: Task) -> str:
    """Returns the name of a task's database: its own, or else that of its folder or file."""
    name, location = task.full_database.schema.name, task.full_database.location
    if not name and location and Path(location).exists():
        place = Path(location).resolve()
        name = place.name if place.is_dir() else place.stem
    return name or "database"


# --- many trainings -------------------------------------------------------------------------------

Train = Callable[[Job], Result]


def run_study(
    study: Study,
    jobs: Sequence[Job],
    processes: int,
    budget: float = math.inf,
    train: Train | None = None,
    on: str | None = None,
) -> Iterator[Result | Failure]:
    """Trains what is missing until it is done or the budget of seconds is spent; yields each outcome.

    A training begins only if one like it would end within the budget, and none is cut: figures never depend on
    how fast the machine was. `train` is for those who train in this process; `on` names those who train instead, on
    machines that see the source and the folder under the same paths.
    """
    begin = time.perf_counter()
    known = {result.key: result for result in read_results(study.results_file)}
    missing = list({job.key: job for job in jobs if job.key not in known}.values())
    children: set[subprocess.Popen[str]] = set()

    def has_time_for(job: Job) -> bool:
        same = (job.study, job.dataset, job.task, job.preset)
        of_task = [one for one in known.values() if (one.study, one.dataset, one.task, one.preset) == same]
        alike = [one.seconds for one in of_task if one.arm == job.arm]
        mean = sum(one.seconds for one in of_task) / max(1, len(of_task))
        return time.perf_counter() - begin + max(alike, default=mean) <= budget

    if on is not None:

        def affordable() -> Iterator[Job]:
            while missing and has_time_for(missing[0]):
                yield missing.pop(0)

        for one in map_shards(train_shard, None, affordable(), on, in_order=False):
            if isinstance(one, Result):
                known[one.key] = one
                add_results(study.results_file, [one])
            yield one
        return

    def outcome(job: Job) -> Result | Failure:
        try:
            return train(job) if train else _train_in_child(job, children)
        except Exception as error:
            return Failure(job, str(error))

    with ThreadPoolExecutor(processes) as pool:
        try:
            running: set[Future[Result | Failure]] = set()
            while missing or running:
                while missing and len(running) < processes and has_time_for(missing[0]):
                    running.add(pool.submit(outcome, missing.pop(0)))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                outcomes = [future.result() for future in done]
                results = [one for one in outcomes if isinstance(one, Result)]
                known |= {result.key: result for result in results}
                add_results(study.results_file, results)
                yield from outcomes
        except BaseException:  # by Ctrl-C too: no child is left behind
            for child in list(children):
                child.terminate()
            raise


def train_shard(_: None, job: Job) -> Result | Failure:
    """Trains in a process of its own, on the machine of whoever was given the job."""
    try:
        return _train_in_child(job, set())
    except Exception as error:
        return Failure(job, str(error))


def _train_in_child(job: Job, children: set[subprocess.Popen[str]]) -> Result:
    child = subprocess.Popen(
        [sys.executable, "-m", "quartet.paper.runner"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8",
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    children.add(child)
    try:
        out, error = child.communicate(json.dumps(asdict(job)))
    finally:
        children.discard(child)
    if child.returncode:
        raise RuntimeError((error.strip().splitlines() or [f"exit code {child.returncode}"])[-1])
    return Result.of_line(out.splitlines()[-1])


# --- one training ---------------------------------------------------------------------------------


def train_job(job: Job) -> Result:
    """Trains in this process, from the last epoch of an interrupted training of the same job on, if there is one.

    Where a job opens the test labels, it does so once, at its end.
    """
    from quartet.registry import model_row
    from quartet.runs import Run, fit, load, score_on_test
    from quartet.training import TrainingData

    task = Task.load(Database.load(job.source, None if job.schema is None else Path(job.schema)), job.path)
    recipe = Recipe().changed(**with_tuples(job.recipe))
    test: float | None = None
    if job.opens_test:
        runs = Path(job.runs) / job.key[:12]
        begun = Run.open(runs / "latest") if (runs / "latest").exists() else None
        if begun is None:
            trained = fit(task, recipe=recipe, runs=runs, threads=1, listener=SILENT)
        else:
            trained = load(begun.folder) if begun.is_done else fit(task, resume=begun.folder, listener=SILENT)
        model, epochs = trained.members[0][0].model, trained.run.epochs()
        metric, test = score_on_test(trained.run, task)
    else:
        data = TrainingData.prepare(task, recipe)
        processes = Processes(device=choose_device())
        fitted = model_row(recipe.model.architecture).model_class.fit(data, processes)
        model, epochs, metric = fitted.model, fitted.epochs, data.metric
    return Result(
        **{each.name: getattr(job, each.name) for each in fields(StudyTraining)},
        metric=metric,
        protocol=recipe.protocol,
        validation=[epoch.validation for epoch in epochs if epoch.is_best][-1],
        test=test,
        curve=tuple(epoch.validation for epoch in epochs),
        seconds=sum(epoch.seconds + epoch.validation_seconds for epoch in epochs),
        peak_bytes=_peak_bytes(),
        num_parameters=model.num_parameters,
    )


def _peak_bytes() -> int | None:
    """Returns the most memory that this process has had; None where the system does not count it (Windows)."""
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit


def _main() -> None:
    """Is the process of one training: a job in, a result out. It ends with the process that has started it."""

    def watch(parent: int) -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)  # who does the same job again finds nobody at it

    threading.Thread(target=watch, args=(os.getppid(),), daemon=True).start()
    use_threads(1)
    try:
        print(train_job(Job(**json.loads(sys.stdin.read()))).line())
    except QuartetError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    _main()
