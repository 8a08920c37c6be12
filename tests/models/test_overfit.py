"""The whole model can learn anything by heart: labels by lot, and each customer at two times."""

from __future__ import annotations

import numpy as np

from tests.models.planted import noise
from tests.models.training import LITTLE, Pupil


def test_sixty_four_random_labels_are_learned_by_heart() -> None:
    planted = noise()
    seeds = planted.train
    assert len(seeds) == 64
    assert len(np.unique(seeds.node)) == 32
    pupil = Pupil.new(planted, LITTLE)
    assert pupil.auc(seeds) < 0.8
    assert pupil.train(150).auc(seeds) == 1.0
