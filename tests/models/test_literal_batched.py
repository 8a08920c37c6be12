"""The literal form that benchmarks/step.py measures against is the same function as the model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.literal import LiteralBatch, literal_backward, literal_logits, padded
from quartet.config import SamplingConfig
from quartet.contexts import select
from quartet.graph import TemporalGraph
from quartet.tasks import Seeds
from quartet.tokens import Tokenizer
from quartet.training import backward_by_group
from tests.models.data import SMALL, Setting, setting
from tests.shop import day, shop

BUDGET = 12
SAMPLER = SamplingConfig(local_budget=BUDGET, collab_budget=BUDGET, temporal_budget=BUDGET)


def asked(sampler: SamplingConfig = SAMPLER, layers: int = 1) -> Setting:
    """Every customer and product at three times, in groups of at most five seeds.

    Among them are seeds that nothing points at yet, with no look-alikes and, on day 0, no recent activity.
    """
    graph = TemporalGraph.build(shop())
    nodes = [*graph.nodes("customers"), *graph.nodes("products")]
    times = [day(-400), day(3), day(9)]
    seeds = Seeds(np.repeat(nodes, len(times)), np.tile(times, len(nodes)), None)
    return setting(graph, seeds, SMALL.changed(local_layers=layers), sampler, group_tokens=60)


def micro_batches(given: Setting, size: int = 16) -> list[LiteralBatch]:
    whole = Tokenizer(given.graph, given.features, group_tokens=10**6)  # type: ignore[arg-type]
    places = np.arange(len(given.context))
    return [
        padded(whole(select(given.context, some)).to(torch.float64), torch.from_numpy(some), BUDGET)
        for some in np.split(places, range(size, len(places), size))
    ]


def squares(logits: Tensor, places: Tensor) -> Tensor:
    """A loss that tells the seeds apart."""
    return ((logits[:, 0] - 0.1 * places) ** 2).sum()


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("fallback", ["visible", "null"])
def test_literal_logits_are_those_of_the_model(layers: int, fallback: str) -> None:
    given = asked(SAMPLER.changed(fallback=fallback), layers)
    expected = given.model(given.batch.to(torch.float64))
    found = torch.empty_like(expected)
    with torch.no_grad():
        for batch in micro_batches(given):
            found[batch.seed] = literal_logits(given.model, batch)
    assert (found - expected).abs().max() < 1e-10


def test_literal_gradients_are_the_gradients_of_the_model() -> None:
    given = asked()
    backward_by_group(given.model, given.batch.to(torch.float64), squares)
    expected = {name: parameter.grad.clone() for name, parameter in given.model.named_parameters()}
    given.model.zero_grad()
    literal_backward(given.model, micro_batches(given), squares)
    for name, parameter in given.model.named_parameters():
        assert torch.allclose(parameter.grad, expected[name], rtol=1e-9, atol=1e-10), name


def test_contexts_of_every_length_fill_the_budget() -> None:
    given = asked()
    batches = micro_batches(given)
    counts = np.diff(given.context.collab_start)
    assert {0, BUDGET} != set(counts.tolist())
    assert len(set(counts.tolist())) > 2
    for batch in batches:
        assert batch.hop.shape == (len(batch.seed), BUDGET)
        assert batch.global_age.shape == (2, len(batch.seed), BUDGET)
        assert len(batch.place) == 3 * len(batch.seed) * BUDGET == sum(map(len, batch.tables))


def test_the_seeds_hidden_tokens_are_hidden_only_where_repeats_do_not_divide() -> None:
    given = asked()
    counts = np.diff(given.context.collab_start)
    for batch in micro_batches(given):
        for place, is_real in zip(batch.seed.tolist(), batch.is_real[0], strict=True):
            count = max(int(counts[place]), 1)
            assert int(is_real.sum()) == BUDGET // count * count
