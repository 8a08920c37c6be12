"""What outputs mean: losses against torch and by hand, the start at the base rate, scores, plain values and back."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from quartet.training import Output, RegressionOutput, fit_output, output_from_dict, output_to_dict
from quartet.training.outputs import BinaryOutput, MulticlassOutput
from tests.tasks.small import CHURN, small_shop


def test_binary_starts_at_the_base_rate() -> None:
    target = BinaryOutput(0.2)
    assert target.scores(np.array([target.start()])) == pytest.approx([0.2])
    loss = target.loss(torch.tensor([[2.0], [2.0]]), torch.tensor([1, 0]))
    assert loss.tolist() == pytest.approx([math.log1p(math.exp(-2)), math.log1p(math.exp(2))])


def test_regression_is_standardised_and_kept_within_what_training_had() -> None:
    target = RegressionOutput(median=10.0, spread=4.0, low=2.0, high=20.0)
    assert target.scores(np.array([[0.0], [1.0], [99.0], [-99.0]])).tolist() == [10.0, 14.0, 20.0, 2.0]
    assert target.loss(torch.tensor([[0.5]]), torch.tensor([14.0])).tolist() == [0.5]
    assert target.start() == [0.0]


def test_multiclass_scores_are_shares() -> None:
    target = MulticlassOutput((0.5, 0.3, 0.2))
    assert target.num_outputs == 3
    assert target.scores(np.array([target.start()]))[0] == pytest.approx([0.5, 0.3, 0.2])
    loss = target.loss(torch.tensor([target.start()]), torch.tensor([2]))
    assert loss.tolist() == pytest.approx([-math.log(0.2)])


@pytest.mark.parametrize(
    "target", [BinaryOutput(0.25), RegressionOutput(1.0, 2.0, -3.0, 4.0), MulticlassOutput((0.9, 0.1))]
)
def test_plain_values_and_back(target: Output) -> None:
    assert output_from_dict(json.loads(json.dumps(output_to_dict(target)))) == target


def test_a_churn_task_is_binary() -> None:
    from quartet.tasks import Task

    task = Task.from_sql(small_shop(), **CHURN)
    labels = np.asarray(task.seeds("train").target)
    assert fit_output(task) == BinaryOutput(float(labels.mean()))
