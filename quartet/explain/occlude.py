"""Contexts as they would be had some rows not been there: many variants of one seed in one batch.

The context is that which the samplers gathered, less the rows that are gone and those that only they linked to the
seed. Nothing is drawn anew in their place: another draw would be another change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from quartet.causal import last_visible_rank
from quartet.contexts import Context
from quartet.graph import seed_entries
from quartet.times import DAY, STATIC
from quartet.tokens import SeedGroup, TokenBatch
from quartet.training import View

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


def lost_rows(context: Context, gone: Sequence[Ints]) -> Mask:
    """Returns which local rows each variant lacks: (variants, rows). The first row, the seed, always stays."""
    node, _, _, edge = context.local(0)
    lost = np.stack([np.isin(node, some) for some in gone])
    lost[:, 0] = False
    near = np.eye(len(node), dtype=np.float32)
    near[edge[:, 0], edge[:, 1]] = near[edge[:, 1], edge[:, 0]] = 1
    return lost | (_reached(np.zeros_like(lost[:1]), near) & ~_reached(lost, near))


def _reached(lost: Mask, near: NDArray[np.float32]) -> Mask:
    """Returns which rows links lead to from the first row, by rows that are not lost."""
    reached = np.zeros_like(lost)
    reached[:, 0] = True
    while True:
        wider = (reached.astype(np.float32) @ near > 0) & ~lost
        if (wider == reached).all():
            return reached
        reached = wider


def occluded_batch(batch: TokenBatch, context: Context, gone: Sequence[Ints]) -> TokenBatch:
    """Returns a batch of copies of one seed in which each lacks its own rows."""
    lost = lost_rows(context, gone)
    look_alikes, recent = (
        np.stack([~np.isin(nodes, some) for some in gone])
        for nodes in (context.collab(0), context.temporal(0))
    )
    groups = tuple(_occluded_group(group, lost, look_alikes) for group in batch.groups)
    if not recent.shape[1]:
        return replace(batch, groups=groups)
    kinds, time_index = np.unique(recent, axis=0, return_inverse=True)
    temporal, num_temporal = _compressed(batch.temporal.numpy()[np.zeros(len(kinds), np.int64)], kinds)
    return replace(
        batch,
        groups=groups,
        temporal=temporal,
        num_temporal=num_temporal,
        time_index=torch.from_numpy(time_index.reshape(-1)),
    )


def _occluded_group(group: SeedGroup, lost: Mask, look_alikes: Mask) -> SeedGroup:
    seeds, (size, width) = group.seed.numpy(), group.row.shape
    mask = np.zeros((size, width), bool)
    mask[:, : lost.shape[1]] = lost[seeds]
    edge = group.edge.numpy()
    kept = ~mask.ravel()[edge].any(0)
    collab, num_collab = _compressed(group.collab.numpy(), look_alikes[seeds])
    return replace(
        group,
        count=group.count.masked_fill(torch.from_numpy(mask), 0.0),
        edge=torch.from_numpy(np.ascontiguousarray(edge[:, kept])),
        collab=collab,
        num_collab=num_collab,
    )


def _compressed(places: Ints, kept: Mask) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns lines of places with those that are kept first, and how many they are."""
    order = np.argsort(~kept, axis=1, kind="stable")
    return torch.from_numpy(np.take_along_axis(places, order, 1)), torch.from_numpy(kept.sum(1))


def visible_links(view: View, node: int, time: int) -> tuple[Ints, Ints]:
    """Returns the rows that a row is linked to at a time, oldest first, and when each link was known."""
    graph = view.graph
    last = last_visible_rank(graph.times, np.array([time]), view.recipe.sampling.time_rule)[0]
    entries = seed_entries(graph.arrays, node, time, last)
    return entries & 0xFFFFFFFF, np.asarray(graph.times[entries >> 32])


def sketch_without(
    view: View, node: int, time: int, sketch: NDArray[np.float32], gone: Sequence[Ints]
) -> NDArray[np.float32]:
    """Returns the (variants, sketch) structural sketches; the largest visit count of the walks is held."""
    graph = view.graph
    neighbours, known = visible_links(view, node, time)
    table, out = graph.types(neighbours), np.repeat(sketch[None], len(gone), 0)
    for variant, some in enumerate(gone):
        left = ~np.isin(neighbours, some)
        if left.all():
            continue
        timed = known[left & (known != STATIC)]
        span = (timed.max() - timed.min()) / DAY if len(timed) else 0.0
        counts = np.bincount(table[left], minlength=len(graph.names))
        numbers = [left.sum(), span, left.sum() / max(span, 1.0), np.expm1(float(sketch[3])), *counts]
        out[variant] = np.log1p(numbers)
    return out
