"""The model is still the paper's function: equal to its literal form, gradients too, in double precision.

The literal form repeats rows as often as the paper would, encodes every token on its own and reads the temporal
context once for each seed; the model keeps distinct rows with counts, encodes each once, folds matrices.
"""

from __future__ import annotations

import pytest
import torch

from quartet.config import SamplingConfig
from quartet.models.layers.encoders import normalised
from quartet.training import backward_by_group
from tests.models.data import SMALL, WALK, Setting, assert_same, buyers, gradients
from tests.reference.model import literal_logits

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
    "bfs": SamplingConfig(local_sampler="bfs", local_budget=9, collab_budget=5, temporal_budget=4),
    "no restart, no truncation": SamplingConfig(restart_prob=0.0, max_recent=None, local_budget=20),
    "no fallback": SamplingConfig(fallback="null", local_budget=10, lookback_days=1),
}


def check(case: Setting) -> None:
    batch = case.batch.to(torch.float64)
    weight = torch.randn(len(batch), 1, dtype=torch.float64)
    logits = case.model(batch)
    (logits * weight).sum().backward()
    found = gradients(case.model)
    literal = literal_logits(case.model, batch)
    (literal * weight).sum().backward()
    torch.testing.assert_close(logits, literal, rtol=0, atol=1e-12)
    assert_same(found, gradients(case.model))
    assert logits.std() > 1e-2, "logits that do not differ prove nothing"


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_ablation_equals_its_literal_form(name: str) -> None:
    check(buyers(3, ABLATIONS[name]))


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_gives_a_batch_that_equals_its_literal_form(name: str) -> None:
    check(buyers(5, SMALL, SAMPLERS[name]))


@pytest.mark.parametrize("number", [1, 4, 5])
def test_other_graphs(number: int) -> None:
    case = buyers(number, sampler=WALK.changed(local_budget=40))
    assert (case.context.local_count > 1).any(), "no repeated token, no proof"
    assert len(case.batch.num_temporal) < len(case.batch), "no shared time, no proof"
    check(case)


def test_groups_give_the_gradient_of_the_whole_batch() -> None:
    case = buyers(3, count=30)
    batch = case.batch.to(torch.float64)
    assert len(batch.groups) > 2
    target = torch.randn(len(batch), 1, dtype=torch.float64)
    total = (case.model(batch) - target).square().sum()
    total.backward()
    expected = gradients(case.model)
    found = backward_by_group(case.model, batch, lambda logits, seed: (logits - target[seed]).square().sum())
    torch.testing.assert_close(found, total.detach(), rtol=1e-12, atol=0)
    assert_same(gradients(case.model), expected)


def test_a_folded_block_is_the_block_of_the_linear_map() -> None:
    tokens = buyers(0).model.tokens
    mix, time = tokens.mix, tokens.time
    age = torch.tensor([0.0, 0.25, 3.0, 4000.0, float("nan")], dtype=torch.float64)
    folded = mix.fold(2, time.linear)
    found = normalised(time.inputs(age), folded.form) @ folded.weight.T + folded.bias
    torch.testing.assert_close(found, mix.block(2, time(age)), rtol=0, atol=1e-12)
