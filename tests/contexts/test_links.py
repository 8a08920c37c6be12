"""Edges in few bytes are the edges that were written."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quartet.contexts.links import MOST_BYTES, read_links, write_links
from tests.strategies import examples

PLACES = st.one_of(st.integers(0, 130), st.integers(0, 2**15 - 1))  # where codes grow by a byte, and anywhere
EDGES = st.lists(st.tuples(st.integers(0, 40), PLACES), max_size=60).map(lambda edges: sorted(edges))


@examples(200)
@given(st.lists(EDGES, max_size=4))
def test_what_is_read_is_what_was_written(contexts: list[list[tuple[int, int]]]) -> None:
    parts = []
    for edges in contexts:
        links = np.empty(41 + MOST_BYTES * len(edges), np.uint8)
        size = write_links(np.array(edges, np.uint16).reshape(-1, 2), len(edges), links)
        assert bool(size) == bool(edges)
        parts.append(links[:size])
    start = np.cumsum([0, *map(len, parts)])
    edge_start, edge = read_links(start, np.concatenate([np.empty(0, np.uint8), *parts]))
    assert np.diff(edge_start).tolist() == [len(edges) for edges in contexts]
    assert edge.tolist() == [list(pair) for edges in contexts for pair in edges]
