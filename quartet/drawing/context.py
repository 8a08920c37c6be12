"""One seed's context as a picture: two samplers beside each other, as in the paper's appendix A.4.1."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

import numpy as np

from quartet.config import SamplingConfig
from quartet.contexts import Array, Context, sample
from quartet.errors import UsageError, printable
from quartet.graph import TemporalGraph
from quartet.tasks import Task
from quartet.times import show_instant

SIDE, MARGIN, LEGEND = 460, 20, 150
_COLORS = ("#1f77b4", "#e6930a", "#2e8b57", "#8e44ad", "#6b4f2a", "#17a2b8", "#d6449b", "#3f3fbf", "#7f7f7f")
_ORPHAN, _SEED = "#d1d5db", "#dc2626"

Places = dict[int, tuple[float, float]]


def seed_svg(task: Task, graph: TemporalGraph, config: SamplingConfig, seed: int) -> str:
    """The local context of one training seed, CRW beside BFS2."""
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
    """One panel for each (context, seed): the seed is a star, rows lie by distance, orphans are grey."""
    width = MARGIN + (SIDE + MARGIN) * len(panels) + LEGEND
    height = SIDE + 70
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{MARGIN}" y="20" font-weight="bold">{html.escape(title)}</text>',
    ]
    seen: set[int] = set()
    for number, (name, (context, seed)) in enumerate(panels.items()):
        left = MARGIN + number * (SIDE + MARGIN)
        drawn, kinds = _panel(name, context, seed, offsets, left)
        parts += drawn
        seen |= kinds
    parts += _legend(width - LEGEND, sorted(seen), tables)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(name: str, context: Context, seed: int, offsets: Array, left: int) -> tuple[list[str], set[int]]:
    nodes, _, _, edges = context.local(seed)
    kinds = np.searchsorted(offsets, nodes, side="right") - 1
    beside = _beside(len(nodes), edges)
    tree = _tree(beside)
    places = _positions(tree, len(nodes), left + SIDE / 2, 40 + SIDE / 2)
    orphans = len(nodes) - len(tree)
    text = f"{name}: {len(nodes)} rows, {len(edges)} edges, {orphans} not reached"
    parts = [f'<text x="{left}" y="40">{html.escape(text)}</text>']
    for child, parent in edges.tolist():
        (x, y), (u, v) = places[child], places[parent]
        parts.append(f'<path d="M{x:.1f},{y:.1f} L{u:.1f},{v:.1f}" stroke="#9ca3af" stroke-width="0.6"/>')
    for place in range(1, len(nodes)):
        x, y = places[place]
        color = _COLORS[kinds[place] % len(_COLORS)] if place in tree else _ORPHAN
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.4" fill="{color}"/>')
    parts.append(_star(*places[0]))
    return parts, set(kinds.tolist())


def _beside(count: int, edges: Array) -> list[list[int]]:
    beside: list[list[int]] = [[] for _ in range(count)]
    for child, parent in edges.tolist():
        beside[child].append(parent)
        beside[parent].append(child)
    return beside


def _tree(beside: list[list[int]]) -> dict[int, int]:
    """Every row that is reachable from the seed -> the row through which it was first reached."""
    parent, queue = {0: -1}, [0]
    for place in queue:
        for other in beside[place]:
            if other not in parent:
                parent[other] = place
                queue.append(other)
    return parent


def _positions(tree: dict[int, int], count: int, x: float, y: float) -> Places:
    """A radial tree: each row in its parent's sector, as wide as its branch is full; orphans in rows below."""
    depth, weight = {0: 0}, dict.fromkeys(tree, 1)
    for place, parent in tree.items():
        if parent >= 0:
            depth[place] = depth[parent] + 1
    for place in reversed(tree):
        if tree[place] >= 0:
            weight[tree[place]] += weight[place]
    ring = (SIDE / 2 - 50) / max(1, *depth.values())
    places: Places = {0: (x, y)}
    sector = {0: (0.0, 2 * math.pi)}
    used = dict.fromkeys(tree, 0.0)
    for place, parent in tree.items():
        if parent < 0:
            continue
        begin, end = sector[parent]
        share = (end - begin) * weight[place] / max(1, weight[parent] - 1)
        sector[place] = (begin + used[parent], begin + used[parent] + share)
        used[parent] += share
        angle, radius = sum(sector[place]) / 2, ring * depth[place]
        places[place] = (x + radius * math.cos(angle), y + radius * math.sin(angle))
    for rank, place in enumerate(place for place in range(count) if place not in tree):
        row, column = divmod(rank, 50)
        places[place] = (x - SIDE / 2 + 10 + column * 9, y + SIDE / 2 - 6 - row * 9)
    return places


def _star(x: float, y: float) -> str:
    points = [
        f"{x + r * math.sin(k * math.pi / 5):.1f},{y - r * math.cos(k * math.pi / 5):.1f}"
        for k, r in enumerate([9, 4] * 5)
    ]
    return f'<polygon points="{" ".join(points)}" fill="{_SEED}"/>'


def _legend(x: int, kinds: list[int], tables: Sequence[str]) -> list[str]:
    rows = [(_COLORS[kind % len(_COLORS)], tables[kind]) for kind in kinds]
    rows += [(_SEED, "the seed"), (_ORPHAN, "not reached from it")]
    parts = []
    for rank, (color, text) in enumerate(rows):
        y = 60 + 18 * rank
        clean = printable(text)[:24]
        parts.append(f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{color}"/>')
        parts.append(f'<text x="{x + 10}" y="{y}">{html.escape(clean)}</text>')
    return parts
