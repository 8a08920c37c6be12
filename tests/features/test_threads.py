"""Cells encoded by several threads are those that one gives, with the same findings in the same order."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.small import grown, same_bits

WORDS = ["red wine", "white wine", "a table", "two chairs", "a lamp", "bread and butter", "cold water"]


def columns(first: int) -> dict[str, list[object]]:
    places = range(first, first + 600)
    return {
        "price": [float(place % 17) if place % 5 else None for place in places],
        "kind": [WORDS[place % 3] for place in places],
        "title": [f"{WORDS[place % 7]} number {place}" for place in places],
        "weight": [np.inf if place == first else float(place) for place in places],
    }


def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = []
    for cores in (1, 3):
        for room in ("table", "text"):
            monkeypatch.setattr(f"quartet.features.{room}.usable_cores", lambda cores=cores: cores)
        monkeypatch.setattr("quartet.features.table._FEW_ROWS", 1)
        monkeypatch.setattr("quartet.features.text._FEW_PARTS", 1)
        encoded.append(grown(columns(0), columns(300)))
    one, several = encoded
    assert same_bits(one.tables["t"], several.tables["t"])
    assert [(f.code, f.where, f.count) for f in one.findings] == [
        (f.code, f.where, f.count) for f in several.findings
    ]
    assert one.findings
