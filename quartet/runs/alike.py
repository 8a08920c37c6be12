"""Who is like whom among vectors: the nearest of each by their angle, and groups of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quartet.errors import UsageError

_MOST_EXACT = 1_000_000  # vectors among which the nearest are found by comparing all
_ENTRIES = 2**25  # of a block of similarities
_ROUNDS = 50
_FITTED = 100_000  # vectors by which the middles of groups are found, spread among all

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


def directions(vectors: NDArray[np.floating]) -> Floats:
    """Returns vectors seen from their common middle, of length 1; one that is in the middle is 0."""
    centred = vectors - vectors.mean(0, keepdims=True) if len(vectors) else vectors
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.asarray(centred / np.where(length > 0, length, 1.0), np.float32)


def nearest(units: Floats, most: int, most_exact: int = _MOST_EXACT) -> tuple[Ints, Floats]:
    """Returns the (S, most) places of the vectors nearest to each, best first, and their cosines; never its own.

    Of equally near ones the first come first. Beyond `most_exact` vectors an index finds nearly all of them.
    """
    count = len(units)
    most = min(most, max(0, count - 1))
    if not most:
        return np.empty((count, 0), np.int64), np.empty((count, 0), np.float32)
    if count > most_exact:
        return _indexed(units, most)
    places = np.empty((count, most), np.int64)
    cosines = np.empty((count, most), np.float32)
    size = max(1, _ENTRIES // count)
    for first in range(0, count, size):
        block = units[first : first + size] @ units.T
        own = np.arange(len(block))
        block[own, first + own] = -np.inf
        kept = np.argpartition(-block, most - 1, axis=1)[:, :most]
        least = np.take_along_axis(block, kept, 1).min(1)
        for row in np.flatnonzero((block >= least[:, None]).sum(1) > most):  # ties at the end of the list
            kept[row] = np.argsort(-block[row], kind="stable")[:most]
        kept.sort(axis=1)
        near = np.take_along_axis(block, kept, 1)
        order = np.argsort(-near, axis=1, kind="stable")
        places[first : first + size] = np.take_along_axis(kept, order, 1)
        cosines[first : first + size] = np.take_along_axis(near, order, 1)
    return places, cosines


def _indexed(units: Floats, most: int) -> tuple[Ints, Floats]:
    """Returns the nearest as an index of `usearch` finds them: most of them, not all."""
    try:
        from usearch.index import Index
    except ImportError:
        what = f"the nearest among {len(units):,} vectors are found with an index, and `usearch` is not installed"
        raise UsageError("C02", what, "install the extra `alike`, or ask for 0 neighbours") from None
    index = Index(ndim=units.shape[1], metric="cos", dtype="f32")
    index.add(np.arange(len(units)), units, threads=1)  # with more, the index is another each time
    found = index.search(units, most + 1, threads=1)
    own = np.arange(len(units))[:, None]
    keys, cosine = np.asarray(found.keys, np.int64), 1 - np.asarray(found.distances, np.float32)
    order = np.argsort(keys == own, axis=1, kind="stable")[
        :, :most
    ]  # without itself, or else without the last
    return np.take_along_axis(keys, order, 1), np.take_along_axis(cosine, order, 1)


def groups(units: Floats, count: int, rng_seed: int = 0) -> Ints:
    """Returns the group of each vector, from 0, the largest first: k-means on directions, begun far apart."""
    if not len(units):
        return np.empty(0, np.int64)
    rng = np.random.default_rng(rng_seed)
    some = units[np.unique(np.linspace(0, len(units) - 1, _FITTED).astype(np.int64))]
    middles = some[[rng.integers(len(some))]]
    far = 1 - some @ middles[0]
    while len(middles) < count and (chance := np.maximum(far, 0.0)).sum() > 1e-6 * len(some):
        picked = rng.choice(len(some), p=chance.astype(np.float64) / chance.sum(dtype=np.float64))
        middles = np.vstack([middles, some[[picked]]])
        far = np.minimum(far, 1 - some @ some[picked])
    group = _closest(some, middles)
    for _ in range(_ROUNDS):
        sums = np.zeros(middles.shape, np.float64)
        np.add.at(sums, group, some)
        length = np.linalg.norm(sums, axis=1, keepdims=True)
        middles = np.where(length > 0, sums / np.where(length > 0, length, 1.0), middles).astype(np.float32)
        before, group = group, _closest(some, middles)
        if np.array_equal(before, group):
            break
    group = _closest(units, middles)
    sizes = np.bincount(group, minlength=len(middles))
    rank = np.empty(len(middles), np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(middles))
    return np.asarray(rank[group])


def _closest(units: Floats, middles: Floats) -> Ints:
    size = max(1, _ENTRIES // len(middles))
    parts = [(units[first : first + size] @ middles.T).argmax(1) for first in range(0, len(units), size)]
    return np.concatenate(parts).astype(np.int64)
