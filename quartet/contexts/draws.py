"""Random numbers that are counted, not remembered: draw n of a seed is a function of (seed, n).

No state, so the result of a seed does not depend on threads, processes, batches or order; and the key
is made from the seed's stable key and time, so it does not depend on rows that the seed cannot see.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quartet.database import mix, salt_of
from quartet.graph import TemporalGraph
from quartet.machine import part

_STEP = np.uint64(0x9E3779B97F4A7C15)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def seed_keys(
    graph: TemporalGraph, nodes: NDArray[np.int64], times: NDArray[np.int64], rng_seed: int, sampler: str
) -> NDArray[np.uint64]:
    """Returns the key of each seed's random numbers, for one sampler."""
    start = mix(np.array([salt_of(sampler) ^ np.uint64(rng_seed % 2**64)], dtype=np.uint64))
    return mix(mix(start ^ graph.stable_key[nodes]) ^ times.view(np.uint64))


@part
def draw(key: Any, count: Any) -> Any:
    """Returns draw number `count` of a key: 64 random bits (splitmix64)."""
    z = key + np.uint64(count) * _STEP
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@part
def below(bits: Any, limit: Any) -> Any:
    """Returns a number from 0 to below `limit`, from the lower half of some random bits."""
    return np.int64(((bits & _LOW) * np.uint64(limit)) >> _HALF)


@part
def chance(bits: Any) -> Any:
    """Returns a number from 0 to below 2^32, from the upper half of some random bits."""
    return np.int64(bits >> _HALF)


@part
def choose(key: Any, count: Any, total: Any, wanted: Any, chosen: Any) -> Any:
    """Fills `chosen` with `wanted` distinct numbers below `total` (all of them if there are no more).

    Floyd's method: every subset is equally likely, one draw for each member. `chosen` stays short, so
    looking through it is cheaper than any table. Returns how many were chosen.
    """
    if total <= wanted:
        for place in range(total):
            chosen[place] = place
        return total
    for place in range(wanted):
        last = total - wanted + place
        number = below(draw(key, count + place), last + 1)
        for other in range(place):
            if chosen[other] == number:
                number = last
                break
        chosen[place] = number
    return wanted


@part
def member(key: Any, count: Any, place: Any, total: Any, wanted: Any) -> Any:
    """Returns member `place` of a random subset of `wanted` numbers below `total`, without drawing the others.

    One from each of `wanted` parts of a circle that starts anywhere: all distinct, and every number is
    equally likely to be among them. If there are no more than `wanted`, all are.
    """
    if total <= wanted:
        return place
    first, last = place * total // wanted, (place + 1) * total // wanted
    start = below(draw(key, count), total)
    return (start + first + below(draw(key, count + 1 + place), last - first)) % total
