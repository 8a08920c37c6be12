"""How well contexts hang together: causal random walks against BFS2 (appendix A.4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quartet.config import SamplingConfig
from quartet.contexts import connectivity, sample
from quartet.graph import TemporalGraph
from quartet.listener import SILENT, Listener
from quartet.paper.arms import SAMPLER_NAMES
from quartet.paper.numbers import paper_means
from quartet.paper.tables import Sheet
from quartet.tasks import Task

_MEASURES = {  # each with its title and its decimals
    "degree": ("avg. degree", 2),
    "seed_connected": ("seed-conn. ratio", 3),
    "components": ("# comp.", 1),
    "distinct": ("distinct nodes", 1),
    "density": ("edge density", 3),
    "clustering": ("clust. coeff.", 3),
}


@dataclass(frozen=True)
class ConnectivityRow:
    """The means of one sampler on one task; `source` is "here" or "paper"."""

    task: str
    sampler: str
    source: str
    means: dict[str, float]


def connectivity_study(
    task: Task, config: SamplingConfig, listener: Listener = SILENT
) -> list[ConnectivityRow]:
    """Returns the means of both samplers over all training seeds of a task, and the paper's where it has them."""
    graph, rows = TemporalGraph.build(task.database), []
    for sampler in ("walk", "bfs"):
        own = config.changed(local_sampler=sampler, branches=())
        context = sample(graph, task.seeds("train"), own, listener=listener)
        rows.append(ConnectivityRow(task.name, sampler, "here", connectivity(context).means()))
    for sampler in ("walk", "bfs"):
        means = paper_means("connectivity", task.full_database.schema.name, task.name, sampler)
        rows += [ConnectivityRow(task.name, sampler, "paper", means)] if means else []
    return rows


def connectivity_sheet(rows: Sequence[ConnectivityRow]) -> Sheet:
    """Returns CRW against BFS2, and the paper's row beside ours where it has one."""
    names = list(reversed(SAMPLER_NAMES))
    pairs: dict[tuple[str, str], list[dict[str, float]]] = {}
    for row in rows:
        pairs.setdefault((row.task, row.source), []).append(row.means)
    cells = [
        (
            *name,
            *(" | ".join(f"{one[m]:.{digits}f}" for one in means) for m, (_, digits) in _MEASURES.items()),
        )
        for name, means in pairs.items()
    ]
    columns = ("task", "source", *(title for title, _ in _MEASURES.values()))
    return Sheet(f"{' | '.join(names)}, all training seeds", columns, cells)
