"""What every network must hold, QUARTET and each baseline: shapes, gradients, learning, causality, independence."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quartet.config import Recipe, SamplingConfig
from quartet.contexts import select
from quartet.database import Database
from quartet.features import FeatureTable
from quartet.models import build_model
from quartet.models.registry import NETWORKS
from quartet.tasks import Task
from quartet.tokens import Tokenizer
from quartet.training import Material, ModelSchema, PartModel, Trainer, backward_in_parts, prepare
from quartet.training.trainer import new_model, table_links
from tests.contexts.named import NamedSeed, World
from tests.contexts.test_causality import rng_seeds
from tests.models.test_equality import randomise
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

every_network = pytest.mark.parametrize("name", sorted(NETWORKS))


def recipe_of(name: str, **changes: object) -> Recipe:
    return Recipe.load(
        "small", model=name, width=16, heads=2, encoder_width=8, num_latents=3, num_archetypes=8,
        local_budget=20, temporal_budget=10, collab_budget=5, dropout=0.0, encoder_dropout=0.0,
        batch_size=64, **changes,
    )  # fmt: skip


@pytest.fixture(scope="module")
def task() -> Task:
    return Task.from_sql(small_shop(), **CHURN)


@pytest.fixture(scope="module")
def materials(task: Task, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Material]:
    folder = tmp_path_factory.mktemp("cache")
    return {name: prepare(task, recipe_of(name), folder) for name in NETWORKS}


def some_model(material: Material, name: str) -> PartModel:
    """A network whose answers differ from seed to seed."""
    model = new_model(material, recipe_of(name)).double()
    randomise(model)
    return model


@every_network
def test_one_answer_a_seed(materials: dict[str, Material], name: str) -> None:
    material = materials[name]
    tokenizer = Tokenizer(material.graph, material.features)
    batch = tokenizer(select(material.contexts["train"], np.arange(7))).to(torch.float64)
    model = some_model(material, name).eval()
    assert model(batch).shape == (7, 1)
    assert len(model(batch).unique()) > 1
    schema = ModelSchema(model.schema.tables, model.schema.num_hops, 3, model.schema.links)
    assert build_model(model.config, schema).double().eval()(batch).shape == (7, 3)


@every_network
def test_every_parameter_learns(materials: dict[str, Material], name: str) -> None:
    material = materials[name]
    trainer = Trainer(material, recipe_of(name))
    trainer.model.train()
    batch = trainer._tokens(np.arange(100))
    (trainer.model(batch) * torch.randn(100, 1)).sum().backward()
    still = [n for n, p in trainer.model.named_parameters() if p.grad is None or not p.grad.any()]
    # Customers are static and orders have no category: what reads absent columns or ages cannot learn.
    assert len(still) <= 0.1 * len(list(trainer.model.parameters())), still


@every_network
def test_parts_give_the_gradient_of_the_whole(materials: dict[str, Material], name: str) -> None:
    material = materials[name]
    context = select(material.contexts["train"], np.arange(30))
    target = torch.randn(30, 1, dtype=torch.float64)
    found = []
    for part_tokens in (10**6, 60):
        model = some_model(material, name).train()
        batch = Tokenizer(material.graph, material.features, part_tokens=part_tokens)(context)

        def loss(answer: Tensor, seed: Tensor) -> Tensor:
            return (answer - target[seed]).square().sum()

        value = backward_in_parts(model, batch.to(torch.float64), loss)
        found.append((value, {n: p.grad for n, p in model.named_parameters() if p.grad is not None}))
    (one, whole), (other, parts) = found
    torch.testing.assert_close(one, other)
    assert whole.keys() == parts.keys()
    for parameter, gradient in whole.items():
        torch.testing.assert_close(parts[parameter], gradient, rtol=1e-9, atol=1e-9, msg=parameter)


@every_network
def test_company_does_not_matter(materials: dict[str, Material], name: str) -> None:
    material = materials[name]
    tokenizer = Tokenizer(material.graph, material.features, part_tokens=64)
    context = material.contexts["val"]
    model = some_model(material, name).eval()
    with torch.no_grad():
        together = model(tokenizer(select(context, np.arange(20))).to(torch.float64))
        alone = [model(tokenizer(select(context, np.array([p]))).to(torch.float64))[0] for p in range(20)]
    torch.testing.assert_close(torch.stack(alone), together, rtol=0, atol=1e-6)


@every_network
def test_a_small_set_is_learned_by_heart(materials: dict[str, Material], name: str) -> None:
    """Sixty-four seeds with labels by lot, all of them in one batch; 600 steps are ample for each network."""
    material = materials[name]
    recipe = recipe_of(name, seeds_per_epoch=64, epochs=600, learning_rate=2e-3, weight_decay=0.0)
    recipe = recipe.changed(width=32, schedule="constant", rng_seed=1)
    trainer = Trainer(material, recipe)
    places = trainer.epoch_places(0)[0]
    trainer.target = torch.from_numpy(np.random.default_rng(0).integers(0, 2, len(trainer.target)))
    label = trainer.target[places].bool().numpy()

    def is_learned() -> bool:
        answer = trainer.answers(select(material.contexts["train"], places))[:, 0]
        return bool(answer[label].min() > answer[~label].max())

    assert not is_learned()
    while not is_learned() and trainer.progress.step < recipe.epochs:
        for _ in range(50):
            trainer._step(places)
    assert is_learned()


@pytest.mark.usefixtures("one_thread")
@every_network
def test_a_run_is_resumed_bit_by_bit(materials: dict[str, Material], name: str) -> None:
    """Buffers that no gradient teaches are part of the state."""
    material = materials[name]
    recipe = recipe_of(name, seeds_per_epoch=200, epochs=2)
    whole, first = Trainer(material, recipe), Trainer(material, recipe)
    assert whole.run()
    stop = iter([False, False, False, True])
    assert not first.run(must_stop=lambda: next(stop))
    second = Trainer(material, recipe)
    second.restore(*first.state())
    assert second.run()
    expected = whole.model.state_dict()
    assert all(torch.equal(expected[key], value) for key, value in second.model.state_dict().items())


# --- causality ----------------------------------------------------------------------------------------


@cache
def model_of(name: str, schema: ModelSchema) -> PartModel:
    torch.manual_seed(7)
    model = build_model(recipe_of(name).model, schema)
    randomise(model)
    return model.eval()


def answers(name: str, raw: Raw, seeds: list[NamedSeed], fitted_at: int) -> Tensor:
    database = Database.build(*raw)
    world, config = World(database), recipe_of(name).sampling
    features = FeatureTable.fit(database, fitted_at)
    schema = ModelSchema(features.layouts, config.num_hops, 1, table_links(database))
    with torch.no_grad():
        return model_of(name, schema)(Tokenizer(world.graph, features)(world.sample(seeds, config)))


@every_network
@examples(15)
@given(random_db(), st.data(), rng_seeds)
def test_the_future_goes_unnoticed(name: str, raw: Raw, data: st.DataObject, rng_seed: int) -> None:
    """Deleted, scrambled, or rows in another order: the answers keep their bits (P1 to P3)."""
    rng, rule = random.Random(rng_seed), SamplingConfig().time_rule
    database = Database.build(*raw)
    time = data.draw(st.sampled_from(interesting_times(database)))
    seeds = World(database).some_seeds(time, rule, 8, rng)
    if not seeds:
        return
    before = answers(name, raw, seeds, time)
    assert before.isfinite().all()
    for other in (
        without_future(raw, time, rule, rng),
        scrambled_future(raw, time, rule, rng),
        shuffled(raw, rng),
    ):
        assert answers(name, other, seeds, time).equal(before)


def test_a_network_reads_no_context_that_it_has_no_use_for(materials: dict[str, Material]) -> None:
    assert materials["relgt"].contexts["train"].collab_node.size == 0
    assert materials["relgt"].contexts["train"].temporal_node.size == 0
    assert materials["quartet"].contexts["train"].temporal_node.size > 0
