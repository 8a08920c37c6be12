"""Dropout whose mask is counted, not remembered.

On a CPU torch draws a random number for each input, which costs more than attention itself, and keeps the mask for
the backward pass. Here the mask is a function of one key and an input's place: it costs as much as a copy, and the
backward pass counts it again. Other devices use torch's own dropout.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quartet.contexts import draw
from quartet.machine import compiled
from quartet.training import next_mask


def dropout(numbers: Tensor, rate: float, is_training: bool) -> Tensor:
    """In training, sets each number to zero with probability `rate` and scales up the others.

    The rate is rounded to 65,536ths.
    """
    if not is_training or not rate:
        return numbers
    if numbers.device.type != "cpu":
        return F.dropout(numbers, rate)
    dropped: Tensor = _Dropped.apply(numbers, rate, next_mask())
    return dropped


class Dropout(nn.Dropout):
    """`dropout` as a module."""

    def forward(self, numbers: Tensor) -> Tensor:
        return dropout(numbers, self.p, self.training)


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, numbers: Tensor, rate: float, key: int) -> Tensor:
        ctx.mask = rate, key
        return _masked(numbers, rate, key)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _masked(gradient, *ctx.mask), None, None


def _masked(numbers: Tensor, rate: float, key: int) -> Tensor:
    numbers = numbers.detach().contiguous()
    out, threshold = torch.empty_like(numbers), round(rate * 2**16)
    flat, kept = numbers.view(-1), out.view(-1)
    scale = 2**16 / (2**16 - threshold)
    if numbers.dtype in (torch.float32, torch.float64):
        scale = flat.numpy().dtype.type(scale)
        _mask(flat.numpy(), kept.numpy(), np.uint64(key), np.uint64(threshold), scale)
        return out
    # numpy knows no bfloat16: its bits are kept or not as those of whole numbers, and torch scales them.
    bits = (flat.view(torch.int16).numpy(), kept.view(torch.int16).numpy())
    _mask(*bits, np.uint64(key), np.uint64(threshold), np.int16(1))
    return out.mul_(scale)


@compiled
def _mask(numbers: Any, out: Any, key: Any, threshold: Any, scale: Any) -> None:
    """Four numbers, a quarter of all apart, share the 64 bits of one draw: so the loop is done in vectors."""
    nothing, quarter = scale * 0, (len(numbers) + 3) // 4
    last = len(numbers) - 3 * quarter  # the fourth quarter may be shorter
    for place in range(quarter):
        bits = draw(key, place)
        for lane in range(3):
            here = lane * quarter + place
            is_kept = ((bits >> np.uint64(16 * lane)) & np.uint64(0xFFFF)) >= threshold
            if here < len(numbers):
                out[here] = numbers[here] * (scale if is_kept else nothing)
        if place < last:
            here = 3 * quarter + place
            out[here] = numbers[here] * (scale if (bits >> np.uint64(48)) >= threshold else nothing)
