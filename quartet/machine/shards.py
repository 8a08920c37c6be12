"""Work in shards: a function over the ordered pieces of a job, here, in processes of this machine, or on Ray.

    None, "here"      in this process, one shard after the other
    local, local:N    by N processes of this machine (default: one for each core)
    ray               by the Ray cluster that RAY_ADDRESS names or this machine belongs to; else by its cores
    ray://HOST:PORT   by a Ray cluster, through its client port

A job's shards do not depend on who does them, and each is done by one thread: results have the same bits whoever
works. A shard whose worker dies is done again by another; a shard that fails fails the job, as it would again.
"""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from quartet.errors import QuartetError, ResourceError, UsageError
from quartet.listener import SILENT, Listener
from quartet.machine.cores import usable_cores
from quartet.machine.files import new_file

R = TypeVar("R")
_TRIES = 3  # of a shard whose workers die
_AHEAD = 3  # results for each worker that may wait for an earlier one: memory does not grow with the job
_ALIGNMENT = 64
_FIX = "say local, local:2, ray, or ray://HOST:PORT"


class Place(NamedTuple):
    """Who does the work: `kind` is here, local or ray; `address` is that of a cluster, or the number of processes."""

    kind: str
    address: str = ""

    @staticmethod
    def parse(on: str | None) -> Place:
        """Returns who is meant; what is nobody, or cannot be had here, is an error before any work."""
        kind, _, address = (on or "here").partition(":")
        is_right = {
            "here": not address,
            "local": not address or (address.isdecimal() and int(address) > 0),
            "ray": not address or (address.startswith("//") and len(address) > 2),
        }
        if not is_right.get(kind, False) or (on or "x").endswith(":"):
            raise UsageError("C02", f'nobody works on "{on}"', _FIX)
        if kind == "ray":
            try:
                import ray  # noqa: F401
            except ImportError:
                fix = 'pip install "quartet-rdl[ray]", or work on local processes: --on local'
                raise ResourceError("R01", "Ray is not installed", fix) from None
        return Place(kind, address)


def slices(num_items: int, size: int) -> list[slice]:
    """Returns the shards of a job: whole sizes but for the last, whoever works."""
    return [slice(first, min(first + size, num_items)) for first in range(0, num_items, size)]


def map_shards(
    work: Callable[[Any, Any], R],
    shared: Any,
    shards: Iterable[Any],
    on: str | None = None,
    folder: Path | None = None,
    listener: Listener = SILENT,
    what: str = "shards",
    sizes: Sequence[int] | None = None,
    total: int = 0,
    in_order: bool = True,
) -> Iterator[R]:
    """Yields `work(shared, shard)` of each shard, in their order, or else as they come.

    `work` is a function of a module, for others find it by its name. What is `shared` is written once, to a file in
    `folder` that all workers map: its arrays are in memory once on each machine. Workers on other machines need the
    folder on storage that they see, too. A shard is taken when somebody is free to do it, so an iterator may end as it
    likes. The listener is told of the whole job: of `sizes` of the shards that are done, of `total` in all.
    """
    waiting: dict[int, tuple[bool, Any]] = {}
    given = told = 0
    todo, is_more = iter(shards), True
    with _crew(Place.parse(on), work, shared, folder) as crew:
        while is_more or told < given:
            while is_more and crew.num_free and given - told < _AHEAD * crew.size:
                try:
                    crew.give(given, next(todo))
                    given += 1
                except StopIteration:
                    is_more = False
            if told == given:
                return
            number, outcome = crew.next_done()
            waiting[number] = outcome
            while waiting and (told in waiting or not in_order):
                number = told if in_order else next(iter(waiting))
                result = _unwrapped(
                    waiting.pop(number)
                )  # of several errors the first is raised, where in order
                told += 1
                if sizes is not None:
                    listener.progress(what, sizes[number], total or sum(sizes))
                yield result


class _Crew(Protocol):
    """Those who work: each takes one shard at a time."""

    size: int

    @property
    def num_free(self) -> int: ...

    def give(self, number: int, shard: Any) -> None: ...

    def next_done(self) -> tuple[int, tuple[bool, Any]]: ...


