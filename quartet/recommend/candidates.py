"""Candidates: the items that may be recommended to a source at a time, from several pools, each of what was known then.

past         items that the source has had to do with, by each path, the latest first
look-alikes  items that those had lately who lately had the same items as the source
linked       items linked to items that the source had
popular      items of most events within the last horizon
rising       items of most events in the last twelfth of a horizon
newest       items that became known last
nearest      items whose vector is nearest to that of the source (of `towers.py`)

Of few items all are candidates. Places of equal score are in the order of stable keys, so that another future changes
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quartet.causal import num_visible
from quartet.recommend.events import Events, Floats, Ints, Past
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
    def paths(self) -> tuple[_Known, ...]:
        return tuple(_Known.at(path, self) for path in self.past.paths)

    @cached_property
    def links(self) -> _Known:
        return _Known.at(self.past.links, self)

    @cached_property
    def is_visible(self) -> NDArray[np.bool_]:
        return self.past.visible_items(self.time)

    @cached_property
    def items(self) -> Ints:
        """Returns the items that exist."""
        return np.flatnonzero(self.is_visible)

    def popularity(self, windows: float) -> Ints:
        """Returns how many events of the first path each item has had within the last so many horizons."""
        known = self.paths[0].events
        since = max(STATIC, self.time - int(windows * self.unit))
        first = int(num_visible(known.time, since))  # of those that are known
        return np.bincount(known.item[first:], minlength=len(self.past.items))

    def candidates(self, sources: Ints, nearest: Pool | None = None) -> dict[str, Pool]:
        """Returns the candidates of some sources by the name of their pool, best first."""
        pools = {}
        for number, known in enumerate(self.paths):
            pairs = known.pairs(sources)
            pool = Pool(pairs.source, pairs.item, pairs.last.astype(np.float64))
            pools[f"past by {known.events.name}"] = pool.best(_OTHER if number else _OWN)
        pools["look-alikes"] = self.look_alikes(sources).best(_NUM)
        pools["linked"] = self.linked(sources).best(_NUM)
        lately = {"popular": self.popularity(1.0), "rising": self.popularity(1 / 12)}
        scores = {name: np.where(counts, counts, np.nan) for name, counts in lately.items()}
        scores["newest"] = np.where(self.past.items.known_at == STATIC, np.nan, self.past.items.known_at)
        if len(self.items) <= _FEW:
            scores = {"all": np.ones(len(self.past.items))}
        for name, score in scores.items():
            among = self.items[~np.isnan(score[self.items])]
            order = among[np.lexsort((among, -score[among]))][: _FEW if name == "all" else _NUM]
            source = np.repeat(np.arange(len(sources)), len(order))
            pools[name] = Pool(source, np.tile(order, len(sources)), np.tile(score[order], len(sources)))
        if nearest is not None:
            pools["nearest"] = nearest
        return pools

    def look_alikes(self, sources: Ints) -> Pool:
        """Returns the items of those who have had the same items as each source, by how much they are alike."""
        known, num_sources = self.paths[0], len(self.past.sources)
        of, item = known.latest_items(sources, _RECENT_ITEMS)
        at, other = known.latest_sources(item, _RECENT_SOURCES)
        rarity = 1 / np.sqrt(np.maximum(1, known.num_by_item[item]))
        key, alike = _together(of[at] * num_sources + other, rarity[at])
        own, other = key // num_sources, key % num_sources
        is_other = other != sources[own]
        near = Pool(own[is_other], other[is_other], alike[is_other]).best(_LOOK_ALIKES)
        at, item = known.latest_items(near.item, _RECENT_ITEMS)
        return self._pool(near.source[at], item, near.score[at])

    def linked(self, sources: Ints) -> Pool:
        """Returns the items that are linked to items of each source, by when it last had to do with one of these."""
        parts = [known.latest_events(sources, _RECENT_ITEMS) for known in self.paths]
        of, item, time = (np.concatenate(each) for each in zip(*parts, strict=True))
        at, other = self.links.latest_items(item, _LINKED)
        return self._pool(of[at], other, time[at].astype(np.float64), np.maximum)

    def _pool(self, source: Ints, item: Ints, score: Floats, together: np.ufunc = np.add) -> Pool:
        key, score = _together(self.past.pair_key(source, item), score, together)
        source, item = key // len(self.past.items), key % len(self.past.items)
        shown = self.is_visible[item]
        return Pool(source[shown], item[shown], score[shown])


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of a source and an item in order, and what is known of each: how often, first and last when."""

    key: Ints
    source: Ints
    item: Ints
    count: Ints
    first: Ints
    last: Ints


