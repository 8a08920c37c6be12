"""Recommender: the models that rank items for a source. Candidates, then trees, towers, and a blend of both.

    auto      rules, trees and towers; what each weighs is chosen on validation
    lightgbm  trees alone
    quartet   towers alone: the graph transformer reads the source

A member gives a score to every candidate of a seed; in the blend these are standardised within the list.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from quartet.config import Recipe
from quartet.evaluation import Lists
from quartet.listener import SILENT, Listener
from quartet.machine import ALONE, Processes
from quartet.recommend.candidates import Moment, Pool
from quartet.recommend.events import Floats, Ints
from quartet.recommend.groups import ALL_ROWS
from quartet.recommend.pairs import Block, Matrix, Reader, pair_pools
from quartet.recommend.ranker import Ranker
from quartet.recommend.rows import reciprocal_ranks, standardised
from quartet.recommend.towers import Towers
from quartet.tasks import Links, Seeds
from quartet.training import Fitted, Member, Output, TrainingData, View

RULES = ("most popular lately", "own past by recency", "own past by count")
TREES, TOWERS = "trees", "towers"
MEMBERS = {"auto": (*RULES, TREES, TOWERS), "lightgbm": (TREES,), "quartet": (TOWERS,)}
_FILE = "recommender.json"
_LONG = 1000  # lists up to this length have all their places, however few items there are


class Scored(NamedTuple):
    """Some seeds with their candidates: the place of the seed and the item of each pair, and the scores by members."""

    block: Block
    pools: Mapping[str, Pool]
    of: Ints
    item: Ints
    names: tuple[str, ...]
    matrix: Matrix
    scores: dict[str, Floats]


@dataclass(frozen=True, eq=False)
class Recommender:
    """What ranks items: the paths by which it reads the past, its members, and what each of them weighs."""

    paths: tuple[str, ...]
    ranker: Ranker | None = None
    towers: Towers | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    has_nearest: bool = True  # whether items near to a source are candidates: where that helped on validation
    step: int = 0  # from one moment to the next, of rows whose link is filled in
    members: ClassVar[tuple[Member, ...]] = ()
    is_refit: ClassVar[bool] = False

    @classmethod
    def fit(
        cls,
        data: TrainingData,
        processes: Processes = ALONE,
        listener: Listener = SILENT,
        state: Path | None = None,  # noqa: ARG003 (there is none: another try begins anew)
    ) -> Fitted | None:
        """Returns the blend of members that is best on validation."""
        from quartet.recommend.fitting import Fitting  # which makes recommenders, so it comes after this page

        return processes.from_first(lambda: Fitting(data, listener).run())

    def lists(
        self, view: View, seeds: Seeds, most: int, with_members: bool = False, listener: Listener = SILENT
    ) -> dict[str, Lists]:
        """Returns the best items of each seed, by the model's own blend (named "") and by each member and rule."""
        reader, vectors = Reader.of(view, self.paths, step=self.step), None
        most = min(most, max(_LONG, len(reader.past.items)))
        if self.towers is not None and (with_members or self.has_towers):
            vectors = self.towers.embeddings(view, seeds)
        found: dict[str, list[Lists]] = {}
        places = []
        for block, _, of, item, _, _, scores in self.scored(reader, seeds, vectors, with_members):
            places.append(block.at)
            scores[""] = self._blended(of, scores)
            named = {name: scores[name] for name in ("", *scores)} if with_members else {"": scores[""]}
            for name, score in named.items():
                nodes = reader.past.items.nodes(item)
                found.setdefault(name, []).append(Lists.of(of, nodes, score, item, len(block.at), most))
            if with_members:
                found.setdefault("random", []).append(_random(block, most))
            listener.progress("lists", len(block.at), len(seeds))
        back = np.argsort(np.concatenate([np.empty(0, np.int64), *places]), kind="stable")
        joined = {name: Lists.joined(parts, most) for name, parts in found.items()}
        joined = joined or {"": Lists.joined([], most)}
        return {self.shown(name): Lists(x.items[back], x.scores[back]) for name, x in joined.items()}

    def pool_recalls(self, view: View, seeds: Seeds) -> dict[str, float]:
        """Returns which part of the items that came true each pool of candidates has."""
        assert isinstance(seeds.target, Links)
        reader, counts = Reader.of(view, self.paths, step=self.step), np.diff(seeds.target.offsets)
        wanted = reader.past.pair_key(
            np.repeat(np.arange(len(seeds)), counts), reader.past.items.of_nodes(seeds.target.nodes)
        )
        vectors = self.towers.embeddings(view, seeds) if self.towers is not None else None
        found: dict[str, int] = {}
        for block in reader.blocks(seeds):
            pools = self._pools(block, reader, vectors, with_nearest=True)[0]
            keys = {name: reader.past.pair_key(block.at[p.source], p.item) for name, p in pools.items()}
            keys["all candidates"] = np.concatenate(list(keys.values()))
            for name, key in keys.items():
                found[name] = found.get(name, 0) + len(np.intersect1d(key, wanted))
        return {name: number / max(1, len(wanted)) for name, number in found.items()}

    def shown(self, name: str) -> str:
        """Returns the name of a member or rule for people: a row whose link is filled in has no past of its own."""
        if not self.step or name not in RULES[1:]:
            return name
        order = "latest" if name == RULES[1] else "commonest"
        main = self.paths[min(1, len(self.paths) - 1)]
        return f"{order} of {main}" if main == ALL_ROWS else f"{order} of the same {main}"

    @property
    def has_towers(self) -> bool:
        """Returns whether towers have a say."""
        return bool(self.weights.get(TOWERS))

    def _pools(
        self, block: Block, reader: Reader, vectors: Any, with_nearest: bool
    ) -> tuple[dict[str, Any], Any]:
        """Returns the pools of candidates of a block, and the vectors of all items where there are towers."""
        if self.towers is None or vectors is None:
            return block.moment.candidates(block.sources), None
        items = self.towers.of_items(block, self.towers.own_numbers(reader))
        nearest = self.towers.nearest(vectors[block.at], items, block) if with_nearest else None
        return block.moment.candidates(block.sources, nearest), items

    def scored(self, reader: Reader, seeds: Seeds, vectors: Any, with_rules: bool) -> Iterator[Scored]:
        """Yields for some seeds at a time their candidates, and the scores of these by each member."""
        for block in reader.blocks(seeds):
            pools, items = self._pools(block, reader, vectors, self.has_towers and self.has_nearest)
            of, item = pair_pools(pools, len(reader.past.items))
            names = block.columns.names()
            matrix = block.columns.matrix(block.sources, of, item)
            scores = {}
            if self.ranker is not None:
                scores[TREES] = self.ranker.scores(chosen(matrix, names, self.ranker.names))
            if self.towers is not None and items is not None:
                own = chosen(matrix, names, self.towers.names)
                scores[TOWERS] = self.towers.scores(vectors[block.at], items, of, item, own)
            rules = rule_scores(block.moment, names, matrix)
            wanted = rules if with_rules else {name: rules[name] for name in rules if name in self.weights}
            for name, order in wanted.items():
                scores[name] = reciprocal_ranks(of, *order, item)
            yield Scored(block, pools, of, item, names, matrix, scores)

    def _blended(self, of: Ints, scores: Mapping[str, Floats]) -> Floats:
        return blended(of, scores, self.weights)

    def to(self, device: str) -> Recommender:  # noqa: ARG002 (lists are made on the CPU)
        return self

    def save(self, folder: Path) -> None:
        names = ("paths", "weights", "has_nearest", "step")
        facts = {name: getattr(self, name) for name in names}
        (folder / _FILE).write_text(json.dumps(facts, indent=1), encoding="utf-8")
        for part in (self.ranker, self.towers):
            if part is not None:
                part.save(folder)

    @classmethod
    def load(cls, folder: Path, recipe: Recipe, output: Output) -> Recommender:
        facts = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        weights = {str(name): float(weight) for name, weight in facts["weights"].items()}
        if not set(weights) <= {*RULES, TREES, TOWERS} or not np.isfinite(list(weights.values())).all():
            raise ValueError("weights of other members")
        ranker = Ranker.load(folder) if TREES in weights else None
        towers = Towers.load(folder, tower_recipe(recipe), output) if TOWERS in weights else None
        step = int(facts.get("step", 0))
        return cls(tuple(facts["paths"]), ranker, towers, weights, bool(facts["has_nearest"]), step)

    @property
    def num_parameters(self) -> int:
        towers = sum(p.numel() for p in self.towers.parameters()) if self.towers is not None else 0
        return towers + (self.ranker.num_trees if self.ranker is not None else 0)

    @property
    def summary(self) -> str:
        parts = [f"{weight:.0%} {self.shown(name)}" for name, weight in self.weights.items() if weight]
        return " and ".join(parts)


