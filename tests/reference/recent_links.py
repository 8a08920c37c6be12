"""The temporal context of RGP by a look at every link."""

from __future__ import annotations

from quartet.config import SamplingConfig
from quartet.times import STATIC
from tests.reference.graph import Twin

Link = tuple[int, int]  # child, parent


def recent_links(twin: Twin, time: int, config: SamplingConfig) -> list[int]:
    """The rows at the ends of the newest visible links of each foreign key, each where it comes first."""
    rows: list[int] = []
    for name in twin.names:
        children = twin.nodes_of(name)
        for slot in range(len(twin.parents[children[0]]) if children else 0):
            links = [(child, twin.parents[child][slot]) for child in children]
            for link in newest_first(twin, links, time, config)[: config.recent_links]:
                rows += [row for row in link if row not in rows]
    return rows


def newest_first(twin: Twin, links: list[Link], time: int, config: SamplingConfig) -> list[Link]:
    """Those links that have a time and are visible, by (time of the later end, key of the child)."""
    found = []
    for child, parent in links:
        if parent >= 0:
            known_at = max(twin.nodes[child].time, twin.nodes[parent].time)
            is_known = known_at <= time if config.time_rule == "<=" else known_at < time
            if known_at != STATIC and is_known:
                found.append((known_at, twin.nodes[child].key, child, parent))
    return [(child, parent) for *_, child, parent in sorted(found, reverse=True)]
