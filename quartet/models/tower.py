"""TowerAlone: a network that reads relational columns and nothing else, many times faster than one that reads rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quartet.config import ModelConfig
from quartet.errors import UsageError
from quartet.listener import SILENT, Listener
from quartet.machine import Precision, autocast
from quartet.models.layers.readout import Tower
from quartet.tasks import Seeds
from quartet.tokens import SeedGroup, TokenBatch
from quartet.training import Encoded, ModelSchema, Network, View

_BATCH = 512  # seeds: a fixed number, because it decides the last bits


class TowerAlone(Network):
    """The tower of `layers/readout.py` by itself: k heads that share their weights, in the manner of TabM."""

    def __init__(self, config: ModelConfig, schema: ModelSchema) -> None:
        super().__init__(config, schema)
        if not schema.columns:
            raise UsageError("C02", "a tower without heads reads nothing", "give tower a number above 0")
        self.readout = Tower(config, schema, is_alone=True)

    def encode(self, batch: TokenBatch) -> Encoded:
        return Encoded(batch.columns.new_zeros(len(batch.row_type), 0))  # it reads no rows

    def forward_group(self, encoded: Encoded, batch: TokenBatch, group: SeedGroup) -> Tensor:  # noqa: ARG002
        return self.readout(None, batch.columns[group.seed])  # (b, outputs)

    def logits(self, view: View, seeds: Seeds, listener: Listener = SILENT) -> NDArray[np.float64]:
        """Returns the (S, outputs) logits of seeds, for which no context is sampled."""
        precision = view.recipe.precision
        parts = [
            self.raw(matrix, precision) for matrix in view.matrices(seeds, self.schema.columns, listener)
        ]
        return np.concatenate([np.empty((0, self.schema.num_outputs)), *parts])

    def embeddings(self, view: View, seeds: Seeds, listener: Listener = SILENT) -> NDArray[np.float64]:
        precision, vector = view.recipe.precision, self.readout.vector
        matrices = view.matrices(seeds, self.schema.columns, listener)
        parts = [self.raw(matrix, precision, vector) for matrix in matrices]
        return np.concatenate([np.empty((0, self.config.width)), *parts])

    def raw(
        self,
        matrix: NDArray[np.float32],
        precision: Precision = "auto",
        ask: Callable[[None, Tensor], Tensor] | None = None,
    ) -> NDArray[np.float64]:
        """Returns the (S, outputs) logits of rows of columns, or what else is asked of the readout."""
        device = self.readout.bias.device
        self.eval()
        with torch.inference_mode(), autocast(device.type, precision):
            parts = [
                (ask or self.readout)(None, rows.to(device)).double().cpu().numpy()
                for rows in torch.from_numpy(matrix).split(_BATCH)
                if len(rows)
            ]
        return np.concatenate(parts or [np.empty((0, self.schema.num_outputs))])
