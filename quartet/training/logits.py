"""The logits of a network. Validation, evaluation and live prediction all come here: the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quartet.contexts import Context, select
from quartet.listener import SILENT, Listener
from quartet.machine import Precision, autocast, mapped, one_thread_each
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
    if network.training:  # it visits every layer
        network.eval()

    def batch_logits(first: int) -> NDArray[np.float64]:
        places = np.arange(first, min(first + BATCH, len(context)))
        with torch.inference_mode(), autocast(device.type, precision):
            batch = tokenizer(select(context, places), device=device)
            logits: NDArray[np.float64] = (ask or network)(batch).double().cpu().numpy()
        listener.progress("scores", len(logits), total or len(context))
        return logits

    batches = range(0, len(context), BATCH)
    with one_thread_each() as threads:
        num_threads = max(1, min(threads, len(batches))) if device.type == "cpu" else 1
        parts = list(mapped(batch_logits, batches, num_threads))
    return np.concatenate(parts or [np.empty((0, network.schema.num_outputs))])
