"""Every ablation is a configuration: it runs, all that it has learns, and what is absent costs nothing."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from quartet.config import BRANCHES, Branch, ModelConfig
from quartet.contexts import Array, Context, sample
from quartet.tokens import TokenBatch
from quartet.training import Network
from tests.models.data import SMALL
from tests.models.planted import Planted, noise
from tests.models.training import Pupil, one_thread

SUBSETS = [subset for size in range(5) for subset in combinations(BRANCHES, size)]
READINGS = [(local, subset) for local in (True, False) for subset in SUBSETS if local or subset]
every_reading = pytest.mark.parametrize(
    ("local", "branches"), READINGS, ids=["-".join(("local",) * local + subset) for local, subset in READINGS]
)


@pytest.fixture(scope="module")
def planted() -> Planted:
    return noise()


@pytest.fixture(scope="module")
def whole(planted: Planted) -> Context:
    return sample(planted.graph, planted.train, SMALL.sampling(planted.sampler))


def forms(local: bool, branches: tuple[Branch, ...]) -> list[ModelConfig]:
    """What the model reads, with every form of perceivers, mix and time that makes a difference to it."""
    has_contexts = "temporal" in branches or "collab" in branches
    has_tokens = local or has_contexts
    words = product(
        (True, False)[: 1 + has_contexts], ("mlp", "linear")[: 1 + has_tokens], ("sinusoid", "linear")[: 1 + has_tokens]
    )  # fmt: skip
    return [
        SMALL.changed(local=local, branches=branches, perceiver=perceiver, mix=mix, time=time)
        for perceiver, mix, time in words
    ]


@every_reading
def test_every_parameter_gets_a_finite_gradient(
    planted: Planted, local: bool, branches: tuple[Branch, ...]
) -> None:
    seeds = planted.train.select(np.arange(len(planted.train)) % 5 == 0)
    label = torch.from_numpy(seeds.target).to(torch.float32)
    pupils = [Pupil.new(planted, config) for config in forms(local, branches)]
    batch = pupils[0].batches(seeds)(0)
    for pupil in pupils:
        with one_thread():
            F.binary_cross_entropy_with_logits(pupil.model.train()(batch)[:, 0], label).backward()
        assert idle(pupil.model, batch) == []


def idle(model: Network, batch: TokenBatch) -> list[str]:
    """Parameters without a finite gradient other than zero, except those of tables with no row in the batch."""
    unread = tuple(f"tables.{number}." for number, rows in enumerate(batch.tables) if not len(rows))
    return [
        name
        for name, parameter in model.named_parameters()
        if parameter.numel()
        and not name.startswith(unread)
        and not (parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.any())
    ]


OWNED = {
    "local": "branches.local.",
    "feature": "branches.feature.",
    "topology": "branches.topology.",
    "temporal": "branches.perceivers.latents.temporal.",
    "collab": "branches.perceivers.latents.collab.",
}


@every_reading
def test_an_absent_branch_has_no_parameters(
    planted: Planted, local: bool, branches: tuple[Branch, ...]
) -> None:
    model = Pupil.new(planted, SMALL.changed(local=local, branches=branches)).model
    names = [name for name, _ in model.named_parameters()]
    found = {part for part, prefix in OWNED.items() if any(name.startswith(prefix) for name in names)}
    present = set(OWNED) - absent(local, branches)
    assert found == present
    assert model.get_parameter("fusion.project.weight").shape[1] == SMALL.width * len(present)
    reads = {name.split(".")[3] for name in names if name.startswith("branches.perceivers.reads.")}
    assert reads == {"temporal", "collab"} & present


@every_reading
def test_an_absent_branch_is_not_sampled_and_changes_no_other(
    planted: Planted, whole: Context, local: bool, branches: tuple[Branch, ...]
) -> None:
    config = SMALL.changed(local=local, branches=branches)
    found = sample(planted.graph, planted.train, config.sampling(planted.sampler)).arrays
    expected = whole.arrays
    for part in absent(local, branches):
        expected |= nothing_of(part, whole)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def absent(local: bool, branches: tuple[Branch, ...]) -> set[str]:
    return {"local", *BRANCHES} - {*branches, "local" if local else ""}


def nothing_of(part: str, whole: Context) -> dict[str, Array]:
    """The arrays of a context in which one part was not asked for; of the local one, the seed is left."""
    seeds, zero = np.arange(len(whole)), np.zeros(len(whole) + 1)
    match part:
        case "local":
            seed = {"local_node": whole.seed_node, "local_hop": 0 * seeds, "local_count": 0 * seeds + 1}
            return seed | {
                "local_start": np.arange(len(whole) + 1),
                "link_start": zero,
                "link": whole.link[:0],
            }
        case "collab":
            return {"collab_start": zero, "collab_node": whole.collab_node[:0]}
        case "temporal":
            return {"temporal_start": 0 * whole.temporal_start, "temporal_node": whole.temporal_node[:0]}
    return {"sketch": whole.sketch[:, :0]} if part == "topology" else {}
