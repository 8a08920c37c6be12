"""What every network must hold, QUARTET and each baseline: shapes, gradients, learning, causality, independence."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quartet.config import Recipe, SamplingConfig
from quartet.contexts import Context, sample, select
from quartet.database import Database
from quartet.features import FeatureTable, RelationalColumns
from quartet.graph import TemporalGraph
from quartet.listener import Listener
from quartet.registry import MODELS, model_row
from quartet.tasks import Seeds, Task
from quartet.times import DAY
from quartet.tokens import Tokenizer
from quartet.training import ModelSchema, Network, Trainer, TrainingData, backward_by_group
from tests.contexts.named import NamedSeed, World
from tests.models.data import randomise, reading
from tests.models.messages import table_links
from tests.models.planted import noise
from tests.models.training import LITTLE, Pupil
from tests.strategies import (
    Raw,
    examples,
    interesting_times,
    random_db,
    scrambled_future,
    shuffled,
    without_future,
)
from tests.tasks.small import CHURN, small_shop

NETWORKS = [name for name in MODELS if name not in ("lightgbm", "auto")]
READ_COLUMNS = [
    name for name in NETWORKS if MODELS[name].defaults.get("tower")
]  # beside what is around a seed
every_network = pytest.mark.parametrize("name", NETWORKS)


def recipe_of(name: str, **changes: object) -> Recipe:
    return Recipe.load(
        "small", model=name, width=16, heads=2, encoder_width=8, num_latents=3, num_archetypes=8,
        local_budget=20, temporal_budget=10, collab_budget=5, dropout=0.0, encoder_dropout=0.0,
        batch_size=64, **changes,
    )  # fmt: skip


class Shop:
    """A task's database as each network reads it, with the contexts of some training seeds."""

    def __init__(self) -> None:
        self.task = Task.from_sql(small_shop(), **CHURN)
        self.graph = TemporalGraph.build(self.task.database)
        self.features = FeatureTable.fit(self.task.database, self.task.splits.val)
        train = self.task.seeds("train")
        self.seeds = train.select(np.arange(len(train)) < 100)
        columns = RelationalColumns.of(self.task.database, "customers", self.features)
        self.columns, self.matrix = columns.names, columns.matrix(self.seeds)

    @cache  # noqa: B019 (there is one, for as long as the tests last)
    def context(self, name: str) -> Context:
        context = sample(self.graph, self.seeds, recipe_of(name).sampling)
        return replace(context, columns=self.matrix) if name in READ_COLUMNS else context

    def network(self, name: str, num_outputs: int = 1) -> Network:
        """A network whose logits differ from seed to seed."""
        recipe, links = recipe_of(name), table_links(self.task.database)
        torch.manual_seed(0)
        schema = ModelSchema(self.features.layouts, recipe.sampling.num_hops, num_outputs, links)
        schema = reading(schema, self.columns) if name in READ_COLUMNS else schema
        network: Network = model_row(name).model_class(recipe.model, schema)
        network.readout.begin([0.0] * num_outputs, self.matrix)
        randomise(network)
        return network.double()


@pytest.fixture(scope="module")
def shop() -> Shop:
    return Shop()


@every_network
def test_a_line_of_logits_for_each_seed(shop: Shop, name: str) -> None:
    batch = Tokenizer(shop.graph, shop.features)(select(shop.context(name), np.arange(7))).to(torch.float64)
    logits = shop.network(name, num_outputs=3).eval()(batch)
    assert logits.shape == (7, 3)
    assert len(logits[:, 0].unique()) > 1


@every_network
def test_every_parameter_learns(shop: Shop, name: str) -> None:
    batch = Tokenizer(shop.graph, shop.features)(shop.context(name)).to(torch.float64)
    network = shop.network(name).train()
    logits = network(batch)
    (logits * torch.randn_like(logits)).sum().backward()
    still = [n for n, p in network.named_parameters() if p.grad is None or not p.grad.any()]
    # Customers are static and orders have no category: what reads absent columns or ages cannot learn.
    assert len(still) <= 0.1 * len(list(network.parameters())), still


@every_network
def test_groups_give_the_gradient_of_the_whole(shop: Shop, name: str) -> None:
    context = select(shop.context(name), np.arange(30))
    target = torch.randn(30, 1, dtype=torch.float64)
    found = []
    for group_tokens in (10**6, 60):
        network = shop.network(name).train()
        batch = Tokenizer(shop.graph, shop.features, group_tokens=group_tokens)(context)

        def loss(logits: Tensor, seed: Tensor) -> Tensor:
            each = logits.reshape(len(seed), -1)  # of a tower one of each head
            return (each - target[seed]).square().sum()

        value = backward_by_group(network, batch.to(torch.float64), loss)
        found.append((value, {n: p.grad for n, p in network.named_parameters() if p.grad is not None}))
    (one, whole), (other, groups) = found
    torch.testing.assert_close(one, other)
    assert whole.keys() == groups.keys()
    for parameter, gradient in whole.items():
        torch.testing.assert_close(groups[parameter], gradient, rtol=1e-9, atol=1e-9, msg=parameter)


