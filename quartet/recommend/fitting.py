"""Fitting a recommender: its members one after the other, each within its part of the time limit, and their weights."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.contexts import sample, seconds_of_a_seed
from quartet.errors import TaskError
from quartet.listener import Listener
from quartet.recommend.candidates import Pool
from quartet.recommend.events import Floats
from quartet.recommend.pairs import Block, Reader
from quartet.recommend.ranker import Ranker, stop_rows
from quartet.recommend.recommender import (
    MEMBERS,
    TOWERS,
    TREES,
    Recommender,
    blended,
    rule_scores,
    tower_recipe,
)
from quartet.recommend.rows import PairRows, pair_rows, reciprocal_ranks, standardised
from quartet.recommend.towers import Towers
from quartet.tasks import Seeds
from quartet.times import NEVER
from quartet.training import Epoch, Fitted, Member, TrainingData, View, duration

_FOR_TREES, _FOR_TOWERS = 0.4, 0.3  # of the time limit: at most, and at least
_MOST_TRAINED, _MOST_JUDGED = 20_000, 3_000  # seeds: of training the latest, of validation some
_FOR_CONTEXTS, _TRIED = 0.4, 256  # of what is left; seeds that tell how long a context takes
_ENOUGH = 300  # seeds of validation that tell epochs of towers apart; of fewer the last is kept
_STEPS = 6  # weights are multiples of a sixth
_NOISE = 0.5  # deviations of a difference: what gains less is left out


class Fitting:
    """A recommender on its way; a listener is told of it."""

    def __init__(self, data: TrainingData, listener: Listener) -> None:
        self.data, self.listener, self.begin = data, listener, time.perf_counter()
        self.wanted = MEMBERS[data.recipe.model.architecture]
        self.limit, self.k = data.recipe.time_limit or math.inf, data.task.spec.eval_k or 10
        self.scores: dict[str, Floats] = {}  # of each member, on validation
        self.told = self.begin  # when the last member was told of
        self.model = Recommender(())

    def run(self) -> Fitted | None:
        """Returns the blend of members that is best on validation; None if it was stopped."""
        self.listener.begin(self)
        self.train, self.val = _latest(self.data.seeds["train"]), _spread(self.data.seeds["val"])
        self.reader = reader = Reader.of(self.data.view, labels=self.train)
        self.taught = pair_rows(reader, self.train, self.data.recipe.rng_seed)
        if not (self.taught.label & self.taught.is_candidate).any():
            text = f'of no training label of task "{self.data.task.name}" an item is among the candidates of its time'
            raise TaskError(
                "L05", text, "ask about items that exist at t, and link them with what sources do"
            )
        self.judged = pair_rows(reader, self.val)
        self.first = next(reader.blocks(self.val))
        self.names = self.first.columns.names()
        self.model = Recommender(tuple(path.name for path in reader.past.paths), step=reader.step)
        for name, score in self._rule_scores().items():
            self.scores[name] = score
            self._tell(name)
        for member, add in ((TREES, self._add_trees), (TOWERS, self._add_towers)):
            if member in self.wanted:
                if not add():
                    return None
                self._tell(member)
        best = float(self._blended_precisions(self.model.weights).mean())
        epoch = Epoch(0, float("nan"), best, time.perf_counter() - self.begin, 0.0, is_best=True)
        return Fitted(self.model, [epoch], epoch, self.model.summary)

    def _rule_scores(self) -> dict[str, Floats]:
        """Returns what the rules that are members say of the pairs of validation."""
        seed, item = self.judged.seed, self.judged.item
        rules = rule_scores(self.first.moment, self.names, self.judged.matrix)
        return {
            name: reciprocal_ranks(seed, *order, item) for name, order in rules.items() if name in self.wanted
        }

    def _add_trees(self) -> bool:
        """Fits trees, which validation stops and, where it has few seeds, the last windows of training, too."""
        taught, times, spec = self.taught, self.train.time, self.data.task.spec
        first = stop_rows(times, len(self.val))
        early = visible(spec.known_at(times), int(min(first, NEVER - 1)))
        later = taught[(times >= first)[taught.seed] & taught.is_candidate]
        stop = PairRows.joined([self.judged, replace(later, seed=later.seed + len(self.val))])
        ranker = Ranker.fit(
            self.names, taught, early[taught.seed], stop, self.k, self.data.recipe.rng_seed,
            _FOR_TREES * self.limit, self.listener.should_stop,
        )  # fmt: skip
        if ranker is None:
            return False
        self.model = replace(self.model, ranker=ranker)
        self.scores[TREES] = ranker.scores(self.judged.matrix)
        return True

    def _add_towers(self) -> bool:
        """Fits towers; the items nearest to sources are candidates, too, for all members, if that helps."""
        data = self.data.changed(tower_recipe(self.data.recipe), ())
        train, taught = self._affordable(data)
        if len(train) == len(data.seeds["train"]):
            context = data.context("train")
        else:
            context = sample(data.view.graph, train, data.recipe.sampling, torch.get_num_threads())
        left = max(_FOR_TOWERS * self.limit, self._left)

        def validate(towers: Towers) -> float:
            if len(self.val) < _ENOUGH:
                return 0.0
            return float(self._precisions(self._tower_scores(towers, data.view)).mean())

        towers = Towers.fit(
            data, context, train, self.reader, self.names, taught, validate, left,
            self.listener.should_stop,
        )  # fmt: skip
        if towers is None:
            return False
        self.scores[TOWERS] = self._tower_scores(towers, data.view)
        before, value = (self.judged, self.scores), self._blended_precisions(self._weights()).mean()
        nearest = _nearest(towers, self.reader, data.view, self.val)
        self.judged = pair_rows(self.reader, self.val, nearest=nearest)
        self.scores = self._rule_scores()
        if self.model.ranker is not None:
            self.scores[TREES] = self.model.ranker.scores(self.judged.matrix)
        self.scores[TOWERS] = self._tower_scores(towers, data.view)
        helps = bool(self._blended_precisions(self._weights()).mean() >= value)
        self.model = replace(self.model, towers=towers, has_nearest=helps)
        if not helps:
            self.judged, self.scores = before
        return True

    @property
    def _left(self) -> float:
        return self.limit - (time.perf_counter() - self.begin)

    def _affordable(self, data: TrainingData) -> tuple[Seeds, PairRows]:
        """Returns the latest seeds whose contexts can be sampled in a part of the time left, and their pairs."""
        if self.limit == math.inf or len(self.train) <= _TRIED:
            return self.train, self.taught
        some = self.train.select(_is_latest(self.train, _TRIED))
        each = seconds_of_a_seed(data.view.graph, some, data.recipe.sampling, torch.get_num_threads())
        num = int((_FOR_CONTEXTS * self._left) / max(each, 1e-9)) - len(self.val)
        is_kept = _is_latest(self.train, max(_TRIED, num))
        if is_kept.all():
            return self.train, self.taught
        rows = self.taught[is_kept[self.taught.seed]]
        return self.train.select(is_kept), replace(rows, seed=(np.cumsum(is_kept) - 1)[rows.seed])

    def _tower_scores(self, towers: Towers, view: View) -> Floats:
        """Returns the scores that towers give to the pairs of validation."""
        vectors, own, rows = towers.embeddings(view, self.val), towers.own_numbers(self.reader), self.judged
        scores = np.empty(len(rows.seed))
        for block in self.reader.blocks(self.val):
            place = np.full(len(self.val), -1)
            place[block.at] = np.arange(len(block.at))
            at = np.flatnonzero(place[rows.seed] >= 0)
            items, of = towers.of_items(block, own), place[rows.seed[at]]
            scores[at] = towers.scores(vectors[block.at], items, of, rows.item[at], rows.matrix[at])
        return scores

    def _blended_precisions(self, weights: Mapping[str, float]) -> Floats:
        return self._precisions(blended(self.judged.seed, self.scores, weights))

    def _precisions(self, score: Floats) -> Floats:
        return self.judged.precisions(self.reader, score, self.val, self.k)

    def _weights(self) -> dict[str, float]:
        """Returns what each member weighs: all has the best, until sixths given to others help by more than noise.

        So a blend is not worse on validation than any of its members.
        """
        own = {name: standardised(self.judged.seed, score) for name, score in self.scores.items()}

        def judged(parts: Mapping[str, int]) -> Floats:
            total = np.sum([part * own[name] for name, part in parts.items() if part], axis=0)
            return self._precisions(total)

        each = {name: judged({name: _STEPS}) for name in own}
        best = max(own, key=lambda name: float(each[name].mean()))
        parts, value = {name: _STEPS * (name == best) for name in own}, each[best]
        while True:
            moved = [
                parts | {giver: parts[giver] - 1, taker: parts[taker] + 1}
                for giver, taker in itertools.permutations(own, 2)
                if parts[giver]
            ]
            values = [judged(one) for one in moved]
            first = int(np.argmax([one.mean() for one in values])) if moved else 0
            if not moved or not _is_better(values[first], value):
                return {name: part / _STEPS for name, part in parts.items()}
            parts, value = moved[first], values[first]

    def _tell(self, name: str) -> None:
        value, seconds = float(self._precisions(self.scores[name]).mean()), time.perf_counter() - self.told
        self.model = replace(self.model, weights=self._weights())
        so_far, self.told = float(self._blended_precisions(self.model.weights).mean()), time.perf_counter()
        epoch = Epoch(0, float("nan"), so_far, self.told - self.begin, 0.0, is_best=True)
        member = Member(self.model.shown(name), name, self.data.recipe.rng_seed, value, seconds, None)
        self.listener.member(member, Fitted(self.model, [epoch], epoch, name))

    def lines(self) -> list[tuple[str, str]]:
        limit = f", stopped after {duration(self.limit)}" if self.limit < math.inf else ""
        wanted = ", ".join(map(self.model.shown, self.wanted))
        return [("model", f"{wanted}; the best {self.k} items of each source{limit}")]

    def epoch_line(self, epoch: Epoch) -> str:
        return f"fitted in {duration(epoch.seconds)}"

    def bar(self) -> None:
        return None


def _latest(seeds: Seeds) -> Seeds:
    """Returns the latest seeds of training, of which there may be more than can be learned from."""
    is_latest = _is_latest(seeds, _MOST_TRAINED)
    return seeds if is_latest.all() else seeds.select(is_latest)


def _spread(seeds: Seeds) -> Seeds:
    """Returns seeds of validation, some of many, evenly over all: the pairs of all would not fit into memory."""
    some = np.linspace(0, len(seeds) - 1, _MOST_JUDGED).astype(np.int64)
    return seeds if len(seeds) <= _MOST_JUDGED else seeds.select(np.isin(np.arange(len(seeds)), some))


def _is_latest(seeds: Seeds, most: int) -> NDArray[np.bool_]:
    is_latest = np.zeros(len(seeds), bool)
    is_latest[np.argsort(-seeds.time, kind="stable")[:most]] = True
    return is_latest


def _nearest(towers: Towers, reader: Reader, view: View, seeds: Seeds) -> Callable[[Block], Pool]:
    """Returns what finds the items nearest to the sources of a block of seeds."""
    vectors, own = towers.embeddings(view, seeds), towers.own_numbers(reader)
    return lambda block: towers.nearest(vectors[block.at], towers.of_items(block, own), block)


def _is_better(each: Floats, other: Floats) -> bool:
    """Returns whether precisions are better than others by more than a part of the deviation of the difference."""
    gain = each - other
    return bool(gain.mean() > _NOISE * gain.std() / math.sqrt(len(gain)))