@contextmanager
def _crew(place: Place, work: Callable[[Any, Any], Any], shared: Any, folder: Path | None) -> Iterator[_Crew]:
    """Yields those who work, and sends them home at the end, however it comes."""
    if place.kind == "here":
        yield _Here(work, shared)
        return
    with tempfile.TemporaryDirectory(prefix=".quartet-shared-", dir=folder) as scratch:
        path = Path(scratch).resolve() / "shared"
        write_shared(path, shared)
        if place.kind == "local":
            local = _Local(work, path, int(place.address or usable_cores()))
            try:
                yield local
            finally:
                local.close()
            return
        import ray

        is_ours = not ray.is_initialized()
        if is_ours:
            _join_cluster(f"ray:{place.address}" if place.address else None)
        try:
            yield _Ray(work, path)
        finally:
            if is_ours:
                ray.shutdown()


class _Here:
    """This process."""

    size = 1

    def __init__(self, work: Callable[[Any, Any], Any], shared: Any) -> None:
        self.work, self.shared = work, shared
        self.given: list[tuple[int, Any]] = []

    @property
    def num_free(self) -> int:
        return 1 - len(self.given)

    def give(self, number: int, shard: Any) -> None:
        self.given.append((number, shard))

    def next_done(self) -> tuple[int, tuple[bool, Any]]:
        number, shard = self.given.pop()
        return number, (True, self.work(self.shared, shard))


# --- processes of this machine ----------------------------------------------------------------------


class _Local:
    """Processes of this machine. One that dies is replaced, and its shard is given to the next."""

    def __init__(self, work: Callable[[Any, Any], Any], path: Path, size: int) -> None:
        self.work, self.path, self.size = work, path, size
        self.free: list[tuple[Any, Any]] = []  # processes, each with our end of its pipe
        self.busy: dict[
            Any, tuple[Any, int, Any]
        ] = {}  # by our end: the process, and its shard with its number
        self.deaths: dict[int, int] = {}

    @property
    def num_free(self) -> int:
        return self.size - len(self.busy)

    def give(self, number: int, shard: Any) -> None:
        process, pipe = self.free.pop() if self.free else self._hired()
        self.busy[pipe] = (process, number, shard)
        try:
            pipe.send((self.work, str(self.path), shard))
        except OSError:
            pass  # it is dead, which `next_done` notices

    def _hired(self) -> tuple[Any, Any]:
        """Returns a new process, which computes with one thread."""
        ours, theirs = get_context("spawn").Pipe()
        before = os.environ.get("OMP_NUM_THREADS")
        os.environ["OMP_NUM_THREADS"] = "1"
        try:
            process = get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
        finally:
            os.environ.pop("OMP_NUM_THREADS")
            os.environ |= {} if before is None else {"OMP_NUM_THREADS": before}
        theirs.close()
        return process, ours

    def next_done(self) -> tuple[int, tuple[bool, Any]]:
        while True:
            ready: list[Any] = connection.wait(list(self.busy))
            for pipe in ready:
                process, number, shard = self.busy.pop(pipe)
                try:
                    outcome = pipe.recv()
                except (EOFError, OSError):
                    process.join()
                    self.deaths[number] = self.deaths.get(number, 0) + 1
                    if self.deaths[number] == _TRIES:
                        raise _died(number, f"exit code {process.exitcode}") from None
                    self.give(number, shard)
                    continue
                self.free.append((process, pipe))
                return number, outcome

    def close(self) -> None:
        for process, pipe in [*self.free, *((process, pipe) for pipe, (process, _, _) in self.busy.items())]:
            pipe.close()
            process.terminate()
            process.join()


