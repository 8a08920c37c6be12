"""Recommender: the models that rank items for a source. Candidates, then trees, towers, and a blend of both.

    auto      rules, trees and towers; what each weighs is chosen on validation
    lightgbm  trees alone
    quartet   towers alone: the graph transformer reads the source

A member gives a score to every candidate of a seed; in the blend these are standardised within the list.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from quartet.causal import visible
from quartet.config import Recipe
from quartet.contexts import Context, sample
from quartet.evaluation import Lists
from quartet.findings import Finding, warning
from quartet.listener import SILENT, Listener
from quartet.machine import ALONE, Processes
from quartet.recommend.candidates import Moment, Pool
from quartet.recommend.events import Floats, Ints
from quartet.recommend.pairs import Block, Matrix, Reader, pair_pools
from quartet.recommend.ranker import Ranker, stop_rows
from quartet.recommend.rows import PairRows, pair_rows, reciprocal_ranks, standardised
from quartet.recommend.towers import Towers
from quartet.tasks import Links, Seeds
from quartet.times import NEVER
from quartet.training import Epoch, Fitted, Member, Output, TrainingData, View, duration

RULES = ("most popular lately", "own past by recency", "own past by count")
_RULE, _TREES, _TOWERS = RULES[1], "trees", "towers"
_MEMBERS = {"auto": (_RULE, _TREES, _TOWERS), "lightgbm": (_TREES,), "quartet": (_TOWERS,)}
_FOR_TREES, _FOR_TOWERS = 0.4, 0.3  # of the time limit: at most, and at least
_MOST_TRAINED = 20_000  # seeds, the latest
_STEPS = 6  # weights are multiples of a sixth
_FILE = "recommender.json"
_LOWEST = -1e5


@dataclass(frozen=True, eq=False)
class Recommender:
    """What ranks items: the paths by which it reads the past, its members, and what each of them weighs."""

    paths: tuple[str, ...]
    ranker: Ranker | None = None
    towers: Towers | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
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
        return processes.from_first(lambda: _Fitting(data, listener).run())

    def lists(
        self, view: View, seeds: Seeds, most: int, with_members: bool = False, listener: Listener = SILENT
    ) -> dict[str, Lists]:
        """Returns the best items of each seed, by the model's own blend (named "") and by each member and rule."""
        reader, vectors = Reader.of(view, self.paths), None
        if self.towers is not None:
            vectors = self.towers.vectors(view, seeds)
        found: dict[str, list[Lists]] = {}
        places = []
        for block, of, item, scores in self._scored(reader, seeds, vectors, with_members):
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
        return {name: Lists(whole.items[back], whole.scores[back]) for name, whole in joined.items()}

    def pool_recalls(self, view: View, seeds: Seeds) -> dict[str, float]:
        """Returns which part of the items that came true each pool of candidates has."""
        assert isinstance(seeds.target, Links)
        reader, counts = Reader.of(view, self.paths), np.diff(seeds.target.offsets)
        wanted = reader.past.pair_key(
            np.repeat(np.arange(len(seeds)), counts), reader.past.items.of_nodes(seeds.target.nodes)
        )
        vectors = self.towers.vectors(view, seeds) if self.towers is not None else None
        found: dict[str, int] = {}
        for block in reader.blocks(seeds):
            pools = self._pools(block, reader, vectors)[0]
            keys = {name: reader.past.pair_key(block.at[p.source], p.item) for name, p in pools.items()}
            keys["all candidates"] = np.concatenate(list(keys.values()))
            for name, key in keys.items():
                found[name] = found.get(name, 0) + len(np.intersect1d(key, wanted))
        return {name: number / max(1, len(wanted)) for name, number in found.items()}

    def _pools(self, block: Block, reader: Reader, vectors: Any) -> tuple[dict[str, Any], Any]:
        """Returns the pools of candidates of a block, and the vectors of all items where there are towers."""
        if self.towers is None or vectors is None:
            return block.moment.candidates(block.sources), None
        items = self.towers.of_items(block, self.towers.own_numbers(reader))
        nearest = self.towers.nearest(vectors[block.at], items, block)
        return block.moment.candidates(block.sources, nearest), items

    def _scored(
        self, reader: Reader, seeds: Seeds, vectors: Any, with_rules: bool
    ) -> Iterator[tuple[Block, Ints, Ints, dict[str, Floats]]]:
        """Yields for some seeds at a time their candidates, and the scores of these by each member."""
        for block in reader.blocks(seeds):
            pools, items = self._pools(block, reader, vectors)
            of, item = pair_pools(pools, len(reader.past.items))
            names = block.columns.names()
            matrix = block.columns.matrix(block.sources, of, item)
            scores = {}
            if self.ranker is not None:
                scores[_TREES] = self.ranker.scores(_chosen(matrix, names, self.ranker.names))
            if self.towers is not None:
                own = _chosen(matrix, names, self.towers.names)
                scores[_TOWERS] = self.towers.scores(vectors[block.at], items, block, of, item, own)
            rules = rule_scores(block.moment, names, matrix)
            wanted = rules if with_rules else {name: rules[name] for name in rules if name in self.weights}
            for name, score in wanted.items():
                scores[name] = reciprocal_ranks(of, score, item)
            yield block, of, item, scores

    def _blended(self, of: Ints, scores: Mapping[str, Floats]) -> Floats:
        return blended(of, {name: scores[name] for name in self.weights}, self.weights)

    def to(self, device: str) -> Recommender:  # noqa: ARG002 (lists are made on the CPU)
        return self

    def save(self, folder: Path) -> None:
        facts = {"paths": self.paths, "weights": self.weights}
        (folder / _FILE).write_text(json.dumps(facts, indent=1), encoding="utf-8")
        for part in (self.ranker, self.towers):
            if part is not None:
                part.save(folder)

    @classmethod
    def load(cls, folder: Path, recipe: Recipe, output: Output) -> Recommender:
        facts = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        weights = {str(name): float(weight) for name, weight in facts["weights"].items()}
        if not set(weights) <= {*RULES, _TREES, _TOWERS} or not np.isfinite(list(weights.values())).all():
            raise ValueError("weights of other members")
        ranker = Ranker.load(folder) if _TREES in weights else None
        towers = Towers.load(folder, _tower_recipe(recipe), output) if _TOWERS in weights else None
        return cls(tuple(facts["paths"]), ranker, towers, weights)

    @property
    def num_parameters(self) -> int:
        towers = sum(p.numel() for p in self.towers.parameters()) if self.towers is not None else 0
        return towers + (self.ranker.num_trees if self.ranker is not None else 0)

    @property
    def summary(self) -> str:
        parts = [f"{weight:.0%} {name}" for name, weight in self.weights.items() if weight]
        return " and ".join(parts)


