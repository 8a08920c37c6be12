"""Sums over the neighbours of nodes.

On a CPU torch writes down what each link brings before it adds it up, and in the backward pass once more. Here a loop
adds it where it belongs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from quartet.machine import compiled


def neighbour_sums(nodes: Tensor, edge: Tensor) -> Tensor:
    """Returns for each of (n, D) nodes the sum of those from which a link of (2, E) comes, in the order of links."""
    if nodes.device.type != "cpu" or nodes.dtype not in (torch.float32, torch.float64):
        return torch.zeros_like(nodes).index_add(0, edge[1], nodes[edge[0]])
    sums: Tensor = _Sums.apply(nodes, edge)
    return sums


class _Sums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, nodes: Tensor, edge: Tensor) -> Tensor:
        ctx.save_for_backward(edge)
        return _summed(nodes, edge, 0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (edge,) = ctx.saved_tensors
        return _summed(gradient, edge, 1), None


def _summed(nodes: Tensor, edge: Tensor, start: int) -> Tensor:
    nodes = nodes.detach().contiguous()
    sums = torch.zeros_like(nodes)
    _add(nodes.numpy(), edge.contiguous().numpy(), start, sums.numpy())
    return sums


@compiled
def _add(nodes: Any, edge: Any, start: Any, sums: Any) -> None:
    """Adds to each node the nodes at the other end of its links, which begin in line `start` of `edge`."""
    for link in range(edge.shape[1]):
        begin, end = edge[start, link], edge[1 - start, link]
        for place in range(nodes.shape[1]):
            sums[end, place] += nodes[begin, place]
