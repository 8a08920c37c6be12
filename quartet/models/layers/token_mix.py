"""Tokens: the components of rows, types, hops, times and positions mixed (eq. 22), nothing computed twice.

What depends on a row alone (its features and its type) goes through the mix's first matrix once for each distinct
row; hops, times and positions have few inputs, and theirs are one narrow matrix together.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quartet.config import ModelConfig
from quartet.models.layers.encoders import Mix, PositionEncoder, TimeEncoder, normalised
from quartet.tokens import Part

FEATURE, TYPE, TIME, HOP, POSITION = range(5)  # the components, in the order of their blocks


class LocalShared(NamedTuple):
    """What all local tokens of a batch share."""

    row: Tensor  # (R, M) features, type and every bias
    narrow: Tensor  # (M, inputs) of times, positions and hops side by side
    time_form: Tensor
    position_form: Tensor


class LocalTokens(nn.Module):
    """h_token of local tokens: features, type, hop, time and position."""

    def __init__(self, num_hops: int, config: ModelConfig) -> None:
        super().__init__()
        self.hop = nn.Embedding(num_hops, config.width)
        self.position = PositionEncoder(config)
        self.mix = Mix(5, config)

    def share(self, feature: Tensor, of_type: Tensor, row_type: Tensor, time: TimeEncoder) -> LocalShared:
        ages, positions = self.mix.fold(TIME, time.linear), self.mix.fold(POSITION, self.position.linear)
        hops = self.mix.block(HOP, self.hop.weight)  # (hops, M)
        row = row_inside(self.mix, feature, of_type, row_type)
        return LocalShared(
            row=row + ages.bias + positions.bias,
            narrow=torch.cat([ages.weight, positions.weight, hops.T], 1),
            time_form=ages.form,
            position_form=positions.form,
        )

    def forward(self, shared: LocalShared, time: TimeEncoder, part: Part) -> Tensor:
        narrow = torch.cat(
            [
                normalised(time.inputs(part.age), shared.time_form),
                normalised(self.position.inputs(part.noise, part.edge), shared.position_form),
                F.one_hot(part.hop, self.hop.num_embeddings).to(part.age.dtype),
            ],
            -1,
        )  # (b, K, inputs)
        return self.mix.finish(added(shared.row, part.row, narrow, shared.narrow))  # (b, K, D)


class ContextTokens(nn.Module):
    """The tokens of temporal and collaborative contexts: features, type and time; no hop, no position."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.mix = Mix(3, config)

    def forward(
        self,
        feature: Tensor,
        of_type: Tensor,
        row_type: Tensor,
        time: TimeEncoder,
        row: Tensor,
        age: Tensor,
    ) -> Tensor:
        ages = self.mix.fold(TIME, time.linear)
        rows = row_inside(self.mix, feature, of_type, row_type) + ages.bias  # (R, M)
        narrow = normalised(time.inputs(age), ages.form)  # (P, inputs)
        return self.mix.finish(added(rows, row, narrow, ages.weight))  # (P, D)


def row_inside(mix: Mix, feature: Tensor, of_type: Tensor, row_type: Tensor) -> Tensor:
    """What features (R, D) and types (N, D) of rows add inside a mix, with its bias: (R, M)."""
    return mix.block(FEATURE, feature) + F.embedding(row_type, mix.block(TYPE, of_type) + mix.bias)


def added(rows: Tensor, row: Tensor, narrow: Tensor, weight: Tensor) -> Tensor:
    """rows[row] + weight @ narrow, the sum made while multiplying: (..., M)."""
    return torch.addmm(F.embedding(row.flatten(), rows), narrow.flatten(0, -2), weight.T).unflatten(
        0, row.shape
    )
