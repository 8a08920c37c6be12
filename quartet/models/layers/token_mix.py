"""Tokens: the components of rows, types, hops, times and positions mixed (eq. 22), nothing computed twice.

The components that depend on a row alone (its features and its type) go through the mix's first matrix once for each
distinct row; hops, times and positions have few inputs, and theirs are one narrow matrix together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quartet.config import ModelConfig
from quartet.models.layers.encoders import Mix, PositionEncoder, TimeEncoder, normalised
from quartet.tokens import SeedGroup, TokenBatch
from quartet.training import Encoded, ModelSchema

_FEATURE, _TYPE, _TIME, _HOP, _POSITION = range(5)  # the components, in the order of their blocks


class TokenMatrices(NamedTuple):
    """The matrices that all local tokens of a batch share."""

    narrow: Tensor  # (M, inputs) of times, positions and hops side by side
    time_form: Tensor
    position_form: Tensor


@dataclass(frozen=True, eq=False)
class EncodedTokens(Encoded):
    """Local tokens but for what a group adds: `rows` (R, M) are features, type and every bias inside the mix."""

    matrices: TokenMatrices | None = None
    branches: tuple[Any, ...] = ()  # what each branch of the network encodes


class LocalTokens(nn.Module):
    """h_token of local tokens: features, type, hop, time and position."""

    def __init__(self, config: ModelConfig, schema: ModelSchema) -> None:
        super().__init__()
        self.types = nn.Embedding(len(schema.tables), config.width)
        self.time = TimeEncoder(config)
        self.hop = nn.Embedding(schema.num_hops, config.width)
        self.position = PositionEncoder(config)
        self.mix = Mix(5, config)

    def encode(self, rows: Tensor, batch: TokenBatch) -> EncodedTokens:
        ages, positions = (
            self.mix.fold(_TIME, self.time.linear),
            self.mix.fold(_POSITION, self.position.linear),
        )
        hops = self.mix.block(_HOP, self.hop.weight)  # (hops, M)
        inside = _rows_inside(self.mix, rows, self.types, batch, ages.bias + positions.bias)
        narrow = torch.cat([ages.weight, positions.weight, hops.T], 1)
        matrices = TokenMatrices(narrow, ages.form, positions.form)
        return EncodedTokens(inside, matrices)

    def forward(self, encoded: EncodedTokens, group: SeedGroup) -> Tensor:
        matrices = encoded.matrices
        assert matrices is not None
        narrow = torch.cat(
            [
                normalised(self.time.inputs(group.age), matrices.time_form),
                normalised(self.position.inputs(group.noise, group.edge), matrices.position_form),
                F.one_hot(group.hop, self.hop.num_embeddings).to(group.age.dtype),
            ],
            -1,
        )  # (b, K, inputs)
        return self.mix.finish(_added(encoded.rows, group.row, narrow, matrices.narrow))  # (b, K, D)


class GlobalTokens(nn.Module):
    """Tokens of temporal and collaborative contexts: features, type and time; no hop, no position."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.mix = Mix(3, config)

    def forward(self, rows: Tensor, local: LocalTokens, batch: TokenBatch) -> Tensor:
        """Returns the (P, D) tokens; types and times are encoded as those of local tokens are."""
        ages = self.mix.fold(_TIME, local.time.linear)
        inside = _rows_inside(self.mix, rows, local.types, batch, ages.bias)  # (R, M)
        narrow = normalised(local.time.inputs(batch.global_age), ages.form)  # (P, inputs)
        return self.mix.finish(_added(inside, batch.global_row, narrow, ages.weight))  # (P, D)


class NoTokens(nn.Module):
    """Takes the place of `LocalTokens` where no branch reads them: these have no numbers."""

    def encode(self, rows: Tensor, batch: TokenBatch) -> EncodedTokens:  # noqa: ARG002
        return EncodedTokens(rows[:, :0])

    def forward(self, encoded: EncodedTokens, group: SeedGroup) -> Tensor:
        return encoded.rows.new_empty(*group.row.shape, 0)  # (b, K, 0)


class NoGlobalTokens(nn.Module):
    """Takes the place of `GlobalTokens` where no branch reads them."""

    def forward(self, rows: Tensor, local: nn.Module, batch: TokenBatch) -> Tensor:  # noqa: ARG002
        return rows[:0]


def _rows_inside(mix: Mix, rows: Tensor, types: nn.Embedding, batch: TokenBatch, bias: Tensor) -> Tensor:
    """Returns what features and types of rows add inside a mix, with its bias and another: (R, M)."""
    of_type = mix.block(_TYPE, types.weight) + mix.bias + bias  # (N, M)
    return _added(of_type, batch.row_type, mix.norms[_FEATURE](rows), mix.blocks[_FEATURE])


def _added(rows: Tensor, row: Tensor, narrow: Tensor, weight: Tensor) -> Tensor:
    """Returns rows[row] + weight @ narrow, the sum made while multiplying: (..., M)."""
    sums = torch.addmm(F.embedding(row.flatten(), rows), narrow.flatten(0, -2), weight.T)
    return sums.unflatten(0, row.shape)
