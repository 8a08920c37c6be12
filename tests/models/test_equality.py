"""The model is still the paper's function: equal to its literal form, gradients too, in double precision.

The literal form repeats rows as often as the paper would, encodes every token on its own and reads the temporal
context once for each seed; the model keeps distinct rows with shares, encodes each once, folds matrices.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from quartet.config import ModelConfig, SamplingConfig
from quartet.models.layers.encoders import normalised
from quartet.models.quartet import Quartet
from quartet.tasks import Seeds
from quartet.training import backward_in_parts
from tests.contexts.small import random_sales
from tests.models.data import SMALL, Setting, setting
from tests.reference.model import literal_answers

ABLATIONS = {
    "whole": SMALL,
    "three layers": SMALL.changed(local_layers=3),
    "no local module": SMALL.changed(local=False),
    "no perceivers": SMALL.changed(perceiver=False),
    "no branches": SMALL.changed(branches=()),
    "feature": SMALL.changed(branches=("feature",)),
    "topology": SMALL.changed(branches=("topology",)),
    "temporal": SMALL.changed(branches=("temporal",)),
    "collab": SMALL.changed(branches=("collab",)),
    "codebooks alone": SMALL.changed(branches=("feature", "topology"), local=False),
    "temporal alone, direct": SMALL.changed(branches=("temporal",), local=False, perceiver=False),
    "linear": SMALL.changed(mix="linear", time="linear"),
}
SAMPLERS = {
    "walk": SamplingConfig(local_budget=40, collab_budget=8, temporal_budget=9),
    "bfs": SamplingConfig(local_sampler="bfs", local_budget=9, collab_budget=5, temporal_budget=4),
    "no restart, no truncation": SamplingConfig(restart_prob=0.0, max_recent=None, local_budget=20),
    "no fallback": SamplingConfig(fallback="null", local_budget=10, lookback_days=1),
}


def some_seeds(graph_number: int, count: int = 14) -> Setting:
    return sales_setting(graph_number, SMALL, SAMPLERS["walk"], count)


def sales_setting(number: int, config: ModelConfig, sampler: SamplingConfig, count: int = 14) -> Setting:
    """Buyers asked about at random times; some of them have bought nothing yet."""
    graph, _ = random_sales(number)
    rng = np.random.default_rng(number)
    node = rng.integers(0, int(graph.offsets[1]), count)
    moments = rng.integers(1, len(graph.times), max(2, count // 3))
    time = graph.times[rng.choice(moments, count)] - rng.integers(0, 2, count)
    found = setting(graph, Seeds(node, time, None), config, sampler)
    randomise(found.model)
    return found


def randomise(model: nn.Module) -> None:
    """Weights of LayerNorms start at one and biases at zero; what forgets them would not be noticed.

    Matrices are made larger, so that answers differ from seed to seed as they do after training.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
            else:
                parameter.mul_(2)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.running_mean.normal_()  # type: ignore[union-attr,operator]
                module.running_var.uniform_(0.5, 2)  # type: ignore[union-attr,operator]


def gradients(model: Quartet) -> dict[str, Tensor]:
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name in found | expected:
        if name not in found or name not in expected:  # a table of which no row is there
            assert (found | expected)[name].eq(0).all(), name
        else:
            scale = 1 + expected[name].abs().max().item() if expected[name].numel() else 1
            torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-12 * scale, msg=name)


def check(case: Setting) -> None:
    batch = case.batch.to(torch.float64)
    weight = torch.randn(len(batch), 1, dtype=torch.float64)
    answers = case.model(batch)
    (answers * weight).sum().backward()
    found = gradients(case.model)
    literal = literal_answers(case.model, batch)
    (literal * weight).sum().backward()
    torch.testing.assert_close(answers, literal, rtol=0, atol=1e-12)
    assert_same(found, gradients(case.model))
    assert answers.std() > 1e-2, "answers that do not differ prove nothing"


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_ablation_equals_its_literal_form(name: str) -> None:
    check(sales_setting(3, ABLATIONS[name], SAMPLERS["walk"]))


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_gives_a_batch_that_equals_its_literal_form(name: str) -> None:
    check(sales_setting(5, SMALL, SAMPLERS[name]))


@pytest.mark.parametrize("number", [1, 3, 4, 5])
def test_other_graphs(number: int) -> None:
    case = some_seeds(number)
    assert (case.context.local_count > 1).any(), "no repeated token, no proof"
    assert len(case.batch.num_temporal) < len(case.batch), "no shared time, no proof"
    check(case)


def test_parts_give_the_gradient_of_the_whole_batch() -> None:
    case = some_seeds(3, count=30)
    batch = case.batch.to(torch.float64)
    assert len(batch.parts) > 2
    target = torch.randn(len(batch), 1, dtype=torch.float64)
    total = (case.model(batch) - target).square().sum()
    total.backward()
    expected = gradients(case.model)
    found = backward_in_parts(case.model, batch, lambda answer, seed: (answer - target[seed]).square().sum())
    torch.testing.assert_close(found, total.detach(), rtol=1e-12, atol=0)
    assert_same(gradients(case.model), expected)


def test_a_folded_block_is_the_block_of_the_linear_map() -> None:
    case = some_seeds(0)
    mix, time = case.model.tokens.mix, case.model.time
    age = torch.tensor([0.0, 0.25, 3.0, 4000.0, float("nan")], dtype=torch.float64)
    folded = mix.fold(2, time.linear)
    found = normalised(time.inputs(age), folded.form) @ folded.weight.T + folded.bias
    torch.testing.assert_close(found, mix.block(2, time(age)), rtol=0, atol=1e-12)
