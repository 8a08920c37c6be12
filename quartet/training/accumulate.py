"""The gradient of a batch, one group of seeds at a time: only one group's activations are in memory.

The batch is encoded once. The backward pass of each group stops at what was encoded, except for the last: with it, the
gradients that the others left there go all the way back, in one pass. The result is the gradient of the whole batch.
Nothing is written down in the network, so that threads can share it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from quartet.tokens import TokenBatch, with_tensors
from quartet.training.network import Encoded, Network

Loss = Callable[
    [Tensor, Tensor], Tensor
]  # of (b, outputs) logits and the places (b,) of their seeds in the batch
Gradients = list[Tensor | None]  # of each parameter of a network; None: the loss does not reach it


def backward_by_group(network: Network, batch: TokenBatch, loss: Loss) -> Tensor:
    """Adds the gradient of the groups' summed losses to the network's parameters and returns that sum."""
    value, gradients = gradient_by_group(network, batch, loss)
    for parameter, gradient in zip(network.parameters(), gradients, strict=True):
        if gradient is not None:
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    return value


def gradient_by_group(network: Network, batch: TokenBatch, loss: Loss) -> tuple[Tensor, Gradients]:
    """Returns the sum of the groups' losses, and its gradient."""
    parameters = list(network.parameters())
    encoded = network.encode(batch)
    whole: list[Tensor] = []
    copies: list[Tensor] = []

    def detached(tensor: Tensor) -> Tensor:
        if not tensor.requires_grad:
            return tensor
        whole.append(tensor)
        copies.append(tensor.detach().requires_grad_())
        return copies[-1]

    *others, last = batch.groups
    cut: Encoded = with_tensors(encoded, detached) if others else encoded
    losses, sums = [], _Sums(len(copies) + len(parameters))
    for group in others:
        # A group gets its own rows alone: otherwise each would make a gradient as large as that of all rows.
        named, place = group.row.unique(return_inverse=True)
        rows = cut.rows.detach()[named].requires_grad_()
        logits = network.forward_group(replace(cut, rows=rows), batch, replace(group, row=place))
        value = loss(logits, group.seed)
        losses.append(value.detach())
        of_rows, *reached = torch.autograd.grad(value, [rows, *copies, *parameters], allow_unused=True)
        for place_of, copy in enumerate(copies):
            if copy is cut.rows and of_rows is not None:
                reached[place_of] = torch.zeros_like(copy).index_add_(0, named, of_rows)
        sums.add(reached)
    value = loss(network.forward_group(encoded, batch, last), last.seed)
    losses.append(value.detach())
    left = [
        (tensor, gradient) for tensor, gradient in zip(whole, sums.sums, strict=False) if gradient is not None
    ]
    gradients = torch.autograd.grad(
        [value, *(tensor for tensor, _ in left)], parameters, [None, *(gradient for _, gradient in left)],
        allow_unused=True,
    )  # fmt: skip
    sums.add([*(None for _ in copies), *gradients])
    return torch.stack(losses).sum(), sums.sums[len(copies) :]


class _Sums:
    """Sums of gradients that come one after the other. What torch has returned first may be its own, so it is kept."""

    def __init__(self, number: int) -> None:
        self.sums: Gradients = [None] * number
        self.is_own = [False] * number

    def add(self, gradients: Sequence[Tensor | None]) -> None:
        for place, gradient in enumerate(gradients):
            so_far = self.sums[place]
            if gradient is None:
                continue
            if so_far is None:
                self.sums[place] = gradient
            elif self.is_own[place]:
                so_far.add_(gradient)
            else:
                self.sums[place], self.is_own[place] = so_far + gradient, True
