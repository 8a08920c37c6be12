"""The edges of local contexts in few bytes: for each row in turn, the places of its parents among the rows.

A code is twice a place, plus 2, plus 1 where the same row has another parent; 0 says that a row has none, and rows
after the last that has one are left out. A code is written seven bits at a time, the lowest first, and every byte but
its last has the top bit set. Rows that many others name stand in front, so that most codes take one byte, where a pair
of places takes four.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quartet.machine import compiled, part

MOST_BYTES = 3  # of a code: no local context has more than 2^15 rows


@part
def write_links(edges: Any, num_edges: Any, links: Any) -> Any:
    """Writes edges (child, parent), in the order of children, into `links`; returns how many bytes they take."""
    size, child, spot = 0, 0, 0
    while spot < num_edges:
        if edges[spot, 0] > child:  # this row has no parent here
            links[size] = 0
            size += 1
            child += 1
            continue
        parent = np.int64(edges[spot, 1])
        spot += 1
        has_more = spot < num_edges and edges[spot, 0] == child
        code = 2 * parent + 2 + has_more
        while code >= 128:
            links[size] = 128 | code & 127
            size += 1
            code >>= 7
        links[size] = code
        size += 1
        child += not has_more
    return size


def read_links(start: Any, links: Any) -> Any:
    """Returns where the edges of each seed begin, and (E, 2) all of them: child and parent."""
    given = start.view(), links.view()
    for array in given:
        array.flags.writeable = False  # as if from a file, so that one compiled kernel serves both
    return _read(*given)


@compiled
def _read(start: Any, links: Any) -> Any:
    edge_start = np.zeros(len(start), np.int64)
    for seed in range(len(start) - 1):
        count = np.int64(0)
        for byte in range(start[seed], start[seed + 1]):
            count += 0 < links[byte] < 128
        edge_start[seed + 1] = edge_start[seed] + count
    edges, spot = np.empty((edge_start[-1], 2), np.uint16), 0
    for seed in range(len(start) - 1):
        child, code, shift = np.int64(0), np.int64(0), 0
        for byte in range(start[seed], start[seed + 1]):
            code |= (np.int64(links[byte]) & 127) << shift
            shift += 7
            if links[byte] < 128:
                if code:
                    edges[spot, 0], edges[spot, 1] = child, (code >> 1) - 1
                    spot += 1
                child += 1 - (code & 1)
                code, shift = np.int64(0), 0
    return edge_start, edges
