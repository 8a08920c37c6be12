"""Micro-batches: the need of a step is counted and compared with what is free, and cutting changes no number."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from quartet.contexts import select
from quartet.errors import ResourceError
from quartet.tokens import TokenBatch
from quartet.training import Trainer, TrainingData, backward_by_group, step_tensor_bytes
from quartet.training.memory import seeds_that_fit
from tests.models.data import assert_same, buyers, gradients
from tests.trained import ROOT, TINY, churn, command_environment

NO_DROPOUT = TINY.changed(dropout=0.0, encoder_dropout=0.0, batch_size=64, seeds_per_epoch=70)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    return TrainingData.prepare(churn(), NO_DROPOUT, tmp_path_factory.mktemp("cache"))


# --- cutting changes nothing ------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(29, 1), (10, 10, 10), (1,) * 30])
def test_micro_batches_give_the_gradient_of_the_whole_batch(sizes: tuple[int, ...]) -> None:
    """Batch statistics included: of one seed alone there would be none."""
    case = buyers(3, count=30)
    case.model.train()
    target = torch.randn(30, 1, dtype=torch.float64)
    total = (case.model(case.batch.to(torch.float64)) - target).square().sum()
    total.backward()
    expected = gradients(case.model)
    found, first = 0.0, 0
    for size in sizes:
        places = np.arange(first, first + size)
        batch = replace(case.tokenizer(select(case.context, places)), whole_sketch=case.batch.sketch)
        found += float(
            backward_by_group(
                case.model,
                batch.to(torch.float64),
                lambda logits, seed, places=places: (logits - target[places][seed]).square().sum(),
            )
        )
        first += size
    assert found == pytest.approx(total.item(), rel=1e-12)
    assert_same(gradients(case.model), expected)


def test_a_step_takes_notice_of_its_batch_once(data: TrainingData) -> None:
    trainer = Trainer(data, micro_batch=20)
    places = trainer.epoch_places(0)[0]
    trainer._step(places)
    buffers = dict(trainer.network.named_buffers())
    (mean,) = (value for name, value in buffers.items() if name.endswith("running_mean"))
    (count,) = (value for name, value in buffers.items() if name.endswith("num_batches_tracked"))
    expected = 0.1 * torch.from_numpy(data.context("train").sketch[places]).mean(0)
    torch.testing.assert_close(mean, expected)
    assert count == 1


@pytest.mark.parametrize("micro_batch", [1, 23])
def test_a_run_in_micro_batches_is_that_of_whole_batches(
    data: TrainingData, micro_batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quartet.training.trainer.free_bytes", lambda _: sys.maxsize)
    whole, cut = Trainer(data), Trainer(data, micro_batch=micro_batch)
    assert whole.micro_batch == 64
    assert whole.run()
    assert cut.run()
    for one, other in zip(whole.state.epochs, cut.state.epochs, strict=True):
        assert other.loss == pytest.approx(one.loss, rel=1e-5)
        assert other.validation == pytest.approx(one.validation, rel=1e-4)


# --- what is needed ---------------------------------------------------------------------------------


def test_the_batch_is_halved_until_it_fits(data: TrainingData, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(data)

    def tokens(count: int) -> TokenBatch:
        return trainer._tokens(np.arange(count))

    assert step_tensor_bytes(trainer.network, tokens(64)) > step_tensor_bytes(trainer.network, tokens(32))
    monkeypatch.setattr("quartet.training.memory.step_tensor_bytes", lambda _, batch: len(batch) * 2**30)
    enough = [0, 3, 6, 12, 24, 48, 95]  # gigabytes
    fits = [seeds_that_fit(trainer.network, tokens, 64, free * 2**30) for free in enough]
    assert fits == [1, 2, 4, 8, 16, 32, 64]
    assert seeds_that_fit(trainer.network, tokens, 3, 0) == 1


@pytest.mark.parametrize(
    ("width", "num_seeds", "has_perceiver"), [(64, 64, True), (128, 128, True), (64, 128, False)]
)
def test_the_bytes_counted_are_those_that_torch_allots(
    data: TrainingData, width: int, num_seeds: int, has_perceiver: bool
) -> None:
    """At least the most that a real step has at a time, and at most half as much again."""
    recipe = NO_DROPOUT.changed(
        width=width, batch_size=num_seeds, seeds_per_epoch=None, local_layers=2, perceiver=has_perceiver
    )
    trainer = Trainer(data, micro_batch=num_seeds, recipe=recipe)
    places = trainer.epoch_places(0)[0]
    counted = step_tensor_bytes(trainer.network, trainer._tokens(places))
    with torch.profiler.profile(profile_memory=True) as seen:
        trainer._step(places)
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    most = np.cumsum([event.nbytes() for event in events]).max()
    assert 1 <= counted / most <= 1.5


def test_the_largest_group_counts_wherever_it_stands(data: TrainingData) -> None:
    """One seed with a long context comes first; many with short ones, and long global ones, come after it."""
    trainer = Trainer(data, recipe=NO_DROPOUT.changed(perceiver=False, width=64))
    batch = trainer._tokens(np.arange(64))
    first, *_ = replace(trainer.data.view.tokenizer, group_tokens=batch.groups[0].row.shape[1])(
        select(data.context("train"), np.arange(64))
    ).groups
    whole = step_tensor_bytes(trainer.network, replace(batch, groups=(batch.groups[0],)))
    assert step_tensor_bytes(trainer.network, replace(batch, groups=(first,))) < whole
    assert step_tensor_bytes(trainer.network, replace(batch, groups=(first, *batch.groups))) >= whole


# --- too little -------------------------------------------------------------------------------------


def train_where_memory_ends() -> None:
    """Prints the error and the steps taken; for a process of its own (see below)."""
    import resource
    import tempfile

    with tempfile.TemporaryDirectory() as cache:
        data = TrainingData.prepare(churn(), TINY, Path(cache))
        Trainer(data).run()  # compiled kernels are loaded while there is memory: their loader would abort
    trainer = Trainer(data, micro_batch=300, recipe=TINY.changed(width=1024, batch_size=300))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    used = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 50 * 2**20, resource.RLIM_INFINITY))
    try:
        trainer.run()
    except ResourceError as error:
        print(error.code, error.fix)
    print("steps:", trainer.state.step)


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space as Linux does")
def test_out_of_memory_ends_with_an_explanation() -> None:
    """A process whose address space ends soon: the allocator itself refuses.

    A process of its own, because once oneDNN was refused memory for a kernel it refuses every new kernel of that
    thread, also when there is memory again: tests that come later would fail.
    """
    code = "from tests.training.test_memory import train_where_memory_ends; train_where_memory_ends()"
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=ROOT, env=command_environment()
    )
    assert done.stdout.splitlines() == [
        "C11 lower batch_size, local_budget, width or local_layers",
        "steps: 0",
    ]
