"""The branches of Figure 2: their base class, the local branch, and the two codebooks (section 2.5)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quartet.config import ModelConfig
from quartet.models.layers.attention import CrossAttention, split_heads
from quartet.models.local import LocalModule
from quartet.tokens import SeedGroup, TokenBatch
from quartet.training import ModelSchema


class BatchInputs(NamedTuple):
    """What branches may read of a batch."""

    batch: TokenBatch
    rows: Tensor  # (R, D) features of the distinct rows
    global_tokens: Tensor  # (P, D)


class GroupInputs(NamedTuple):
    """What branches may read of a group."""

    batch: TokenBatch
    group: SeedGroup
    tokens: Tensor  # (b, K, D) local tokens
    seed: Tensor  # (b, D) the first of them


class Branch(nn.Module):
    """A branch reads something about each seed and gives views of it, each (b, D), by name.

    `Branch(config, schema)` is made only where the configuration wants some of its views.
    """

    def __init__(self, config: ModelConfig, schema: ModelSchema) -> None:  # noqa: ARG002
        super().__init__()
        self.config = config

    @staticmethod
    def views(config: ModelConfig) -> tuple[str, ...]:
        """Returns the names of the views that a configuration wants of this branch."""
        raise NotImplementedError

    def encode(self, inputs: BatchInputs) -> Any:  # noqa: ARG002
        """Computes once what all groups of a batch share."""
        return ()

    def forward(self, inputs: GroupInputs, encoded: Any) -> dict[str, Tensor]:
        """Returns the views of a group's seeds, or what `finish` makes them from."""
        raise NotImplementedError

    def finish(self, read: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the views from what all branches have read, where that is not the same."""
        return {name: read[name] for name in self.views(self.config)}

    def update_batch_stats(self, sketch: Tensor) -> None:
        """Updates running statistics in training, once a step: `sketch` is that of all its seeds."""


class LocalBranch(Branch):
    """h_local, from the tokens around the seed."""

    def __init__(self, config: ModelConfig, schema: ModelSchema) -> None:
        super().__init__(config, schema)
        self.module = LocalModule(config)

    @staticmethod
    def views(config: ModelConfig) -> tuple[str, ...]:
        return ("local",) if config.local else ()

    def forward(self, inputs: GroupInputs, encoded: Any) -> dict[str, Tensor]:  # noqa: ARG002
        return {"local": self.module(inputs.tokens, inputs.group.log_count)}


class Codebook(nn.Module):
    """X_b = CrossAttn(MLP_b(q_b), E_b), eq. 3: a seed's soft membership of learned archetypes.

    Keys and values of the archetypes are projected once for all seeds: the seeds of the batch are the queries of one
    sequence.
    """

    def __init__(self, inputs: int, config: ModelConfig) -> None:
        super().__init__()
        width = config.width
        self.query = nn.Sequential(nn.Linear(inputs, width), nn.GELU(), nn.Linear(width, width))
        self.archetypes = nn.Parameter(torch.randn(config.num_archetypes, width))
        self.attention = CrossAttention(config)

    def forward(self, query: Tensor) -> Tensor:
        return self.attention(self.query(query)[None], self.archetypes[None])[0]  # (B, D)

    def membership(self, query: Tensor) -> Tensor:
        """Returns how much attention each seed pays to each archetype, the mean of all heads: (B, A)."""
        heads, asked = self.attention.heads, self.attention.query(self.query(query)[None])
        asked, key = (split_heads(x, heads) for x in (asked, self.attention.key(self.archetypes[None])))
        logits = asked @ key.transpose(-1, -2) * key.shape[-1] ** -0.5  # (1, H, B, A)
        return logits.softmax(-1).mean(1)[0]


class FeatureBranch(Branch):
    """X_feat: a codebook asked with the seed's own features, q_feat = h_feat(v_i)."""

    def __init__(self, config: ModelConfig, schema: ModelSchema) -> None:
        super().__init__(config, schema)
        self.norm = nn.LayerNorm(config.width)
        self.codebook = Codebook(config.width, config)

    @staticmethod
    def views(config: ModelConfig) -> tuple[str, ...]:
        return ("feature",) if config.has("feature") else ()

    def encode(self, inputs: BatchInputs) -> Tensor:
        return self.codebook(self.norm(F.embedding(inputs.batch.seed_row, inputs.rows)))  # (B, D)

    def forward(self, inputs: GroupInputs, encoded: Any) -> dict[str, Tensor]:
        return {"feature": encoded[inputs.group.seed]}


class TopologyBranch(Branch):
    """X_struct: a codebook asked with the seed's structural sketch, q_struct = BN(F_sketch(v_i))."""

    def __init__(self, config: ModelConfig, schema: ModelSchema) -> None:
        super().__init__(config, schema)
        self.norm = nn.BatchNorm1d(schema.sketch_size)
        self.codebook = Codebook(schema.sketch_size, config)

    @staticmethod
    def views(config: ModelConfig) -> tuple[str, ...]:
        return ("topology",) if config.has("topology") else ()

    def encode(self, inputs: BatchInputs) -> Tensor:
        return self.codebook(self.normed(inputs.batch.sketch, inputs.batch.whole_sketch))  # (B, D)

    def forward(self, inputs: GroupInputs, encoded: Any) -> dict[str, Tensor]:
        return {"topology": encoded[inputs.group.seed]}

    def update_batch_stats(self, sketch: Tensor) -> None:
        if len(sketch) > 1:
            self.norm(sketch)

    def normed(self, sketch: Tensor, whole: Tensor | None = None) -> Tensor:
        """Returns BN of sketches. If they are some of a step's seeds, `whole` has those of all of them.

        Running statistics then follow the step in `update_batch_stats`, once. One seed has no spread of its own: it is
        measured with the statistics so far.
        """
        norm = self.norm
        if whole is None and len(sketch) > 1:
            return norm(sketch)
        mean, variance = norm.get_buffer("running_mean"), norm.get_buffer("running_var")
        if self.training and whole is not None and len(whole) > 1:
            variance, mean = torch.var_mean(whole, 0, correction=0)
        return (sketch - mean) * (variance + norm.eps).rsqrt() * norm.weight + norm.bias
