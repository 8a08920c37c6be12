"""The two operators against loops over their equations; which axis the softmax runs over; masks."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from quartet.config import ModelConfig
from quartet.models.layers.attention import (
    CrossAttention,
    Projections,
    SelfAttention,
    SelfAttentionBlock,
    attend,
    split_heads,
)
from quartet.models.layers.dropout import dropout
from quartet.models.local import Pool

WIDTH, HEADS = 12, 3
CONFIG = ModelConfig(width=WIDTH, heads=HEADS, dropout=0.5)


@pytest.fixture(autouse=True)
def _double() -> None:
    torch.manual_seed(0)


def tokens(*shape: int) -> Tensor:
    return torch.randn(*shape, WIDTH, dtype=torch.float64)


def column(linear: torch.nn.Linear, token: Tensor) -> list[float]:
    bias = [0.0] * WIDTH if linear.bias is None else linear.bias.tolist()
    return [sum(w * x for w, x in zip(row, token.tolist(), strict=True)) + b
            for row, b in zip(linear.weight.tolist(), bias, strict=True)]  # fmt: skip


def looped(attention: Projections, query: Tensor, context: Tensor, count: list[int]) -> list[float]:
    """What one query reads, number by number; token j stands `count[j]` times in its context."""
    size = WIDTH // HEADS
    asked = column(attention.query, query)
    keys = [column(attention.key, token) for token in context]
    values = [column(attention.value, token) for token in context]
    read = []
    for head in range(HEADS):
        own = range(head * size, (head + 1) * size)
        logits = [sum(key[i] * asked[i] for i in own) / math.sqrt(size) for key in keys]
        weight = [times * math.exp(logit) for times, logit in zip(count, logits, strict=True)]
        total = sum(weight)  # over the context, not over the queries
        read += [sum(w * value[i] for w, value in zip(weight, values, strict=True)) / total for i in own]
    return column(attention.out, torch.tensor(read, dtype=torch.float64))


def random_biases(module: torch.nn.Module) -> None:
    """Biases start at zero; a forgotten one would not be noticed."""
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)


def cross() -> CrossAttention:
    attention = CrossAttention(CONFIG).double().eval()
    random_biases(attention)
    return attention


def test_cross_attention_is_its_equation() -> None:
    attention, query, context = cross(), tokens(2, 4), tokens(2, 5)
    read = attention(query, context)
    for batch in range(2):
        for number in range(4):
            expected = looped(attention, query[batch, number], context[batch], [1] * 5)
            assert read[batch, number].tolist() == pytest.approx(expected, abs=1e-12)


def test_self_attention_is_its_equation_over_a_multiset() -> None:
    attention = SelfAttention(CONFIG).double().eval()
    random_biases(attention)
    sequence, count = tokens(1, 5), [1, 3, 2, 1, 0]
    read = attention(sequence, torch.tensor([count], dtype=torch.float64).log())
    for number in range(5):
        expected = looped(attention, sequence[0, number], sequence[0], count)
        assert read[0, number].tolist() == pytest.approx(expected, abs=1e-12)


def test_reading_places_is_cross_attention() -> None:
    attention, query, table = cross(), tokens(4), tokens(7)
    place = torch.tensor([[0, 3, 3, 6], [5, 0, 0, 0], [2, 1, 0, 0]])
    count = torch.tensor([4, 1, 2])
    read = attention.read_places(attention.logits(query, table), table, place, count)
    for number, line in enumerate(place):
        context = table[line[: count[number]]]
        expected = attention(query[None], context[None])[0]
        torch.testing.assert_close(read[number], expected, rtol=0, atol=1e-12)


def test_a_query_of_its_own_for_each_context_is_cross_attention() -> None:
    attention, query, context = cross(), tokens(3), tokens(3, 5)
    expected = attention(query[:, None], context)[:, 0]
    torch.testing.assert_close(attention.read_alone(query, context), expected, rtol=0, atol=1e-12)


def test_an_empty_context_is_read_as_nothing() -> None:
    attention = cross()
    table = tokens(3).requires_grad_()
    logits = attention.logits(tokens(4), table)
    read = attention.read_places(logits, table, torch.zeros(2, 3, dtype=torch.int64), torch.tensor([0, 2]))
    assert read[0].eq(0).all()
    assert read[1].ne(0).all()
    read.sum().backward()
    assert table.grad is not None
    assert table.grad.isfinite().all()
    none, nowhere = tokens(0), torch.zeros(2, 0, dtype=torch.int64)
    logits = attention.logits(tokens(4), none)
    nothing = attention.read_places(logits, none, nowhere, torch.zeros(2, dtype=torch.int64))
    assert nothing.shape == (2, 4, WIDTH)
    assert nothing.eq(0).all()


def test_no_attention_to_padding_and_no_gradient_from_it() -> None:
    block = SelfAttentionBlock(CONFIG.changed(dropout=0.0)).double()
    pool = Pool(WIDTH).double()
    count = torch.tensor([[1, 2, 1, 0, 0]], dtype=torch.float64)
    sequence = tokens(1, 5).requires_grad_()
    answer = pool(block(sequence, count.log()), count.log())
    answer.square().sum().backward()
    assert sequence.grad is not None
    assert sequence.grad[0, 3:].eq(0).all()
    assert sequence.grad[0, :3].ne(0).all()
    other = sequence.detach().clone()
    other[0, 3:] = 1e6
    assert pool(block(other, count.log()), count.log()).equal(answer)


def test_masked_places_get_no_gradient() -> None:
    attention, table = cross(), tokens(5).requires_grad_()
    place, count = torch.tensor([[1, 2, 4, 3]]), torch.tensor([2])
    attention.read_places(attention.logits(tokens(4), table), table, place, count).square().sum().backward()
    assert table.grad is not None
    assert table.grad[[0, 3, 4]].eq(0).all()
    assert table.grad[[1, 2]].ne(0).all()


def test_pool_is_its_equation() -> None:
    pool, sequence, count = Pool(WIDTH).double(), tokens(1, 4), [1, 2, 1, 3]
    w = pool.score.weight[0].tolist()
    h = sequence[0].tolist()
    score = [math.exp(sum(a * b for a, b in zip(w, token, strict=True))) for token in h]
    weight = [count[j] * score[j] for j in range(1, 4)]
    mixed = [h[0][i] + sum(weight[j - 1] * h[j][i] for j in range(1, 4)) / sum(weight) for i in range(WIDTH)]
    expected = torch.nn.functional.layer_norm(torch.tensor(mixed, dtype=torch.float64), [WIDTH])
    read = pool(sequence, torch.tensor([count], dtype=torch.float64).log())
    torch.testing.assert_close(read[0], expected, rtol=0, atol=1e-12)


def test_a_seed_alone_is_pooled_to_itself() -> None:
    pool, sequence = Pool(WIDTH).double(), tokens(2, 1)
    expected = pool.norm(sequence[:, 0])
    torch.testing.assert_close(pool(sequence, torch.zeros(2, 1)), expected, rtol=0, atol=1e-12)


def test_dropout_is_off_at_evaluation_and_on_in_training() -> None:
    block = SelfAttentionBlock(CONFIG).double()
    attention, sequence = cross(), tokens(2, 6)
    count = torch.zeros(2, 6, dtype=torch.float64)
    reads = [
        lambda: block(sequence, count),
        lambda: attention(sequence, sequence),
        lambda: attention.read_places(
            attention.logits(sequence[0], sequence[1]),
            sequence[1],
            torch.arange(6).reshape(1, 6),
            torch.tensor([6]),
        ),
        lambda: attention.read_alone(sequence[:, 0], sequence),
    ]
    for read in reads:
        block.eval(), attention.eval()
        assert read().equal(read())
        block.train(), attention.train()
        assert not read().equal(read())


def test_dropout_keeps_the_mean_and_drops_at_its_rate() -> None:
    ones = torch.ones(1000, 1000)
    found = dropout(ones, 0.3, is_training=True)
    dropped = round(2**16 * 0.3) / 2**16
    assert found.unique().tolist() == pytest.approx([0, 1 / (1 - dropped)])
    assert abs(found.eq(0).double().mean() - dropped) < 5e-3
    assert abs(found.double().mean() - 1) < 5e-3
    lines = found.eq(0).double().mean(1)
    assert lines.std() < 2 * (dropped * (1 - dropped) / 1000) ** 0.5  # no line is dropped as a whole
    assert dropout(ones, 0.3, is_training=False) is ones
    assert dropout(ones[:3, :3], 0.0, is_training=True).equal(ones[:3, :3])


def test_dropout_on_the_way_back_is_the_same_mask() -> None:
    numbers = torch.randn(37, 5, dtype=torch.float64, requires_grad=True)
    dropped = dropout(numbers.T, 0.4, is_training=True)  # not contiguous
    (dropped * 3).sum().backward()
    assert numbers.grad is not None
    torch.testing.assert_close(numbers.grad * numbers, 3 * dropped.T.detach())
    assert 0.2 < dropped.eq(0).double().mean() < 0.6


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_dropout_of_half_precision_is_the_mask_of_single_precision(kind: torch.dtype) -> None:
    numbers = torch.randn(37, 5, dtype=kind, requires_grad=True)
    torch.manual_seed(5)
    found = dropout(numbers.T, 0.5, is_training=True)  # not contiguous
    found.sum().backward()
    torch.manual_seed(5)
    kept = dropout(torch.ones(5, 37), 0.5, is_training=True)
    assert found.equal((numbers.T.float() * kept).to(kind))
    assert numbers.grad is not None
    assert numbers.grad.equal(kept.T.to(kind))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 1001])
def test_dropout_reaches_every_number(count: int) -> None:
    """Numbers are masked in four quarters; none may be forgotten or always be kept."""
    total = sum(dropout(torch.ones(count), 0.5, is_training=True).eq(0).double() for _ in range(400))
    assert total.min() > 100
    assert total.max() < 300


def test_dropout_follows_the_random_seed() -> None:
    numbers = torch.randn(7, 13)
    torch.manual_seed(5)
    first = dropout(numbers, 0.5, is_training=True)
    assert not dropout(numbers, 0.5, is_training=True).equal(first)
    torch.manual_seed(5)
    assert dropout(numbers, 0.5, is_training=True).equal(first)


def test_attention_with_dropped_weights_is_attention_on_average() -> None:
    """The written-out form, used only in training, against torch's own."""
    query, key, value = (split_heads(tokens(1, 6), HEADS) for _ in range(3))
    mask = torch.tensor([1.0, 3, 2, 1, 1, 0], dtype=torch.float64).log()[None, None, None]
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask)
    assert attend(query, key, value, mask, 0.0).equal(expected)
    mean = torch.stack([attend(query, key, value, mask, 0.4) for _ in range(4000)]).mean(0)
    assert (mean - expected).abs().max() < 0.1


def test_attention_weights_have_a_dropout_of_their_own() -> None:
    assert ModelConfig(dropout=0.5).dropouts == (0.5, 0.5)
    config = CONFIG.changed(attention_dropout=0.0)
    block, attention = SelfAttentionBlock(config).train(), CrossAttention(config).train()
    sequence = tokens(2, 6).float()
    assert not block(sequence).equal(block(sequence))  # what the layers add is dropped
    assert attention(sequence, sequence).equal(attention(sequence, sequence))
