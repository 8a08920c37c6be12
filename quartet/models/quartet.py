"""Quartet: the wiring of the paper's Figure 2, and the fusion (section 2.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from quartet.config import ModelConfig
from quartet.errors import UsageError
from quartet.models.branches import (
    BatchInputs,
    Branch,
    FeatureBranch,
    GroupInputs,
    LocalBranch,
    TopologyBranch,
)
from quartet.models.layers.attention import FeedForward
from quartet.models.layers.readout import new_readout
from quartet.models.layers.table_encoder import TableEncoders
from quartet.models.layers.token_mix import EncodedTokens, GlobalTokens, LocalTokens, NoGlobalTokens, NoTokens
from quartet.models.perceivers import DirectAttention, Perceivers
from quartet.tokens import SeedGroup, TokenBatch
from quartet.training import ModelSchema, Network

# Every branch there is, in the order in which they are made and encoded. Absent are those that give no views.
_BRANCHES: dict[str, type[Branch]] = {
    "local": LocalBranch,
    "feature": FeatureBranch,
    "topology": TopologyBranch,
    "perceivers": Perceivers,
    "direct": DirectAttention,
}
_VIEWS = ("local", "topology", "feature", "collab", "temporal")  # in the order of the fusion


class Quartet(Network):
    """The model: `Quartet(config, schema)(batch)` gives (B, outputs) logits or standardised values.

    Names of tables and columns never name a module: tables are told apart by their order.
    """

    branches: Mapping[str, Branch]

    def __init__(self, config: ModelConfig, schema: ModelSchema) -> None:
        super().__init__(config, schema)
        if not config.local and not config.branches:
            raise UsageError("C02", "a model without local module and without branches reads nothing")
        has_contexts = config.has("temporal") or config.has("collab")
        has_tokens = config.local or has_contexts
        has_rows = has_tokens or config.has("feature")  # a sketch needs no features
        self.tables = TableEncoders(schema.tables if has_rows else (), config)
        self.tokens = LocalTokens(config, schema) if has_tokens else NoTokens()
        self.branches = nn.ModuleDict(  # type: ignore[assignment]
            {name: kind(config, schema) for name, kind in _BRANCHES.items() if kind.views(config)}
        )
        self.global_tokens = GlobalTokens(config) if has_contexts else NoGlobalTokens()
        self.fusion = Fusion(config)
        self.readout = new_readout(config, schema)

    def encode(self, batch: TokenBatch) -> EncodedTokens:
        rows = self.tables(batch)  # (R, D)
        inputs = BatchInputs(batch, rows, self.global_tokens(rows, self.tokens, batch))
        encoded = self.tokens.encode(rows, batch)
        return replace(encoded, branches=tuple(branch.encode(inputs) for branch in self.branches.values()))

    def views(self, encoded: EncodedTokens, batch: TokenBatch, group: SeedGroup) -> dict[str, Tensor]:
        tokens = self.tokens(encoded, group)  # (b, K, D)
        inputs = GroupInputs(batch, group, tokens, seed=tokens[:, 0])
        read: dict[str, Tensor] = {}
        for branch, own in zip(self.branches.values(), encoded.branches, strict=True):
            read |= branch(inputs, own)
        return read

    def joined(self, views: dict[str, Tensor]) -> Tensor:
        finished: dict[str, Tensor] = {}
        for branch in self.branches.values():
            finished |= branch.finish(views)  # each (b, D)
        return self.fusion(finished)  # (b, D)

    def update_batch_stats(self, sketch: Tensor) -> None:
        for branch in self.branches.values():
            branch.update_batch_stats(sketch)


class Fusion(nn.Module):
    """FFN(W_proj [h_local | LN(X_struct) | LN(X_feat) | LN(h_collab) | LN(h_temp)]), eq. 8; LN on every view."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        wanted = {name for kind in _BRANCHES.values() for name in kind.views(config)}
        self.views = [name for name in _VIEWS if name in wanted]
        self.norms = nn.ModuleList(nn.LayerNorm(config.width) for _ in self.views)
        self.project = nn.Linear(len(self.views) * config.width, config.width)
        self.feed = FeedForward(config)

    def forward(self, views: dict[str, Tensor]) -> Tensor:
        normed = [norm(views[name]) for name, norm in zip(self.views, self.norms, strict=True)]
        return self.feed(self.project(torch.cat(normed, -1)))  # (b, D)
