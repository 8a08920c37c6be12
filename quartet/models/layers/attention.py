"""The two operators that the networks are made of: a self-attention block and cross-attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quartet.config import ModelConfig
from quartet.models.layers.dropout import Dropout, dropout


def split_heads(tokens: Tensor, heads: int) -> Tensor:
    """Returns (B, K, D) tokens as (B, H, K, D/H)."""
    return tokens.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(tokens: Tensor) -> Tensor:
    """Returns (B, H, K, D/H) tokens as (B, K, D)."""
    return tokens.transpose(1, 2).flatten(2)


def _projection(width: int, bias: bool = True) -> nn.Linear:
    """Returns a linear map of attention, with Xavier weights and a bias that starts at zero."""
    linear = nn.Linear(width, width, bias)
    nn.init.xavier_uniform_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


class Projections(nn.Module):
    """W_Q, W_K, W_V and the output projection. A bias of the keys would cancel in the softmax: there is none."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, (_, self.dropout) = config.width, config.dropouts
        self.heads = config.heads
        self.query, self.value, self.out = _projection(width), _projection(width), _projection(width)
        self.key = _projection(width, bias=False)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, rate: float) -> Tensor:
    """Returns softmax(Q K^T / sqrt(d_k) + mask) V for (B, H, K, D/H), with dropout of the weights at a rate."""
    if not rate:
        return F.scaled_dot_product_attention(query, key, value, mask)
    logits = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)  # (B, H, Q, K)
    weight = (logits if mask is None else logits + mask).softmax(-1)
    return dropout(weight, rate, is_training=True) @ value


class FeedForward(nn.Sequential):
    """Linear to twice the width, GELU, and back."""

    def __init__(self, config: ModelConfig) -> None:
        width, (rate, _) = config.width, config.dropouts
        super().__init__(
            nn.Linear(width, 2 * width),
            nn.GELU(),
            Dropout(rate),
            nn.Linear(2 * width, width),
            Dropout(rate),
        )


class SelfAttention(Projections):
    """All-pair attention among the tokens of each sequence.

    `log_count` is added to the logits of a key: the logarithm of how often it stands in the sequence. Attention over
    repeated tokens, and over the distinct ones with this term, is the same function; -inf hides a key.
    """

    def forward(self, tokens: Tensor, log_count: Tensor | None = None) -> Tensor:
        query, key, value = (
            split_heads(linear(tokens), self.heads) for linear in (self.query, self.key, self.value)
        )  # (B, H, K, D/H)
        mask = None if log_count is None else log_count[:, None, None, :]  # (B, 1, 1, K)
        read = attend(query, key, value, mask, self.dropout if self.training else 0.0)
        return self.out(join_heads(read))  # (B, K, D)


class SelfAttentionBlock(nn.Module):
    """A pre-LN transformer layer: x + Attention(LN(x)), then x + FFN(LN(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, (rate, _) = config.width, config.dropouts
        self.norm_attention, self.norm_feed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(config)
        self.dropout = Dropout(rate)
        self.feed = FeedForward(config)

    def forward(self, tokens: Tensor, log_count: Tensor | None = None) -> Tensor:
        tokens = tokens + self.dropout(self.attention(self.norm_attention(tokens), log_count))
        return tokens + self.feed(self.norm_feed(tokens))  # (B, K, D)


class CrossAttention(Projections):
    """CrossAttn(Q, C) = (W_V C) softmax((W_K C)^T (W_Q Q) / sqrt(d_k)), eq. 2, and an output projection."""

    def forward(self, query: Tensor, context: Tensor) -> Tensor:
        """Lets (B, Q, D) queries read (B, C, D) contexts; the softmax runs over the context."""
        asked = split_heads(self.query(query), self.heads)  # (B, H, Q, D/H)
        key, value = (split_heads(linear(context), self.heads) for linear in (self.key, self.value))
        read = attend(asked, key, value, None, self.dropout if self.training else 0.0)
        return self.out(join_heads(read))  # (B, Q, D)

    def read_alone(self, query: Tensor, context: Tensor) -> Tensor:
        """Lets (B, D) queries read (B, C, D) contexts, one query each: (B, D).

        The same function as `forward`: W_K goes into the query and W_V behind the sum.
        """
        folded = self._folded(query)  # (B, H, D)
        weight = (folded @ context.transpose(1, 2)).softmax(-1)  # (B, H, C)
        weight = dropout(weight, self.dropout, self.training)
        read = (weight @ context)[:, None]  # (B, 1, H, D)
        return self.out(self._values(read, weight.sum(-1)))[:, 0]

    def logits(self, query: Tensor, tokens: Tensor) -> Tensor:
        """Returns the (..., Z H) logits of (..., D) tokens for (Z, D) queries that all contexts share."""
        return F.linear(tokens, self._folded(query).flatten(0, 1))

    def read_places(self, logits: Tensor, tokens: Tensor, place: Tensor, count: Tensor) -> Tensor:
        """Lets the queries read the contexts tokens[place[i, :count[i]]]: (B, Z, D), zero where there are none.

        The same function as `forward`, for queries that all contexts share: W_K goes into the queries and W_V behind
        the sum, so that no token is projected; (P, D) tokens get their logits once, however many of the (B, C) places
        name them.
        """
        is_real = torch.arange(place.shape[1], device=place.device) < count[:, None]  # (B, C)
        return self.read_logits(F.embedding(place, logits), F.embedding(place, tokens), is_real)

    def read_logits(self, logits: Tensor, tokens: Tensor, is_real: Tensor) -> Tensor:
        """Does the same for the (B, C, Z H) logits of (B, C, D) tokens, of which some are real."""
        logits = logits.masked_fill(~is_real[..., None], torch.finfo(logits.dtype).min)
        weight = logits.softmax(1) * is_real[..., None]  # (B, C, Z H): all zero for an empty context
        weight = dropout(weight, self.dropout, self.training)
        read = weight.transpose(1, 2) @ tokens  # (B, Z H, D)
        read = self._values(read.unflatten(1, (-1, self.heads)), weight.sum(1))  # (B, Z, D)
        return self.out(read) * is_real.any(1)[:, None, None]

    def _folded(self, query: Tensor) -> Tensor:
        """Returns each head's query, scaled and taken through its keys' matrix: (Z, H, D)."""
        per_head = self.query(query).unflatten(-1, (self.heads, -1))  # (Z, H, D/H)
        key = self.key.weight.unflatten(0, (self.heads, -1))  # (H, D/H, D)
        return torch.einsum("zhk,hkd->zhd", per_head, key) * per_head.shape[-1] ** -0.5

    def _values(self, read: Tensor, total: Tensor) -> Tensor:
        """Applies W_V to (B, Z, H, D) weighted sums of tokens, whose weights sum to `total` (B, Z H): (B, Z, D)."""
        value = self.value.weight.unflatten(0, (self.heads, -1))  # (H, D/H, D)
        bias = self.value.bias.unflatten(0, (self.heads, -1))  # (H, D/H)
        out = torch.einsum("bzhd,hkd->bzhk", read, value)
        return (out + total.unflatten(1, read.shape[1:3])[..., None] * bias).flatten(2)
