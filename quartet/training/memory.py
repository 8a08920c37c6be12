"""How much memory a training step needs, and how many seeds at a time fit.

The need is not guessed by a formula: the step is gone through on torch's `meta` device, where tensors have sizes and
no content, and the bytes that are alive at a time are counted. So a change of the network is counted by itself.
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

_MARGIN = 1.25  # allocators do not fill their pages, and other batches are larger than the one counted
_LOADED = 80 * 10**6  # what a first step loads and compiles, and what the process allots beside tensors
_USABLE = 0.9  # of what is free: others on the machine also want some


def seeds_that_fit(network: Network, tokens: Callable[[int], TokenBatch], most: int, free: int) -> int:
    """Returns how many of `most` seeds a step can take at a time: all, or a half, a quarter … until it fits, or one.

    `tokens` gives a batch of so many seeds.
    """
    seeds = most
    while seeds > 1 and _step_bytes(network, tokens(seeds)) > _USABLE * free:
        seeds = (seeds + 1) // 2
    return seeds


def parts_that_fit(network: Network, batch: TokenBatch, free: int) -> int:
    """Returns how many parts like this batch can be under way together, each with its gradient: at least one."""
    one = int(_MARGIN * step_tensor_bytes(network, batch)) + weight_bytes(network)
    return max(1, int(_USABLE * free - _step_bytes(network, batch)) // one + 1)


def _step_bytes(network: Network, batch: TokenBatch) -> int:
    """Returns what a step on a batch needs beside the weights, which are there before the first one."""
    # Adam's two moments, the best weights so far, two gradients, and Adam's two vectors once these have gone.
    kept = 6 * weight_bytes(network)
    return _LOADED + kept + int(_MARGIN * step_tensor_bytes(network, batch))


def weight_bytes(network: Network) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in network.parameters())


def step_tensor_bytes(network: Network, batch: TokenBatch) -> int:
    """Returns the most bytes of tensors alive at a time while the gradient of a batch is gathered, and its own.

    Each group is gone through alone, as if it were the last, and the largest counts: that may be one of many seeds
    with short contexts. What the others leave behind for the end is as large as what was encoded.
    """
    with torch.device("meta"):
        twin = type(network)(network.config, network.schema).train()
    shapes, most = batch.to("meta"), 0
    for group in {(group.row.shape, group.collab.shape): group for group in shapes.groups}.values():
        with _Alive() as alive:
            encoded = twin.encode(shapes)
            torch.autograd.backward(twin.forward_group(encoded, shapes, group).sum())
        most = max(most, alive.most + _num_bytes(encoded))
        twin.zero_grad()
    return most + _num_bytes(batch)


def _num_bytes(value: Any) -> int:
    """Returns the bytes of all tensors in a value."""
    sizes: list[int] = []

    def count(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel() * tensor.element_size())
        return tensor

    with_tensors(value, count)
    return sum(sizes)


class _Alive(TorchDispatchMode):
    """Counts the bytes of tensors that are made inside: those that are alive now, and the most there were."""

    def __init__(self) -> None:
        super().__init__()
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
