"""The planted mistakes of `benchmarks/mutants.txt` keep up with the source that they change."""

from __future__ import annotations

import pytest

from benchmarks.mutants import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_applies_to_the_source(mutant: Mutant) -> None:
    assert mutant.problem() is None
