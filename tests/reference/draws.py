"""The counted random numbers of the samplers, in plain integers."""

from __future__ import annotations

import hashlib

from tests.reference.graph import mix

STEP = 0x9E3779B97F4A7C15
WORD = 2**64
HALF = 2**32


def seed_key(stable_key: int, time: int, rng_seed: int, sampler: str) -> int:
    """The key of a seed's random numbers: of the row's key, the time, the run and the sampler, of nothing else."""
    salt = int.from_bytes(hashlib.blake2b(sampler.encode(), digest_size=8).digest(), "little")
    start = mix(salt ^ rng_seed % WORD)
    return mix(mix(start ^ stable_key) ^ time % WORD)


def draw(key: int, count: int) -> int:
    """Draw number `count` of a key: the splitmix64 generator whose state was the key, at that place."""
    return mix((key + (count - 1) * STEP) % WORD)


def below(bits: int, limit: int) -> int:
    """A whole number from 0 to below `limit`: the lower half of the bits as a fraction of it."""
    return bits % HALF * limit // HALF


def chance(bits: int) -> float:
    """A number from 0 to below 1: the upper half of the bits as a fraction."""
    return (bits // HALF) / HALF


def choose(key: int, count: int, total: int, wanted: int) -> list[int]:
    """`wanted` different numbers below `total`, by Floyd's method; all of them if there are no more."""
    if total <= wanted:
        return list(range(total))
    chosen: list[int] = []
    for last in range(total - wanted, total):
        number = below(draw(key, count + len(chosen)), last + 1)
        chosen.append(last if number in chosen else number)
    return chosen


def spread(key: int, count: int, total: int, wanted: int) -> list[int]:
    """`wanted` different numbers below `total`: one from each part of a circle that starts anywhere."""
    if total <= wanted:
        return list(range(total))
    start = below(draw(key, count), total)
    bounds = [part * total // wanted for part in range(wanted + 1)]
    return [
        (start + bounds[part] + below(draw(key, count + 1 + part), bounds[part + 1] - bounds[part])) % total
        for part in range(wanted)
    ]
