"""What chance may do: bounds that a correct sampler exceeds once in a million."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

ONE_IN_A_MILLION = 4.753424  # standard deviations


def chi_square_bound(freedom: int) -> float:
    """What a chi-square exceeds once in a million (Wilson and Hilferty's cube)."""
    part = 2 / (9 * freedom)
    return freedom * (1 - part + ONE_IN_A_MILLION * math.sqrt(part)) ** 3


def assert_uniform(outcomes: Iterable[object], kinds: int) -> None:
    """All kinds of outcome are equally likely."""
    counts = Counter(outcomes)
    expected = sum(counts.values()) / kinds
    assert len(counts) <= kinds
    assert expected >= 5, "too few draws to judge"
    excess = sum((count - expected) ** 2 for count in counts.values()) / expected
    assert excess + (kinds - len(counts)) * expected < chi_square_bound(kinds - 1)


def assert_equally_included(subsets: Sequence[Sequence[int]], total: int, wanted: int) -> None:
    """Subsets of `wanted` out of `total`, without repetition, every number as often among them as any other."""
    counts = Counter(number for subset in subsets for number in subset)
    for subset in subsets:
        assert len(subset) == len(set(subset)) == min(total, wanted)
        assert all(0 <= number < total for number in subset)
    if total <= wanted:
        return
    chance = wanted / total
    variance = len(subsets) * chance * (1 - chance) * total / (total - 1)
    excess = sum((counts[number] - len(subsets) * chance) ** 2 for number in range(total)) / variance
    assert excess < chi_square_bound(total - 1)
