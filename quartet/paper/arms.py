"""Arm: one model of a study, which every task trains with several random seeds; and what came of each training."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from quartet.config import BRANCHES, with_tuples

Study = Literal["main", "sampler", "ablation", "capacity"]


@dataclass(frozen=True)
class Arm:
    """A model by its name in tables, and how its recipe differs from the preset's."""

    name: str
    model: str = "quartet"
    changes: dict[str, Any] = field(default_factory=dict)


def _without(branch: str) -> dict[str, Any]:
    return {"branches": tuple(other for other in BRANCHES if other != branch)}


MAIN = (
    Arm("QUARTET"),
    Arm("RelGT", "relgt"),
    Arm("RelGT + CRW", "relgt", {"local_sampler": "walk"}),
    Arm("HGT", "hgt"),
    Arm("RGP", "rgp"),
    Arm("GraphSAGE", "sage"),
    Arm("LightGBM", "lightgbm"),
)
LAYERS, SAMPLERS = (1, 4, 8), {"BFS2": "bfs", "CRW": "walk"}
LATENTS, ARCHETYPES = (16, 32, 64), (128, 256, 512)


def sampler_arm(sampler: str, layers: int) -> str:
    """The name of the arm with this sampler and so many layers."""
    return f"{sampler}, L={layers}"


def capacity_arm(latents: int, archetypes: int) -> str:
    """The name of the arm with so many latents and archetypes."""
    return f"Z={latents}, R={archetypes}"


SAMPLER = tuple(
    Arm(sampler_arm(name, layers), "relgt", {"local_sampler": sampler, "local_layers": layers})
    for layers in LAYERS
    for name, sampler in SAMPLERS.items()
)
ABLATION = (
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
)
CAPACITY = tuple(
    Arm(capacity_arm(latents, archetypes), changes={"num_latents": latents, "num_archetypes": archetypes})
    for latents in LATENTS
    for archetypes in ARCHETYPES
)
STUDIES: dict[Study, tuple[Arm, ...]] = {
    "main": MAIN,
    "sampler": SAMPLER,
    "ablation": ABLATION,
    "capacity": CAPACITY,
}
REFERENCE = {"main": "QUARTET", "ablation": "full"}  # what the other arms are compared with


@dataclass(frozen=True)
class Result:
    """What came of one training. `key` is a digest of all that decides it; figures are of the task's main metric."""

    key: str
    study: str
    dataset: str
    task: str
    arm: str
    rng_seed: int
    metric: str
    protocol: str
    validation: float  # of the best epoch, by which it was selected
    test: float
    history: tuple[float, ...]  # validation by epoch
    seconds: float  # of training and validation
    peak_bytes: int  # of the process
    num_parameters: int
    preset: str
    fingerprint: str  # of the data
    recipe: dict[str, Any]

    def line(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def of_line(line: str) -> Result:
        return Result(**with_tuples(json.loads(line)))


def read_results(path: Path) -> Iterator[Result]:
    """The results that a study has written so far; a line that was cut off by a crash is no result."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield Result.of_line(line)
        except json.JSONDecodeError:
            continue
