"""Studies: the paper's tables, made again on any task, with the paper's row beside ours where it has one."""

from __future__ import annotations

from dataclasses import dataclass

from quartet.config import SamplingConfig
from quartet.contexts import Progress, connectivity, sample
from quartet.graph import TemporalGraph
from quartet.tasks import Task

MEASURES = ("degree", "seed_connected", "components", "distinct", "density", "clustering")

# Appendix A.4.1 of the paper: means over all training seeds, CRW and BFS2, K = 300, in the order of MEASURES.
_PAPER = {
    ("rel-amazon", "item-churn"): "1.99 1.80 1.000 0.988 1.1 3.3 162.2 38.3 0.032 0.181 0.000 0.000",
    ("rel-amazon", "user-churn"): "2.00 1.70 1.000 0.998 1.0 1.4 167.4 16.5 0.024 0.298 0.000 0.000",
    ("rel-avito", "user-clicks"): "1.98 1.50 0.646 0.595 107.2 120.2 254.2 191.6 0.009 0.049 0.000 0.000",
    ("rel-avito", "user-visits"): "1.83 1.39 0.605 0.564 119.6 129.9 252.1 193.4 0.009 0.050 0.000 0.000",
    ("rel-event", "user-ignore"): "1.29 1.29 0.649 0.642 106.4 101.3 177.1 273.7 0.016 0.008 0.000 0.000",
    ("rel-event", "user-repeat"): "1.52 1.49 0.762 0.743 72.5 73.5 172.9 278.0 0.015 0.007 0.000 0.000",
    ("rel-f1", "driver-dnf"): "2.97 2.60 0.930 0.918 22.1 24.5 269.8 136.8 0.011 0.060 0.000 0.000",
    ("rel-f1", "driver-top3"): "3.49 2.97 0.964 0.949 11.8 15.5 263.1 164.3 0.014 0.055 0.000 0.000",
    ("rel-hm", "user-churn"): "2.04 1.92 0.999 0.996 1.3 1.5 235.4 32.1 0.010 0.175 0.000 0.000",
    ("rel-stack", "user-badge"): "1.29 1.26 0.652 0.648 105.5 106.3 130.9 118.5 0.235 0.289 0.108 0.119",
    ("rel-stack", "user-engagement"): "2.49 2.41 0.999 0.990 1.4 3.2 61.8 32.4 0.065 0.188 0.260 0.288",
    ("rel-trial", "study-outcome"): "2.33 2.17 1.000 0.989 1.0 3.2 157.1 49.4 0.017 0.107 0.003 0.000",
}


@dataclass(frozen=True)
class ConnectivityRow:
    """The means of one sampler on one task; `source` is "here" or "paper"."""

    task: str
    sampler: str
    source: str
    means: dict[str, float]


def connectivity_study(
    task: Task, config: SamplingConfig, progress: Progress = lambda _: None
) -> list[ConnectivityRow]:
    """CRW against BFS2 on all training seeds of a task (appendix A.4.1)."""
    graph = TemporalGraph.build(task.database)
    seeds = task.seeds("train")
    rows = []
    for sampler in ("walk", "bfs"):
        context = sample(graph, seeds, config.changed(local_sampler=sampler, branches=()), progress=progress)
        rows.append(ConnectivityRow(task.name, sampler, "here", connectivity(context).means()))
    return rows + _paper_rows(task)


def _paper_rows(task: Task) -> list[ConnectivityRow]:
    cells = _PAPER.get((task.full_database.schema.name, task.name), "").split()
    return [
        ConnectivityRow(
            task.name, sampler, "paper", dict(zip(MEASURES, map(float, cells[place::2]), strict=True))
        )
        for place, sampler in enumerate(("walk", "bfs"))
        if cells
    ]
