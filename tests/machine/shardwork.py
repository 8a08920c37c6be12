"""Work that other processes find by its name: on arrays that all share, and some of it deadly."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from quartet.errors import DataError
from quartet.machine import new_file

Shared = dict[str, Any]


def summed(shared: Shared, shard: slice) -> float:
    return float(shared["numbers"][shard].sum())


def flags(shared: Shared, _: slice) -> tuple[bool, bool, bool]:
    """Returns whether arrays may be written, and whether they are mapped rather than copied."""
    numbers = shared["numbers"]
    return shared["fixed"].flags.writeable, numbers.flags.writeable, numbers.flags.owndata


def scribbled(shared: Shared, shard: slice) -> float:
    """Writes to what is shared, which nobody else may see."""
    total = summed(shared, shard)
    shared["numbers"][:] = -1
    return total if total >= 0 else summed({"numbers": np.arange(20.0)}, shard)


def refused(_: Shared, shard: slice) -> None:
    if shard.start:
        raise DataError("V01", f"shard {shard.start} cannot be read", "look at it")


def broken(_: Shared, shard: slice) -> None:
    raise ZeroDivisionError(f"in {shard.start}")


def dies_once(shared: Shared, shard: slice) -> float:
    """Is killed at the first try of its second shard."""
    mark = Path(shared["folder"]) / "died"
    if shard.start == 4 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return summed(shared, shard)


def always_dies(_: Shared, __: slice) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def written(shared: Shared, shard: slice) -> int:
    """Writes a file for its shard and a line for its try, slowly enough to be killed half-way; returns its process."""
    folder = Path(shared["folder"])
    with (folder / "tries").open("a") as tries:
        tries.write(f"{shard.start} {os.getpid()}\n")
    time.sleep(shared["seconds"])
    with new_file(folder / f"{shard.start:03}.out") as fresh:
        fresh.write_text(str(summed(shared, shard)))
    return os.getpid()
