"""Neither another future nor another order of rows may change a context: shared by the tests of P1 to P5."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from quartet.causal import TimeRule
from quartet.config import SamplingConfig
from quartet.database import Database
from tests.contexts.named import NamedSeed, World, future_rows
from tests.strategies import Raw, interesting_times, scrambled_future, shuffled, without_future

RULES: list[TimeRule] = ["<=", "<"]
rng_seeds = st.integers(0, 2**32)


def asked(
    raw: Raw, data: st.DataObject, rule: TimeRule, rng: random.Random
) -> tuple[World, int, list[NamedSeed]]:
    """A database, a time that matters in it, and seeds that may be asked about then."""
    database = Database.build(*raw)
    world, time = World(database), data.draw(st.sampled_from(interesting_times(database)))
    return world, time, world.some_seeds(time, rule, 8, rng)


def assert_unnoticed(
    world: World, raw: Raw, time: int, seeds: list[NamedSeed], config: SamplingConfig, rng: random.Random
) -> None:
    """The future deleted (P1) or scrambled (P2), or all rows in another order (P3), and no row not visible (P5)."""
    context, rule = world.sample(seeds, config), config.time_rule
    seen = [world.named(context, place) for place in range(len(seeds))]
    assert future_rows(world, context, rule) == 0
    others = [change(raw, time, rule, rng) for change in (without_future, scrambled_future)]
    for other in (*others, shuffled(raw, rng)):
        assert World(Database.build(*other)).contexts(seeds, config) == seen
