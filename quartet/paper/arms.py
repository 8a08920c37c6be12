"""Arms: the models that each study of the paper compares, every one trained on each task with several random seeds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from quartet.config import BRANCHES

StudyName = Literal["main", "sampler", "ablation", "capacity"]

SAMPLER_NAMES = {"BFS2": "bfs", "CRW": "walk"}


@dataclass(frozen=True)
class Arm:
    """A model by its name in tables, and how its recipe differs from the preset's."""

    name: str
    model: str = "quartet"
    changes: dict[str, Any] = field(default_factory=dict)


def _without(branch: str) -> dict[str, Any]:
    return {"branches": tuple(other for other in BRANCHES if other != branch)}


STUDIES: dict[StudyName, tuple[Arm, ...]] = {
    "main": (
        Arm("QUARTET"),
        Arm("RelGT", "relgt"),
        Arm("RelGT + CRW", "relgt", {"local_sampler": "walk"}),
        Arm("HGT", "hgt"),
        Arm("RGP", "rgp"),
        Arm("GraphSAGE", "sage"),
        Arm("LightGBM", "lightgbm"),
    ),
    "sampler": tuple(
        Arm(f"{name}, L={layers}", "relgt", {"local_sampler": sampler, "local_layers": layers})
        for layers in (1, 4, 8)
        for name, sampler in SAMPLER_NAMES.items()
    ),
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
}
FULL = "full"  # the arm that ablated ones are compared with
ABLATED = tuple(arm.name for arm in STUDIES["ablation"] if arm.name != FULL)


def reference_arm(study: StudyName, arm: str) -> str | None:
    """Returns the arm that another is compared with: QUARTET, the full model, or BFS2 with as many layers."""
    references = {"main": "QUARTET", "ablation": FULL, "sampler": arm.replace("CRW", "BFS2")}
    return references.get(study)


def choices(study: StudyName) -> list[list[str]]:
    """Returns the arms among which validation selects one: all capacities, and of each sampler its layers."""
    names = [arm.name for arm in STUDIES[study]]
    if study == "sampler":
        return [[name for name in names if name.startswith(sampler)] for sampler in SAMPLER_NAMES]
    return [names] if study == "capacity" else []
