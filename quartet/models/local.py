"""The local module (section 2.4): a transformer over the tokens of a seed's subgraph, and its pooling."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from quartet.config import ModelConfig
from quartet.models.layers.attention import SelfAttentionBlock


class LocalModule(nn.Module):
    """h_local = Pool(FFN(SelfAttn(tokens))_L), eq. 1."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(SelfAttentionBlock(config) for _ in range(config.local_layers))
        self.norm = nn.LayerNorm(config.width)
        self.pool = Pool(config.width)

    def forward(self, tokens: Tensor, log_count: Tensor) -> Tensor:
        for block in self.blocks:
            tokens = block(tokens, log_count)  # (b, K, D)
        return self.pool(self.norm(tokens), log_count)  # (b, D)


class Pool(nn.Module):
    """LN(h_0 + sum over neighbours j of softmax_j(w · [h_0 | h_j]) h_j).

    The half of w that meets h_0 adds the same to every logit and cancels, so it is not there.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.score = nn.Linear(width, 1, bias=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor, log_count: Tensor) -> Tensor:
        seed, others = tokens[:, 0], tokens[:, 1:]  # (b, D), (b, K - 1, D)
        log_count = log_count[:, 1:, None]
        is_real = log_count > -torch.inf
        logits = (self.score(others) + log_count).masked_fill(~is_real, torch.finfo(tokens.dtype).min)
        weight = logits.softmax(1) * is_real  # (b, K - 1, 1): all zero for a seed without neighbours
        return self.norm(seed + (weight.transpose(1, 2) @ others)[:, 0])  # (b, D)
