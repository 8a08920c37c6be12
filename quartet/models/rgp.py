"""RGP, the Relational Graph Perceiver: latents read a seed's neighbourhood and recent links, and the seed reads them.

It has no public code. This follows the QUARTET paper's reproduction (appendix A.4.4): the components of a token are
summed, not mixed, with the number of a row's links in the context (its centrality) where QUARTET has a position.
Feed-forward layers are QUARTET's; those of the authors' earlier models are gated and twice as wide.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quartet.config import ModelConfig
from quartet.models.branches import LatentStack
from quartet.models.layers.attention import CrossAttention, FeedForward
from quartet.models.layers.dropout import Dropout
from quartet.models.layers.encoders import TimeEncoder
from quartet.models.layers.table_encoder import encode_rows, table_encoders
from quartet.tokens import Part, TokenBatch
from quartet.training import ModelSchema, PartModel, RowShared, Shared

SPREAD = 0.02  # of embeddings and latents at the start


@dataclass(frozen=True, eq=False)
class RGPShared(Shared):
    """What RGP computes once for a batch."""

    temporal: Tensor  # (T, Z, D) latents of each distinct time


class RGP(PartModel):
    """Latents read local tokens and temporal tokens, go through one stack together, and the seed reads them."""

    def __init__(self, config: ModelConfig, schema: ModelSchema) -> None:
        super().__init__(config, schema)
        self.tables = table_encoders(config, schema)
        self.tokens = SummedTokens(config, schema)
        self.latents = nn.Parameter(SPREAD * torch.randn(config.num_latents, config.width))
        self.structure, self.temporal, self.decoder = (Reader(config) for _ in range(3))
        self.stack = LatentStack(config)
        self.readout = nn.Linear(config.width, schema.num_outputs)

    def share(self, batch: TokenBatch) -> RGPShared:
        rows = self.tokens.rows(encode_rows(self.tables, batch), batch.row_type)  # (R, D)
        tokens = self.tokens.temporal(rows, batch.context_row, batch.context_age)  # (P, D)
        latents = self.temporal.read_places(self.latents, tokens, batch.temporal, batch.num_temporal)
        return RGPShared(RowShared(rows), latents)

    def answer(self, shared: RGPShared, batch: TokenBatch, part: Part) -> Tensor:
        tokens = self.tokens.local(shared.local.row, part)  # (b, K, D)
        near = self.structure.read_shares(self.latents, tokens, part.share)  # (b, Z, D)
        lately = shared.temporal[batch.time_index[part.seed]]  # (b, Z, D)
        latents = self.stack(torch.cat([near, lately], 1))  # (b, 2 Z, D)
        return self.readout(self.decoder.read_alone(tokens[:, 0], latents))  # (b, outputs)


class SummedTokens(nn.Module):
    """LN(h_feat) + h_type + h_centrality + h_hop + h_time; temporal tokens have a hop of their own and no links."""

    def __init__(self, config: ModelConfig, schema: ModelSchema) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.types = nn.Embedding(len(schema.tables), config.width)
        self.hop = nn.Embedding(schema.num_hops + 1, config.width)
        for embedding in (self.types, self.hop):
            nn.init.normal_(embedding.weight, std=SPREAD)
        self.centrality = nn.Linear(1, config.width, bias=False)  # every hop has a bias already
        self.time = TimeEncoder(config)

    def rows(self, feature: Tensor, row_type: Tensor) -> Tensor:
        """What depends on a row alone: (R, D)."""
        return self.norm(feature) + self.types(row_type)

    def local(self, rows: Tensor, part: Part) -> Tensor:
        centrality = self.centrality(num_links(part).log1p()[..., None])
        place = self.hop(part.hop) + self.time(part.age)
        return F.embedding(part.row, rows) + centrality + place  # (b, K, D)

    def temporal(self, rows: Tensor, row: Tensor, age: Tensor) -> Tensor:
        return F.embedding(row, rows) + self.hop.weight[-1] + self.time(age)  # (P, D)


def num_links(part: Part) -> Tensor:
    """How many links of each token lead to other tokens of its context: (b, K)."""
    none = torch.zeros_like(part.share).flatten()
    # Each link stands in `edge` once for each of its ends.
    return none.index_add(0, part.edge[1], none.new_ones(part.edge.shape[1])).view_as(part.share)


class Reader(nn.Module):
    """A pre-LN cross-attention block: q + CrossAttn(LN(q), LN(C)), then x + FFN(LN(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, (share, _) = config.width, config.dropouts
        self.norm_query, self.norm_context, self.norm_feed = (nn.LayerNorm(width) for _ in range(3))
        self.attention = CrossAttention(config)
        self.dropout = Dropout(share)
        self.feed = FeedForward(config)

    def read_places(self, query: Tensor, tokens: Tensor, place: Tensor, count: Tensor) -> Tensor:
        """(Z, D) queries read the contexts tokens[place[i, :count[i]]] of (P, D) tokens: (contexts, Z, D)."""
        tokens = self.norm_context(tokens)
        logits = self.attention.logits(self.norm_query(query), tokens)
        return self._finish(query, self.attention.read_places(logits, tokens, place, count))

    def read_shares(self, query: Tensor, tokens: Tensor, share: Tensor) -> Tensor:
        """(Z, D) queries read (b, K, D) contexts whose tokens stand `share` times each, or not at all: (b, Z, D)."""
        tokens = self.norm_context(tokens)
        logits = self.attention.logits(self.norm_query(query), tokens) + share.log()[..., None]  # (b, K, Z H)
        return self._finish(query, self.attention.read_logits(logits, tokens, share > 0))

    def read_alone(self, query: Tensor, context: Tensor) -> Tensor:
        """(b, D) queries read (b, C, D) contexts, one query each: (b, D)."""
        read = self.attention.read_alone(self.norm_query(query), self.norm_context(context))
        return self._finish(query, read)

    def _finish(self, query: Tensor, read: Tensor) -> Tensor:
        tokens = query + self.dropout(read)
        return tokens + self.feed(self.norm_feed(tokens))
