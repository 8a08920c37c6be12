"""A batch of contexts: the rows of some seeds, copied out of the contexts of many."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quartet.contexts.context import Array, Context
from quartet.machine import compiled


def select(context: Context, seeds: ArrayLike) -> Context:
    """The contexts of some seeds, named by their places, in that order; a place may stand there twice.

    They are the bytes that sampling these seeds alone would give. Temporal contexts are kept once for
    each distinct time among them. It does not matter whether `context` lies in memory or in a file.
    """
    places = _checked(np.asarray(seeds), len(context))
    which, time_index = np.unique(context.time_index[places], return_inverse=True)
    local_start, node, hop, share = _parts(
        context.local_start, places, context.local_node, context.local_hop, context.local_count
    )
    edge_start, edge = _parts(context.edge_start, places, context.edge)
    collab_start, collab_node = _parts(context.collab_start, places, context.collab_node)
    temporal_start, temporal_node = _parts(context.temporal_start, which, context.temporal_node)
    return Context(
        seed_node=context.seed_node[places],
        seed_time=context.seed_time[places],
        local_start=local_start,
        local_node=node,
        local_hop=hop,
        local_count=share,
        edge_start=edge_start,
        edge=edge,
        collab_start=collab_start,
        collab_node=collab_node,
        time_index=time_index.astype(np.int32).reshape(-1),
        temporal_start=temporal_start,
        temporal_node=temporal_node,
        sketch=context.sketch[places],
    )


def _checked(places: NDArray[Any], num_seeds: int) -> NDArray[np.int64]:
    """The places as integers; compiled code does not notice one that is out of range."""
    if places.size and places.dtype.kind not in "iu":
        raise TypeError(f"seeds are named by their places, whole numbers, not by {places.dtype}")
    places = places.astype(np.int64).reshape(-1)
    if places.size and not 0 <= places.min() <= places.max() < num_seeds:
        raise IndexError(f"there are seeds 0 to {num_seeds - 1}, asked for {places.min()} to {places.max()}")
    return places


def _parts(start: Array, places: Array, *contents: Array) -> tuple[Array, ...]:
    """Where the chosen parts start in the result, and the parts of each content, one after the other."""
    begin, end = start[places], start[places + 1]
    new_start = np.concatenate([[0], np.cumsum(end - begin)])
    parts = []
    for content in contents:
        part = np.empty((new_start[-1], *content.shape[1:]), content.dtype)
        width = content.dtype.itemsize * int(np.prod(content.shape[1:]))
        source = _bytes(content)
        source.flags.writeable = False  # as if from a file, so that one compiled kernel serves both
        _copy(begin * width, end * width, source, _bytes(part))
        parts.append(part)
    return new_start, *parts


def _bytes(array: Array) -> Array:
    """The bytes of an array, without a copy: one kernel then serves every type of content."""
    return array.reshape(-1).view(np.uint8)


@compiled
def _copy(begin: Any, end: Any, content: Any, out: Any) -> None:
    """Copies the parts of `content` one after the other into `out`.

    Places are unsigned: a signed one might count from the end, and looking for that costs five times the copy.
    """
    at = np.uint64(0)
    for part in range(len(begin)):
        first = np.uint64(begin[part])
        length = np.uint64(end[part]) - first
        for byte in range(length):
            out[at + byte] = content[first + byte]
        at += length
