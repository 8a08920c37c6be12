"""What every model here has in common: it computes once what a batch shares, and answers part by part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from quartet.config import ModelConfig
from quartet.features import TableLayout
from quartet.tokens import Part, TokenBatch


@dataclass(frozen=True)
class ModelSchema:
    """What a model must know of the data: its tables, the hop bins of the sampler, and the size of the answer."""

    tables: tuple[TableLayout, ...]
    num_hops: int
    num_outputs: int = 1
    links: tuple[tuple[int, int], ...] = ()  # the places of child and parent table, each pair once

    @property
    def sketch_size(self) -> int:
        return 4 + len(self.tables)


class RowShared(NamedTuple):
    """What a model that reads rows alone computes of them once."""

    row: Tensor  # (R, D)


@dataclass(frozen=True, eq=False)
class Shared:
    """What is computed once for a batch, whatever the number of its parts.

    `local` is a named tuple whose `row` has a line for each distinct row of the batch: a part is given those of its
    own rows, with `Part.row` naming places among them.
    """

    local: Any


class PartModel(nn.Module):
    """A model: `model(batch)` gives (B, outputs) logits or standardised values."""

    readout: nn.Linear

    def __init__(self, config: ModelConfig, schema: ModelSchema) -> None:
        super().__init__()
        self.config, self.schema = config, schema

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def forward(self, batch: TokenBatch) -> Tensor:
        shared = self.share(batch)
        answers = torch.cat([self.answer(shared, batch, part) for part in batch.parts])
        return torch.empty_like(answers).index_copy(0, batch.order, answers)  # (B, outputs)

    def share(self, batch: TokenBatch) -> Any:
        """What is computed once for a batch: a `Shared`."""
        raise NotImplementedError

    def answer(self, shared: Any, batch: TokenBatch, part: Part) -> Tensor:
        """The answers of the seeds of one part: (b, outputs)."""
        raise NotImplementedError

    def observe(self, sketch: Tensor) -> None:
        """Takes notice of the sketches of a whole batch in training, before its parts (`TokenBatch.whole_sketch`)."""

    def settle(self, gathered: Callable[[Tensor], Tensor]) -> None:
        """Learns what no gradient teaches, after a step; `gathered` joins a tensor with those of other processes."""
