"""Fitting a recommender: its members one after the other, each within its part of the time limit, and their weights."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.contexts import sample, seconds_of_a_seed
from quartet.errors import TaskError
from quartet.listener import Listener
from quartet.recommend.candidates import Pool
from quartet.recommend.clock import Clock, is_latest, latest, newest_first, spread, spread_out
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
from quartet.recommend.rows import FEWEST, PairRows, pair_rows, pairs_in_time, reciprocal_ranks, standardised
from quartet.recommend.towers import Towers
from quartet.tasks import Seeds
from quartet.times import NEVER
from quartet.training import Epoch, Fitted, Member, TrainingData, context_logits, duration

# Of the time limit, at most: pairs of validation, pairs of training, trees.
_FOR_JUDGED, _FOR_TAUGHT, _FOR_TREES = 0.08, 0.2, 0.4
_FOR_TOWERS = 0.1  # of the time limit: with less left to learn there are none beside trees
_FOR_CONTEXTS = 0.4  # of what is left then
_MOST_TRAINED, _MOST_JUDGED = 20_000, 3_000  # seeds: of training the latest, of validation some
_ENOUGH = 300  # seeds of validation that tell epochs of towers apart; of fewer the last is kept
_STEPS = 6  # weights are multiples of a sixth
_NOISE = 0.5  # deviations of a difference: what gains less is left out


class Fitting:
    """A recommender on its way; a listener is told of it."""

    def __init__(self, data: TrainingData, listener: Listener) -> None:
        self.data, self.listener, self.clock = data, listener, Clock(data.recipe.time_limit or math.inf)
        self.wanted, self.k = MEMBERS[data.recipe.model.architecture], data.task.spec.eval_k or 10
        self.scores: dict[str, Floats] = {}  # of each member, on validation
        self.told = self.clock.begin  # when the last member was told of
        self.model = Recommender(())

    def run(self) -> Fitted | None:
        """Returns the blend of members that is best on validation; None if it was stopped."""
        self.listener.begin(self)
        every, clock = self.data.seeds, self.clock
        newest, some = latest(every["train"], _MOST_TRAINED), spread(every["val"], _MOST_JUDGED)
        self.reader = reader = Reader.of(self.data.view, labels=newest)
        begin, rng_seed = clock.spent, self.data.recipe.rng_seed
        seconds = clock.part(_FOR_JUDGED)
        self.val, self.judged = pairs_in_time(reader, some, order=spread_out, seconds=seconds)
        self.for_judging = clock.spent - begin
        seconds = clock.part(_FOR_TAUGHT)
        self.train, self.taught = pairs_in_time(reader, newest, rng_seed, order=newest_first, seconds=seconds)
        if not (self.taught.label & self.taught.is_candidate).any():
            text = f'of none of {len(self.train):,} training labels of task "{self.data.task.name}" '
            text += "an item is among the candidates of its time"
            raise TaskError(
                "L05", text, "ask about items that exist at t, and link them with what sources do"
            )
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
                if member in self.scores:  # there may have been no time
                    self._tell(member)
        best = float(self._blended_precisions(self.model.weights).mean())
        epoch = Epoch(0, float("nan"), best, clock.spent, 0.0, is_best=True)
        return Fitted(self.model, [epoch], epoch, f"{self.model.summary}{self._of_some}")

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
            self.clock.part(_FOR_TREES), self.listener.should_stop,
        )  # fmt: skip
        if ranker is None:
            return False
        self.model = replace(self.model, ranker=ranker)
        self.scores[TREES] = ranker.scores(self.judged.matrix)
        return True

    def _add_towers(self) -> bool:
        """Fits towers, if there is time for them to learn, or nothing else was to be fitted."""
        data, each = self.data.changed(tower_recipe(self.data.recipe), ()), 0.0
        if self.clock.limit < math.inf:
            some = latest(self.train, FEWEST)
            each = seconds_of_a_seed(data.view.graph, some, data.recipe.sampling, torch.get_num_threads())
        after = 2 * self.for_judging  # candidates and scores with the items that are nearest
        left = self.clock.left - after - each * (len(self.val) + FEWEST)
        if TREES in self.scores and left < _FOR_TOWERS * self.clock.limit < math.inf:
            return True
        self.tower_view, self.val_contexts = data.view, [*data.view.contexts(self.val)]
        train, taught = self._affordable(each)
        if len(train) == len(data.seeds["train"]):
            context = data.context("train")
        else:
            context = sample(data.view.graph, train, data.recipe.sampling, torch.get_num_threads())

        def validate(towers: Towers) -> float:
            if len(self.val) < _ENOUGH:
                return 0.0
            return float(self._precisions(self._tower_scores(towers, self._vectors(towers))).mean())

        towers = Towers.fit(
            data, context, train, self.reader, self.names, taught, validate, self.clock.left - after,
            self.listener.should_stop,
        )  # fmt: skip
        if towers is not None:
            self._join(towers)
        return towers is not None

    def _join(self, towers: Towers) -> None:
        """Lets towers score; the items nearest to sources are candidates, too, for all members, if that helps."""
        vectors, own = self._vectors(towers), towers.own_numbers(self.reader)
        self.scores[TOWERS] = self._tower_scores(towers, vectors)
        before, value = (self.judged, self.scores), self._blended_precisions(self._weights()).mean()

        def nearest(block: Block) -> Pool:
            return towers.nearest(vectors[block.at], towers.of_items(block, own), block)

        self.judged = pair_rows(self.reader, self.val, nearest=nearest)
        self.scores = self._rule_scores()
        if self.model.ranker is not None:
            self.scores[TREES] = self.model.ranker.scores(self.judged.matrix)
        self.scores[TOWERS] = self._tower_scores(towers, vectors)
        helps = bool(self._blended_precisions(self._weights()).mean() >= value)
        self.model = replace(self.model, towers=towers, has_nearest=helps)
        if not helps:
            self.judged, self.scores = before

    @property
    def _of_some(self) -> str:
        """Returns in words of how much of training there was time to learn."""
        num, most = len(self.train), len(self.data.seeds["train"])
        return f", from the latest {num:,} of {most:,} rows" if num < min(most, _MOST_TRAINED) else ""

    def _affordable(self, each: float) -> tuple[Seeds, PairRows]:
        """Returns the latest seeds whose contexts can be sampled in a part of the time left, and their pairs."""
        if not each:
            return self.train, self.taught
        is_kept = is_latest(self.train, max(FEWEST, int(_FOR_CONTEXTS * self.clock.left / each)))
        if is_kept.all():
            return self.train, self.taught
        rows = self.taught[is_kept[self.taught.seed]]
        return self.train.select(is_kept), replace(rows, seed=(np.cumsum(is_kept) - 1)[rows.seed])

    def _vectors(self, towers: Towers) -> NDArray[np.float32]:
        """Returns the vectors of the sources of validation."""
        view = self.tower_view
        parts = [
            context_logits(towers.network, view.tokenizer, context, view.recipe.precision)
            for context in self.val_contexts
        ]
        return np.concatenate(parts).astype(np.float32)

    def _tower_scores(self, towers: Towers, vectors: NDArray[np.float32]) -> Floats:
        """Returns the scores that towers give to the pairs of validation."""
        own, rows = towers.own_numbers(self.reader), self.judged
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
        return self.judged.precisions(score, self.val, self.k)

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
        epoch = Epoch(0, float("nan"), so_far, self.told - self.clock.begin, 0.0, is_best=True)
        member = Member(self.model.shown(name), name, self.data.recipe.rng_seed, value, seconds, None)
        self.listener.member(member, Fitted(self.model, [epoch], epoch, name))

    def lines(self) -> list[tuple[str, str]]:
        limit = self.clock.limit
        stopped = f", stopped after {duration(limit)}" if limit < math.inf else ""
        wanted = ", ".join(map(self.model.shown, self.wanted))
        return [("model", f"{wanted}; the best {self.k} items of each source{stopped}")]

    def epoch_line(self, epoch: Epoch) -> str:
        return f"fitted in {duration(epoch.seconds)}"

    def bar(self) -> None:
        return None


def _is_better(each: Floats, other: Floats) -> bool:
    """Returns whether precisions are better than others by more than a part of the deviation of the difference."""
    gain = each - other
    return bool(gain.mean() > _NOISE * gain.std() / math.sqrt(len(gain)))
