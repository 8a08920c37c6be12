"""RelGT, the model that QUARTET starts from: the same tokens and local module, and one memory of centroids.

Unlike the public code (`docs/study/settings.md` has the reasons): LayerNorm stands where it has BatchNorm around
layers, so that seeds do not mix; a centroid weighs as much as the seeds that were near it lately, not as all rows of
the database; and the centroids start on data, so that they do not collapse.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quartet.config import ModelConfig
from quartet.models.layers.attention import attend, split_heads
from quartet.models.layers.dropout import Dropout
from quartet.models.layers.readout import new_readout
from quartet.models.layers.table_encoder import TableEncoders
from quartet.models.layers.token_mix import EncodedTokens, LocalTokens
from quartet.models.local import LocalModule
from quartet.tokens import SeedGroup, TokenBatch
from quartet.training import ModelSchema, Network

_DECAY = 0.99  # of the moving averages, for each step
_RARE = 0.01  # a centroid that has less than this fraction of the mean count begins anew


class RelGT(Network):
    """head(FFN([LN(h_local) | LN(h_global)])): a transformer over local tokens, and the seed's read of centroids."""

    def __init__(self, config: ModelConfig, schema: ModelSchema) -> None:
        super().__init__(config, schema)
        width, (rate, _) = config.width, config.dropouts
        self.tables = TableEncoders(schema.tables, config)
        self.tokens = LocalTokens(config, schema)
        self.enter = nn.Linear(width, width)
        self.local = LocalModule(config)
        self.memory = CentroidMemory(config)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.feed = nn.Sequential(
            nn.Linear(2 * width, 2 * width), nn.GELU(), Dropout(rate), nn.Linear(2 * width, width), Dropout(rate),
        )  # fmt: skip
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU())
        self.readout = new_readout(config, schema)

    def encode(self, batch: TokenBatch) -> EncodedTokens:
        return self.tokens.encode(self.tables(batch), batch)

    def views(self, encoded: EncodedTokens, batch: TokenBatch, group: SeedGroup) -> dict[str, Tensor]:  # noqa: ARG002
        tokens = self.tokens(encoded, group)  # (b, K, D)
        local = self.local(self.enter(tokens), group.log_count)
        return {"local": local, "memory": self.memory(tokens[:, 0])}  # each (b, D)

    def joined(self, views: dict[str, Tensor]) -> Tensor:
        normed = [norm(view) for norm, view in zip(self.norms, views.values(), strict=True)]
        return self.head(self.feed(torch.cat(normed, -1)))  # (b, D)

    def after_step(self, gathered: Callable[[Tensor], Tensor]) -> None:
        self.memory.after_step(gathered)


class CentroidMemory(nn.Module):
    """The seed reads centroids of the seeds that were seen: k-means with moving averages, learned without gradient.

    Distances are measured where each dimension has mean 0 and variance 1 (`mean` and `variance` follow the seeds);
    attention reads the centroids as they are outside.
    """

    mean: Tensor
    variance: Tensor
    count: Tensor
    total: Tensor
    num_steps: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, inside = config.width, config.width // 2
        self.heads, (_, self.dropout) = config.heads, config.dropouts
        self.enter = nn.Linear(width, inside)
        self.query, self.key, self.value = (nn.Linear(inside, width) for _ in range(3))
        self.register_buffer("mean", torch.zeros(inside))
        self.register_buffer("variance", torch.ones(inside))
        self.register_buffer("count", torch.ones(config.num_archetypes))  # seeds near each centroid, averaged
        self.register_buffer("total", torch.randn(config.num_archetypes, inside))  # their sum, likewise
        self.register_buffer("num_steps", torch.tensor(0))
        self.seen: list[Tensor] = []

    @property
    def centroids(self) -> Tensor:
        """Returns the (A, D/2) centroids, where distances are measured."""
        return self.total / self.count[:, None]

    def forward(self, seed: Tensor) -> Tensor:
        asked = self.enter(seed)  # (b, D/2)
        if self.training:
            self.seen.append(asked.detach())
        outside = self.centroids * (self.variance + 1e-5).sqrt() + self.mean  # (A, D/2)
        query, key, value = (
            split_heads(linear(x)[None], self.heads)
            for linear, x in ((self.query, asked), (self.key, outside), (self.value, outside))
        )
        # The logits are divided by the root of the whole width, not of a head's.
        query = query * self.heads**-0.5
        read = attend(
            query, key, value, self.count.log()[None, None, None], self.dropout if self.training else 0.0
        )
        return read[0].transpose(0, 1).flatten(1)  # (b, D)

    @torch.no_grad()
    def after_step(self, gathered: Callable[[Tensor], Tensor]) -> None:
        """Moves the centroids towards the seeds of a step, all of them at once.

        The result is the same in every process, and however the step was cut: seeds are put in an order of their own,
        and the draws depend on the number of the step.
        """
        seeds, self.seen = gathered(torch.cat(self.seen)).to(self.mean), []
        seeds = seeds[seeds[:, 0].argsort()]
        is_first = not self.num_steps
        rate = 1.0 if is_first else 1 - _DECAY
        self.mean.lerp_(seeds.mean(0), rate)
        self.variance.lerp_(seeds.var(0, correction=0), rate)
        seeds = (seeds - self.mean) * (self.variance + 1e-5).rsqrt()
        if is_first:
            self._start(torch.ones_like(self.count, dtype=torch.bool), seeds, 1.0)
        nearest = torch.cdist(seeds, self.centroids).argmin(1)  # (seeds,)
        of_seed = F.one_hot(nearest, len(self.count)).to(seeds)  # (seeds, A)
        self.count.lerp_(of_seed.sum(0), 1 - _DECAY)
        self.total.lerp_(of_seed.T @ seeds, 1 - _DECAY)
        usual = self.count.mean()
        self._start(self.count < _RARE * usual, seeds, float(usual))
        self.num_steps += 1

    def _start(self, chosen: Tensor, seeds: Tensor, count: float) -> None:
        """Puts centroids on seeds drawn at random, a little beside them, so that no two of one seed are the same."""
        draws = torch.Generator().manual_seed(int(self.num_steps))
        drawn = seeds[torch.randint(len(seeds), (int(chosen.sum()),), generator=draws).to(seeds.device)]
        beside = torch.randn(drawn.shape, generator=draws).to(seeds)
        place = drawn + 0.01 * beside
        self.count[chosen] = count
        self.total[chosen] = count * place
