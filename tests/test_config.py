"""Recipes: presets, the paper's settings for a task, changes, and the way back from plain values."""

from __future__ import annotations

import json
import re

import pytest

from quartet.config import BRANCHES, PRESETS, Recipe, SamplingConfig
from quartet.errors import UsageError


def test_defaults_are_the_paper() -> None:
    paper = Recipe.load("paper")
    assert paper == Recipe()
    assert (paper.model.width, paper.model.heads, paper.batch_size) == (512, 4, 512)
    assert (paper.learning_rate, paper.clip_norm, paper.epochs) == (1e-4, 1.0, 100)
    assert paper.sampling == SamplingConfig()


def test_a_task_of_the_paper_has_its_own_settings() -> None:
    top3 = Recipe.load("paper", "rel-f1/driver-top3")
    assert (top3.model.local_layers, top3.model.dropout, top3.weight_decay) == (1, 0.5, 5e-3)
    assert (top3.model.num_latents, top3.model.num_archetypes) == (64, 256)
    chosen = Recipe.load("paper-val", "rel-f1/driver-top3")
    assert (chosen.model.num_latents, chosen.model.num_archetypes) == (16, 512)
    assert chosen.changed(num_latents=64, num_archetypes=256) == top3
    same = "rel-hm/user-churn"  # the best on validation is the one reported
    assert Recipe.load("paper-val", same) == Recipe.load("paper", same)
    assert Recipe.load("paper", same).epochs == 10


def test_changes_find_the_part_they_belong_to() -> None:
    recipe = Recipe.load("small", width=32, walk_length=5, epochs=3, branches=["topology"], local=False)
    assert recipe.model.width == 32
    assert recipe.sampling.walk_length == 5
    assert recipe.epochs == 3
    assert recipe.sampling.branches == ("topology",)
    assert recipe.sampling.local is False
    assert Recipe().sampling.branches == BRANCHES


@pytest.mark.parametrize("preset", PRESETS)
def test_plain_values_and_back(preset: str) -> None:
    recipe = Recipe.load(preset, "rel-f1/driver-dnf", branches=("feature", "collab"), time_limit=60.0)
    said = json.loads(json.dumps(recipe.to_dict()))
    assert Recipe().changed(**said) == recipe
    assert Recipe().changed(**said).digest() == recipe.digest() != Recipe().digest()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epoch": 3}, 'C01] unknown field "epoch" of a recipe'),
        ({"epochs": 0}, "C02] epochs is 0. Fix: give a whole number above 0"),
        ({"learning_rate": -1.0}, "C02] learning_rate is -1.0"),
        ({"weight_decay": -1.0}, "C02] weight_decay is -1.0"),
        ({"train_fraction": 0.0}, "C02] train_fraction is 0.0. Fix: give a share above 0, at most 1"),
        ({"schedule": "linear"}, "C02] schedule is 'linear'. Fix: say one of constant, cosine"),
        ({"validation_seeds": 0}, "C02] validation_seeds is 0. Fix: give a whole number above 0"),
        ({"protocol": "thawed"}, "C02] protocol is 'thawed'. Fix: say one of frozen, rolling"),
        ({"width": 30}, "C03] width 30"),
    ],
)
def test_a_wrong_change_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Recipe().changed(**changes)


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(UsageError, match=r'no preset "papers".*did you mean "paper"'):
        Recipe.load("papers")
