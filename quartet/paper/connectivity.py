"""How well contexts hang together: causal random walks against BFS2 (appendix A.4.1), as a table and as its figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quartet.config import SamplingConfig
from quartet.contexts import connectivity, sample
from quartet.drawing import svg
from quartet.graph import TemporalGraph
from quartet.listener import SILENT, Listener
from quartet.paper.arms import SAMPLER_NAMES
from quartet.paper.numbers import paper_means
from quartet.paper.tables import NOTHING, Sheet
from quartet.tasks import Task

_MEASURES = {  # each with its title and its decimals
    "degree": ("avg. degree", 2),
    "seed_connected": ("seed-conn. ratio", 3),
    "components": ("# comp.", 1),
    "component_size": ("comp. size", 1),
    "distinct": ("distinct nodes", 1),
    "efficiency": ("token efficiency", 3),
    "density": ("edge density", 3),
    "clustering": ("clust. coeff.", 3),
}
_PANELS = ("degree", "seed_connected", "component_size", "efficiency")  # those of the paper's figure
_PAPER_BUDGET = 300
_COLORS = {"walk": svg.LINE, "bfs": "#e6930a"}


@dataclass(frozen=True)
class ConnectivityRow:
    """The means of one sampler on one task, and how seeds spread around them; `source` is "here" or "paper"."""

    task: str
    sampler: str
    source: str
    means: dict[str, float]
    deviations: dict[str, float]


def connectivity_study(
    task: Task, config: SamplingConfig, listener: Listener = SILENT
) -> list[ConnectivityRow]:
    """Returns the means of both samplers over all training seeds of a task, and the paper's where it has them.

    Token efficiency is the share of the budget that distinct rows fill.
    """
    graph, rows = TemporalGraph.build(task.database), []
    for sampler in ("walk", "bfs"):
        own = config.changed(local_sampler=sampler, branches=())
        measured = connectivity(sample(graph, task.seeds("train"), own, listener=listener))
        means, deviations = (
            figures | {"efficiency": figures["distinct"] / own.local_budget}
            for figures in (measured.means(), measured.deviations())
        )
        rows.append(ConnectivityRow(task.name, sampler, "here", means, deviations))
    for sampler in ("walk", "bfs"):
        if means := paper_means("connectivity", task.full_database.schema.name, task.name, sampler):
            means |= {"efficiency": means["distinct"] / _PAPER_BUDGET}
            rows.append(ConnectivityRow(task.name, sampler, "paper", means, {}))
    return rows


def connectivity_sheet(rows: Sequence[ConnectivityRow]) -> Sheet:
    """Returns CRW against BFS2: means, deviations over seeds, and the paper's means beside ours where it has some."""
    names = list(reversed(SAMPLER_NAMES))
    pairs: dict[tuple[str, str], list[dict[str, float]]] = {}
    for row in rows:
        pairs.setdefault((row.task, row.source), []).append(row.means)
        if row.deviations:
            pairs.setdefault((row.task, "± over seeds"), []).append(row.deviations)

    def both(figures: Sequence[dict[str, float]], measure: str, digits: int) -> str:
        shown = [f"{one[measure]:.{digits}f}" for one in figures if measure in one]
        return " | ".join(shown) if shown else NOTHING

    cells = [
        (*name, *(both(figures, measure, digits) for measure, (_, digits) in _MEASURES.items()))
        for name, figures in pairs.items()
    ]
    columns = ("task", "source", *(title for title, _ in _MEASURES.values()))
    return Sheet(f"{' | '.join(names)}, all training seeds", columns, cells)


def connectivity_svg(rows: Sequence[ConnectivityRow]) -> str:
    """Returns the paper's four panels: bars of both samplers on each task, ± one deviation, the paper's mean hollow."""
    tasks = list(dict.fromkeys(row.task for row in rows))
    width, height = 120 + 70 * len(tasks), 190
    parts: list[str] = []
    for number, measure in enumerate(_PANELS):
        left, top = width * (number % 2) + 50, height * (number // 2) + 34
        ours = [row for row in rows if row.source == "here"]
        high = max(row.means[measure] + row.deviations[measure] for row in ours) * 1.05 or 1.0
        scale = (height - 80) / high
        bottom = top + height - 80
        parts.append(svg.text(left - 38, top - 14, _MEASURES[measure][0], font_size=13))
        for value in svg.ticks(0.0, high):
            y = bottom - value * scale
            parts.append(svg.line(left, y, left + 70 * len(tasks), y))
            parts.append(svg.text(left - 5, y + 4, f"{value:g}", "end", font_size=10))
        for place, task in enumerate(tasks):
            parts.append(svg.text(left + 70 * place + 35, bottom + 15, task, "middle", most=14, font_size=10))
        for row in rows:
            if measure not in row.means:
                continue
            x = left + 70 * tasks.index(row.task) + (12 if row.sampler == "walk" else 37)
            y = bottom - row.means[measure] * scale
            if row.source == "here":
                spread = row.deviations[measure] * scale
                parts.append(svg.rect(x, y, 21, bottom - y, _COLORS[row.sampler]))
                parts.append(svg.line(x + 10.5, y - spread, x + 10.5, min(bottom, y + spread), svg.INK))
            else:
                parts.append(svg.dot(x + 10.5, y, 3.5, "white", stroke=svg.MARK, stroke_width=1.5))
    legend = "blue: CRW; orange: BFS2; line: ± one standard deviation over training seeds; ring: the paper"
    end = height * ((len(_PANELS) + 1) // 2)
    parts.append(svg.text(12, end + 14, legend, fill=svg.GREY, font_size=10))
    return svg.page(max(2 * width, 520), end + 26, parts)
