"""Random features of every kind, small graphs with token batches to try networks on, and their gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from quartet.config import ModelConfig, SamplingConfig
from quartet.contexts import Context, sample
from quartet.features import CODE, Bags, TableFeatures, TableLayout
from quartet.graph import TemporalGraph
from quartet.models.quartet import Quartet
from quartet.tasks import Seeds
from quartet.tokens import TokenBatch, Tokenizer
from quartet.training import ModelSchema
from tests.contexts.small import random_sales

SMALL = ModelConfig(
    width=16, heads=2, num_archetypes=5, num_latents=3, latent_layers=2, encoder_width=8, encoder_layers=2,
    num_frequencies=4, position_layers=2, dropout=0.0, encoder_dropout=0.0,
)  # fmt: skip


@dataclass(frozen=True)
class RandomFeatures:
    """Like a `FeatureTable`, but with cells drawn at random, one in five absent."""

    tables: dict[str, TableFeatures]

    @staticmethod
    def of(graph: TemporalGraph, rng_seed: int = 0) -> RandomFeatures:
        rng = np.random.default_rng(rng_seed)
        counts = np.diff(graph.offsets)
        return RandomFeatures(
            {name: _table(name, number, int(counts[number]), rng) for number, name in enumerate(graph.names)}
        )

    @property
    def layouts(self) -> tuple[TableLayout, ...]:
        return tuple(table.layout for table in self.tables.values())


def _table(name: str, number: int, rows: int, rng: np.random.Generator) -> TableFeatures:
    """Tables 0, 3, 6… have columns of every kind, 1, 4… none at all, 2, 5… only numbers."""
    if number % 3 == 1:
        layout = TableLayout(name)
    elif number % 3 == 2:
        layout = TableLayout(name, numbers=("a",))
    else:
        layout = TableLayout(
            name,
            numbers=("a", "b"),
            categories=("c", "d"),
            category_sizes=(5, 3),
            multicategories=("e",),
            multicategory_sizes=(6,),
            times=("f",),
            texts=("g",),
            text_sizes=(4,),
        )
    numbers = rng.normal(size=(rows, len(layout.numbers))).astype(np.float32)
    numbers[rng.random(numbers.shape) < 0.2] = np.nan
    codes = [rng.integers(0, size, rows, np.int32) for size in layout.category_sizes]
    calendar = np.stack([rng.integers(0, most, (rows, 1)) for most in (60, 12, 31, 7, 24, 60, 60)], -1)
    calendar[rng.random((rows, 1)) < 0.2] = -1
    vectors = rng.normal(size=(7, 4)).astype(np.float32)
    vectors[0] = 0
    return TableFeatures(
        layout=layout,
        numbers=numbers,
        categories=np.stack(codes, 1) if codes else np.empty((rows, 0), np.int32),
        multicategories=tuple(_bags(rows, size, rng) for size in layout.multicategory_sizes),
        calendar=calendar.astype(np.int16)[:, : len(layout.times)],
        texts=rng.integers(0, 7, (rows, len(layout.texts)), np.int32),
        vectors=(vectors,) if layout.texts else (),
    )


def _bags(rows: int, size: int, rng: np.random.Generator) -> Bags:
    count = rng.integers(0, 4, rows)
    start = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    return Bags(start, rng.integers(0, size, start[-1], np.int32))


@dataclass(frozen=True)
class Setting:
    """A model with the batch it is asked about."""

    graph: TemporalGraph
    features: RandomFeatures
    context: Context
    tokenizer: Tokenizer
    model: Quartet

    @property
    def batch(self) -> TokenBatch:
        return self.tokenizer(self.context)


def setting(
    graph: TemporalGraph,
    seeds: Seeds,
    config: ModelConfig = SMALL,
    sampler: SamplingConfig | None = None,
    group_tokens: int = 64,
) -> Setting:
    """A model with random weights in double precision, at evaluation."""
    sampler = config.sampling(sampler or SamplingConfig(local_budget=12, collab_budget=8, temporal_budget=9))
    features = RandomFeatures.of(graph)
    context = sample(graph, seeds, sampler)
    tokenizer = Tokenizer(graph, features, group_tokens=group_tokens)  # type: ignore[arg-type]
    torch.manual_seed(0)
    model = Quartet(config, ModelSchema(features.layouts, sampler.num_hops)).double().eval()
    return Setting(graph, features, context, tokenizer, model)


WALK = SamplingConfig(local_budget=16, collab_budget=8, temporal_budget=9)


def buyers(
    number: int, config: ModelConfig = SMALL, sampler: SamplingConfig = WALK, count: int = 9
) -> Setting:
    """Buyers asked about at random times; some of them have bought nothing yet."""
    graph, _ = random_sales(number)
    rng = np.random.default_rng(number)
    node = rng.integers(0, int(graph.offsets[1]), count)
    moments = rng.integers(1, len(graph.times), max(2, count // 3))
    time = graph.times[rng.choice(moments, count)] - rng.integers(0, 2, count)
    found = setting(graph, Seeds(node, time, None), config, sampler)
    randomise(found.model)
    return found


def randomise(model: nn.Module) -> None:
    """Weights of LayerNorms start at one and biases at zero; what forgets them would not be noticed.

    Matrices are made larger, so that answers differ from seed to seed as they do after training.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
            else:
                parameter.mul_(2)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.running_mean.normal_()  # type: ignore[union-attr,operator]
                module.running_var.uniform_(0.5, 2)  # type: ignore[union-attr,operator]


def gradients(model: nn.Module) -> dict[str, Tensor]:
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name in found | expected:
        if name not in found or name not in expected:  # a table of which no row is there
            assert (found | expected)[name].eq(0).all(), name
        else:
            scale = 1 + expected[name].abs().max().item() if expected[name].numel() else 1
            torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-12 * scale, msg=name)


def reading(schema: ModelSchema, names: tuple[str, ...]) -> ModelSchema:
    """The same schema with relational columns, of which codes have at most eight values."""
    codes = tuple((place, 8) for place, name in enumerate(names) if name.endswith(CODE))
    return replace(schema, columns=names, codes=codes)
