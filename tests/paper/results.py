"""Results of studies, made by hand."""

from __future__ import annotations

import random
from collections.abc import Iterable

from quartet.paper import Result
from quartet.paper.runner import Job


def result(arm: str, rng_seed: int, test: float, validation: float = 0.5, **fields: object) -> Result:
    """Returns the result of one training on rel-f1's driver-top3, or of another if the fields say so."""
    usual = {
        "key": "", "study": "main", "dataset": "rel-f1", "task": "driver-top3", "metric": "roc_auc",
        "protocol": "frozen", "curve": (), "seconds": 90.0, "peak_bytes": 1_500_000_000,
        "num_parameters": 1_234_567, "preset": "small", "fingerprint": "0123456789", "recipe": {},
    }  # fmt: skip
    own = {"arm": arm, "rng_seed": rng_seed, "test": test, "validation": validation}
    return Result(**(usual | own | fields))  # type: ignore[arg-type]


def results(arm: str, tests: Iterable[float], **fields: object) -> list[Result]:
    """Returns one result for each random seed."""
    return [result(arm, rng_seed, test, **fields) for rng_seed, test in enumerate(tests)]  # type: ignore[arg-type]


def faked(job: Job) -> Result:
    """Returns a result without training: a figure by chance, which the recipe decides, in 100 seconds."""
    own = {name: value for name, value in vars(job).items() if name in Result.__dataclass_fields__}
    figure = random.Random(repr(sorted(job.recipe.items()))).random()
    test = figure if job.opens_test else None
    more = {
        "metric": "roc_auc",
        "protocol": "frozen",
        "peak_bytes": None,
        "num_parameters": 1,
        "seconds": 100.0,
    }
    return Result(**own, **more, validation=figure, test=test, curve=(figure,))  # type: ignore[arg-type]
