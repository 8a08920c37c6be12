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
from quartet.models.layers.attention import CrossAttention, FeedForward
from quartet.models.layers.dropout import Dropout
from quartet.models.layers.encoders import TimeEncoder
from quartet.models.layers.readout import new_readout
from quartet.models.layers.table_encoder import TableEncoders
from quartet.models.perceivers import LatentStack
from quartet.tokens import SeedGroup, TokenBatch
from quartet.training import Encoded, ModelSchema, Network

_SPREAD = 0.02  # of embeddings and latents at the start


@dataclass(frozen=True, eq=False)
class RGPEncoded(Encoded):
    """Rows, and the latents of recent links."""

    temporal: Tensor  # (T, Z, D) latents of each distinct time


class RGP(Network):
    """Latents read local tokens and temporal tokens, go through one stack together, and the seed reads them."""

    def __init__(self, config: ModelConfig, schema: ModelSchema) -> None:
        super().__init__(config, schema)
        self.tables = TableEncoders(schema.tables, config)
        self.tokens = SummedTokens(config, schema)
        self.latents = nn.Parameter(_SPREAD * torch.randn(config.num_latents, config.width))
        self.structure, self.temporal, self.decoder = (Reader(config) for _ in range(3))
        self.stack = LatentStack(config)
        self.readout = new_readout(config, schema)

    def encode(self, batch: TokenBatch) -> RGPEncoded:
        rows = self.tokens.rows(self.tables(batch), batch.row_type)  # (R, D)
        tokens = self.tokens.temporal(rows, batch)  # (P, D)
        latents = self.temporal.read_places(self.latents, tokens, batch.temporal, batch.num_temporal)
        return RGPEncoded(rows, latents)

    def views(self, encoded: RGPEncoded, batch: TokenBatch, group: SeedGroup) -> dict[str, Tensor]:
        tokens = self.tokens(encoded.rows, group)  # (b, K, D)
        near = self.structure.read_counted(self.latents, tokens, group.count)  # (b, Z, D)
        lately = encoded.temporal[batch.time_index[group.seed]]  # (b, Z, D)
        return {"feature": tokens[:, 0], "local": near, "temporal": lately}

    def joined(self, views: dict[str, Tensor]) -> Tensor:
        latents = self.stack(torch.cat([views["local"], views["temporal"]], 1))  # (b, 2 Z, D)
        return self.decoder.read_alone(views["feature"], latents)  # (b, D)


class SummedTokens(nn.Module):
    """LN(h_feat) + h_type + h_centrality + h_hop + h_time; temporal tokens have a hop of their own and no links."""

    def __init__(self, config: ModelConfig, schema: ModelSchema) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.types = nn.Embedding(len(schema.tables), config.width)
        self.hop = nn.Embedding(schema.num_hops + 1, config.width)
        for embedding in (self.types, self.hop):
            nn.init.normal_(embedding.weight, std=_SPREAD)
        self.centrality = nn.Linear(1, config.width, bias=False)  # every hop has a bias already
        self.time = TimeEncoder(config)

    def rows(self, feature: Tensor, row_type: Tensor) -> Tensor:
        """Returns the components that depend on a row alone, summed: (R, D)."""
        return self.norm(feature) + self.types(row_type)

    def forward(self, rows: Tensor, group: SeedGroup) -> Tensor:
        centrality = self.centrality(num_links(group).log1p()[..., None])
        place = self.hop(group.hop) + self.time(group.age)
        return F.embedding(group.row, rows) + centrality + place  # (b, K, D)

    def temporal(self, rows: Tensor, batch: TokenBatch) -> Tensor:
        return (
            F.embedding(batch.global_row, rows) + self.hop.weight[-1] + self.time(batch.global_age)
        )  # (P, D)


def num_links(group: SeedGroup) -> Tensor:
    """Returns how many links of each token lead to other tokens of its context: (b, K)."""
    none = torch.zeros_like(group.count).flatten()
    # Each link stands in `edge` once for each of its ends.
    return none.index_add(0, group.edge[1], none.new_ones(group.edge.shape[1])).view_as(group.count)


class Reader(nn.Module):
    """A pre-LN cross-attention block: q + CrossAttn(LN(q), LN(C)), then x + FFN(LN(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, (rate, _) = config.width, config.dropouts
        self.norm_query, self.norm_context, self.norm_feed = (nn.LayerNorm(width) for _ in range(3))
        self.attention = CrossAttention(config)
        self.dropout = Dropout(rate)
        self.feed = FeedForward(config)

    def read_places(self, query: Tensor, tokens: Tensor, place: Tensor, count: Tensor) -> Tensor:
        """Lets (Z, D) queries read the contexts tokens[place[i, :count[i]]] of (P, D) tokens: (contexts, Z, D)."""
        tokens = self.norm_context(tokens)
        logits = self.attention.logits(self.norm_query(query), tokens)
        return self._finish(query, self.attention.read_places(logits, tokens, place, count))

    def read_counted(self, query: Tensor, tokens: Tensor, count: Tensor) -> Tensor:
        """Lets (Z, D) queries read (b, K, D) contexts whose tokens stand `count` times each, or not: (b, Z, D)."""
        tokens = self.norm_context(tokens)
        logits = self.attention.logits(self.norm_query(query), tokens) + count.log()[..., None]  # (b, K, Z H)
        return self._finish(query, self.attention.read_logits(logits, tokens, count > 0))

    def read_alone(self, query: Tensor, context: Tensor) -> Tensor:
        """Lets (b, D) queries read (b, C, D) contexts, one query each: (b, D)."""
        read = self.attention.read_alone(self.norm_query(query), self.norm_context(context))
        return self._finish(query, read)

    def _finish(self, query: Tensor, read: Tensor) -> Tensor:
        tokens = query + self.dropout(read)
        return tokens + self.feed(self.norm_feed(tokens))
