"""One seed's context as a picture: two samplers beside each other, as in the paper's appendix A.4.1."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from quartet.config import SamplingConfig
from quartet.drawing import svg
from quartet.errors import UsageError
from quartet.times import show_instant

if TYPE_CHECKING:
    from quartet.contexts import Array, Context
    from quartet.graph import TemporalGraph
    from quartet.tasks import Task

_SIDE, _MARGIN, _LEGEND = 460, 20, 150
_COLORS = ("#1f77b4", "#e6930a", "#2e8b57", "#8e44ad", "#6b4f2a", "#17a2b8", "#d6449b", "#3f3fbf", "#7f7f7f")
_SEED = "#dc2626"

Places = dict[int, tuple[float, float]]


def seed_svg(task: Task, graph: TemporalGraph, config: SamplingConfig, seed: int) -> str:
    """Draws the local context of one training seed, CRW beside BFS2."""
    from quartet.contexts import sample  # here, because others who draw need not wait for numba

    seeds = task.seeds("train")
    if not 0 <= seed < len(seeds):
        raise UsageError(
            "C02", f"there is no training seed {seed}", f"give a number from 0 to {len(seeds) - 1}"
        )
    one = seeds.select(np.arange(len(seeds)) == seed)
    panels = {
        name: (sample(graph, one, config.changed(local_sampler=sampler, branches=())), 0)
        for name, sampler in (("CRW", "walk"), ("BFS2", "bfs"))
    }
    entity = task.database[task.spec.entity_table]
    key = (
        entity.key_map.show(int(one.node[0]) - task.database.offsets[entity.name])
        if entity.primary_key
        else ""
    )
    title = f"{task.name}: {entity.name} {key} at {show_instant(int(one.time[0]))}"
    return context_svg(panels, graph.names, graph.offsets, title)


def context_svg(
    panels: Mapping[str, tuple[Context, int]], tables: Sequence[str], offsets: Array, title: str
) -> str:
    """Draws one panel for each (context, seed): the seed is a star, rows lie by distance, orphans are grey."""
    width = _MARGIN + (_SIDE + _MARGIN) * len(panels) + _LEGEND
    parts = [svg.text(_MARGIN, 20, title, font_weight="bold")]
    seen: set[int] = set()
    for number, (name, (context, seed)) in enumerate(panels.items()):
        drawn, kinds = _panel(name, context, seed, offsets, _MARGIN + number * (_SIDE + _MARGIN))
        parts += drawn
        seen |= kinds
    legend = [(_COLORS[kind % len(_COLORS)], tables[kind]) for kind in sorted(seen)]
    for rank, (color, label) in enumerate([*legend, (_SEED, "the seed"), (svg.PALE, "not reached from it")]):
        y, x = 60 + 18 * rank, width - _LEGEND
        parts += [svg.dot(x, y - 4, 4, color), svg.text(x + 10, y, label, most=24)]
    return svg.page(width, _SIDE + 70, parts, font_size=12)


def _panel(name: str, context: Context, seed: int, offsets: Array, left: int) -> tuple[list[str], set[int]]:
    nodes, _, _, edges = context.local(seed)
    kinds = np.searchsorted(offsets, nodes, side="right") - 1
    tree = _tree(len(nodes), edges)
    places = _positions(tree, len(nodes), left + _SIDE / 2, 40 + _SIDE / 2)
    about = f"{name}: {len(nodes)} rows, {len(edges)} edges, {len(nodes) - len(tree)} not reached"
    parts = [svg.text(left, 40, about)]
    for child, parent in edges.tolist():
        parts.append(svg.line(*places[child], *places[parent], "#9ca3af", 0.6))
    for place in range(1, len(nodes)):
        color = _COLORS[kinds[place] % len(_COLORS)] if place in tree else svg.PALE
        parts.append(svg.dot(*places[place], 3.4, color))
    return [*parts, _star(*places[0])], set(kinds.tolist())


def _tree(count: int, edges: Array) -> dict[int, int]:
    """Returns every row that is reachable from the seed, and the row through which it was first reached."""
    beside: list[list[int]] = [[] for _ in range(count)]
    for child, parent in edges.tolist():
        beside[child].append(parent)
        beside[parent].append(child)
    parents, queue = {0: -1}, [0]
    for place in queue:
        for other in beside[place]:
            if other not in parents:
                parents[other] = place
                queue.append(other)
    return parents


def _positions(tree: dict[int, int], count: int, x: float, y: float) -> Places:
    """Lays out a radial tree: each row in its parent's sector, as wide as its branch is full; orphans in rows below."""
    depth, weight = {0: 0}, dict.fromkeys(tree, 1)
    for place, parent in tree.items():
        if parent >= 0:
            depth[place] = depth[parent] + 1
    for place in reversed(tree):
        if tree[place] >= 0:
            weight[tree[place]] += weight[place]
    ring = (_SIDE / 2 - 50) / max(1, *depth.values())
    places: Places = {0: (x, y)}
    sector = {0: (0.0, 2 * math.pi)}
    used = dict.fromkeys(tree, 0.0)
    for place, parent in tree.items():
        if parent < 0:
            continue
        begin, end = sector[parent]
        angle = (end - begin) * weight[place] / max(1, weight[parent] - 1)
        sector[place] = (begin + used[parent], begin + used[parent] + angle)
        used[parent] += angle
        angle, radius = sum(sector[place]) / 2, ring * depth[place]
        places[place] = (x + radius * math.cos(angle), y + radius * math.sin(angle))
    for rank, place in enumerate(place for place in range(count) if place not in tree):
        row, column = divmod(rank, 50)
        places[place] = (x - _SIDE / 2 + 10 + column * 9, y + _SIDE / 2 - 6 - row * 9)
    return places


def _star(x: float, y: float) -> str:
    points = [
        f"{x + r * math.sin(k * math.pi / 5):.1f},{y - r * math.cos(k * math.pi / 5):.1f}"
        for k, r in enumerate([9, 4] * 5)
    ]
    return f'<polygon points="{" ".join(points)}" fill="{_SEED}"/>'
