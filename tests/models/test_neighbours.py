"""Sums over neighbours: those of torch's own operations, and so are their gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from quartet.models.layers.neighbours import neighbour_sums


def literal(nodes: Tensor, edge: Tensor) -> Tensor:
    return torch.zeros_like(nodes).index_add(0, edge[1], nodes[edge[0]])


@pytest.mark.parametrize("num_links", [0, 1, 60])
def test_sums_and_gradients_are_those_of_torch(num_links: int) -> None:
    """Also of links in one direction alone, of several between the same nodes, and of a node to itself."""
    torch.manual_seed(num_links)
    nodes, edge = torch.randn(9, 4).double().requires_grad_(), torch.randint(9, (2, num_links))
    found, expected = neighbour_sums(nodes, edge), literal(nodes, edge)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    weight = torch.randn(4, 9).double().T  # a gradient that does not lie line by line
    gradients = (torch.autograd.grad((sums * weight).sum(), nodes)[0] for sums in (found, expected))
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


def test_short_numbers_are_summed_by_torch() -> None:
    nodes, edge = torch.randn(5, 2).bfloat16(), torch.tensor([[0, 1, 1], [2, 2, 4]])
    assert neighbour_sums(nodes, edge).equal(literal(nodes, edge))
