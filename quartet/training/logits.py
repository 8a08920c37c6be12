"""The logits of a network. Validation, evaluation and live prediction all come here: the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quartet.contexts import Context, select
from quartet.listener import SILENT, Listener
from quartet.machine import Precision, autocast
from quartet.tokens import TokenBatch, Tokenizer
from quartet.training.data import BATCH

if TYPE_CHECKING:
    from quartet.training.network import Network


def context_logits(
    network: Network,
    tokenizer: Tokenizer,
    context: Context,
    precision: Precision = "auto",
    listener: Listener = SILENT,
    total: int | None = None,
    ask: Callable[[TokenBatch], Tensor] | None = None,
) -> NDArray[np.float64]:
    """Returns the (S, outputs) logits of all seeds of a context, at evaluation, or what else is asked of batches.

    Each thread takes whole batches: none waits for another, and the bits do not depend on how many there are.
    """
    device = next(network.parameters()).device
    network.eval()

    def batch_logits(first: int) -> NDArray[np.float64]:
        places = np.arange(first, min(first + BATCH, len(context)))
        with torch.inference_mode(), autocast(device.type, precision):
            batch = tokenizer(select(context, places), device=device)
            logits: NDArray[np.float64] = (ask or network)(batch).double().cpu().numpy()
        listener.progress("scores", len(logits), total or len(context))
        return logits

    with _threads(torch.get_num_threads() if device.type == "cpu" else 1) as pool:
        parts = list(pool.map(batch_logits, range(0, len(context), BATCH)))
    return np.concatenate(parts or [np.empty((0, network.schema.num_outputs))])


@contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Yields a pool of threads in each of which torch computes with one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(count) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)
