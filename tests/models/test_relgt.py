"""RelGT's memory of centroids: k-means with moving averages that neither collapses nor sees another order."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from quartet.config import ModelConfig
from quartet.models.relgt import CentroidMemory
from tests.models.data import SMALL


def memory_of(config: ModelConfig = SMALL, rng_seed: int = 0) -> CentroidMemory:
    torch.manual_seed(rng_seed)
    return CentroidMemory(config).double()


def shown(memory: CentroidMemory, seeds: Tensor, steps: int) -> CentroidMemory:
    """The memory after it has seen the same seeds so many times."""
    memory.train()
    for _ in range(steps):
        memory(seeds)
        memory.after_step(lambda tensor: tensor)
    return memory


def clouds(num: int, each: int, width: int = 16) -> Tensor:
    """Seeds around so many far points."""
    torch.manual_seed(3)
    centre = 10 * torch.randn(num, 1, width, dtype=torch.float64)
    return (centre + 0.1 * torch.randn(num, each, width, dtype=torch.float64)).flatten(0, 1)


def test_no_centroid_is_left_without_seeds() -> None:
    """The public code starts where no seed is, and most centroids never win one."""
    memory = shown(memory_of(SMALL.changed(num_archetypes=32)), clouds(8, 16), 300)
    inside = (memory.enter(clouds(8, 16)).detach() - memory.mean) * (memory.variance + 1e-5).rsqrt()
    nearest = torch.cdist(inside, memory.centroids).argmin(1)
    assert len(nearest.unique()) >= 24
    assert memory.count.min() > 0


def test_centroids_find_the_clouds() -> None:
    memory = shown(memory_of(SMALL.changed(num_archetypes=32)), clouds(8, 16), 300)
    inside = (memory.enter(clouds(8, 16)).detach() - memory.mean) * (memory.variance + 1e-5).rsqrt()
    distance = torch.cdist(inside, memory.centroids).amin(1)
    spread = torch.cdist(inside, inside).median()
    assert distance.max() < 0.1 * spread


def test_counts_are_the_moving_average_of_seeds() -> None:
    memory = shown(memory_of(SMALL.changed(num_archetypes=4)), clouds(4, 16), 1)
    assert memory.count.sum().item() == pytest.approx(4 * 0.99 + 64 * 0.01)
    shown(memory, clouds(4, 16), 600)
    assert memory.count.sum().item() == pytest.approx(64, rel=0.02)


def test_a_step_in_two_parts_is_one_step() -> None:
    seeds = clouds(4, 16)
    whole, parts = memory_of(), memory_of()
    for memory, cut in ((whole, [seeds]), (parts, [seeds[:20], seeds[20:]])):
        memory.train()
        for part in cut:
            memory(part)
        torch.manual_seed(1)
        memory.after_step(lambda tensor: tensor)
    assert torch.allclose(whole.total, parts.total)
    assert torch.allclose(whole.mean, parts.mean)


def test_evaluation_learns_nothing() -> None:
    memory = shown(memory_of(), clouds(4, 16), 3).eval()
    before = {name: buffer.clone() for name, buffer in memory.named_buffers()}
    memory(clouds(4, 16))
    assert memory.seen == []
    assert all(torch.equal(before[name], buffer) for name, buffer in memory.named_buffers())


def test_a_centroid_weighs_as_often_as_it_was_near() -> None:
    """Attention with log counts is attention over each centroid so many times."""
    memory = memory_of(SMALL.changed(num_archetypes=2)).eval()
    seed = torch.randn(3, 16, dtype=torch.float64)
    centroid = memory.centroids.clone()
    memory.count.copy_(torch.tensor([1.0, 3.0]))
    memory.total.copy_(centroid * memory.count[:, None])
    weighted = memory(seed)
    repeated = memory_of(SMALL.changed(num_archetypes=4)).eval()
    repeated.load_state_dict(
        memory.state_dict() | {"count": torch.ones(4), "total": centroid[torch.tensor([0, 1, 1, 1])]}
    )
    torch.testing.assert_close(repeated(seed), weighted)
