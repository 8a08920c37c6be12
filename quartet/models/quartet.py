"""Quartet: the wiring of the paper's Figure 2, and the fusion (section 2.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quartet.config import ModelConfig
from quartet.errors import UsageError
from quartet.models.branches import (
    DirectAttention,
    FeatureBranch,
    Latents,
    LatentStack,
    Readable,
    SeedRead,
    TopologyBranch,
)
from quartet.models.layers.attention import FeedForward
from quartet.models.layers.encoders import TimeEncoder
from quartet.models.layers.table_encoder import encode_rows, table_encoders
from quartet.models.layers.token_mix import ContextTokens, LocalShared, LocalTokens
from quartet.models.local import LocalModule
from quartet.tokens import Part, TokenBatch
from quartet.training import ModelSchema, PartModel, Shared


class PerceiverShared(NamedTuple):
    """What the perceivers compute once for a batch."""

    temporal: Tensor | None  # (T, Z, D) latents of each distinct time
    collab: Readable | None  # the tokens of collaborative contexts, as their latents read them


@dataclass(frozen=True, eq=False)
class QuartetShared(Shared):
    """What Quartet computes once for a batch. Absent branches are None."""

    feature: Tensor | None  # (B, D) X_feat
    topology: Tensor | None  # (B, D) X_struct
    perceivers: PerceiverShared | None
    context: Tensor | None  # (P, D) tokens of both contexts, if there are no perceivers


class Quartet(PartModel):
    """The model: `Quartet(config, schema)(batch)` gives (B, outputs) logits or standardised values.

    Names of tables and columns never name a module: tables are told apart by their order.
    """

    def __init__(self, config: ModelConfig, schema: ModelSchema) -> None:
        super().__init__(config, schema)
        if not config.local and not config.branches:
            raise UsageError("C02", "a model without local module and without branches reads nothing")
        width = config.width
        self.has_context = config.has("temporal") or config.has("collab")
        self.has_tokens = config.local or self.has_context
        if self.has_tokens or config.has("feature"):  # a sketch needs no features
            self.tables = table_encoders(config, schema)
        if self.has_tokens:
            self.types = nn.Embedding(len(schema.tables), width)
            self.time = TimeEncoder(config)
            self.tokens = LocalTokens(schema.num_hops, config)
        self.local = LocalModule(config) if config.local else None
        self.feature = FeatureBranch(config) if config.has("feature") else None
        self.topology = TopologyBranch(schema.sketch_size, config) if config.has("topology") else None
        self.perceivers = Perceivers(config) if self.has_context and config.perceiver else None
        self.direct = Direct(config) if self.has_context and not config.perceiver else None
        self.context_tokens = ContextTokens(config) if self.has_context else None
        self.fusion = Fusion(config.local + len(config.branches), config)
        self.readout = nn.Linear(width, schema.num_outputs)

    def share(self, batch: TokenBatch) -> QuartetShared:
        """Features of distinct rows, context tokens, temporal latents and codebooks: once for the batch."""
        rows = self._rows(batch)  # (R, D)
        context = self._context(batch, rows)  # (P, D)
        return QuartetShared(
            local=self._local(batch, rows) if self.has_tokens else None,
            feature=self.feature(F.embedding(batch.seed_row, rows)) if self.feature else None,
            topology=self.topology(batch.sketch, batch.whole_sketch) if self.topology else None,
            perceivers=self.perceivers.share(context, batch) if self.perceivers else None,
            context=context if self.direct else None,
        )

    def observe(self, sketch: Tensor) -> None:
        if self.topology is not None:
            self.topology.observe(sketch)

    def _rows(self, batch: TokenBatch) -> Tensor:
        """h_feat of the batch's distinct rows: (R, D), or none where nothing reads them."""
        if not self.has_tokens and self.feature is None:
            return batch.sketch.new_empty(0, self.config.width)
        return encode_rows(self.tables, batch)

    def _local(self, batch: TokenBatch, rows: Tensor) -> LocalShared:
        return self.tokens.share(rows, self.types.weight, batch.row_type, self.time)

    def _context(self, batch: TokenBatch, rows: Tensor) -> Tensor:
        """The tokens of temporal and collaborative contexts: (P, D), or none where nothing reads them."""
        if self.context_tokens is None:
            return rows[:0]
        return self.context_tokens(
            rows, self.types.weight, batch.row_type, self.time, batch.context_row, batch.context_age
        )

    def answer(self, shared: QuartetShared, batch: TokenBatch, part: Part) -> Tensor:
        parts = []
        if shared.local is not None:
            tokens = self.tokens(shared.local, self.time, part)  # (b, K, D)
            seed = tokens[:, 0]
        if self.local is not None:
            parts.append(self.local(tokens, part.share.log()))
        parts += [x[part.seed] for x in (shared.topology, shared.feature) if x is not None]
        if self.perceivers is not None:
            parts += self.perceivers(seed, shared.perceivers, batch, part)
        if self.direct is not None:
            parts += self.direct(seed, shared.context, batch, part)
        return self.readout(self.fusion(parts))  # (b, outputs)


