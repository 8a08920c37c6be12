"""The branches with a context of their own (section 2.5): what happened lately, and the seed's look-alikes.

Latents read each context and go through one stack of layers together, and the seed reads them (eq. 5 to 7); in the
ablation without perceivers, the seed and its context go through self-attention instead. Another context is another
class of latents here and a row of `_CONTEXTS`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quartet.config import ModelConfig
from quartet.models.branches import BatchInputs, Branch, GroupInputs
from quartet.models.layers.attention import CrossAttention, SelfAttentionBlock
from quartet.training import ModelSchema

SEED = "feature:seed"


class Readable(NamedTuple):
    """Global tokens as latents read them."""

    tokens: Tensor  # (P, D)
    logits: Tensor  # (P, Z H)


class Latents(nn.Module):
    """Z_b = Z_0 + CrossAttn(Z_0, C_b), eq. 5: learned latents read a context."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.randn(config.num_latents, config.width) * 0.02)
        self.norm_start, self.norm_context = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.attention = CrossAttention(config)

    def readable(self, tokens: Tensor) -> Readable:
        """Prepares (P, D) tokens, whichever contexts name them."""
        tokens = self.norm_context(tokens)
        return Readable(tokens, self.attention.logits(self.norm_start(self.start), tokens))

    def read(self, readable: Readable, place: Tensor, count: Tensor) -> Tensor:
        """Returns the latents of each context tokens[place[i, :count[i]]]: (contexts, Z, D)."""
        return self.start + self.attention.read_places(readable.logits, readable.tokens, place, count)


class TemporalLatents(Latents):
    """Latents of the newest rows at each distinct time, computed once for a batch."""

    @staticmethod
    def places(inputs: GroupInputs) -> tuple[Tensor, Tensor]:
        """Returns for each seed of a group the (b, C) places of its context's tokens, and (b,) how many are real."""
        time = inputs.batch.time_index[inputs.group.seed]
        return inputs.batch.temporal[time], inputs.batch.num_temporal[time]

    def encode(self, inputs: BatchInputs) -> Tensor:
        batch = inputs.batch
        return self.read(self.readable(inputs.global_tokens), batch.temporal, batch.num_temporal)  # (T, Z, D)

    def forward(self, inputs: GroupInputs, encoded: Tensor) -> Tensor:
        return encoded[inputs.batch.time_index[inputs.group.seed]]  # (b, Z, D)


class CollabLatents(Latents):
    """Latents of each seed's look-alikes, whose tokens stand before the other global tokens."""

    @staticmethod
    def places(inputs: GroupInputs) -> tuple[Tensor, Tensor]:
        return inputs.group.collab, inputs.group.num_collab

    def encode(self, inputs: BatchInputs) -> Readable:
        return self.readable(inputs.global_tokens[: inputs.batch.num_collab_tokens])

    def forward(self, inputs: GroupInputs, encoded: Readable) -> Tensor:
        return self.read(encoded, *self.places(inputs))  # (b, Z, D)


# In the order in which latents are made and encoded; they are joined, and their views named, in the reverse order.
_CONTEXTS: dict[Any, type[TemporalLatents | CollabLatents]] = {
    "temporal": TemporalLatents,
    "collab": CollabLatents,
}


def _contexts(config: ModelConfig) -> tuple[str, ...]:
    return tuple(name for name in reversed(_CONTEXTS) if config.has(name))


class LatentStack(nn.Sequential):
    """The self-attention layers that all latents of a seed go through together, eq. 6."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(*(SelfAttentionBlock(config) for _ in range(config.latent_layers)))


class SeedRead(nn.Module):
    """h_b = CrossAttn(q_seed, Z_b), eq. 7: the seed reads its latents."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.attention = CrossAttention(config)

    def forward(self, query: Tensor, latents: Tensor) -> Tensor:
        return self.attention.read_alone(query, self.norm(latents))  # (b, D)


class Perceivers(Branch):
    """h_collab and h_temp: latents of their own, one stack of layers, a read each (eq. 5 to 7)."""

    latents: dict[str, TemporalLatents | CollabLatents]

    def __init__(self, config: ModelConfig, schema: ModelSchema) -> None:
        super().__init__(config, schema)
        self.latents = nn.ModuleDict(  # type: ignore[assignment]
            {name: kind(config) for name, kind in _CONTEXTS.items() if config.has(name)}
        )
        self.stack = LatentStack(config)
        self.seed = nn.Sequential(nn.LayerNorm(config.width), nn.Linear(config.width, config.width))
        self.reads = nn.ModuleDict({name: SeedRead(config) for name in _contexts(config)})
        # Temporal latents alone do not depend on the seed: they go through the stack once for each time.
        self.is_of_times = not config.has("collab")

    @staticmethod
    def views(config: ModelConfig) -> tuple[str, ...]:
        return _contexts(config) if config.perceiver else ()

    def encode(self, inputs: BatchInputs) -> tuple[Any, ...]:
        encoded = tuple(latents.encode(inputs) for latents in self.latents.values())
        return tuple(map(self.stack, encoded)) if self.is_of_times else encoded

    def forward(self, inputs: GroupInputs, encoded: Any) -> dict[str, Tensor]:
        """Returns the latents of each context, and the seed that will read them: they meet in the stack.

        What asks is the seed's own row, and counts with the views of it.
        """
        latents = zip(reversed(self.latents.items()), reversed(encoded), strict=True)
        blocks = {name: own(inputs, prepared) for (name, own), prepared in latents}  # each (b, Z, D)
        return blocks | {SEED: self.seed(inputs.seed)}  # (b, D)

    def finish(self, read: dict[str, Tensor]) -> dict[str, Tensor]:
        blocks = [read[name] for name in self.reads]
        if not self.is_of_times:
            blocks = list(self.stack(torch.cat(blocks, 1)).split(blocks[0].shape[1], 1))
        reads = zip(self.reads.items(), blocks, strict=True)
        return {name: reader(read[SEED], block) for (name, reader), block in reads}


class DirectAttention(Branch):
    """h_collab and h_temp without perceivers: self-attention of the seed with each context; the seed comes back.

    Both sequences go through the same layers, each on its own.
    """

    def __init__(self, config: ModelConfig, schema: ModelSchema) -> None:
        super().__init__(config, schema)
        self.names = _contexts(config)
        self.blocks = LatentStack(config)
        self.norm = nn.LayerNorm(config.width)
        self.seed = nn.Sequential(nn.LayerNorm(config.width), nn.Linear(config.width, config.width))

    @staticmethod
    def views(config: ModelConfig) -> tuple[str, ...]:
        return () if config.perceiver else _contexts(config)

    def encode(self, inputs: BatchInputs) -> Tensor:
        return inputs.global_tokens

    def forward(self, inputs: GroupInputs, encoded: Any) -> dict[str, Tensor]:
        query = self.seed(inputs.seed)  # (b, D)
        return {name: self._read(query, encoded, *_CONTEXTS[name].places(inputs)) for name in self.names}

    def _read(self, query: Tensor, tokens: Tensor, place: Tensor, count: Tensor) -> Tensor:
        sequence = torch.cat([query[:, None], F.embedding(place, tokens)], 1)  # (b, 1 + C, D)
        column = torch.arange(sequence.shape[1], device=count.device)
        is_real = column <= count[:, None]  # the seed counts too
        log_count = torch.zeros_like(is_real, dtype=sequence.dtype).masked_fill(~is_real, -torch.inf)
        for block in self.blocks:
            sequence = block(sequence, log_count)
        return self.norm(sequence[:, 0])  # (b, D)