def rule_scores(moment: Moment, names: tuple[str, ...], matrix: Matrix) -> dict[str, Floats]:
    """Returns how each rule orders pairs: the higher, the better."""
    place = {name: number for number, name in enumerate(names)}
    path = moment.paths[0].events.name
    popular = matrix[:, place["item events in 1 horizons"]].astype(np.float64)
    rest = popular / (1 + popular.max(initial=0.0)) * 1e-6
    age = matrix[:, place[f"{path}: last"]].astype(np.float64)
    times = matrix[:, place[f"{path}: times"]].astype(np.float64)
    return dict(
        zip(RULES, (popular, np.where(np.isnan(age), _LOWEST, -age) + rest, times + rest), strict=True)
    )


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
    for place, source in enumerate(block.sources.tolist()):
        rng = np.random.default_rng([int(past.sources.key[source]), block.moment.time % 2**63])
        some = rng.choice(items, min(most, len(items)), replace=False)
        drawn[place, : len(some)] = past.items.nodes(some)
    return Lists(drawn, np.where(drawn >= 0, 0.0, np.nan))


def _chosen(matrix: Matrix, names: tuple[str, ...], wanted: tuple[str, ...]) -> Matrix:
    """Returns the columns that a member reads, in its order; those that there are not any more are absent."""
    if names == wanted:
        return matrix
    place = {name: number for number, name in enumerate(names)}
    absent = np.full((len(matrix), 1), np.nan, np.float32)
    wide = np.concatenate([matrix, absent], 1)
    return wide[:, [place.get(name, len(names)) for name in wanted]]