def _serve(pipe: Any) -> None:
    """Is a worker process: shards in, outcomes out, until nobody is there any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who gives the work
    while True:
        try:
            work, path, shard = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(_outcome(work, path, shard))
        except BrokenPipeError:
            return


# --- Ray --------------------------------------------------------------------------------------------


def _join_cluster(address: str | None) -> None:
    """Joins a cluster: the one that is named, or the one that this machine belongs to, or a new one of its cores."""
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    try:
        ray.init(address or os.environ.get("RAY_ADDRESS") or "auto", **quiet)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        if address or "RAY_ADDRESS" in os.environ:
            reason = str(error).splitlines()[0][:200]
            fix = "look whether the cluster runs, with the same versions of Ray and Python"
            raise ResourceError("R01", f"Ray cannot be reached ({reason})", fix) from None
        store = 100 * 2**20  # shards are told of in a few bytes, and what is shared is in a file
        ray.init(
            "local", num_cpus=usable_cores(), object_store_memory=store, include_dashboard=False, **quiet
        )


class _Ray:
    """A Ray cluster: a core for each shard. Ray itself does the shards of dead workers and machines again."""

    def __init__(self, work: Callable[[Any, Any], Any], path: Path) -> None:
        import ray

        self.ray, self.work, self.path = ray, work, path
        self.size = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.task = ray.remote(num_cpus=1, max_retries=_TRIES - 1)(_outcome)
        self.busy: dict[Any, int] = {}

    @property
    def num_free(self) -> int:
        return self.size - len(self.busy)

    def give(self, number: int, shard: Any) -> None:
        self.busy[self.task.remote(self.work, str(self.path), shard)] = number

    def next_done(self) -> tuple[int, tuple[bool, Any]]:
        done = self.ray.wait(list(self.busy), num_returns=1)[0][0]
        number = self.busy.pop(done)
        try:
            outcome = self.ray.get(done)
        except self.ray.exceptions.RayError as error:
            raise _died(number, str(error).splitlines()[0][:200]) from None
        return number, outcome


# --- what workers do --------------------------------------------------------------------------------


def _outcome(work: Callable[[Any, Any], Any], path: str, shard: Any) -> tuple[bool, Any]:
    """Returns what comes of a shard, or the error that it has met, taken apart: not every error can be sent."""
    try:
        return True, work(read_shared(path), shard)
    except QuartetError as error:
        return False, (type(error), (error.code, error.what, error.fix))
    except Exception as error:
        return False, (RuntimeError, (f"{type(error).__name__}: {error}",))


def _unwrapped(outcome: tuple[bool, Any]) -> Any:
    is_well, value = outcome
    if is_well:
        return value
    kind, arguments = value
    raise kind(*arguments)


def _died(number: int, reason: str) -> ResourceError:
    what = f"the worker of shard {number} died {_TRIES} times ({reason})"
    return ResourceError(
        "C09", what, "memory may be short: use fewer workers, and look into the system's log"
    )


def write_shared(path: Path, value: Any) -> None:
    """Writes what workers share: a pickle, and beside it the bytes of its arrays as they lie in memory."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    views = [buffer.raw() for buffer in buffers]
    spans, at = [], 0
    for view in views:
        spans.append((at, view.nbytes, view.readonly))
        at += -(-view.nbytes // _ALIGNMENT) * _ALIGNMENT
    with new_file(path) as fresh, fresh.open("wb") as file:
        for view, (begin, _, _) in zip(views, spans, strict=True):
            file.seek(begin)
            file.write(view)
        file.truncate(max(at, 1))
    with new_file(path.with_suffix(".pickle")) as fresh:
        fresh.write_bytes(pickle.dumps((spans, head)))


@lru_cache(maxsize=1)
def read_shared(path: str) -> Any:
    """Returns what workers share, its arrays mapped; a worker keeps it from one shard to the next.

    An array that could be written can be written: such a page is then this process's own, and nobody else sees it.
    """
    where = Path(path)
    if not where.is_file():
        fix = "name a folder on storage that every machine of the cluster sees under the same path"
        raise ResourceError("C09", f'a worker does not see "{where.parent.parent}"', fix)
    spans, head = pickle.loads(where.with_suffix(".pickle").read_bytes())
    with where.open("rb") as file:
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    views = [whole[at : at + size] for at, size, _ in spans]
    return pickle.loads(
        head,
        buffers=[v.toreadonly() if span[2] else v for v, span in zip(views, spans, strict=True)],
    )
