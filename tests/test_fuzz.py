"""Random inputs of every kind are accepted or refused; `python -m benchmarks.fuzz` tries thousands."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fuzz import INPUTS, fuzzed, prepared

NUM_INPUTS = {"yaml": 12, "sql": 12, "run": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("kind", INPUTS)
def test_no_input_brings_a_traceback(kind: str, folder: Path) -> None:
    count = NUM_INPUTS.get(kind, 20)
    codes, stories = fuzzed(folder, kind, count, rng_seed=0)
    assert stories == []
    assert codes.total() == count
    assert codes.keys() <= {0, 2, 3, 4, 5}
