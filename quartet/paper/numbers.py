"""The paper's figures, to stand beside ours: means over its random seeds, from `numbers.csv`.

main          appendix A.4.2; RGP is from A.4.4, whose other columns differ from A.4.2 by up to 0.0042
ablation      appendix A.4.3, on test
capacity      appendix A.3.4; what the paper reports is the best cell on test
efficiency    appendix A.2.3: QUARTET over RelGT, five tasks
connectivity  appendix A.4.1: means over all training seeds, K = 300
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from statistics import fmean

from quartet.paper.arms import FULL
from quartet.paper.statistics import Comparison, Measured, Spread

NUM_SEEDS = 4
_METRIC = "roc_auc"  # of all its tasks
_PROTOCOL = "frozen"
_Key = tuple[str, str, str, str]  # study, dataset, task, and which figure


@cache
def _numbers() -> dict[_Key, dict[str, Spread]]:
    table: dict[_Key, dict[str, Spread]] = {}
    with (files("quartet.paper") / "numbers.csv").open(encoding="utf-8") as file:
        for study, dataset, task, arm, figure, mean, sd in list(csv.reader(file))[1:]:
            spread = Spread(float(mean), float(sd) if sd else None, NUM_SEEDS)
            table.setdefault((study, dataset, task, figure), {})[arm] = spread
    return table


def paper(study: str, dataset: str, task: str, figure: str) -> dict[str, Spread]:
    """Returns the paper's figure of each arm of a study on one task; nothing where it has none."""
    return dict(_numbers().get((study, dataset, task, figure), {}))


def paper_means(study: str, dataset: str, task: str, arm: str) -> dict[str, float]:
    """Returns every figure of one arm on one task, by its name."""
    keys = [key for key in _numbers() if key[:3] == (study, dataset, task) and arm in _numbers()[key]]
    return {key[3]: _numbers()[key][arm].mean for key in keys}


def paper_selected(dataset: str, task: str) -> float | None:
    """Returns what the paper's QUARTET has on test if its capacity is selected on validation, not on test."""
    validation = paper("capacity", dataset, task, "validation")
    best = max(validation, key=lambda arm: validation[arm].mean, default=None)
    return None if best is None else paper("capacity", dataset, task, "test")[best].mean


def paper_beside(compared: Comparison, split: Measured) -> dict[str, Spread]:
    """Returns the paper's figures that may stand beside ours: those of the same task, metric and protocol."""
    is_same = (compared.metric, compared.protocol) == (_METRIC, _PROTOCOL)
    return paper(compared.study, compared.dataset, compared.task, split) if is_same else {}


def paper_changes(compared: Comparison) -> dict[str, float]:
    """Returns the paper's Table 2: the change of test in percent of the full model's, of each ablated one."""
    figures = paper_beside(compared, "test")
    full = figures.pop(FULL, None)
    return (
        {arm: 100 * (figure.mean - full.mean) / full.mean for arm, figure in figures.items()} if full else {}
    )


def paper_ratios(dataset: str, task: str) -> tuple[str, dict[str, float]]:
    """Returns QUARTET's costs over RelGT's, and of what: of this task, or the mean of all that the paper timed."""
    arm = "QUARTET / RelGT"
    if own := paper_means("efficiency", dataset, task, arm):
        return "the paper", own
    timed = list(dict.fromkeys(key[1:3] for key in _numbers() if key[0] == "efficiency"))
    every = [paper_means("efficiency", *name, arm) for name in timed]
    return f"the paper, mean of {len(timed)} other tasks", {
        ratio: fmean(ratios[ratio] for ratios in every) for ratio in every[0]
    }
