"""Studies as a user runs them: every arm trained, none twice, stopped and gone on with, shown beside the paper."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from quartet.cli.study import study as verbs
from quartet.config import Recipe
from quartet.contexts import select
from quartet.database import Database
from quartet.errors import UsageError
from quartet.listener import Listener
from quartet.paper import (
    STUDIES,
    Failure,
    Result,
    Study,
    StudyName,
    arms_of,
    chosen_jobs,
    dataset_name,
    efficiency_sheet,
    efficiency_study,
    first_jobs,
    run_study,
    study_sheets,
)
from quartet.paper import runner as runner_module
from quartet.paper.literal import literal, write_padded
from quartet.paper.results import add_results, read_results
from quartet.paper.runner import Job, train_job
from quartet.registry import model_row
from quartet.runs import Run, fit
from quartet.tasks import Task
from quartet.training import Epoch, TrainingData
from tests.paper.results import faked, result
from tests.tasks.small import CHURN, small_shop, write_small_shop

QUICK = {
    "width": 16, "heads": 2, "encoder_width": 8, "num_latents": 2, "num_archetypes": 4, "local_budget": 12,
    "temporal_budget": 8, "collab_budget": 5, "epochs": 1, "seeds_per_epoch": 128, "batch_size": 64,
}  # fmt: skip


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_shop(tmp_path_factory.mktemp("shop") / "shop")


def study_of(shop: Path, folder: Path, name: StudyName = "main", **fields: Any) -> tuple[Study, list[Job]]:
    study = Study(name, str(shop), ("churn",), folder, **({"changes": QUICK} | fields))
    return study, study.jobs(STUDIES[name])


# --- arms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STUDIES)
def test_arms_differ_in_what_they_say_and_nothing_else(name: StudyName) -> None:
    recipes = [Recipe.load("small", "", arm.model, **arm.changes) for arm in STUDIES[name]]
    assert len({recipe.digest() for recipe in recipes}) == len(recipes)
    for arm, recipe in zip(STUDIES[name], recipes, strict=True):
        plain = Recipe.load("small", "", arm.model).to_dict()
        differing = {field for field, value in recipe.to_dict().items() if plain[field] != value}
        assert differing <= set(arm.changes)


def test_an_arm_decides_over_the_users_changes(shop: Path, tmp_path: Path) -> None:
    _, jobs = study_of(shop, tmp_path, "ablation", changes=QUICK | {"restart_prob": 0.3})
    by_arm = {job.arm: job.recipe["restart_prob"] for job in jobs}
    assert (by_arm["full"], by_arm["no restart"]) == (0.3, 0.0)


@pytest.mark.parametrize(
    ("study", "change", "words"),
    [
        ("sampler", {"local_sampler": "walk"}, "every arm sets local_sampler itself"),
        ("main", {"rng_seed": 5}, "every arm sets rng_seed itself"),
        ("ablation", {"branches": ("feature",)}, '"no temporal" sets branches itself'),
        ("ablation", {"restart_prob": 0.0}, '"no restart" would be the same as "full"'),
        ("choices", {"mix": "linear"}, "every arm sets mix itself"),
    ],
)
def test_a_change_that_no_arm_heeds_or_that_makes_two_arms_one_is_refused(
    study: StudyName, change: dict[str, Any], words: str, shop: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=words):
        study_of(shop, tmp_path, study, changes=QUICK | change)


@pytest.mark.parametrize("preset", ["paper", "paper-val"])
def test_baselines_have_the_settings_of_their_publications(preset: str) -> None:
    def recipe(name: str, task: str) -> Recipe:
        arm = next(arm for arm in STUDIES["main"] if arm.name == name)
        return Recipe.load(preset, task, arm.model, **(arm.settings(preset, task) | arm.changes))

    for task, layers, dropout in (("driver-top3", 4, 0.5), ("driver-dnf", 1, 0.4), ("driver-podium", 4, 0.3)):
        relgt = recipe("RelGT", f"rel-f1/{task}")
        assert (relgt.model.local_layers, relgt.model.dropout, relgt.model.num_archetypes) == (
            layers,
            dropout,
            4096,
        )
        assert (relgt.weight_decay, relgt.model.width, relgt.sampling.local_sampler) == (1e-5, 512, "bfs")
        assert relgt == Recipe.load(preset, f"rel-f1/{task}", "relgt")  # `quartet train` has them, too
        # The paper tuned RelGT with CRW, and gave QUARTET what it found.
        own, walked = recipe("QUARTET", f"rel-f1/{task}"), recipe("RelGT + CRW", f"rel-f1/{task}")
        for name in ("local_layers", "dropout", "weight_decay"):
            assert walked.to_dict()[name] == own.to_dict()[name]
        assert (walked.model.num_archetypes, walked.sampling.local_sampler) == (4096, "walk")
        assert recipe("RGP", f"rel-f1/{task}").model.num_latents in (8, 16, 32)
        sage, on_walks = recipe("GraphSAGE", f"rel-f1/{task}"), recipe("GraphSAGE + CRW", f"rel-f1/{task}")
        assert sage.model == on_walks.model
        assert (sage.model.width, sage.learning_rate, sage.sampling.first_fanout) == (128, 5e-3, 128)
        assert (sage.sampling.second_fanout, sage.sampling.local_sampler) == (64, "uniform")
        assert (on_walks.sampling.local_sampler, on_walks.sampling.local_budget) == ("walk", 300)


def test_at_another_preset_width_and_training_are_its_own(shop: Path, tmp_path: Path) -> None:
    _, jobs = study_of(shop, tmp_path, changes={})
    by_arm = {job.arm: job.recipe for job in jobs}
    own = by_arm["QUARTET"]
    for name, recipe in by_arm.items():
        for each in ("width", "heads", "epochs", "learning_rate", "batch_size"):
            assert recipe[each] == own[each], name
    relgt = by_arm["RelGT"]
    assert (relgt["local_layers"], relgt["dropout"], relgt["num_archetypes"]) == (4, 0.3, 4096)
    assert by_arm["RelGT + CRW"]["dropout"] == own["dropout"]
    _, jobs = study_of(shop, tmp_path, changes={"dropout": 0.1})  # a user decides over publications
    assert {job.recipe["dropout"] for job in jobs} == {0.1}


def test_precision_reaches_every_training(shop: Path, tmp_path: Path) -> None:
    for name in STUDIES:
        _, jobs = study_of(shop, tmp_path, name, preset="paper-val", changes={"precision": "bf16"})
        assert {job.recipe["precision"] for job in jobs} == {"bf16"}


def test_samplers_are_tuned_with_one_random_seed_and_the_best_get_the_others(
    shop: Path, tmp_path: Path
) -> None:
    study, jobs = study_of(shop, tmp_path, "sampler", rng_seeds=(0, 1, 2))
    first = first_jobs(study, jobs)
    assert (len(first), {job.rng_seed for job in first}) == (54, {0})
    assert chosen_jobs(study, jobs) == first  # nothing is chosen before all are done
    found = list(run_study(study, first, 1, train=faked))
    later = [job for job in chosen_jobs(study, jobs) if job not in first]
    best = {
        max((one for one in found if one.arm.startswith(name)), key=lambda one: one.validation).arm
        for name in ("BFS2", "CRW")
    }
    assert {(job.arm, job.rng_seed) for job in later} == {(arm, seed) for arm in best for seed in (1, 2)}
    list(run_study(study, later, 1, train=faked))
    assert chosen_jobs(study, jobs) == [*first, *later]  # whatever the others reach
    (sheet,), _ = study_sheets("sampler", study.results(chosen_jobs(study, jobs)))
    depths = {(sampler, f"L={layers}") for layers in (1, 4, 8) for sampler in ("BFS2", "CRW")}
    assert {tuple(row[0].split(", ")[:2]) for row in sheet.rows} == depths
    assert len(sheet.rows) == 6
    assert {row[0] for row in sheet.rows if row[1].endswith("●")} == best


def test_a_setting_that_is_fixed_is_not_tuned() -> None:
    arms = arms_of("sampler", {"dropout", "weight_decay"})
    assert [arm.name for arm in arms] == [f"{name}, L={n}" for n in (1, 4, 8) for name in ("BFS2", "CRW")]
    assert arms_of("main", {"dropout"}) == STUDIES["main"]


# --- running ----------------------------------------------------------------------------------------


def test_random_seeds_come_one_after_the_other(shop: Path, tmp_path: Path) -> None:
    _, jobs = study_of(shop, tmp_path, rng_seeds=(0, 1))
    assert [job.rng_seed for job in jobs] == [job.recipe["rng_seed"] for job in jobs] == [0] * 9 + [1] * 9


def test_a_training_in_a_process_of_its_own_is_that_in_this_one(shop: Path, tmp_path: Path) -> None:
    study, jobs = study_of(shop, tmp_path)
    (result,) = run_study(study, jobs[6:7], 2)
    assert isinstance(result, Result)
    assert (result.arm, result.metric, len(result.curve)) == ("GraphSAGE", "roc_auc", 1)
    assert result.num_parameters > 1000
    assert result.peak_bytes is None or result.peak_bytes > 10**8
    again = train_job(replace(jobs[6], runs=str(tmp_path / "again")))
    assert (again.validation, again.test) == (result.validation, result.test)
    assert list(run_study(study, jobs[6:7], 2)) == []  # it is known
    study.results_file.unlink()
    (there,) = run_study(study, jobs[6:7], 1, on="local:1")  # by a worker, which starts the same process
    assert isinstance(there, Result)
    assert (there.key, there.validation, there.curve) == (result.key, result.validation, result.curve)
    assert list(run_study(study, jobs[6:7], 1, on="local:1")) == []


def test_an_interrupted_training_goes_on_from_its_last_epoch(shop: Path, tmp_path: Path) -> None:
    class Interrupted(Listener):
        def epoch(self, epoch: Epoch) -> None:  # noqa: ARG002
            raise KeyboardInterrupt

    _, jobs = study_of(shop, tmp_path, changes=QUICK | {"epochs": 3})
    job, task = jobs[0], Task.load(Database.load(str(shop)), "churn")
    with pytest.raises(KeyboardInterrupt):
        fit(
            task, recipe=Recipe().changed(**job.recipe), runs=Path(job.runs) / job.key[:12], threads=1,
            listener=Interrupted(),
        )  # fmt: skip
    (folder,) = [path for path in (Path(job.runs) / job.key[:12]).iterdir() if path.name != "latest"]
    resumed, whole = train_job(job), train_job(replace(job, runs=str(tmp_path / "whole")))
    assert (resumed.curve, resumed.validation, resumed.test) == (whole.curve, whole.validation, whole.test)
    assert len(Run.open(folder).epochs()) == len(whole.curve) == 3
    assert train_job(job).test == whole.test  # one that is done is only asked


def test_a_study_goes_on_where_it_stood_and_trains_nothing_twice(shop: Path, tmp_path: Path) -> None:
    study, jobs = study_of(shop, tmp_path)
    assert [result.key for result in run_study(study, jobs[:1], 1, train=faked)] == [jobs[0].key]
    assert {result.key for result in run_study(study, jobs, 2, train=faked)} == {job.key for job in jobs[1:]}
    assert list(run_study(study, jobs, 2, train=faked)) == []
    # The ablation's full model is the main study's QUARTET: it is there already, under its other name.
    other, others = study_of(shop, tmp_path, "ablation")
    assert [(result.study, result.arm) for result in other.results(others)] == [("ablation", "full")]


def test_a_failed_training_is_named_and_the_others_go_on(shop: Path, tmp_path: Path) -> None:
    study, jobs = study_of(shop, tmp_path)
    good = jobs[6]
    bad = replace(good, key="0" * 64, recipe=good.recipe | {"learning_rate": 1e30, "epochs": 3})
    failure, result = run_study(study, [bad, good], 1, train=train_job)
    assert isinstance(failure, Failure)
    assert failure.key == bad.key
    assert failure.reason.startswith("error[C12] ")
    assert isinstance(result, Result)
    assert [known.arm for known in read_results(study.results_file)] == ["GraphSAGE"]


def test_no_training_begins_that_would_end_after_the_budget(shop: Path, tmp_path: Path) -> None:
    study, jobs = study_of(shop, tmp_path, rng_seeds=(0, 1, 2))
    assert len(list(run_study(study, jobs[:1], 1, train=faked))) == 1  # it says that it took 100 s
    assert list(run_study(study, jobs, 1, budget=99.0, train=faked)) == []
    assert len(list(run_study(study, jobs[:3], 1, budget=1000.0, train=faked))) == 2


def test_two_processes_do_not_work_on_one_study(shop: Path, tmp_path: Path) -> None:
    study, _ = study_of(shop, tmp_path)
    with study.lock():
        with pytest.raises(UsageError, match=r"C08\] another process is working on \"main-small-churn\""):
            study.lock()
        with study_of(shop, tmp_path, "ablation")[0].lock():
            pass
    with study.lock():
        pass


@pytest.mark.skipif(os.name == "nt", reason="a shell script stands in for the training")
def test_ctrl_c_leaves_no_training_behind(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, written = tmp_path / "slow", tmp_path / "pid"
    script.write_text(
        f"#!/bin/sh\necho $$ > '{written}.part'; mv '{written}.part' '{written}'; exec sleep 300\n"
    )
    script.chmod(0o755)
    study, jobs = study_of(shop, tmp_path)  # whose SQL runs in a process of the true interpreter
    monkeypatch.setattr(sys, "executable", str(script))

    def interrupt() -> None:
        while not written.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started us without
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            list(run_study(study, jobs, 1))
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(ProcessLookupError):
        os.kill(int(written.read_text()), 0)


def test_a_line_that_a_crash_cut_off_is_no_result_and_swallows_none(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    assert list(read_results(path)) == []
    path.write_text('5\n{"key": "abc", "stu')
    assert list(read_results(path)) == []
    for test in (0.5, 0.6):
        add_results(path, [result("QUARTET", 0, test)])
    assert [found.test for found in read_results(path)] == [0.5, 0.6]


def test_a_job_goes_through_json(shop: Path, tmp_path: Path) -> None:
    for job in study_of(shop, tmp_path, "ablation")[1]:
        recipe = Recipe().changed(**json.loads(json.dumps(job.recipe)))
        assert recipe.to_dict() == job.recipe


def test_a_database_without_a_name_is_named_after_its_folder(tmp_path: Path) -> None:
    database = small_shop()
    tables, schema = {n: t.data for n, t in database.tables.items()}, replace(database.schema, name="")
    for location, name in (
        (str(tmp_path / "my shop"), "my shop"),
        ("", "database"),
        ("sqlite:/x", "database"),
    ):
        (tmp_path / "my shop").mkdir(exist_ok=True)
        task = Task.from_sql(Database.build(tables, schema, location=location), **CHURN)
        assert dataset_name(task) == name
    assert dataset_name(Task.from_sql(database, **CHURN)) == "small"


# --- the command ------------------------------------------------------------------------------------


def test_the_command_trains_every_baseline_and_shows_it_again(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "_train_in_child", lambda job, _: train_job(job))
    words = [f"--set={name}={value}" for name, value in QUICK.items()]
    command = ["main", str(shop), "churn", "--seeds=1", "--jobs=1", "--folder", str(tmp_path), *words]
    command.append("--protocol=clamped")
    done = CliRunner().invoke(verbs, command, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    assert "9 of 9 trainings are done" in done.stderr
    results = list(read_results(tmp_path / "results.jsonl"))
    assert [result.arm for result in results] == [arm.name for arm in STUDIES["main"]]
    assert {result.protocol for result in results} == {"clamped"}
    assert all(result.test is not None and 0 <= result.test <= 1 for result in results)
    assert "| GraphSAGE |" in (tmp_path / "main-small-churn.md").read_text(encoding="utf-8")
    assert (tmp_path / "main-small-churn-dots.svg").is_file()
    shown = CliRunner().invoke(verbs, [*command, "--show"], catch_exceptions=False)
    assert shown.stdout == done.stdout
    assert all(arm.name in shown.stdout for arm in STUDIES["main"])


@pytest.mark.parametrize("budget", ["2m", "2 min", "PT2M"])
def test_a_budget_is_a_length_of_time(budget: str) -> None:
    from quartet.cli.study import seconds

    assert seconds(budget) == 120


# --- efficiency -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def relgt(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    task = Task.load(Database.load(str(shop)), "churn")
    recipe = Recipe.load("small", "", "relgt", **QUICK, dropout=0.0, encoder_dropout=0.0)
    return TrainingData.prepare(task, recipe, tmp_path_factory.mktemp("cache"))


def test_every_token_for_itself_is_the_same_function(relgt: TrainingData) -> None:
    """Contexts are padded by copies, each row is encoded for each token: the logits stay, copies having no links."""
    network = model_row("relgt").model_class.new(relgt, relgt.recipe).double().eval()
    batch = relgt.view.tokenizer(select(relgt.context("train"), np.arange(40))).to(torch.float64)
    # Copies have no links of their own in RelGT: what tells positions apart is left out of the comparison.
    groups = [replace(g, edge=g.edge[:, :0], noise=torch.ones_like(g.noise)) for g in batch.groups]
    silent = replace(batch, groups=tuple(groups))
    expanded = literal(silent)
    assert len(expanded.groups) == 1
    assert expanded.groups[0].row.shape == (40, 12)
    assert len(expanded.row_type) == 40 * 12
    assert sorted(expanded.groups[0].row.flatten().tolist()) == list(range(480))
    with torch.no_grad():
        torch.testing.assert_close(network(expanded), network(silent))


def test_links_join_first_copies(relgt: TrainingData) -> None:
    batch = relgt.view.tokenizer(select(relgt.context("train"), np.arange(40)))
    whole = literal(batch).groups[0]
    assert whole.edge.shape[1] == sum(group.edge.shape[1] for group in batch.groups)
    kinds = whole.type.flatten()[whole.edge]
    before = torch.cat([group.type.flatten()[group.edge] for group in batch.groups], 1)
    assert kinds.sort(1).values.tolist() == before.sort(1).values.tolist()


def test_padded_contexts_are_written_as_the_public_code_does(relgt: TrainingData, tmp_path: Path) -> None:
    context, graph = relgt.context("train"), relgt.view.graph
    _, edge = context.edges()
    write_padded(tmp_path / "deep" / "train.h5", context, graph)
    with h5py.File(tmp_path / "deep" / "train.h5") as file:
        stored = {name: np.asarray(file[name]) for name in file}
    slots = len(context) * 12  # the budget
    assert {len(stored[name]) for name in ("types", "indices", "hops", "times")} == {slots}
    nodes = graph.offsets[stored["types"]] + stored["indices"]
    assert nodes.tolist() == np.repeat(context.local_node, context.local_count).tolist()
    assert stored["times"].min() >= 0  # nothing after a seed's time
    assert stored["edges"].shape == (2, 2 * len(edge)) == (2, stored["edges_offsets"][-1])
    assert sum(array.nbytes for array in stored.values()) == 11 * slots + 16 * len(edge) / 2 + 8 * (
        len(context) + 1
    )


def test_costs_are_measured_for_all_three(shop: Path) -> None:
    task = Task.load(Database.load(str(shop)), "churn")
    costs = efficiency_study(task, "small", QUICK | {"local_budget": 60}, steps=1)
    ours, published, here = costs
    assert [cost.model for cost in costs] == ["QUARTET", "RelGT as published", "RelGT here"]
    assert published.num_parameters == here.num_parameters
    assert published.step_bytes > here.step_bytes
    assert published.cache_bytes > here.cache_bytes
    assert all(cost.epoch_seconds > 0 and cost.seeds_per_second > 0 for cost in costs)
    sheet = efficiency_sheet(task, "preset small", costs)
    assert len(sheet.rows) == 6
    assert {len(row) for row in sheet.rows} == {len(sheet.columns)}
    assert sheet.rows[3][-1] == f"{ours.num_parameters / published.num_parameters:.2f}x"
