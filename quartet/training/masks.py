"""Which numbers dropout drops: a function of a key and of how many layers have dropped before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from quartet.contexts import draw

_of_thread = threading.local()


@contextmanager
def counted_masks(*key: int) -> Iterator[None]:
    """Within it the masks of this thread follow from a key: whoever computes at the same time changes none of them."""
    _of_thread.key = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
    _of_thread.count = 0
    try:
        yield
    finally:
        _of_thread.key = None


def next_mask() -> int:
    """Returns the key of the next mask of this thread, where nobody counts one from torch's generator."""
    key = getattr(_of_thread, "key", None)
    if key is None:
        return int(torch.randint(2**62, ()))
    _of_thread.count += 1
    return int(draw(key, _of_thread.count))
