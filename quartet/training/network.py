"""The base class of every network: it encodes a batch once and then answers one group of seeds after another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from quartet.config import ModelConfig
from quartet.features import TableLayout
from quartet.tokens import SeedGroup, TokenBatch


@dataclass(frozen=True)
class ModelSchema:
    """The facts about the data that decide a network's parameters."""

    tables: tuple[TableLayout, ...]
    num_hops: int  # hop bins of the local sampler
    num_outputs: int = 1
    links: tuple[tuple[int, int], ...] = ()  # the places of child and parent table, each pair once

    @property
    def sketch_size(self) -> int:
        return 4 + len(self.tables)


@dataclass(frozen=True, eq=False)
class Encoded:
    """The result of encoding a batch once. Subclasses add what else their network encodes.

    `backward_by_group` hands each group only the lines of its own rows, and `SeedGroup.row` then names places among
    those.
    """

    rows: Tensor  # (R, ...) a line for each distinct row of the batch


class Network(nn.Module):
    """A network: `network(batch)` gives (B, outputs) logits or standardised values."""

    readout: nn.Linear

    def __init__(self, config: ModelConfig, schema: ModelSchema) -> None:
        super().__init__()
        self.config, self.schema = config, schema

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def forward(self, batch: TokenBatch) -> Tensor:
        encoded = self.encode(batch)
        logits = torch.cat([self.forward_group(encoded, batch, group) for group in batch.groups])
        return torch.empty_like(logits).index_copy(0, batch.order, logits)  # (B, outputs)

    def encode(self, batch: TokenBatch) -> Any:
        """Computes once, as an `Encoded`, what all groups of a batch share."""
        raise NotImplementedError

    def forward_group(self, encoded: Any, batch: TokenBatch, group: SeedGroup) -> Tensor:
        """Returns the (b, outputs) logits of the seeds of one group."""
        raise NotImplementedError

    def update_batch_stats(self, sketch: Tensor) -> None:
        """Updates running statistics in training, once a step: `sketch` is that of all its seeds."""

    def after_step(self, gathered: Callable[[Tensor], Tensor]) -> None:
        """Updates what no gradient reaches; `gathered` joins a tensor with those of other processes."""
