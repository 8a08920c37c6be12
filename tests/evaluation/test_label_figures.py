"""How each label of many is found: those of training by name, and in one line those that it lacks."""

from __future__ import annotations

import numpy as np

from quartet.evaluation import label_figures


def test_labels_that_training_lacks_have_a_line() -> None:
    target = np.array([[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [0, 0, 0, 0]], np.int8)
    score = np.array([[0.9, 0.1], [0.2, 0.8], [0.1, 0.3], [0.0, 0.0]])
    known, other, lacking = label_figures(target, score, ["a", "b"], np.array([0.5, 0.5]))
    assert [(one.name, one.count, one.recall) for one in (known, other)] == [("a", 1, 1.0), ("b", 1, 1.0)]
    assert (lacking.name, lacking.count, lacking.recall) == ("(not in training: 2)", 2, 0.0)
    assert len(label_figures(target[:, :2], score, ["a", "b"], np.array([0.5, 0.5]))) == 2
