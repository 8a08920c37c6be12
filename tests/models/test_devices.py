"""No tensor made on the way stays on the CPU: a training step and a prediction of every network on another device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from quartet.config import ModelConfig
from quartet.contexts import sample
from quartet.registry import model_row
from quartet.tokens import TokenBatch, Tokenizer
from quartet.training import ModelSchema, Network, backward_by_group
from tests.models.accelerator import DEVICE, Accelerator, There, moved
from tests.models.data import SMALL, randomise
from tests.models.messages import table_links
from tests.models.planted import Planted, noise

LAYERS = SMALL.changed(dropout=0.2, encoder_dropout=0.1)
ALL = LAYERS.branches
CASES = {
    "quartet": LAYERS,
    **{f"without {name}": LAYERS.changed(branches=tuple(b for b in ALL if b != name)) for name in ALL},
    "without local module": LAYERS.changed(local=False),
    "codebooks alone": LAYERS.changed(local=False, branches=("feature", "topology")),
    "topology alone": LAYERS.changed(local=False, branches=("topology",)),
    "temporal alone": LAYERS.changed(local=False, branches=("temporal",)),
    "without perceivers": LAYERS.changed(perceiver=False),
    "linear": LAYERS.changed(mix="linear", time="linear"),
    "rgp": LAYERS.changed(architecture="rgp", branches=("temporal",)),
    **{name: LAYERS.changed(architecture=name, branches=()) for name in ("relgt", "hgt", "sage")},
}  # fmt: skip


@pytest.fixture(scope="module")
def planted() -> Planted:
    return noise()


def built(planted: Planted, config: ModelConfig) -> tuple[Network, TokenBatch]:
    """A network and a batch in several groups, both on the CPU."""
    sampling = config.sampling(planted.sampler)
    seeds = planted.train.select(np.arange(len(planted.train)) % 4 == 0)
    context = sample(planted.graph, seeds, sampling)
    batch = Tokenizer(planted.graph, planted.features, group_tokens=150)(context)
    links = table_links(planted.database)
    torch.manual_seed(0)
    schema = ModelSchema(planted.features.layouts, sampling.num_hops, 2, links)
    network: Network = model_row(config.architecture).model_class(config, schema)
    randomise(network)
    return network, batch


@pytest.mark.parametrize("name", CASES)
def test_a_step_and_a_prediction_stay_on_the_device(planted: Planted, name: str) -> None:
    network, batch = built(planted, CASES[name])
    assert len(batch.groups) > 1 or not CASES[name].local
    with torch.no_grad():
        expected = network.eval()(batch)
    network = moved(network)
    label = torch.arange(len(batch)) % 2
    with Accelerator():
        batch, label = batch.to(DEVICE), label.to(DEVICE)
        with torch.no_grad():
            logits = network.eval()(batch)

        def loss(logits: Tensor, seed: Tensor) -> Tensor:
            return F.cross_entropy(logits.float(), label[seed], reduction="sum")

        network.train()
        network.update_batch_stats(batch.sketch)
        value = backward_by_group(network, replace(batch, whole_sketch=batch.sketch), loss)
        network.after_step(lambda rows: rows)
    torch.testing.assert_close(logits.cpu(), expected)  # the numbers are those of the CPU
    assert isinstance(value, There)
    assert value.isfinite()
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    assert len(gradients) > 10
    assert all(isinstance(gradient, There) for gradient in gradients)
    assert all(isinstance(buffer, There) for buffer in network.buffers())


def test_the_device_refuses_tensors_of_the_cpu() -> None:
    """What the test above relies on."""
    with Accelerator():
        here, there = torch.ones(3), torch.ones(3).to(DEVICE)
        assert there.device == (there + 1).device == torch.arange(2, device=there.device).device == DEVICE
        with pytest.raises(RuntimeError, match="both devices"):
            here + there
        with pytest.raises(RuntimeError, match="both devices"):
            there[torch.arange(2)]
        with pytest.raises(TypeError, match="numpy"):
            there.numpy()
        with pytest.raises(RuntimeError, match="both devices"):
            torch.nn.Linear(3, 3)(there)


def test_all_of_a_batch_is_moved(planted: Planted) -> None:
    _, batch = built(planted, LAYERS)
    with Accelerator():
        moved_batch = replace(batch, whole_sketch=batch.sketch).to(DEVICE)
    seen: list[Tensor] = []

    def collect(value: object) -> None:
        if isinstance(value, Tensor):
            seen.append(value)
        elif isinstance(value, tuple):
            for item in value:
                collect(item)
        elif hasattr(value, "__dataclass_fields__"):
            for name in value.__dataclass_fields__:
                collect(getattr(value, name))

    collect(moved_batch)
    assert len(seen) > 30
    assert all(isinstance(tensor, There) for tensor in seen)
