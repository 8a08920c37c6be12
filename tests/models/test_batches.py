"""A logit is a function of the seed's own context: company, order, repetition and size do not matter."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from quartet.config import SamplingConfig
from quartet.contexts import select
from quartet.tokens import Tokenizer, shuffled_places
from tests.models.data import SMALL, buyers


@pytest.fixture(scope="module")
def case():  # type: ignore[no-untyped-def]
    return buyers(3, count=40)


def logits(case, places, group_tokens: int = 64, dtype: torch.dtype = torch.float64):  # type: ignore[no-untyped-def]
    tokenizer = Tokenizer(case.graph, case.features, group_tokens=group_tokens)
    with torch.no_grad():
        return case.model.to(dtype)(tokenizer(select(case.context, places)).to(dtype))


def test_alone_or_in_company(case) -> None:  # type: ignore[no-untyped-def]
    together = logits(case, np.arange(40))
    for place in range(40):
        alone = logits(case, np.array([place]))
        torch.testing.assert_close(alone[0], together[place], rtol=0, atol=1e-12)


def test_in_single_precision_to_a_millionth(case) -> None:  # type: ignore[no-untyped-def]
    together = logits(case, np.arange(40), dtype=torch.float32)
    alone = torch.cat([logits(case, np.array([place]), dtype=torch.float32) for place in range(40)])
    case.model.double()
    assert (together.sigmoid() - alone.sigmoid()).abs().max() <= 1e-6


def test_order_repetition_and_group_size(case) -> None:  # type: ignore[no-untyped-def]
    together = logits(case, np.arange(40))
    places = np.random.default_rng(0).integers(0, 40, 100)
    for group_tokens in (1, 30, 10_000):
        found = logits(case, places, group_tokens)
        torch.testing.assert_close(found, together[places], rtol=0, atol=1e-12)


def test_bit_equal_at_a_fixed_shape(case) -> None:  # type: ignore[no-untyped-def]
    """The same batch again has the same bits."""
    places = np.arange(40)
    first = logits(case, places, dtype=torch.float32)
    assert logits(case, places, dtype=torch.float32).equal(first)
    case.model.double()


def test_evaluation_has_no_random_numbers_of_its_own(case) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(1)
    first = logits(case, np.arange(40))
    torch.manual_seed(2)
    assert logits(case, np.arange(40)).equal(first)


def test_training_draws_new_noise_at_each_step(case) -> None:  # type: ignore[no-untyped-def]
    context = select(case.context, np.arange(10))
    noise = [torch.cat([group.noise.flatten() for group in case.tokenizer(context, draw).groups])
             for draw in (0, 1, 2, 2)]  # fmt: skip
    assert not noise[0].equal(noise[1])
    assert not noise[1].equal(noise[2])
    assert noise[2].equal(noise[3])


def test_noise_is_standard_normal(case) -> None:  # type: ignore[no-untyped-def]
    context = select(case.context, np.arange(40))
    noise = np.concatenate(
        [group.noise[group.count > 0] for draw in range(60) for group in case.tokenizer(context, draw).groups]
    )
    assert len(noise) > 10_000
    assert abs(noise.mean()) < 5 / np.sqrt(len(noise))
    assert abs(noise.std() - 1) < 5 / np.sqrt(len(noise))
    assert abs((np.abs(noise) < 1).mean() - 0.6827) < 5 * 0.5 / np.sqrt(len(noise))


def test_a_row_stands_once(case) -> None:  # type: ignore[no-untyped-def]
    batch = case.tokenizer(case.context)
    nodes = np.concatenate([case.context.local_node, case.context.collab_node, case.context.temporal_node])
    assert len(batch.row_type) == sum(map(len, batch.tables)) == len(np.unique(nodes))
    times = np.unique(case.context.seed_time)
    of_collab = np.repeat(case.context.seed_time, np.diff(case.context.collab_start))
    of_temporal = np.repeat(times, np.diff(case.context.temporal_start))
    collab = set(zip(case.context.collab_node, of_collab, strict=True))
    pairs = collab | set(zip(case.context.temporal_node, of_temporal, strict=True))
    assert len(batch.global_row) == len(batch.global_age) == len(pairs)
    assert batch.num_collab_tokens == len(collab)
    assert len(batch.num_temporal) == len(times)


def test_groups_hold_every_seed_once_and_are_not_padded_to_the_longest(case) -> None:  # type: ignore[no-untyped-def]
    batch = case.tokenizer(case.context)
    assert sorted(batch.order.tolist()) == list(range(40))
    widths = [group.row.shape[1] for group in batch.groups]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < widths[0]


def test_grouping_by_time_keeps_every_seed_and_makes_fewer_times() -> None:
    rng = np.random.default_rng(0)
    time_index = rng.integers(0, 20, 300)
    plain = shuffled_places(300, 32, np.random.default_rng(1))
    grouped = shuffled_places(300, 32, np.random.default_rng(1), time_index)
    for places in (plain, grouped):
        assert sorted(np.concatenate(places).tolist()) == list(range(300))
        assert {len(batch) for batch in places} == {32, 300 % 32}
    num_times = [
        np.mean([len(np.unique(time_index[batch])) for batch in places]) for places in (plain, grouped)
    ]
    assert num_times[1] < 4 < 12 < num_times[0]


def test_moving_a_batch_changes_only_its_floats(case) -> None:  # type: ignore[no-untyped-def]
    batch = case.tokenizer(case.context).to(torch.float64)
    assert batch.groups[0].age.dtype == batch.sketch.dtype == batch.tables[0].numbers.dtype == torch.float64
    assert batch.groups[0].row.dtype == batch.tables[0].categories.dtype == torch.int64


def test_one_seed_can_be_trained_on(case) -> None:  # type: ignore[no-untyped-def]
    """A single seed has no spread: the sketch is normalised by what was learned so far."""
    case.model.train()
    logit = case.model(case.tokenizer(select(case.context, np.array([0]))).to(torch.float64))
    logit.sum().backward()
    case.model.eval()
    case.model.zero_grad()
    assert logit.isfinite().all()


def test_groups_are_larger_on_an_accelerator() -> None:
    """On a CPU their size decides bits: 2,400 tokens, as ever."""
    case = buyers(3, sampler=SamplingConfig(local_budget=300, restart_prob=0.0), count=400)
    tokenizer = Tokenizer(case.graph, case.features)
    on_cpu, elsewhere = tokenizer(case.context), tokenizer(case.context, device="meta")
    sizes = [max(group.row.numel() for group in batch.groups) for batch in (on_cpu, elsewhere)]
    assert len(on_cpu.groups) > 1
    assert 1200 < sizes[0] <= 2400 < sizes[1]
    assert elsewhere.groups[0].row.is_meta


def test_widths_must_fit_heads() -> None:
    with pytest.raises(Exception, match=r"C03.*multiple of 8"):
        SMALL.changed(width=20)
