"""What people see of contexts in the terminal: what was sampled, and how it hangs together."""

from __future__ import annotations

import numpy as np
from rich.console import RenderableType
from rich.table import Table as Grid

from quartet.config import SamplingConfig
from quartet.contexts import Context, TaskContext, connectivity
from quartet.drawing.terminal import new_grid
from quartet.paper import MEASURES, ConnectivityRow


def samples_view(samples: list[TaskContext], config: SamplingConfig) -> RenderableType:
    """One line for each split: size and shape of the contexts, and their cost."""
    numbers = (
        "seeds", "distinct", "mean hop", "fallback", "degree", "seed-connected", "components",
        "look-alikes", "times", "bytes/seed", "seeds/s",
    )  # fmt: skip
    table = new_grid("Contexts (means over seeds)", "split", *numbers, right=numbers)
    for sample in samples:
        context, means = sample.context, connectivity(sample.context).means()
        speed = f"{len(context) / sample.seconds:,.0f}" if sample.seconds else "cached"
        table.add_row(
            sample.split,
            f"{len(context):,}",
            f"{means['distinct']:.1f}",
            f"{_mean_hop(context, config):.2f}",
            f"{fallback_share(context, config):.1%}",
            f"{means['degree']:.2f}",
            f"{means['seed_connected']:.3f}",
            f"{means['components']:.1f}",
            f"{len(context.collab_node) / max(1, len(context)):.1f}",
            f"{len(context.temporal_start) - 1:,}",
            f"{context.num_bytes / max(1, len(context)):,.0f}",
            speed,
        )
    return table


def _mean_hop(context: Context, config: SamplingConfig) -> float:
    """The mean hop of the rows that walks or searches have found, the seeds left out."""
    hops = context.local_hop[(context.local_hop > 0) & (context.local_hop < config.fallback_hop)]
    return float(hops.mean()) if len(hops) else 0.0


def fallback_share(context: Context, config: SamplingConfig) -> float:
    """The share of seeds without history."""
    if not len(context):
        return 0.0
    is_alone = np.diff(context.local_start) == 1
    second = np.minimum(context.local_start[:-1] + 1, max(0, len(context.local_hop) - 1))
    return float((is_alone | (context.local_hop[second] == config.fallback_hop)).mean())


def connectivity_view(rows: list[ConnectivityRow]) -> Grid:
    """CRW against BFS2, and the paper's row beside ours where it has one."""
    names = {
        "degree": "avg. degree",
        "seed_connected": "seed-conn. ratio",
        "components": "# comp.",
        "distinct": "distinct nodes",
        "density": "edge density",
        "clustering": "clust. coeff.",
    }
    numbers = tuple(names[measure] for measure in MEASURES)
    table = new_grid("CRW | BFS2, all training seeds", "task", "source", *numbers, right=numbers)
    keys = dict.fromkeys((row.task, row.source) for row in rows)
    for task, source in keys:
        crw, bfs = (
            next(row.means for row in rows if (row.task, row.source, row.sampler) == (task, source, sampler))
            for sampler in ("walk", "bfs")
        )
        cells = (f"{crw[m]:.{_digits(m)}f} | {bfs[m]:.{_digits(m)}f}" for m in MEASURES)
        table.add_row(task, source, *cells)
    return table


def _digits(measure: str) -> int:
    return {"degree": 2, "components": 1, "distinct": 1}.get(measure, 3)
