"""What people see of the efficiency study: costs, and QUARTET's as ratios to RelGT's."""

from __future__ import annotations

from collections.abc import Sequence

from quartet.paper.efficiency import Cost
from quartet.paper.numbers import paper_ratios
from quartet.paper.tables import NOTHING, Sheet

_COLUMNS = ("", "epoch", "throughput", "precompute", "memory of a step", "cache", "parameters")
LEGEND = (
    "Epoch: CPU seconds of one core for all training seeds once. Throughput: seeds a second at inference, likewise. "
    "Precompute: seconds for the contexts of all splits, on all cores. Memory: tensors of a step on a whole batch, "
    "with Adam's moments.",
    "RelGT as published: every token for itself, the whole batch at once, contexts stored with their padding. "
    "RelGT here: by the same pipeline as QUARTET. The paper's ratios are to the former, on a GPU.",
)


def efficiency_sheet(dataset: str, task: str, settings: str, costs: Sequence[Cost]) -> Sheet:
    """The costs of QUARTET and of RelGT in both forms, and the ratios."""
    ours, *others = costs
    rows = [_row(cost) for cost in costs]
    rows += [(f"QUARTET / {cost.model}", *_ratios(ours, cost)) for cost in others]
    label, paper = paper_ratios(dataset, task)
    rows.append((label, *(f"{ratio:.2f}x" for ratio in paper.values())))
    return Sheet(f"{dataset}/{task}, {settings}", _COLUMNS, rows)


def _row(cost: Cost) -> tuple[str, ...]:
    precompute = NOTHING if cost.precompute_seconds is None else f"{cost.precompute_seconds:.2f} s"
    return (
        cost.model,
        f"{cost.epoch_seconds:.1f} s",
        f"{cost.seeds_per_second:,.0f} a second",
        precompute,
        f"{cost.step_bytes / 1e6:,.0f} MB",
        f"{cost.cache_bytes / 1e6:.2f} MB",
        f"{cost.num_parameters:,}",
    )


def _ratios(ours: Cost, other: Cost) -> tuple[str, ...]:
    pairs = (
        (ours.epoch_seconds, other.epoch_seconds),
        (ours.seeds_per_second, other.seeds_per_second),
        (ours.precompute_seconds, other.precompute_seconds),
        (ours.step_bytes, other.step_bytes),
        (ours.cache_bytes, other.cache_bytes),
        (ours.num_parameters, other.num_parameters),
    )
    return tuple(f"{one / two:.2f}x" if one and two else NOTHING for one, two in pairs)
