"""The answers of a network to seeds. Validation, evaluation and live prediction all come here: the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

from quartet.config import Precision
from quartet.contexts import Context, select
from quartet.machine import autocast
from quartet.tokens import Tokenizer
from quartet.training.network import PartModel

Progress = Callable[[int], None]
BATCH = 512  # seeds of a batch: a fixed number, because its size decides the last bits of an answer
AT_ONCE = 32 * BATCH  # seeds that are sampled together: whole batches, so that their bits stay the same


def answers(
    model: PartModel,
    tokenizer: Tokenizer,
    context: Context,
    precision: Precision = "auto",
    progress: Progress = lambda _: None,
) -> NDArray[np.float64]:
    """(S, outputs) answers to all seeds of a context, at evaluation.

    Each thread takes whole batches: none waits for another, and the bits do not depend on how many there are.
    """
    device = next(model.parameters()).device
    model.eval()

    def answer(first: int) -> NDArray[np.float64]:
        places = np.arange(first, min(first + BATCH, len(context)))
        with torch.inference_mode(), autocast(device.type, precision):
            found: NDArray[np.float64] = (
                model(tokenizer(select(context, places)).to(device)).double().cpu().numpy()
            )
        progress(len(found))
        return found

    parts = [np.empty((0, model.schema.num_outputs))]
    with _threads(torch.get_num_threads() if device.type == "cpu" else 1) as pool:
        parts += pool.map(answer, range(0, len(context), BATCH))
    return np.concatenate(parts)


@contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads in each of which torch computes with one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(count) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)
