"""The smallest training there is: Adam on the whole batch, and how well the logits are ordered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from quartet.config import ModelConfig, SamplingConfig
from quartet.contexts import sample
from quartet.features import RelationalColumns
from quartet.registry import model_row
from quartet.tasks import Seeds
from quartet.tokens import TokenBatch, Tokenizer
from quartet.training import ModelSchema, Network, backward_by_group
from quartet.training.accumulate import Loss
from tests.models.data import reading
from tests.models.messages import table_links
from tests.models.planted import Planted

LITTLE = ModelConfig(
    width=32, heads=2, num_archetypes=16, num_latents=4, latent_layers=1, encoder_width=32, encoder_layers=2,
    num_frequencies=8, position_layers=2, dropout=0.0, encoder_dropout=0.0,
)  # fmt: skip


@dataclass(frozen=True)
class Pupil:
    """A model, and how it is shown seeds."""

    planted: Planted
    sampler: SamplingConfig
    tokenizer: Tokenizer
    model: Network
    columns: RelationalColumns | None = None  # of the seeds, where there is a tower

    @staticmethod
    def new(planted: Planted, config: ModelConfig) -> Pupil:
        sampler = config.sampling(planted.sampler)
        torch.manual_seed(0)
        links = table_links(planted.database)
        schema = ModelSchema(planted.features.layouts, sampler.num_hops, links=links)
        columns = None
        if config.tower:
            columns = RelationalColumns.of(planted.database, planted.graph.names[0], planted.features)
            schema = reading(schema, columns.names)
        model = model_row(config.architecture).model_class(config, schema)
        if columns is not None:
            model.readout.begin([0.0], columns.matrix(planted.train))
        return Pupil(planted, sampler, Tokenizer(planted.graph, planted.features), model, columns)

    def batches(self, seeds: Seeds) -> Callable[[int], TokenBatch]:
        """The token batch of all seeds, as a function of the draw of the noise."""
        context = sample(self.planted.graph, seeds, self.sampler)
        if self.columns is not None:
            context = replace(context, columns=self.columns.matrix(seeds))
        return lambda draw: self.tokenizer(context, draw)

    def train(self, num_steps: int) -> Pupil:
        """The same pupil after some steps, each with all training seeds and new noise for the positions."""
        batch, loss = self.batches(self.planted.train), _loss(self.planted.train)
        optimizer = torch.optim.Adam(self.model.parameters(), 2e-3, fused=True)
        self.model.train()
        with one_thread():
            for step in range(1, num_steps + 1):
                optimizer.zero_grad()
                backward_by_group(self.model, batch(step), loss)
                optimizer.step()
                self.model.after_step(lambda rows: rows)
        return self

    def logits(self, seeds: Seeds) -> NDArray[np.float32]:
        """The logit of each seed, at evaluation."""
        with torch.no_grad(), one_thread():
            return self.model.eval()(self.batches(seeds)(0))[:, 0].numpy()

    def auc(self, seeds: Seeds) -> float:
        return auc(self.logits(seeds), seeds.target)


def _loss(seeds: Seeds) -> Loss:
    label = torch.from_numpy(seeds.target).to(torch.float32)

    def loss(logits: Tensor, place: Tensor) -> Tensor:
        answers = logits[..., 0].reshape(len(place), -1)  # of a tower one of each head
        wanted = label[place, None].expand_as(answers)
        error = F.binary_cross_entropy_with_logits(answers, wanted, reduction="sum")
        return error / answers.shape[1] / len(label)

    return loss


@contextmanager
def one_thread() -> Iterator[None]:
    """Small matrices gain nothing from threads, and so the sums come out the same on every machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def auc(score: NDArray[np.float32], target: NDArray[np.int64]) -> float:
    """How often a positive seed scores above a negative one; ties count half."""
    difference = score[target == 1][:, None] - score[target == 0]
    return float((difference > 0).mean() + (difference == 0).mean() / 2)
