"""Rows of pairs to learn from: candidates of each seed with their columns, and which of them came true."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.recommend.candidates import Pool
from quartet.recommend.clock import Clock
from quartet.recommend.events import Floats, Ints, places_in, ranges
from quartet.recommend.pairs import Block, Matrix, Reader, pair_pools
from quartet.tasks import Links, Seeds

FEWEST = 256  # seeds that are read, however short the time is
_MOST_ROWS = 1_000_000  # of training
_MOST_NEGATIVES, _FEWEST_NEGATIVES = 200, 20  # candidates of a seed that did not come true
_MOST_COMPARED = 4_000_000  # pairs at once
_PARTS = ("seed", "item", "matrix", "label", "is_candidate", "is_random")
_RANDOM = 32  # items of a seed that are drawn among all that exist


@dataclass(frozen=True, eq=False)
class PairRows:
    """Pairs of seeds with items, by seed."""

    seed: Ints  # the place of the seed
    item: Ints  # the place of the item
    matrix: Matrix
    label: NDArray[np.bool_]
    is_candidate: NDArray[np.bool_]  # else drawn at random, or an item that no pool had
    is_random: NDArray[np.bool_]  # drawn among all items that existed

    def __getitem__(self, which: NDArray[Any]) -> PairRows:
        return PairRows(**{name: getattr(self, name)[which] for name in _PARTS})

    @staticmethod
    def joined(parts: Sequence[PairRows]) -> PairRows:
        return PairRows(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in _PARTS})

    @property
    def group_sizes(self) -> Ints:
        return np.unique(self.seed, return_counts=True)[1]

    def precisions(self, score: Floats, seeds: Seeds, k: int) -> Floats:
        """Returns the average precision at k of each seed that has items, by scores of its pairs; the mean is MAP.

        Equal scores are in the order of items. Only the places of what came true are found, which lists are not needed
        for.
        """
        assert isinstance(seeds.target, Links)
        true = np.flatnonzero(self.label)
        first, end = (np.searchsorted(self.seed, self.seed[true], side) for side in ("left", "right"))
        place = np.empty(len(true), np.int64)
        step = max(1, _MOST_COMPARED // max(1, int((end - first).max(initial=0))))
        for begin in range(0, len(true), step):
            some = slice(begin, begin + step)
            of, at = ranges(first[some], (end - first)[some])
            own = score[true[some]][of]
            is_ahead = (score[at] > own) | ((score[at] == own) & (at < true[some][of]))
            place[some] = np.bincount(of, is_ahead, minlength=len(true[some]))
        order = np.lexsort((place, self.seed[true]))
        hit = places_in(self.seed[true][order]) + 1
        value = np.where(place[order] < k, hit / (place[order] + 1), 0.0)
        num_items = np.diff(seeds.target.offsets)
        total = np.bincount(self.seed[true][order], value, minlength=len(seeds))
        return np.asarray((total / np.minimum(np.maximum(num_items, 1), k))[num_items > 0])


def pair_rows(
    reader: Reader,
    seeds: Seeds,
    rng_seed: int | None = None,
    nearest: Callable[[Block], Pool] | None = None,
) -> PairRows:
    """Returns the pairs of seeds with all of their candidates.

    With a random seed they are rows to learn from: of the candidates that did not come true some are drawn, and items
    that came true or were drawn among all that existed then are added.
    """
    return pairs_in_time(reader, seeds, rng_seed, nearest)[1]


def pairs_in_time(
    reader: Reader,
    seeds: Seeds,
    rng_seed: int | None = None,
    nearest: Callable[[Block], Pool] | None = None,
    order: Callable[[Ints], Ints] = np.sort,
    seconds: float = math.inf,
) -> tuple[Seeds, PairRows]:
    """Returns as many seeds as there is time for, and at least a few, moment after moment; and the pairs of these."""
    assert isinstance(seeds.target, Links)
    num_items, counts = len(reader.past.items), np.diff(seeds.target.offsets)
    wanted = reader.past.pair_key(
        np.repeat(np.arange(len(seeds)), counts), reader.past.items.of_nodes(seeds.target.nodes)
    )
    wanted = np.unique(wanted)
    most = int(np.clip(_MOST_ROWS // max(1, len(seeds)), _FEWEST_NEGATIVES, _MOST_NEGATIVES))
    parts, clock, is_done = [], Clock(seconds), np.zeros(len(seeds), bool)
    for block in reader.blocks(seeds, order):
        if clock.left < 0 and is_done.sum() >= FEWEST:
            break
        is_done[block.at] = True
        pools = block.moment.candidates(block.sources, nearest(block) if nearest else None)
        of, item = pair_pools(pools, num_items)
        is_candidate, is_random = np.ones(len(of), bool), np.zeros(len(of), bool)
        if rng_seed is not None:
            is_true = np.isin(block.at[of] * num_items + item, wanted)
            of, item, is_candidate, is_random = _sampled(block, of, item, is_true, wanted, most, rng_seed)
        matrix = block.columns.matrix(block.sources, of, item)
        label = np.isin(block.at[of] * num_items + item, wanted)
        parts.append(PairRows(block.at[of], item, matrix, label, is_candidate, is_random))
    joined = PairRows.joined(parts)
    joined = joined[np.lexsort((joined.item, joined.seed))]
    if is_done.all():
        return seeds, joined
    return seeds.select(is_done), replace(joined, seed=(np.cumsum(is_done) - 1)[joined.seed])


def _sampled(
    block: Block, of: Ints, item: Ints, is_true: NDArray[np.bool_], wanted: Ints, most: int, rng_seed: int
) -> tuple[Ints, Ints, NDArray[np.bool_], NDArray[np.bool_]]:
    """Returns pairs to learn from: those that came true, and others, all of items that exist at the time."""
    moment, num_items = block.moment, len(block.moment.past.items)
    rng = np.random.default_rng([rng_seed, moment.time % 2**63, len(block.at)])
    drawn = Pool(of, item, np.where(is_true, 2.0, rng.random(len(of)))).best(most)
    kept = drawn.source * num_items + drawn.item
    own = wanted[np.isin(wanted // num_items, block.at)]
    place = np.empty(int(block.at.max()) + 1, np.int64)
    place[block.at] = np.arange(len(block.at))
    true = place[own // num_items] * num_items + own % num_items
    known_at = moment.past.items.known_at[true % num_items]
    true = true[visible(known_at, block.sources.time[true // num_items], moment.past.rule)]
    random = np.empty(0, np.int64)
    if len(moment.items):
        random = rng.choice(moment.items, (len(block.at), _RANDOM))
        random = (np.arange(len(block.at))[:, None] * num_items + random).ravel()
    key = np.unique(np.concatenate([kept, true, random]))
    return key // num_items, key % num_items, np.isin(key, kept), np.isin(key, random)


def standardised(seed: Ints, score: Floats) -> Floats:
    """Returns scores over their deviation within each list, which begins at 0 in its middle."""
    _, at = np.unique(seed, return_inverse=True)
    count = np.bincount(at)
    mean = np.bincount(at, score) / count
    spread = np.sqrt(np.bincount(at, (score - mean[at]) ** 2) / count)
    return (score - mean[at]) / np.where(spread > 0, spread, 1.0)[at]


def reciprocal_ranks(seed: Ints, score: Floats, second: Floats, tie: Ints) -> Floats:
    """Returns minus the logarithm of each pair's place in its list, best first by its scores."""
    order = np.lexsort((tie, -second, -score, seed))
    value = np.empty(len(seed))
    value[order] = -np.log1p(places_in(seed[order]))
    return value
