"""What a training step will need of memory, what is free, and how many seeds at a time fit.

The need is not guessed by a formula: the step is gone through on torch's `meta` device, where tensors have sizes and
no content, and the bytes that are alive at a time are counted. What changes in the model is counted of itself.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from quartet.tokens import TokenBatch, with_tensors
from quartet.training.network import Network

MARGIN = 1.25  # allocators do not fill their pages, and other batches are larger than the one counted
LOADED = 80 * 10**6  # what a first step loads and compiles, and what the process allots beside tensors
USABLE = 0.9  # of what is free: others on the machine also want some


def seeds_that_fit(model: Network, tokens: Callable[[int], TokenBatch], most: int, free: int) -> int:
    """How many of `most` seeds a step can take at a time: all, or a half, a quarter … until it fits, or one.

    `tokens` gives a batch of so many seeds.
    """
    seeds = most
    while seeds > 1 and step_bytes(model, tokens(seeds)) > USABLE * free:
        seeds = (seeds + 1) // 2
    return seeds


def step_bytes(model: Network, batch: TokenBatch) -> int:
    """What a step on a batch needs beside what is there before the first one: the model's weights."""
    kept = 4 * weight_bytes(model)  # Adam's two moments, the best weights so far, what processes exchange
    return LOADED + kept + int(MARGIN * step_tensor_bytes(model, batch))


def weight_bytes(model: Network) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def step_tensor_bytes(model: Network, batch: TokenBatch) -> int:
    """The most bytes of tensors alive at a time while the gradient of a batch is gathered group by group, and its own.

    Only the first group, which is the largest, is gone through; what the others leave behind for the end is as large
    as what was encoded.
    """
    with torch.device("meta"):
        twin = type(model)(model.config, model.schema).train()
    shapes, alive = batch.to("meta"), _Alive()
    with alive:
        encoded = twin.encode(shapes)
        torch.autograd.backward(twin.forward_group(encoded, shapes, shapes.groups[0]).sum())
    return alive.most + _num_bytes(encoded) + _num_bytes(batch)


def _num_bytes(value: Any) -> int:
    """The bytes of all tensors in a value."""
    found: list[int] = []

    def count(tensor: Tensor) -> Tensor:
        found.append(tensor.numel() * tensor.element_size())
        return tensor

    with_tensors(value, count)
    return sum(found)


class _Alive(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of tensors that are made inside: those that are alive now, and the most there were."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self.known: set[int] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                self._see(tensor.untyped_storage())
        return made

    def _see(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self.known:
            self.known.add(key)
            self.now += storage.nbytes()
            self.most = max(self.most, self.now)
            weakref.finalize(storage, self._forget, key, storage.nbytes())

    def _forget(self, key: int, num_bytes: int) -> None:
        self.known.remove(key)
        self.now -= num_bytes