def _tower_recipe(recipe: Recipe) -> Recipe:
    """Returns the recipe of the network that reads sources: their own columns say nothing about which item."""
    return recipe.changed(architecture="quartet", tower=0)


def _latest(seeds: Seeds) -> Seeds:
    """Returns the latest seeds of training, of which there may be more than can be learned from."""
    is_latest = np.zeros(len(seeds), bool)
    is_latest[np.argsort(-seeds.time, kind="stable")[:_MOST_TRAINED]] = True
    return seeds if is_latest.all() else seeds.select(is_latest)


def _sampled(data: TrainingData, seeds: Seeds) -> Context:
    return sample(data.view.graph, seeds, data.recipe.sampling, torch.get_num_threads())


class _Fitting:
    """A recommender on its way; a listener is told of it."""

    def __init__(self, data: TrainingData, listener: Listener) -> None:
        self.data, self.listener, self.begin = data, listener, time.perf_counter()
        self.wanted = _MEMBERS[data.recipe.model.architecture]
        self.limit = data.recipe.time_limit or math.inf
        self.k = data.task.spec.eval_k or 10

    def run(self) -> Fitted | None:
        data, listener = self.data, self.listener
        listener.begin(self)
        train, val = _latest(data.seeds["train"]), data.seeds["val"]
        reader = Reader.of(data.view, labels=train)
        listener.noticed(self._findings(reader))
        rng_seed = data.recipe.rng_seed
        taught, judged = pair_rows(reader, train, rng_seed), pair_rows(reader, val)
        block = next(reader.blocks(val))
        names, paths = block.columns.names(), tuple(path.name for path in reader.past.paths)
        scores: dict[str, Floats] = {}
        model = Recommender(paths)
        for name, score in rule_scores(block.moment, names, judged.matrix).items():
            if name in self.wanted:
                scores[name] = reciprocal_ranks(judged.seed, score, judged.item)
                self._tell(name, judged, reader, val, scores[name], model)
        if _TREES in self.wanted:
            first = stop_rows(train.time, len(val))
            late = np.flatnonzero(train.time >= first)
            early = visible(data.task.spec.known_at(train.time), int(min(first, NEVER - 1)))
            later = taught[np.isin(taught.seed, late) & taught.is_candidate]
            stop = PairRows.joined([judged, replace(later, seed=later.seed + len(val))])
            ranker = Ranker.fit(
                names, taught, early[taught.seed], stop, self.k, rng_seed, _FOR_TREES * self.limit,
                listener.should_stop,
            )  # fmt: skip
            if ranker is None:
                return None
            model = replace(model, ranker=ranker)
            scores[_TREES] = ranker.scores(judged.matrix)
            self._tell(_TREES, judged, reader, val, scores[_TREES], model)
        if _TOWERS in self.wanted:
            recipe = _tower_recipe(data.recipe)
            told = data.changed(recipe, ())
            context = (
                told.context("train") if len(train) == len(data.seeds["train"]) else _sampled(told, train)
            )
            left = max(_FOR_TOWERS * self.limit, self.limit - (time.perf_counter() - self.begin))

            def validate(towers: Towers, rows: PairRows = judged) -> float:
                score = _tower_scores(towers, reader, told.view, val, rows)
                value = float(rows.precisions(reader, score, val, self.k).mean())
                return value if len(val) >= 300 else 0.0  # too few to tell epochs apart: the last is kept

            towers = Towers.fit(
                told, context, train, reader, names, taught, validate, left, listener.should_stop
            )
            if towers is None:
                return None
            model = replace(model, towers=towers)
            judged = pair_rows(reader, val, nearest=_nearest(towers, reader, told.view, val))
            for name, score in rule_scores(block.moment, names, judged.matrix).items():
                if name in scores:
                    scores[name] = reciprocal_ranks(judged.seed, score, judged.item)
            if model.ranker is not None:
                scores[_TREES] = model.ranker.scores(judged.matrix)
            scores[_TOWERS] = _tower_scores(towers, reader, told.view, val, judged)
            self._tell(_TOWERS, judged, reader, val, scores[_TOWERS], model)
        model = replace(model, weights=self._weights(judged, reader, val, scores))
        blend = blended(judged.seed, scores, model.weights)
        best = float(judged.precisions(reader, blend, val, self.k).mean())
        epoch = Epoch(0, float("nan"), best, time.perf_counter() - self.begin, 0.0, is_best=True)
        return Fitted(model, [epoch], epoch, model.summary)

    def _weights(
        self, judged: PairRows, reader: Reader, val: Seeds, scores: Mapping[str, Floats]
    ) -> dict[str, float]:
        """Returns what each member weighs: of those as good as the best, within a deviation, the most equal ones."""
        names, tried = list(scores), []
        for parts in itertools.product(range(_STEPS + 1), repeat=len(names)):
            if sum(parts) == _STEPS:
                weights = {name: part / _STEPS for name, part in zip(names, parts, strict=True)}
                each = judged.precisions(reader, blended(judged.seed, scores, weights), val, self.k)
                tried.append((sum(part**2 for part in parts), -float(each.mean()), each, weights))
        best = min(tried, key=lambda one: one[1])[2]
        return min((one for one in tried if _as_good(one[2], best)), key=lambda one: one[:2])[3]

    def _findings(self, reader: Reader) -> list[Finding]:
        """Returns what should be known of the past: a source without any has lists of what is popular."""
        first = reader.past.paths[0]
        if len(first):
            return []
        text = f"no event of {first.name} is known: lists are of what is popular"
        return [warning("L09", self.data.task.name, text, 0)]

    def _tell(
        self, name: str, judged: PairRows, reader: Reader, val: Seeds, score: Floats, model: Recommender
    ) -> None:
        value = float(judged.precisions(reader, score, val, self.k).mean())
        seconds = time.perf_counter() - self.begin
        epoch = Epoch(0, float("nan"), value, seconds, 0.0, is_best=True)
        member = Member(name, name, self.data.recipe.rng_seed, value, seconds, None)
        self.listener.member(member, Fitted(model, [epoch], epoch, name))

    def lines(self) -> list[tuple[str, str]]:
        limit = f", stopped after {duration(self.limit)}" if self.limit < math.inf else ""
        return [("model", f"{', '.join(self.wanted)}; the best {self.k} items of each source{limit}")]

    def epoch_line(self, epoch: Epoch) -> str:
        return f"fitted in {duration(epoch.seconds)}"

    def bar(self) -> None:
        return None


