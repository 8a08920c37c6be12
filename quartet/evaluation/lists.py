"""Ranked lists of recommended items, and how good they are.

MAP@k is RelBench's: the precision at each hit, summed and divided by min(number of items, k). Seeds without any item
tell nothing and count in no metric.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.evaluation.metrics import INTERVAL, Measure, resamples
from quartet.tasks import Links

NO_ITEM = -1  # fills a list that is shorter than others

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Lists:
    """For each of S seeds its K best items, best first, as nodes, with their scores; shorter lists end in `NO_ITEM`."""

    items: _Ints  # (S, K)
    scores: _Floats  # (S, K), NaN where there is no item

    def __len__(self) -> int:
        return len(self.items)

    @staticmethod
    def of(seed: _Ints, item: _Ints, score: _Floats, tie: _Ints, num_seeds: int, most: int) -> Lists:
        """Returns the best items of each seed from pairs; of equal scores the lower `tie` comes first."""
        order = np.lexsort((tie, -score, seed))
        seed = seed[order]
        place = np.arange(len(seed)) - np.searchsorted(seed, seed)
        kept = place < most
        items = np.full((num_seeds, most), NO_ITEM, np.int64)
        scores = np.full((num_seeds, most), np.nan)
        items[seed[kept], place[kept]] = item[order][kept]
        scores[seed[kept], place[kept]] = score[order][kept]
        return Lists(items, scores)

    @staticmethod
    def joined(parts: list[Lists], most: int) -> Lists:
        """Returns lists one below the other."""
        items = [np.empty((0, most), np.int64), *(part.items for part in parts)]
        return Lists(np.concatenate(items), np.concatenate([np.empty((0, most)), *(p.scores for p in parts)]))

    def top(self, most: int) -> Lists:
        return Lists(self.items[:, :most], self.scores[:, :most])

    def hits(self, target: Links) -> NDArray[np.bool_]:
        """Returns which places hold an item of the target: (S, K)."""
        counts = np.diff(target.offsets)
        size = int(max(self.items.max(initial=0), target.nodes.max(initial=0))) + 1
        wanted = np.repeat(np.arange(len(counts)), counts) * size + target.nodes
        found = np.isin(np.arange(len(self.items))[:, None] * size + self.items, wanted)
        return np.asarray(found & (self.items != NO_ITEM))


def fused(lists: Sequence[Lists], most: int, tie: NDArray[Any]) -> Lists:
    """Returns the lists that several give together: an item counts with 1 / (10 + its place) in each.

    Of equal ones the item comes first whose `tie`, by node, is lower.
    """
    seed, item, score = (
        np.concatenate(part) for part in zip(*(_placed(each) for each in lists), strict=True)
    )
    pair, at = np.unique(np.stack([seed, item], 1), axis=0, return_inverse=True)
    total = np.bincount(at.ravel(), score, len(pair)) / len(lists)
    return Lists.of(pair[:, 0], pair[:, 1], total, tie[pair[:, 1]], len(lists[0]), most)


def _placed(lists: Lists) -> tuple[_Ints, _Ints, _Floats]:
    seed, place = np.nonzero(lists.items != NO_ITEM)
    return seed, lists.items[seed, place], 1 / (10.0 + place)


def average_precision_at_k(hits: NDArray[np.bool_], num_items: _Ints) -> _Floats:
    """Returns for each list the precision at each hit, summed and divided by min(number of items, k)."""
    k = hits.shape[1]
    precision = np.cumsum(hits, axis=1) / np.arange(1, k + 1)
    return np.asarray((precision * hits).sum(1) / np.clip(num_items, 1, k))


def recall_at_k(hits: NDArray[np.bool_], num_items: _Ints) -> _Floats:
    """Returns for each list which part of all items it holds."""
    return np.asarray(hits.sum(1) / np.maximum(1, num_items))


def ndcg_at_k(hits: NDArray[np.bool_], num_items: _Ints) -> _Floats:
    """Returns for each list its discounted gain over that of a perfect list of k."""
    gain = 1 / np.log2(np.arange(2, hits.shape[1] + 2))
    best = np.concatenate([[0.0], np.cumsum(gain)])
    return np.asarray((hits * gain).sum(1) / best[np.clip(num_items, 1, hits.shape[1])])


_LIST_METRICS = {"map": average_precision_at_k, "recall": recall_at_k, "ndcg": ndcg_at_k}


def list_measures(
    target: Links, lists: Lists, k: int, entity: _Ints, num_known: int, num_resamples: int = 1000
) -> dict[str, Measure]:
    """Returns MAP, recall and NDCG at k with their intervals over sources, and which part of all items is shown.

    Where each source has one item, how often it is the first of the list is told, too: the accuracy.
    """
    lists, num_items = lists.top(k), np.diff(target.offsets)
    told = num_items > 0
    hits = lists.hits(target)[told]
    values = {name: metric(hits, num_items[told]) for name, metric in _LIST_METRICS.items()}
    if (num_items[told] == 1).all():
        values["accuracy"] = hits[:, 0].astype(np.float64)
    drawn: dict[str, list[float]] = {name: [] for name in values}
    for weight in resamples(int(told.sum()), entity[told], num_resamples, 0):
        for name, of_rows in values.items():
            drawn[name].append(float(np.average(of_rows, weights=weight)))
    found = {}
    for name, of_rows in values.items():
        if not len(of_rows):
            found[name] = Measure(name, None, None, None, True, "no rows with items")
            continue
        low, high = map(float, np.percentile(drawn[name], INTERVAL)) if drawn[name] else (None, None)
        found[name] = Measure(name, float(of_rows.mean()), low, high, True)
    shown = len(np.unique(lists.items[lists.items != NO_ITEM]))
    found["coverage"] = Measure("coverage", shown / max(1, num_known), None, None, True)
    return found


def average_precisions(target: Links, lists: Lists, k: int) -> _Floats:
    """Returns the average precision at k of each seed that has items."""
    num_items = np.diff(target.offsets)
    told = num_items > 0
    return average_precision_at_k(lists.top(k).hits(target)[told], num_items[told])
