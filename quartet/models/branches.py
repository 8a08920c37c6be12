"""The global module (section 2.5): two codebook branches and two cross-attention branches."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quartet.config import ModelConfig
from quartet.models.layers.attention import CrossAttention, SelfAttentionBlock


class Codebook(nn.Module):
    """X_b = CrossAttn(MLP_b(q_b), E_b), eq. 3: a seed's soft membership of learned archetypes.

    Keys and values of the archetypes are projected once for all seeds: the seeds of the batch are the queries
    of one sequence.
    """

    def __init__(self, inputs: int, config: ModelConfig) -> None:
        super().__init__()
        width = config.width
        self.query = nn.Sequential(nn.Linear(inputs, width), nn.GELU(), nn.Linear(width, width))
        self.archetypes = nn.Parameter(torch.randn(config.num_archetypes, width))
        self.attention = CrossAttention(config)

    def forward(self, query: Tensor) -> Tensor:
        return self.attention(self.query(query)[None], self.archetypes[None])[0]  # (B, D)


class FeatureBranch(nn.Module):
    """The feature codebook, asked with the seed's own features: q_feat = h_feat(v_i)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.codebook = Codebook(config.width, config)

    def forward(self, feature: Tensor) -> Tensor:
        return self.codebook(self.norm(feature))  # (B, D)


class TopologyBranch(nn.Module):
    """The topology codebook, asked with the seed's structural sketch: q_struct = BN(F_sketch(v_i))."""

    def __init__(self, sketch: int, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(sketch)
        self.codebook = Codebook(sketch, config)

    def forward(self, sketch: Tensor, whole: Tensor | None = None) -> Tensor:
        """X_struct of sketches. If they are a part of a batch, `whole` are those of all of it: see `observe`."""
        return self.codebook(self._normed(sketch, whole))  # (B, D)

    def observe(self, whole: Tensor) -> None:
        """Lets the running statistics follow a batch whose parts are given to `forward`: once, not once a part."""
        if len(whole) > 1:
            self.norm(whole)

    def _normed(self, sketch: Tensor, whole: Tensor | None = None) -> Tensor:
        """One seed has no spread of its own: it is measured with what was learned so far."""
        norm = self.norm
        if whole is None and len(sketch) > 1:
            return norm(sketch)
        mean, variance = norm.get_buffer("running_mean"), norm.get_buffer("running_var")
        if self.training and whole is not None and len(whole) > 1:
            variance, mean = torch.var_mean(whole, 0, correction=0)
        return (sketch - mean) * (variance + norm.eps).rsqrt() * norm.weight + norm.bias


class Readable(NamedTuple):
    """Context tokens as latents read them."""

    tokens: Tensor  # (P, D)
    logits: Tensor  # (P, Z H)


class Latents(nn.Module):
    """Z_b = Z_0 + CrossAttn(Z_0, C_b), eq. 5: learned latents read a branch's context."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.randn(config.num_latents, config.width) * 0.02)
        self.norm_start, self.norm_context = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.attention = CrossAttention(config)

    def share(self, tokens: Tensor) -> Readable:
        """What does not depend on which of the (P, D) tokens a context names."""
        tokens = self.norm_context(tokens)
        return Readable(tokens, self.attention.logits(self.norm_start(self.start), tokens))

    def forward(self, shared: Readable, place: Tensor, count: Tensor) -> Tensor:
        """The latents of each context tokens[place[i, :count[i]]]: (contexts, Z, D)."""
        return self.start + self.attention.read_places(shared.logits, shared.tokens, place, count)


class SeedRead(nn.Module):
    """h_b = CrossAttn(q_seed, Z_b), eq. 7: the seed reads its latents."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.attention = CrossAttention(config)

    def forward(self, query: Tensor, latents: Tensor) -> Tensor:
        return self.attention.read_alone(query, self.norm(latents))  # (b, D)


class LatentStack(nn.Sequential):
    """The self-attention layers that both blocks of latents go through together, eq. 6."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(*(SelfAttentionBlock(config) for _ in range(config.latent_layers)))


class DirectAttention(nn.Module):
    """The ablation without perceivers: full self-attention of the seed with its context; the seed comes back."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.blocks = LatentStack(config)
        self.norm = nn.LayerNorm(config.width)

    def forward(self, query: Tensor, tokens: Tensor, place: Tensor, count: Tensor) -> Tensor:
        context = F.embedding(place, tokens)  # (b, C, D)
        sequence = torch.cat([query[:, None], context], 1)  # (b, 1 + C, D)
        is_real = (
            torch.arange(sequence.shape[1], device=count.device) <= count[:, None]
        )  # the seed counts too
        log_share = torch.zeros_like(is_real, dtype=sequence.dtype).masked_fill(~is_real, -torch.inf)
        for block in self.blocks:
            sequence = block(sequence, log_share)
        return self.norm(sequence[:, 0])  # (b, D)