@every_network
def test_company_does_not_matter(shop: Shop, name: str) -> None:
    tokenizer, context = Tokenizer(shop.graph, shop.features, group_tokens=64), shop.context(name)
    network = shop.network(name).eval()
    with torch.no_grad():
        together = network(tokenizer(select(context, np.arange(20))).to(torch.float64))
        alone = [network(tokenizer(select(context, np.array([p]))).to(torch.float64))[0] for p in range(20)]
    torch.testing.assert_close(torch.stack(alone), together, rtol=0, atol=1e-6)


@every_network
def test_a_small_set_is_learned_by_heart(name: str) -> None:
    """Sixty-four seeds with labels by lot, each customer at two times, all of them in one batch."""
    planted, defaults = noise(), model_row(name).defaults
    seeds = planted.train
    assert (len(seeds), len(np.unique(seeds.node))) == (64, 32)
    changes = {name: defaults[name] for name in ("branches", "local", "tower") if name in defaults}
    pupil = Pupil.new(planted, LITTLE.changed(architecture=name, **changes))
    assert pupil.auc(seeds) < 0.8
    for _ in range(12):
        if pupil.train(50).auc(seeds) == 1.0:
            break
    assert pupil.auc(seeds) == 1.0


class StopAt(Listener):
    """Asks to stop after some steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def should_stop(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.mark.usefixtures("one_thread")
@every_network
def test_a_run_is_resumed_bit_by_bit(shop: Shop, tmp_path: Path, name: str) -> None:
    """Buffers that no gradient teaches are part of the state."""
    data = TrainingData.prepare(
        shop.task, recipe_of(name, seeds_per_epoch=128, validation_seeds=64, epochs=2)
    )
    whole, first, second = (Trainer(data) for _ in range(3))
    assert whole.run()
    assert not first.run(StopAt(3), tmp_path / "state")
    second.restore(tmp_path / "state")
    assert second.state.step == 3
    assert second.run()
    expected = whole.network.state_dict()
    assert all(torch.equal(expected[key], value) for key, value in second.network.state_dict().items())


# --- causality ----------------------------------------------------------------------------------------


@cache
def model_of(name: str, schema: ModelSchema) -> Network:
    torch.manual_seed(7)
    model: Network = model_row(name).model_class(recipe_of(name).model, schema)
    scale = np.random.default_rng(0).normal(size=(100, len(schema.columns)))
    model.readout.begin([0.0], scale.astype(np.float32))
    randomise(model)
    return model.eval()


def logits_of(name: str, raw: Raw, seeds: list[NamedSeed], fitted_at: int) -> Tensor:
    database = Database.build(*raw)
    world, config = World(database), recipe_of(name).sampling
    features = FeatureTable.fit(database, fitted_at)
    schema = ModelSchema(features.layouts, config.num_hops, 1, table_links(database))
    context = world.sample(seeds, config)
    if name in READ_COLUMNS:
        columns = RelationalColumns.of(database, seeds[0][0][0], features, config.time_rule, DAY)
        asked = Seeds(context.seed_node, context.seed_time, None)
        schema, context = reading(schema, columns.names), replace(context, columns=columns.matrix(asked))
    with torch.no_grad():
        return model_of(name, schema)(Tokenizer(world.graph, features)(context))


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "quartet"])  # see test_causality.py
@examples(10)
@given(random_db(), st.data(), st.integers(0, 2**32))
def test_the_future_goes_unnoticed(name: str, raw: Raw, data: st.DataObject, rng_seed: int) -> None:
    """Deleted, scrambled, or rows in another order: the logits keep their bits (P1 to P3)."""
    rng, rule = random.Random(rng_seed), SamplingConfig().time_rule
    database = Database.build(*raw)
    time = data.draw(st.sampled_from(interesting_times(database)))
    seeds = World(database).some_seeds(time, rule, 8, rng)
    if name in READ_COLUMNS:  # which are those of one table
        seeds = [seed for seed in seeds if seed[0][0] == seeds[0][0][0]]
    if not seeds:
        return
    before = logits_of(name, raw, seeds, time)
    assert before.isfinite().all()
    for other in (
        without_future(raw, time, rule, rng),
        scrambled_future(raw, time, rule, rng),
        shuffled(raw, rng),
    ):
        assert logits_of(name, other, seeds, time).equal(before)


def test_a_network_reads_no_context_that_it_has_no_use_for(shop: Shop) -> None:
    assert shop.context("relgt").collab_node.size == 0
    assert shop.context("relgt").temporal_node.size == 0
    assert shop.context("quartet").temporal_node.size > 0
