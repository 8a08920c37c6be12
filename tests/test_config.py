"""Recipes: presets, the paper's settings for a task, changes, values from text, and the way back from plain values."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.config import (
    BRANCHES,
    PRESETS,
    ModelConfig,
    Recipe,
    SamplingConfig,
    changes_from_text,
    recipe_fields,
)
from quartet.errors import QuartetError, UsageError
from quartet.registry import MODELS

FIELDS = {each.name: each for _, each, _ in recipe_fields()}


# --- presets ------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_a_recipe_from_every_preset(name: str) -> None:
    for preset in PRESETS:
        recipe = Recipe.load(preset, "rel-f1/driver-top3", name)
        assert recipe.model.architecture == name
        for setting, value in MODELS[name].defaults.items():
            assert recipe.to_dict()[setting] == value
        assert recipe.sampling.branches == recipe.model.branches
        assert recipe.sampling.local == recipe.model.local


def test_changes_find_the_part_they_belong_to() -> None:
    recipe = Recipe.load("small", width=32, walk_length=5, epochs=3, branches=["topology"], local=False)
    assert recipe.model.width == 32
    assert recipe.sampling.walk_length == 5
    assert recipe.epochs == 3
    assert recipe.sampling.branches == ("topology",)
    assert recipe.sampling.local is False
    assert Recipe().sampling.branches == BRANCHES


# --- every field --------------------------------------------------------------------------------------


def test_every_field_has_a_meaning_and_stands_once() -> None:
    listed = [each.name for _, each, _ in recipe_fields()]
    own = {each.name for part in (SamplingConfig, ModelConfig, Recipe) for each in fields(part)}
    assert len(listed) == len(set(listed))
    assert set(listed) == own - {"model", "sampling"} == set(Recipe().to_dict())
    assert {part for part, _, _ in recipe_fields()} == {"sampling", "model", "training"}
    for _, each, meaning in recipe_fields():
        assert meaning.strip(), each.name


@pytest.mark.parametrize("name", sorted(set(FIELDS) - {"branches"}))
def test_a_bad_value_is_refused_with_the_field_and_its_own_fix(name: str) -> None:
    for value in (object(), *(() if name == "time_limit" else ("nonsense",)), float("nan"), [], -7):
        with pytest.raises(UsageError, match=rf"C02.* {name} is ") as refused:
            Recipe().changed(**{name: value})
        assert refused.value.fix == FIELDS[name].metadata["fix"]
    if isinstance(FIELDS[name].default, bool):
        with pytest.raises(UsageError, match="C02"):
            Recipe().changed(**{name: 1})
    elif isinstance(FIELDS[name].default, (int, float)):
        with pytest.raises(UsageError, match="C02"):
            Recipe().changed(**{name: True})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epoch": 3}, 'C01] unknown field "epoch" of a recipe'),
        ({"epochs": 0}, "C02] epochs is 0. Fix: give a whole number from 1"),
        ({"first_fanout": None}, "C02] first_fanout is None. Fix: give a whole number from 1"),
        ({"learning_rate": 0.0}, "C02] learning_rate is 0.0. Fix: give a number above 0"),
        ({"weight_decay": -1.0}, "C02] weight_decay is -1.0"),
        ({"dropout": 1.0}, "C02] dropout is 1.0. Fix: give a number from 0 to below 1"),
        ({"train_fraction": 0.0}, "C02] train_fraction is 0.0. Fix: give a fraction above 0, at most 1"),
        ({"train_fraction": 1.5}, "C02] train_fraction is 1.5"),
        ({"schedule": "linear"}, "C02] schedule is 'linear'. Fix: say one of constant, cosine"),
        ({"validation_seeds": 0}, "C02] validation_seeds is 0"),
        ({"protocol": "thawed"}, "C02] protocol is 'thawed'. Fix: say one of auto, frozen, rolling"),
        ({"collab_hops": 3}, "C02] collab_hops is 3. Fix: say one of 2, 4"),
        ({"past_labels": "yes"}, "C02] past_labels is 'yes'. Fix: say true or false"),
        ({"architecture": "gat"}, "C02] architecture is 'gat'. Fix: say one of quartet"),
        ({"branches": ("colab",)}, 'C02] there is no branch "colab" (did you mean "collab"?)'),
        ({"width": 30}, "C03] width 30"),
        ({"max_recent": 0}, "C02] max_recent is 0"),
    ],
)
def test_a_wrong_change_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Recipe().changed(**changes)


@pytest.mark.parametrize(
    ("name", "value"),
    [("dropout", 0), ("dropout", 0.999), ("train_fraction", 1.0), ("weight_decay", 0), ("local_budget", 2),
     ("max_recent", None), ("time_limit", None), ("attention_dropout", None), ("rng_seed", 0), ("branches", ())],
)  # fmt: skip
def test_ends_of_ranges_are_allowed(name: str, value: object) -> None:
    assert Recipe().changed(**{name: value}).to_dict()[name] == value


def test_a_time_limit_may_be_a_length_of_time_everywhere(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('time_limit = "10m"\n')
    for recipe in (Recipe().changed(time_limit="10m"), Recipe.load(str(tmp_path / "mine.toml"))):
        assert recipe.time_limit == 600
    with pytest.raises(QuartetError, match=r"T15.*time_limit"):
        Recipe().changed(time_limit="nonsense")


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(UsageError, match=r'no preset "papers".*did you mean "paper"'):
        Recipe.load("papers")


# --- from text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("width=128", 128),
        ("learning_rate=1e-3", 1e-3),
        ("dropout=0", 0),
        ("fallback=null", "null"),
        ("fallback=visible", "visible"),
        ("max_recent=none", None),
        ("max_recent=null", None),
        ("max_recent=None", None),
        ("max_recent=20", 20),
        ("attention_dropout=none", None),
        ("time_limit=none", None),
        ("time_limit=90", 90),
        ("time_limit=10m", 600),
        ("time_limit=90 min", 5400),
        ("local=false", False),
        ("local=True", True),
        ("branches=feature, topology", ("feature", "topology")),
        ("branches=", ()),
        ("time_rule=<", "<"),
        ("collab_hops=4", 4),
        (" epochs = 3 ", 3),
    ],
)
def test_values_from_text(text: str, value: Any) -> None:
    ((name, read),) = changes_from_text([text]).items()
    assert name == "time_limit" or (read == value and type(read) is type(value))
    assert Recipe().changed(**{name: read}).to_dict()[name] == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs", r'C01.*"epochs" is not of the form field=value'),
        ("epocs=3", r'C01.*unknown field "epocs".*did you mean "epochs"'),
        ("epochs=none", r"C02.*epochs is"),
        ("epochs=many", r"C02.*epochs is"),
        ("epochs=3.5", r"C02.*epochs is"),
        ("local=maybe", r"C02.*local is"),
        ("time_limit=ten minutes", r"time_limit"),
        ("time_limit=-3m", r"time_limit"),
    ],
)
def test_wrong_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(QuartetError, match=message):
        Recipe().changed(**changes_from_text([text]))


# --- there and back -----------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
def test_plain_values_and_back(preset: str) -> None:
    recipe = Recipe.load(preset, "rel-f1/driver-dnf", branches=("feature", "collab"), time_limit=60.0)
    values = json.loads(json.dumps(recipe.to_dict()))
    assert Recipe().changed(**values) == recipe
    assert Recipe().changed(**values).digest() == recipe.digest() != Recipe().digest()


@pytest.mark.parametrize("name", MODELS)
def test_a_recipe_written_as_toml_is_read_back(name: str, tmp_path: Path) -> None:
    recipe = Recipe.load("small", "", name, max_recent=None, time_limit=12.5, branches=("temporal",))
    (tmp_path / "mine.toml").write_text(recipe.to_toml(), encoding="utf-8")
    assert Recipe.load(str(tmp_path / "mine.toml")) == recipe
    assert Recipe.load(str(tmp_path / "mine.toml"), model=name, epochs=3) == recipe.changed(epochs=3)
    other = next(each for each in MODELS if each != name)
    with pytest.raises(UsageError, match=rf"C02.*is for {name}, not for {other}"):
        Recipe.load(str(tmp_path / "mine.toml"), model=other)


def test_a_file_may_have_settings_for_a_task(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('epochs = 4\n[tasks."shop/churn"]\nepochs = 5\nmax_recent = "none"\n')
    assert Recipe.load(str(tmp_path / "mine.toml")).epochs == 4
    churn = Recipe.load(str(tmp_path / "mine.toml"), "shop/churn")
    assert (churn.epochs, churn.sampling.max_recent) == (5, None)


@pytest.mark.parametrize(
    ("content", "message"), [("epochs = ", r"C02.*is not TOML"), ("epochz = 3", r'C01.*"epochz"')]
)
def test_a_wrong_file_is_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(content)
    with pytest.raises(UsageError, match=message):
        Recipe.load(str(tmp_path / "mine.toml"))
    with pytest.raises(UsageError, match=r'C01.*no recipe "absent\.toml"'):
        Recipe.load("absent.toml")


@given(
    st.fixed_dictionaries(
        {
            "learning_rate": st.floats(1e-9, 1e3),
            "dropout": st.floats(0, 0.99),
            "time_limit": st.none() | st.floats(1e-3, 1e6),
            "max_recent": st.none() | st.integers(1, 10**6),
            "branches": st.lists(st.sampled_from(BRANCHES), unique=True).map(tuple),
            "fallback": st.sampled_from(["visible", "null"]),
            "local": st.booleans(),
            "rng_seed": st.integers(0, 2**31 - 1),
        }
    )
)
def test_any_recipe_survives_json_toml_and_text(changes: dict[str, Any]) -> None:
    import tomllib

    recipe = Recipe().changed(**changes)
    assert Recipe().changed(**json.loads(json.dumps(recipe.to_dict()))) == recipe
    read = {n: None if v == "none" else v for n, v in tomllib.loads(recipe.to_toml()).items()}
    assert Recipe().changed(**read) == recipe
    texts = [
        f"{name}={','.join(value) if isinstance(value, tuple) else value}" for name, value in changes.items()
    ]
    assert Recipe().changed(**changes_from_text(texts)) == recipe


def test_digests_tell_settings_apart() -> None:
    digests = {Recipe().changed(rng_seed=seed).digest() for seed in range(5)} | {Recipe().digest()}
    assert len(digests) == 5
    turned = SamplingConfig(branches=BRANCHES[::-1])
    assert turned.digest() == SamplingConfig().digest()  # the order of branches decides nothing
    assert SamplingConfig(walk_length=9).digest() != SamplingConfig().digest()