class Perceivers(nn.Module):
    """The temporal and the collaborative branch: own latents, one stack of layers, a read each (eq. 5 to 7)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.num_latents = config.num_latents
        self.temporal = Latents(config) if config.has("temporal") else None
        self.collab = Latents(config) if config.has("collab") else None
        self.stack = LatentStack(config)
        self.seed = nn.Sequential(nn.LayerNorm(config.width), nn.Linear(config.width, config.width))
        self.reads = nn.ModuleList(
            SeedRead(config) for latents in (self.collab, self.temporal) if latents is not None
        )

    def share(self, context: Tensor, batch: TokenBatch) -> PerceiverShared:
        """What depends on context tokens and times alone. Alone, temporal latents go through the stack here."""
        temporal = collab = None
        if self.temporal is not None:
            temporal = self.temporal(self.temporal.share(context), batch.temporal, batch.num_temporal)
            temporal = temporal if self.collab is not None else self.stack(temporal)  # (T, Z, D)
        if self.collab is not None:  # the tokens of collaborative contexts stand before the others
            collab = self.collab.share(context[: batch.num_peers])
        return PerceiverShared(temporal, collab)

    def forward(self, seed: Tensor, shared: PerceiverShared, batch: TokenBatch, part: Part) -> list[Tensor]:
        """h_collab and h_temp of the seeds of a part, each (b, D)."""
        query = self.seed(seed)  # (b, D)
        blocks = []
        if self.collab is not None:
            blocks.append(self.collab(shared.collab, part.collab, part.num_collab))
        if shared.temporal is not None:
            blocks.append(shared.temporal[batch.time_index[part.seed]])
        if self.collab is not None:
            blocks = list(self.stack(torch.cat(blocks, 1)).split(self.num_latents, 1))  # each (b, Z, D)
        return [read(query, block) for read, block in zip(self.reads, blocks, strict=True)]


class Direct(nn.Module):
    """Both branches without perceivers: each sequence goes through the same layers on its own."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.attention = DirectAttention(config)
        self.seed = nn.Sequential(nn.LayerNorm(config.width), nn.Linear(config.width, config.width))

    def forward(self, seed: Tensor, context: Tensor, batch: TokenBatch, part: Part) -> list[Tensor]:
        query, read = self.seed(seed), []
        if self.config.has("collab"):
            read.append(self.attention(query, context, part.collab, part.num_collab))
        if self.config.has("temporal"):
            time = batch.time_index[part.seed]
            read.append(self.attention(query, context, batch.temporal[time], batch.num_temporal[time]))
        return read


class Fusion(nn.Module):
    """FFN(W_proj [h_local | LN(X_struct) | LN(X_feat) | LN(h_collab) | LN(h_temp)]), eq. 8; LN on every part."""

    def __init__(self, parts: int, config: ModelConfig) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(config.width) for _ in range(parts))
        self.project = nn.Linear(parts * config.width, config.width)
        self.feed = FeedForward(config)

    def forward(self, parts: list[Tensor]) -> Tensor:
        normed = [norm(part) for norm, part in zip(self.norms, parts, strict=True)]
        return self.feed(self.project(torch.cat(normed, -1)))  # (b, D)
