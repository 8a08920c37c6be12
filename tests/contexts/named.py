"""Contexts in names: what each row is, its hop and count, never its number, which moves when others come and go."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quartet.causal import TimeRule
from quartet.config import SamplingConfig
from quartet.contexts import Context, sample
from quartet.database import Database
from quartet.graph import TemporalGraph
from tests.contexts.twins import seeds_from
from tests.graph.names import names_of
from tests.strategies import is_future

Name = tuple[Any, ...]
NamedSeed = tuple[Name, int]


@dataclass(frozen=True)
class Named:
    """All that one seed's context says."""

    local: tuple[tuple[Name, int, int], ...]  # row, hop, count
    edges: tuple[tuple[Name, Name], ...]  # child, parent
    collab: tuple[Name, ...]
    temporal: tuple[Name, ...]
    sketch: bytes


class World:
    """A database with its graph and a name for every row."""

    def __init__(self, database: Database) -> None:
        self.graph = TemporalGraph.build(database)
        seen: Counter[Name] = Counter()
        self.names: list[Name] = []
        for name in names_of(database):
            self.names.append((*name, seen[name]))  # equal rows: the first, the second, ...
            seen[name] += 1
        self.nodes = {name: node for node, name in enumerate(self.names)}
        self.known_at: list[int] = self.graph.node_time.tolist()

    def sample(self, seeds: Sequence[NamedSeed], config: SamplingConfig) -> Context:
        pairs = [(self.nodes[name], time) for name, time in seeds]
        return sample(self.graph, seeds_from(pairs), config)

    def contexts(self, seeds: Sequence[NamedSeed], config: SamplingConfig) -> list[Named]:
        """The named context of each seed."""
        context = self.sample(seeds, config)
        return [self.named(context, place) for place in range(len(seeds))]

    def named(self, context: Context, place: int) -> Named:
        names = self.names
        nodes, hops, counts, edges = context.local(place)
        own = [names[n] for n in nodes]
        return Named(
            tuple(zip(own, hops.tolist(), counts.tolist(), strict=True)),
            tuple((own[child], own[parent]) for child, parent in edges.tolist()),
            tuple(names[n] for n in context.collab(place)),
            tuple(names[n] for n in context.temporal(place)),
            context.sketch[place].tobytes(),
        )

    def some_seeds(self, time: int, rule: TimeRule, count: int, rng: random.Random) -> list[NamedSeed]:
        """Rows that are visible at a time, asked about then; some of them also earlier, the earliest first.

        A quarter is taken from the rows with the most neighbours, where there is most to leak.
        """
        visible = [n for n, known_at in enumerate(self.known_at) if not is_future(known_at, time, rule)]
        degrees = np.diff(self.graph.indptr)
        hubs = sorted(visible, key=lambda n: -degrees[n])[: count // 4]
        chosen = hubs + rng.sample(visible, min(count - len(hubs), len(visible)))
        seeds = [(self.names[n], time) for n in chosen]
        earlier = [(n, self._moment_before(time, rng)) for n in chosen[::3]]
        seeds += [(self.names[n], t) for n, t in earlier if not is_future(self.known_at[n], t, rule)]
        return sorted(seeds, key=lambda seed: seed[1])

    def _moment_before(self, time: int, rng: random.Random) -> int:
        around = [t + shift for t in self.graph.times[1:].tolist() for shift in (-1, 0, 1)]
        return rng.choice([moment for moment in around if moment <= time] or [time])


def future_rows(world: World, context: Context, rule: TimeRule) -> int:
    """How many rows stand in contexts (the seed's own apart) that were not knowable at the seed's time."""
    known_at, count = world.graph.node_time, 0
    for place in range(len(context)):
        time = int(context.seed_time[place])
        shown = np.concatenate([context.local(place)[0][1:], context.collab(place), context.temporal(place)])
        count += sum(is_future(int(t), time, rule) for t in known_at[shown])
    return count
