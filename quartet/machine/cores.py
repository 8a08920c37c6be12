"""How many cores to compute with.

Two threads of which one waits for a busy core are several times slower than one, so by default torch takes the
cores that are free when a command begins.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from quartet.errors import UsageError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def usable_cores() -> int:
    """Returns how many cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):  # Linux alone knows which cores a process was given
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_cores() -> int:
    """Returns the usable cores less those that other processes keep busy, where the system tells (not Windows)."""
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return max(1, min(usable_cores(), round(usable_cores() - busy)))


def use_threads(wanted: int | None = None, num_sharing: int = 1) -> None:
    """Sets torch's threads: to a number, to what OMP_NUM_THREADS says, or to this process's part of the free cores."""
    import torch

    if wanted is not None and wanted < 1:
        raise UsageError("C02", f"threads is {wanted}", "give a whole number above 0")
    if wanted or num_sharing > 1 or "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(int(wanted or 0) or max(1, free_cores() // num_sharing))


def mapped(function: Callable[[_Item], _Result], items: Iterable[_Item], threads: int) -> Iterator[_Result]:
    """Yields the results of a function in the order of the items; with one thread no other is begun for them.

    At most one item more than there are threads is under way or waits to be taken: results may be large.
    """
    if threads == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        begun: deque[Future[_Result]] = deque()
        for item in items:
            begun.append(pool.submit(function, item))
            if len(begun) > threads:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()


@contextmanager
def one_thread_each() -> Iterator[int]:
    """Yields how many threads torch computes with; meanwhile it computes with one in each of them."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield before
    finally:
        torch.set_num_threads(before)
