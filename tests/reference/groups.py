"""The groups of letters of a text and its vector, in plain Python: the twin of `quartet/features/kernels.py`."""

from __future__ import annotations

import math
import re
from collections import Counter

import numpy as np

_WORD = re.compile(rb"[a-z0-9\x80-\xff]+")


def groups_of(text: str) -> Counter[str]:
    """How often each word and each group of 3 to 5 letters stands in a text; words are marked by a `W`."""
    found: Counter[str] = Counter()
    for match in _WORD.finditer(text.lower().encode()):
        word = match.group().decode()
        found[f"W{word}"] += 1
        marked = f" {word} "
        for size in (3, 4, 5):
            found.update(marked[start : start + size] for start in range(len(marked) - size + 1))
    return found


def bucket_of(group: str, bits: int) -> int:
    """FNV-1a over the bytes, spread by one multiplication."""
    state = 0xCBF29CE484222325
    for byte in group.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    state = (state ^ state >> 32) * 0xD6E8FEB86659FD93 % 2**64
    return state >> (64 - bits)


def vector_of(text: str, bits: int, rarity: dict[int, float], basis: dict[int, np.ndarray]) -> np.ndarray:
    """The sum of the basis, weighed by how often and how rare each bucket is, in double precision."""
    counts: Counter[int] = Counter()
    for group, count in groups_of(text).items():
        counts[bucket_of(group, bits)] += count
    weights = {b: (1 + math.log(n)) * rarity[b] for b, n in counts.items() if b in rarity}
    length = math.sqrt(sum(weight**2 for weight in weights.values()))
    size = len(next(iter(basis.values())))
    return sum((w / length * basis[b].astype(np.float64) for b, w in weights.items()), np.zeros(size))
