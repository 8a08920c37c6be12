"""How many cores to compute with: those that are free now.

Two threads of which one waits for a busy core are several times slower than one.
"""

from __future__ import annotations

import os

import torch


def free_cores() -> int:
    """The cores that this process may use, less those that others keep busy."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    busy = os.getloadavg()[0]
    return max(1, min(allowed, round(allowed - busy)))


def use_threads(wanted: int | None = None) -> int:
    """Sets torch's threads to a number, or to the free cores; returns it."""
    threads = wanted or free_cores()
    torch.set_num_threads(threads)
    return threads
