"""Candidates: the items that may be recommended to a source at a time, from several pools, each of what was known then.

past         items that the source has had to do with, by each path, the latest first
often        of a link that is filled in: items that rows with something in common had, the commonest first
look-alikes  items that those had lately who lately had the same items as the source
linked       items linked to items that the source had
popular      items of most events within the last horizon
rising       items of most events in the last twelfth of a horizon
newest       items that became known last
nearest      items whose vector is nearest to that of the source (of `towers.py`)

Of few items all are candidates. Places of equal score are in the order of stable keys, so that another future changes
nothing. Each source has a time of its own, up to which it knows events. What is counted of all items, popularity above
all, is that of a moment, which is the time of its sources or, where each has another, a little before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quartet.causal import num_visible, visible
from quartet.recommend.events import Floats, Ints, Sources, places_in, ranges
from quartet.recommend.past import Past
from quartet.times import STATIC

_FEW = 400  # items, all of which are candidates
_OWN, _OTHER = 60, 25  # candidates from the first path and from each of the others
_NUM = 40  # candidates from each of the other pools
_RECENT_ITEMS, _RECENT_SOURCES, _LOOK_ALIKES = 30, 60, 30
_LINKED = 20  # of each item


@dataclass(frozen=True, eq=False)
class Pool:
    """Candidates of some sources, by their places in a list, with a score: the higher the better."""

    source: Ints
    item: Ints
    score: Floats

    def best(self, most: int) -> Pool:
        """Returns the best of each source, best first; of equal ones those whose stable key comes first."""
        order = np.lexsort((self.item, -self.score, self.source))
        kept = order[places_in(self.source[order]) < most]
        return Pool(self.source[kept], self.item[kept], self.score[kept])


@dataclass(frozen=True, eq=False)
class Moment:
    """All that is known of sources and items at a time."""

    past: Past
    time: int
    unit: int  # of windows, in nanoseconds: the horizon

    @cached_property
    def is_visible(self) -> NDArray[np.bool_]:
        return self.past.visible_items(self.time)

    @cached_property
    def items(self) -> Ints:
        """Returns the items that exist."""
        return np.flatnonzero(self.is_visible)

    def popularity(self, windows: float) -> Ints:
        """Returns how many events of the first path each item has had within the last so many horizons."""
        path = self.past.paths[0]
        since = max(STATIC, self.time - int(windows * self.unit))
        first = int(num_visible(path.time, since))
        end = path.num_known(self.time, self.past.rule)
        return np.bincount(path.item[first:end], minlength=len(self.past.items))

    def candidates(self, sources: Sources, nearest: Pool | None = None) -> dict[str, Pool]:
        """Returns the candidates of some sources by the name of their pool, best first."""
        pools = {}
        for path in self.past.paths:
            pairs = self.past.known(path, sources).pairs
            most = _OWN if path is self.past.main else _OTHER
            pool = Pool(pairs.source, pairs.item, pairs.last.astype(np.float64))
            pools[f"past by {path.name}"] = pool.best(most)
            if self.past.is_link:
                pools[f"often by {path.name}"] = replace(pool, score=pairs.count.astype(np.float64)).best(
                    most
                )
        pools["look-alikes"] = self.look_alikes(sources).best(_NUM)
        pools["linked"] = self.linked(sources).best(_NUM)
        lately = {"popular": self.popularity(1.0), "rising": self.popularity(1 / 12)}
        scores = {name: np.where(counts, counts, np.nan) for name, counts in lately.items()}
        is_few = len(self.items) <= _FEW
        if is_few:
            scores = {"all": np.ones(len(self.past.items))}
        for name, score in scores.items():
            among = self.items[~np.isnan(score[self.items])]
            order = among[np.lexsort((among, -score[among]))][: _FEW if name == "all" else _NUM]
            source = np.repeat(np.arange(len(sources)), len(order))
            pools[name] = Pool(source, np.tile(order, len(sources)), np.tile(score[order], len(sources)))
        if not is_few or self.past.is_link:
            pools["newest"] = self._newest(sources)
        if nearest is not None:
            pools["nearest"] = nearest
        return pools

    def look_alikes(self, sources: Sources) -> Pool:
        """Returns the items of those who have had the same items as each source, by how much they are alike."""
        path, size = self.past.main, self.past.main.groups.size + 1
        known = self.past.known(path, sources)
        of, at = known.latest(_RECENT_ITEMS)
        item = path.item[at]
        beside, at = path.by_item.latest(item, known.number[of], _RECENT_SOURCES)
        first, end = path.by_item.ranges(item, known.number[of])
        rarity = 1 / np.sqrt(np.maximum(1, end - first))
        key, alike = _together(of[beside] * size + path.source[at], rarity[beside])
        own, other = key // size, key % size
        is_other = other != known.group[own]
        near = Pool(own[is_other], other[is_other], alike[is_other]).best(_LOOK_ALIKES)
        of, at = path.by_source.latest(near.item, known.number[near.source], _RECENT_ITEMS)
        return self._pool(sources, near.source[of], path.item[at], near.score[of])

    def linked(self, sources: Sources) -> Pool:
        """Returns the items that are linked to items of each source, by when it last had to do with one of these."""
        parts = []
        for path in self.past.paths:
            of, at = self.past.known(path, sources).latest(_RECENT_ITEMS)
            parts.append((of, path.item[at], path.time[at]))
        of, item, time = (np.concatenate(each) for each in zip(*parts, strict=True))
        links = self.past.links
        number = num_visible(links.time, sources.time, self.past.rule)
        beside, at = links.by_source.latest(item, number[of], _LINKED)
        score = time[beside].astype(np.float64)
        return self._pool(sources, of[beside], links.item[at], score, np.maximum)

    def _newest(self, sources: Sources) -> Pool:
        """Returns the items that became known last before the time of each source."""
        known_at = self.past.items.known_at
        dated = np.flatnonzero(known_at != STATIC)
        dated = dated[np.lexsort((-dated, known_at[dated]))]
        end = num_visible(known_at[dated], sources.time, self.past.rule)
        num = np.minimum(end, _NUM)
        of, at = ranges(end - num, num)
        return Pool(of, dated[at], known_at[dated][at].astype(np.float64)).best(_NUM)

    def _pool(
        self, sources: Sources, source: Ints, item: Ints, score: Floats, together: np.ufunc = np.add
    ) -> Pool:
        key, score = _together(self.past.pair_key(source, item), score, together)
        source, item = key // len(self.past.items), key % len(self.past.items)
        shown = visible(self.past.items.known_at[item], sources.time[source], self.past.rule)
        return Pool(source[shown], item[shown], score[shown])


def _together(key: Ints, value: Floats, together: np.ufunc = np.add) -> tuple[Ints, Floats]:
    """Returns the distinct keys, ascending, with the sum (or the maximum) of their values."""
    order = np.argsort(key, kind="stable")
    key, value = key[order], value[order]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else np.empty(0, np.int64)
    return key[first], together.reduceat(value, first) if len(key) else value
