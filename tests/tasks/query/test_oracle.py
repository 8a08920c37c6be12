"""Queries give the labels of their definition, and read nothing that is not known (trust: P6, P7, P30)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import Raw, examples, random_db
from tests.tasks.query.compare import against_other_futures, against_the_definition

SEEDS = st.integers(0, 2**32)


@examples(200)
@given(random_db(), SEEDS)
def test_labels_are_those_of_the_definition(raw: Raw, seed: int) -> None:
    against_the_definition(raw, seed)


@examples(60)
@given(random_db(), SEEDS)
def test_nothing_after_t_chooses_and_nothing_after_the_window_labels(raw: Raw, seed: int) -> None:
    against_other_futures(raw, seed)
