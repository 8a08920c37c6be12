"""Loops and their parts: a part is called by loops, and by Python, with the same result."""

from __future__ import annotations

from typing import Any

import numpy as np

from quartet.machine import compiled, part


@part
def _times_itself(number: Any) -> Any:
    """Returns the square."""
    return number * number


@compiled
def _sum_of_squares(numbers: Any) -> Any:
    total = 0
    for number in numbers:
        total += _times_itself(number)
    return total


def test_python_may_call_a_part_that_a_loop_has_called() -> None:
    assert _sum_of_squares(np.arange(4)) == 14
    assert _times_itself(3) == 9  # a loop knows it without what Python needs to call it
    assert _times_itself(0.5) == 0.25
    assert _sum_of_squares(np.arange(4) / 2) == 3.5
    assert _times_itself.__doc__ == "Returns the square."
