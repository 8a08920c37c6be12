"""Random features of every kind, and small graphs with token batches to try the network on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from quartet.config import ModelConfig, SamplingConfig
from quartet.contexts import Context, sample
from quartet.features import Bags, TableFeatures, TableLayout
from quartet.graph import TemporalGraph
from quartet.models.quartet import Quartet
from quartet.tasks import Seeds
from quartet.tokens import TokenBatch, Tokenizer
from quartet.training import ModelSchema

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
    part_tokens: int = 64,
) -> Setting:
    """A model with random weights in double precision, at evaluation."""
    sampler = config.sampling(sampler or SamplingConfig(local_budget=12, collab_budget=8, temporal_budget=9))
    features = RandomFeatures.of(graph)
    context = sample(graph, seeds, sampler)
    tokenizer = Tokenizer(graph, features, part_tokens=part_tokens)  # type: ignore[arg-type]
    torch.manual_seed(0)
    model = Quartet(config, ModelSchema(features.layouts, sampler.num_hops)).double().eval()
    return Setting(graph, features, context, tokenizer, model)