def rule_scores(moment: Moment, names: tuple[str, ...], matrix: Matrix) -> dict[str, tuple[Floats, Floats]]:
    """Returns how each rule orders pairs, the higher, the better; and of equal ones, how popular they are."""
    place = {name: number for number, name in enumerate(names)}
    path, is_link = moment.past.main.name, moment.past.is_link
    lately = f"{ALL_ROWS}: times" if is_link else "item events in 1 horizons"
    popular = matrix[:, place[lately]].astype(np.float64)
    age = matrix[:, place[f"{path}: last"]].astype(np.float64)
    times = matrix[:, place[f"{path}: times"]].astype(np.float64)
    orders = popular, np.where(np.isnan(age), -np.inf, -age), times
    return {name: (order, popular) for name, order in zip(RULES, orders, strict=True)}


def blended(seed: Ints, scores: Mapping[str, Floats], weights: Mapping[str, float]) -> Floats:
    """Returns the weighted mean of the members' scores, each standardised within its list."""
    total = np.zeros(len(seed))
    for name, weight in weights.items():
        if weight:
            total += weight * standardised(seed, scores[name])
    return total


def _random(block: Block, most: int) -> Lists:
    """Returns random items that exist, drawn by their stable keys and those of the sources."""
    past, items = block.moment.past, block.moment.items
    drawn = np.full((len(block.at), most), -1, np.int64)
    for place, source in enumerate(block.sources.place.tolist()):
        rng = np.random.default_rng([int(past.sources.key[source]), block.moment.time % 2**63])
        some = rng.choice(items, min(most, len(items)), replace=False)
        drawn[place, : len(some)] = past.items.nodes(some)
    return Lists(drawn, np.where(drawn >= 0, 0.0, np.nan))


def chosen(matrix: Matrix, names: tuple[str, ...], wanted: tuple[str, ...]) -> Matrix:
    """Returns the columns that a member reads, in its order; those that there are not any more are absent."""
    if names == wanted:
        return matrix
    place = {name: number for number, name in enumerate(names)}
    absent = np.full((len(matrix), 1), np.nan, np.float32)
    wide = np.concatenate([matrix, absent], 1)
    return wide[:, [place.get(name, len(names)) for name in wanted]]


def tower_recipe(recipe: Recipe) -> Recipe:
    """Returns the recipe of the network that reads sources: their own columns say nothing about which item."""
    return recipe.changed(architecture="quartet", tower=0)
