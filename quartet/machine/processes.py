"""Several processes that train one model: started by torchrun, each with a slice of every batch.

    torchrun --nproc-per-node 2 -m quartet train SRC TASK

This file tells a process which slice is its own, and lets all of them agree: on a gradient, on a loss, on stopping, on
what the first of them has made.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
_LONGEST_WAIT = timedelta(days=7)  # for the first process, which may sample for hours


@dataclass(frozen=True)
class Processes:
    """This process among those that train together; by default it is alone, and every method costs nothing."""

    rank: int = 0
    count: int = 1
    num_sharing_memory: int = 1  # of them, itself included
    device: str = "cpu"

    @property
    def is_first(self) -> bool:
        """Tells whether this is the one that writes, prints and saves."""
        return self.rank == 0

    def slice_for(self, num_items: int) -> slice:
        """Returns which of so many items are this process's: each has as many as any other, or one more or less."""
        return slice(num_items * self.rank // self.count, num_items * (self.rank + 1) // self.count)

    def averaged(self, vector: Tensor) -> Tensor:
        """Returns the mean of all processes' vectors; the vector itself is written over."""
        if self.count == 1:
            return vector
        import torch

        torch.distributed.all_reduce(vector)
        return vector.div_(self.count)

    def mean(self, value: float) -> float:
        """Returns the mean of all processes' values."""
        if self.count == 1:
            return value
        import torch

        total = torch.tensor(value, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(total)
        return float(total) / self.count

    def any(self, flag: bool) -> bool:
        """Tells whether one of them says yes."""
        return self.mean(float(flag)) > 0

    def joined(self, own: list[T]) -> list[T]:
        """Returns the lists of all processes, one after the other: what `slice_for` has cut."""
        if self.count == 1:
            return own
        import torch

        lists: list[Any] = [None] * self.count
        torch.distributed.all_gather_object(lists, own)
        return list(chain.from_iterable(lists))

    def gathered(self, own: Tensor) -> Tensor:
        """Returns the tensors of all processes, one after the other."""
        import torch

        return torch.cat([tensor.to(own.device) for tensor in self.joined([own])])

    def from_first(self, make: Callable[[], T]) -> T:
        """Returns what the first process has made, in all of them. The others do not make it."""
        return self.joined([make()] if self.is_first else [])[0]

    def wait(self) -> None:
        """Waits until all processes have come here."""
        self.joined([])

    @contextmanager
    def first_alone(self) -> Iterator[None]:
        """Lets the first process go through a block before the others, which then find what it left on disk."""
        if not self.is_first:
            self.wait()
        yield
        if self.is_first:
            self.wait()

    @contextmanager
    def first_speaks(self) -> Iterator[None]:
        """Within it nothing is printed but by the first process. An error that leaves the block can be told."""
        if self.is_first:
            yield
            return
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            yield


ALONE = Processes()


@contextmanager
def all_processes(device: str = "cpu") -> Iterator[Processes]:
    """Yields this process among those that torchrun has started; alone if it was started without."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield Processes(device=device)
        return
    import torch

    rank, count, local_rank, num_local = (
        int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    )
    backend = "gloo"
    if device == "cuda":  # one for each process
        device, num_local, backend = f"cuda:{local_rank}", 1, "nccl"
        torch.cuda.set_device(device)
    if not torch.distributed.is_initialized():  # once: a group that was left cannot be entered again
        torch.distributed.init_process_group(backend, timeout=_LONGEST_WAIT)
        atexit.register(torch.distributed.destroy_process_group)
    yield Processes(rank, count, num_local, device)