def _as_good(each: Floats, best: Floats) -> bool:
    """Returns whether precisions are within a deviation of the best."""
    lost = best - each
    return bool(lost.mean() <= lost.std() / math.sqrt(len(lost)))


def _nearest(towers: Towers, reader: Reader, view: View, seeds: Seeds) -> Callable[[Block], Pool]:
    """Returns what finds the items nearest to the sources of a block of seeds."""
    vectors, own = towers.vectors(view, seeds), towers.own_numbers(reader)
    return lambda block: towers.nearest(vectors[block.at], towers.of_items(block, own), block)


def _tower_scores(towers: Towers, reader: Reader, view: View, seeds: Seeds, rows: PairRows) -> Floats:
    """Returns the scores that towers give to pairs of seeds."""
    vectors, own = towers.vectors(view, seeds), towers.own_numbers(reader)
    scores = np.empty(len(rows.seed))
    for block in reader.blocks(seeds):
        place = np.full(len(seeds), -1)
        place[block.at] = np.arange(len(block.at))
        at = np.flatnonzero(place[rows.seed] >= 0)
        items = towers.of_items(block, own)
        of = place[rows.seed[at]]
        scores[at] = towers.scores(vectors[block.at], items, block, of, rows.item[at], rows.matrix[at])
    return scores
