"""The databases of `tests/models/planted.py` as tasks: a signal that one branch alone can see among those of a model.

`tests/models/test_planted.py` has the reasons why a model of a signal leaves some branches out: what sees the seed's
own columns, or the very rows that another branch counts, would share the signal with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from quartet.config import Branch
from quartet.tasks import Task
from quartet.times import show_instant
from tests.models.planted import Planted, archetypes, baskets, degrees, look_alikes, waves

HOUR = 3600 * 10**9
LITTLE: dict[str, Any] = {
    "width": 32, "heads": 2, "num_archetypes": 16, "num_latents": 4, "latent_layers": 1, "encoder_width": 32,
    "encoder_layers": 2, "num_frequencies": 8, "position_layers": 2, "dropout": 0.0, "encoder_dropout": 0.0, "tower": 0,
    "batch_size": 200, "seeds_per_epoch": None, "learning_rate": 2e-3, "schedule": "constant", "epochs": 45,
    "local_sampler": "bfs", "local_budget": 16, "temporal_budget": 16, "collab_budget": 8, "collab_hops": 4,
    "fallback": "null",
}  # fmt: skip
OTHERS: tuple[Branch, ...] = ("feature", "topology", "temporal", "collab")


class Claim(NamedTuple):
    """A planted signal, and the settings of a model of which one part alone can see it."""

    plant: Callable[[int], Planted]
    local: bool = True
    branches: tuple[Branch, ...] = OTHERS
    changes: dict[str, Any] = {}  # noqa: RUF012 (never changed)

    @property
    def settings(self) -> dict[str, Any]:
        return LITTLE | {"local": self.local, "branches": self.branches} | self.changes


BRANCHES = {
    "feature": Claim(archetypes, False, ("feature", "topology")),
    "topology": Claim(degrees, False),
    "temporal": Claim(waves, changes={"lookback_days": 9, "epochs": 70}),
    "collab": Claim(look_alikes),
    "local": Claim(baskets),
}


def branch_task(claim: Claim, rng_seed: int = 0) -> Task:
    """The task of a planted signal: the second half of its seeds is for validation and test.

    Seeds of one time are asked hours apart, in which nothing happens.
    """
    planted = claim.plant(rng_seed)
    half = len(planted.held_out.node) // 2
    parts = [
        (planted.train.node, planted.train.time, planted.train.target),
        *((planted.held_out.node[s], planted.held_out.time[s], planted.held_out.target[s])
          for s in (slice(None, half), slice(half, None))),
    ]  # fmt: skip
    is_one = len(np.unique(np.concatenate([time for _, time, _ in parts]))) == 1
    times = [time + (2 * HOUR * number if is_one else 0) for number, (_, time, _) in enumerate(parts)]
    labels = pa.table(
        {
            "id": np.concatenate([node for node, _, _ in parts]),
            "time": pa.array(np.concatenate(times), pa.timestamp("ns")),
            "label": np.concatenate([label for _, _, label in parts]),
        }
    )
    return Task.from_labels(
        planted.database, labels, name="planted", task_type="binary_classification",
        entity_table=next(iter(planted.database.tables)), entity_col="id", time_col="time", target_col="label",
        timedelta="1 hour", val_timestamp=show_instant(int(times[1].min())),
        test_timestamp=show_instant(int(times[2].min())),
    )  # fmt: skip
