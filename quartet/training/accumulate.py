"""The gradient of a batch, one group of seeds at a time: only one group's activations are in memory.

The batch is encoded once. The backward pass of each group stops at what was encoded, except for the last: with it, the
gradients that the others left there go all the way back, in one pass. The result is the gradient of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch
from torch import Tensor, nn

from quartet.tokens import SeedGroup, TokenBatch, with_tensors
from quartet.training.network import Encoded, Network

GroupForward = Callable[[Encoded, TokenBatch, SeedGroup], Tensor]  # (b, outputs) logits of a group
Loss = Callable[
    [Tensor, Tensor], Tensor
]  # of (b, outputs) logits and the places (b,) of their seeds in the batch


class ForwardGroup(nn.Module):
    """`Network.forward_group` as a module's forward, so that DistributedDataParallel can wrap and synchronise it.

    `no_sync` is DistributedDataParallel's. Without processes to synchronise it does nothing.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, encoded: Encoded, batch: TokenBatch, group: SeedGroup) -> Tensor:
        return self.network.forward_group(encoded, batch, group)

    def no_sync(self) -> AbstractContextManager[None]:
        return nullcontext()


def backward_by_group(
    network: Network, batch: TokenBatch, loss: Loss, last_forward: GroupForward | None = None
) -> Tensor:
    """Adds the gradient of the groups' summed losses to the network's parameters and returns that sum.

    `last_forward` computes the last group's logits (default: the network). Its backward pass is the only one that
    reaches every parameter.
    """
    encoded = network.encode(batch)
    copies: list[tuple[Tensor, Tensor]] = []

    def detached(tensor: Tensor) -> Tensor:
        copies.append((tensor, tensor.detach().requires_grad_()))
        return copies[-1][1]

    cut: Encoded = with_tensors(encoded, detached)
    losses = []
    *others, last = batch.groups
    for group in others:
        # A group gets its own rows alone: otherwise each would make a gradient as large as that of all rows.
        named, place = group.row.unique(return_inverse=True)
        rows = cut.rows.detach()[named].requires_grad_()
        logits = network.forward_group(replace(cut, rows=rows), batch, replace(group, row=place))
        value = loss(logits, group.seed)
        value.backward()
        losses.append(value.detach())
        if rows.grad is not None:
            cut.rows.grad = torch.zeros_like(cut.rows) if cut.rows.grad is None else cut.rows.grad
            cut.rows.grad.index_add_(0, named, rows.grad)
    value = loss((last_forward or network.forward_group)(encoded, batch, last), last.seed)
    reached = [(tensor, copy.grad) for tensor, copy in copies if copy.grad is not None]
    torch.autograd.backward(
        [value, *(tensor for tensor, _ in reached)], [None, *(gradient for _, gradient in reached)]
    )
    return torch.stack([*losses, value.detach()]).sum()