@dataclass(frozen=True, eq=False)
class _Known:
    """The events of a path that are known at a time."""

    whole: Events
    events: Events  # a prefix of the whole
    first_by_source: Ints
    num_by_source: Ints
    first_by_item: Ints
    num_by_item: Ints
    num_items: int

    @staticmethod
    def at(path: Events, moment: Moment) -> _Known:
        known, past = path.upto(moment.time, moment.past.rule), moment.past
        num_sources = len(past.items) if path is past.links else len(past.sources)
        counts = []
        for one, some, size in (
            (path.source, known.source, num_sources),
            (path.item, known.item, len(past.items)),
        ):
            counts += [np.cumsum(np.bincount(one, minlength=size + 1)), np.bincount(some, minlength=size)]
        before, num, before_items, num_items = counts
        firsts = [np.concatenate([[0], ends[:-1]]) for ends in (before, before_items)]
        return _Known(path, known, firsts[0], num, firsts[1], num_items, len(past.items))

    def latest_items(self, sources: Ints, most: int) -> tuple[Ints, Ints]:
        """Returns the items of the latest events of each source, with the place of the source among the given ones."""
        of, at = self._latest(sources, most)
        return of, self.whole.item[at]

    def latest_events(self, sources: Ints, most: int) -> tuple[Ints, Ints, Ints]:
        """Returns the same, and the times of these events."""
        of, at = self._latest(sources, most)
        return of, self.whole.item[at], self.whole.time[at]

    def _latest(self, sources: Ints, most: int) -> tuple[Ints, Ints]:
        num = np.minimum(self.num_by_source[sources], most)
        end = self.first_by_source[sources] + self.num_by_source[sources]
        of, at = _ranges(end - num, num)
        return of, self.whole.by_source[at]

    def latest_sources(self, items: Ints, most: int) -> tuple[Ints, Ints]:
        num = np.minimum(self.num_by_item[items], most)
        of, at = _ranges(self.first_by_item[items] + self.num_by_item[items] - num, num)
        return of, self.whole.source[self.whole.by_item[at]]

    def of_sources(self, sources: Ints) -> tuple[Ints, Ints, Ints]:
        """Returns all events of some sources: the place of the source, the item, the time; oldest first for each."""
        of, at = _ranges(self.first_by_source[sources], self.num_by_source[sources])
        at = self.whole.by_source[at]
        return of, self.whole.item[at], self.whole.time[at]

    def pairs(self, sources: Ints) -> Pairs:
        """Returns the pairs that some sources have been part of, by the places of these."""
        of, item, time = self.of_sources(sources)
        order = np.argsort(of * self.num_items + item, kind="stable")
        key, time = (of * self.num_items + item)[order], time[order]
        first = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else np.empty(0, np.int64)
        end = np.append(first[1:], len(key))[: len(first)]
        of_pair, item_of_pair = key[first] // self.num_items, key[first] % self.num_items
        return Pairs(key[first], of_pair, item_of_pair, end - first, time[first], time[end - 1])


def places_in(group: Ints) -> Ints:
    """Returns the place of each row in its group, where groups stand together."""
    is_first = np.append(True, group[1:] != group[:-1])[: len(group)]
    firsts = np.flatnonzero(is_first)
    return np.arange(len(group)) - np.repeat(firsts, np.diff(np.append(firsts, len(group))))


def _ranges(first: Ints, num: Ints) -> tuple[Ints, Ints]:
    """Returns the numbers from each first on, so many, and to which range each belongs."""
    of = np.repeat(np.arange(len(num)), num)
    return of, np.arange(len(of)) + np.repeat(first - (np.cumsum(num) - num), num)


def _together(key: Ints, value: Floats, together: np.ufunc = np.add) -> tuple[Ints, Floats]:
    """Returns the distinct keys, ascending, with the sum (or the maximum) of their values."""
    order = np.argsort(key, kind="stable")
    key, value = key[order], value[order]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else np.empty(0, np.int64)
    return key[first], together.reduceat(value, first) if len(key) else value
