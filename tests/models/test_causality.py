"""No row that was not knowable at the seed's time changes a *prediction* by one bit (P1 to P5 with a model on top).

The model is whole, with statistics fitted on what was visible and random weights that make logits differ.
"""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quartet.causal import TimeRule
from quartet.config import SamplingConfig
from quartet.database import Database
from quartet.features import FeatureTable
from quartet.models.quartet import Quartet
from quartet.tokens import Tokenizer
from quartet.training import ModelSchema
from tests.contexts.configs import configs
from tests.contexts.named import NamedSeed, World
from tests.models.data import SMALL, randomise
from tests.shop import day, raw_shop
from tests.strategies import (
    Raw,
    examples,
    interesting_times,
    random_db,
    scrambled_future,
    shuffled,
    without_future,
)


@cache
def model_of(schema: ModelSchema) -> Quartet:
    """One model for each shape of a database: equal shapes, equal weights."""
    torch.manual_seed(7)
    model = Quartet(SMALL, schema)
    randomise(model)
    return model.eval()


def logits(raw: Raw, seeds: list[NamedSeed], config: SamplingConfig, fitted_at: int) -> torch.Tensor:
    """The logits of a model, whose statistics were fitted on this very database at a time."""
    database = Database.build(*raw)
    world = World(database)
    features = FeatureTable.fit(database, fitted_at)
    model = model_of(ModelSchema(features.layouts, config.num_hops))
    with torch.no_grad():
        return model(Tokenizer(world.graph, features)(world.sample(seeds, config)))


def some_question(
    raw: Raw, data: st.DataObject, rule: TimeRule, rng: random.Random
) -> tuple[int, list[NamedSeed]]:
    database = Database.build(*raw)
    time = data.draw(st.sampled_from(interesting_times(database)))
    return time, World(database).some_seeds(time, rule, 8, rng)


@examples(30)
@given(random_db(), configs(), st.data(), st.integers(0, 2**32))
def test_the_future_and_the_order_of_rows_go_unnoticed(
    raw: Raw, config: SamplingConfig, data: st.DataObject, rng_seed: int
) -> None:
    """P1, P2 and P3; and P5, as rows drawn for seeds without history are visible too"""
    config, rng = config.changed(branches=SMALL.branches), random.Random(rng_seed)
    time, seeds = some_question(raw, data, config.time_rule, rng)
    if not seeds:
        return
    # Statistics see rows that are known at or before the time; under the rule "<" a nanosecond less.
    fitted_at = time if config.time_rule == "<=" else time - 1
    before = logits(raw, seeds, config, fitted_at)
    assert before.isfinite().all()
    for other in (
        without_future(raw, time, config.time_rule, rng),
        scrambled_future(raw, time, config.time_rule, rng),
        shuffled(raw, rng),
    ):
        assert logits(other, seeds, config, fitted_at).equal(before)


@examples(12)
@given(random_db(), configs(), st.data(), st.integers(0, 2**32))
def test_one_entity_at_two_times_in_one_batch(
    raw: Raw, config: SamplingConfig, data: st.DataObject, rng_seed: int
) -> None:
    """P4: the same scores as alone, the later one included."""
    config = config.changed(branches=SMALL.branches)
    time, seeds = some_question(raw, data, config.time_rule, random.Random(rng_seed))
    if not seeds:
        return
    both = [*seeds[:2], *((name, at + 10**12) for name, at in seeds[:2])]
    together = logits(raw, both, config, time)
    for place, seed in enumerate(both):
        alone = logits(raw, [seed], config, time)[0]
        assert (alone.sigmoid() - together[place].sigmoid()).abs().max() <= 1e-6


def test_the_shop_is_not_answered_blindly() -> None:
    """Each day shows customer 101 something new, and the model says something else."""
    seeds = [(("customers", 101, 0), day(number)) for number in range(1, 10)]
    found = logits(raw_shop(), seeds, SamplingConfig(), day(5))
    assert len(np.unique(found.numpy())) == 9


@pytest.mark.parametrize("number", range(1, 10))
def test_the_shop_keeps_its_secrets(number: int) -> None:
    raw, time, rng = raw_shop(), day(number), random.Random(number)
    world = World(Database.build(*raw))
    for config in (SamplingConfig(), SamplingConfig(local_sampler="bfs", collab_hops=4, time_rule="<")):
        seeds = world.some_seeds(time, config.time_rule, 30, rng)
        fitted_at = day(3) - 1
        before = logits(raw, seeds, config, fitted_at)
        for change in (without_future, scrambled_future):
            other = change(raw, max(time, day(3)), config.time_rule, rng)
            assert logits(other, seeds, config, fitted_at).equal(before)
        assert logits(shuffled(raw, rng), seeds, config, fitted_at).equal(before)
