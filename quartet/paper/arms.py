"""Arms: the models that each study of the paper compares, every one trained on each task with several random seeds."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from quartet.config import BRANCHES, Recipe, published_settings

StudyName = Literal["main", "sampler", "ablation", "capacity", "choices"]

SAMPLER_NAMES = {"BFS2": "bfs", "CRW": "walk"}
PAPER_PRESETS = ("paper", "paper-val")
# RelBench's fan-outs for each relation. Its contexts have no budget; ours is one that hardly any of them reaches.
_UNIFORM = {"local_sampler": "uniform", "first_fanout": 128, "second_fanout": 64, "local_budget": 1000}
# What a baseline keeps of its publication where the preset is not the paper's: width and training are the preset's.
_KEPT = ("local_layers", "num_archetypes", "num_latents", "latent_layers", "conv_layers", "dropout")
# Found on RelGT with CRW in the paper, and then QUARTET's: the two share them here, too.
LOCAL_SETTINGS = ("local_layers", "dropout", "weight_decay")


@dataclass(frozen=True)
class Arm:
    """A model by its name in tables, and how its recipe differs from the preset's.

    A baseline has the settings of its publication, and those of `shared` from QUARTET.
    """

    name: str
    model: str = "quartet"
    changes: dict[str, Any] = field(default_factory=dict)
    shared: tuple[str, ...] = ()

    def settings(self, preset: str, task: str) -> dict[str, Any]:
        """Returns what an arm has on a task ("dataset/task") before the user's changes, beside what the preset says."""
        found = published_settings(self.model, task)
        if preset not in PAPER_PRESETS:
            found = {name: value for name, value in found.items() if name in _KEPT}
        quartets = Recipe.load(preset, task, "quartet").to_dict() if self.shared else {}
        return found | {name: quartets[name] for name in self.shared}


def _without(branch: str) -> dict[str, Any]:
    return {"branches": tuple(other for other in BRANCHES if other != branch)}


_SAMPLER_GRID: dict[str, tuple[str, tuple[Any, ...]]] = {  # of appendix A.3.1, and how tables call a field
    "local_layers": ("L=", (1, 4, 8)),
    "dropout": ("dropout ", (0.3, 0.4, 0.5)),
    "weight_decay": ("decay ", (5e-5, 5e-4, 5e-3)),
}


def sampler_arms(fixed: Collection[str] = ()) -> tuple[Arm, ...]:
    """Returns RelGT on both samplers with every cell of the paper's grid; a field that is fixed is not searched."""
    grid = {name: values for name, (_, values) in _SAMPLER_GRID.items() if name not in fixed}
    arms = []
    for values in itertools.product(*grid.values()):
        cell = dict(zip(grid, values, strict=True))
        words = [f"{_SAMPLER_GRID[name][0]}{value:g}" for name, value in cell.items()]
        for name, sampler in SAMPLER_NAMES.items():
            arms.append(Arm(", ".join([name, *words]), "relgt", {"local_sampler": sampler} | cell))
    return tuple(arms)


_CHOICES = {"collab_hops": 2, "fallback": "visible", "time_rule": "<=", "mix": "mlp"}

STUDIES: dict[StudyName, tuple[Arm, ...]] = {
    "main": (
        Arm("QUARTET"),
        Arm("RelGT", "relgt", {"local_sampler": "bfs"}),
        Arm("RelGT + CRW", "relgt", {"local_sampler": "walk"}, LOCAL_SETTINGS),
        Arm("HGT", "hgt", _UNIFORM),
        Arm("HGT + CRW", "hgt", {"local_sampler": "walk"}),
        Arm("RGP", "rgp", {"local_sampler": "bfs"}),
        Arm("GraphSAGE", "sage", _UNIFORM),
        Arm("GraphSAGE + CRW", "sage", {"local_sampler": "walk"}),
        Arm("LightGBM", "lightgbm"),
    ),
    "sampler": sampler_arms(),
    "ablation": (
        Arm("full"),
        Arm("no local", changes={"local": False}),
        Arm("no perceiver", changes={"perceiver": False}),
        Arm("no CRW", changes={"local_sampler": "bfs"}),
        Arm("no hub truncation", changes={"max_recent": None}),
        Arm("no restart", changes={"restart_prob": 0.0}),
        Arm("no temporal", changes=_without("temporal")),
        Arm("no collaborative", changes=_without("collab")),
        Arm("no feature", changes=_without("feature")),
        Arm("no topology", changes=_without("topology")),
    ),
    "capacity": tuple(
        Arm(f"Z={latents}, R={archetypes}", changes={"num_latents": latents, "num_archetypes": archetypes})
        for latents in (16, 32, 64)
        for archetypes in (128, 256, 512)
    ),
    "choices": (
        Arm("reference", changes=_CHOICES),
        Arm("look-alikes four links away", changes=_CHOICES | {"collab_hops": 4}),
        Arm("nothing for seeds without history", changes=_CHOICES | {"fallback": "null"}),
        Arm("rows strictly before", changes=_CHOICES | {"time_rule": "<"}),
        Arm("linear mix", changes=_CHOICES | {"mix": "linear"}),
    ),
}
FULL = "full"  # the arm that ablated ones are compared with
ABLATED = tuple(arm.name for arm in STUDIES["ablation"] if arm.name != FULL)


def arms_of(study: StudyName, changes: Collection[str] = ()) -> tuple[Arm, ...]:
    """Returns the arms of a study for a user who changes some fields: what is changed is not searched."""
    return sampler_arms(changes) if study == "sampler" else STUDIES[study]


def reference_arm(study: StudyName, arm: str) -> str | None:
    """Returns the arm that another is compared with: QUARTET, the full model, or BFS2 with the same settings."""
    references = {
        "main": "QUARTET", "ablation": FULL, "choices": "reference", "sampler": arm.replace("CRW", "BFS2"),
    }  # fmt: skip
    return references.get(study)


def selections(study: StudyName, names: Sequence[str]) -> list[list[str]]:
    """Returns the arms among which validation selects one: all capacities, and of each sampler all settings."""
    if study == "sampler":
        return [[name for name in names if name.startswith(sampler)] for sampler in SAMPLER_NAMES]
    return [list(names)] if study == "capacity" else []
