"""Micro-batches: the need of a step is counted and compared with what is free, and cutting changes no number."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from quartet.config import Recipe
from quartet.contexts import select
from quartet.database import Database
from quartet.errors import ResourceError
from quartet.tasks import Task
from quartet.tokens import TokenBatch
from quartet.training import Material, Trainer, backward_in_parts, prepare, step_tensor_bytes
from quartet.training.memory import free_bytes, seeds_that_fit, step_bytes
from tests.models.test_equality import gradients, some_seeds
from tests.shared import shared_data
from tests.tasks.small import CHURN, small_shop
from tests.training.test_trainer import TINY

NO_DROPOUT = TINY.changed(dropout=0.0, encoder_dropout=0.0, epochs=2)


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return prepare(Task.from_sql(small_shop(), **CHURN), TINY, tmp_path_factory.mktemp("cache"))


# --- cutting changes nothing ------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(29, 1), (10, 10, 10), (1,) * 30])
def test_micro_batches_give_the_gradient_of_the_whole_batch(sizes: tuple[int, ...]) -> None:
    """Batch statistics included: of one seed alone there would be none."""
    case = some_seeds(3, count=30)
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
            backward_in_parts(
                case.model,
                batch.to(torch.float64),
                lambda answer, seed, places=places: (answer - target[places][seed]).square().sum(),
            )
        )
        first += size
    assert found == pytest.approx(total.item(), rel=1e-12)
    for name, gradient in gradients(case.model).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-10, atol=1e-10, msg=name)


def test_running_statistics_follow_the_whole_batch_once() -> None:
    one, other = some_seeds(3, count=30), some_seeds(3, count=30)
    sketch = one.batch.sketch.double()
    one.model.train()(one.batch.to(torch.float64))
    other.model.train().observe(sketch)
    for first in (0, 15):
        batch = other.tokenizer(select(other.context, np.arange(first, first + 15)))
        other.model(replace(batch, whole_sketch=sketch).to(torch.float64))
    for name, buffer in one.model.topology.norm.named_buffers():
        assert torch.equal(buffer, dict(other.model.topology.norm.named_buffers())[name]), name


def test_a_step_takes_notice_of_its_batch_once(material: Material) -> None:
    trainer = Trainer(material, NO_DROPOUT, micro_batch=20)
    places = trainer.epoch_places(0)[0]
    trainer._step(places)
    norm = trainer.model.topology.norm
    expected = 0.1 * torch.from_numpy(material.contexts["train"].sketch[places]).mean(0)
    torch.testing.assert_close(norm.running_mean, expected)
    assert norm.num_batches_tracked == 1


@pytest.mark.parametrize("micro_batch", [1, 23])
def test_a_run_in_micro_batches_is_that_of_whole_batches(material: Material, micro_batch: int) -> None:
    recipe = NO_DROPOUT.changed(seeds_per_epoch=70)
    whole, cut = Trainer(material, recipe), Trainer(material, recipe, micro_batch=micro_batch)
    assert whole.micro_batch == 64
    assert whole.run()
    assert cut.run()
    for one, other in zip(whole.progress.history, cut.progress.history, strict=True):
        assert other.loss == pytest.approx(one.loss, rel=1e-5)
        assert other.validation == pytest.approx(one.validation, rel=1e-4)


# --- what is needed ---------------------------------------------------------------------------------


class Sized:
    """Batches of any size out of one context, as a run makes them."""

    def __init__(self, material: Material) -> None:
        self.trainer = Trainer(material, NO_DROPOUT)

    def __call__(self, count: int) -> TokenBatch:
        return self.trainer._tokens(np.arange(count))


def test_the_batch_is_halved_until_it_fits(material: Material) -> None:
    tokens = Sized(material)
    model = tokens.trainer.model
    need = {count: step_bytes(model, tokens(count)) for count in (64, 32)}
    assert need[64] > need[32]
    assert seeds_that_fit(model, tokens, 64, int(need[64] / 0.9) + 1) == 64
    assert seeds_that_fit(model, tokens, 64, int(need[32] / 0.9) + 1) == 32
    assert seeds_that_fit(model, tokens, 3, 0) == 1


MEASURE = """
import sys
from pathlib import Path
from quartet.database.database import Database
from quartet.training.memory import step_bytes
from quartet.config import Recipe
from quartet.tasks import Task
from quartet.training.trainer import Trainer, prepare

def status(name):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(name))

folder, cache, width, num_seeds = sys.argv[1:]
task = Task.load(Database.load(folder), "driver-top3")
recipe = Recipe.load("small", batch_size=int(num_seeds), width=int(width))
trainer = Trainer(prepare(task, recipe, Path(cache)), recipe, micro_batch=int(num_seeds))
places = trainer.epoch_places(0)
estimated = step_bytes(trainer.model, trainer._tokens(places[0]))
Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
before = status("VmRSS")
for step in range(2):
    trainer._step(places[step])
print(estimated, status("VmHWM") - before)
"""


def test_a_step_fits_into_what_was_said_to_be_needed(tmp_path: Path) -> None:
    """In a process of its own. How much less it takes is up to the allocator of the machine."""
    words = [str(shared_data("rel-f1")), str(tmp_path), "128", "128"]
    command, root = [sys.executable, "-c", MEASURE, *words], Path(__file__).parents[1]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    estimated, measured = map(int, done.stdout.split())
    assert measured <= estimated


@pytest.mark.parametrize(("width", "num_seeds"), [(64, 64), (128, 128)])
def test_the_bytes_counted_are_those_that_torch_allots(tmp_path: Path, width: int, num_seeds: int) -> None:
    """At least the most that a real step has at a time, and at most half as much again."""
    task = Task.load(Database.load(str(shared_data("rel-f1"))), "driver-top3")
    recipe = Recipe.load("small", batch_size=num_seeds, width=width)
    trainer = Trainer(prepare(task, recipe, tmp_path), recipe, micro_batch=num_seeds)
    places = trainer.epoch_places(0)[0]
    counted = step_tensor_bytes(trainer.model, trainer._tokens(places))
    with torch.profiler.profile(profile_memory=True) as seen:
        trainer._step(places)
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    most = np.cumsum([event.nbytes() for event in events]).max()
    assert 1 <= counted / most <= 1.5


# --- what is free -----------------------------------------------------------------------------------


def machine(root: Path, group: str, **files: str) -> Path:
    """A file system on which 8 GB are available to a process in a control group."""
    contents = {
        "proc/meminfo": "MemTotal: 16000000 kB\nMemAvailable:    8000000 kB\n",
        "proc/self/cgroup": group,
    }
    for name, content in (contents | files).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_without_a_limit_the_machine_decides(tmp_path: Path) -> None:
    assert free_bytes(root=machine(tmp_path, "0::/\n")) == 8_000_000 * 1024


def test_a_control_group_of_version_2(tmp_path: Path) -> None:
    """The limit may stand at the group or around it; files that are only remembered do not count as used."""
    files = {
        "sys/fs/cgroup/box/memory.max": "3000000\n",
        "sys/fs/cgroup/box/memory.current": "1200000\n",
        "sys/fs/cgroup/box/memory.stat": "anon 700000\ninactive_file 500000\n",
        "sys/fs/cgroup/box/job/memory.max": "max\n",
    }
    assert free_bytes(root=machine(tmp_path, "0::/box/job\n", **files)) == 3_000_000 - 1_200_000 + 500_000


def test_a_control_group_of_version_1(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "2000000\n",
        "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "400000\n",
        "sys/fs/cgroup/memory/job/memory.stat": "cache 100000\ntotal_inactive_file 100000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "5000000\n",
        "sys/fs/cgroup/memory/memory.stat": "cache 0\n",
    }
    group = "9:cpu:/\n4:memory:/job\n0::/\n"
    assert free_bytes(root=machine(tmp_path, group, **files)) == 2_000_000 - 400_000 + 100_000


def test_this_machine_has_some() -> None:
    total = re.search(r"MemTotal: *(\d+) kB", Path("/proc/meminfo").read_text())
    assert total is not None
    assert 0 < free_bytes() <= int(total[1]) * 1024


# --- too little -------------------------------------------------------------------------------------


def train_where_memory_ends() -> None:
    """Prints the error and the steps taken; for a process of its own (see below)."""
    import resource
    import tempfile

    with tempfile.TemporaryDirectory() as cache:
        material = prepare(Task.from_sql(small_shop(), **CHURN), TINY, Path(cache))
    Trainer(
        material, TINY
    ).run()  # compiled kernels are loaded while there is memory: their loader would abort
    trainer = Trainer(material, TINY.changed(width=1024, batch_size=300), micro_batch=300)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    used = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 50 * 2**20, resource.RLIM_INFINITY))
    try:
        trainer.run()
    except ResourceError as error:
        print(error)
    print("steps:", trainer.progress.step)


def test_out_of_memory_ends_with_an_explanation() -> None:
    """A process whose address space ends soon: the allocator itself refuses.

    A process of its own, because once oneDNN was refused memory for a kernel it refuses every new kernel of that
    thread, also when there is memory again: tests that come later would fail.
    """
    code = "from tests.training.test_memory import train_where_memory_ends; train_where_memory_ends()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "error[C11] not enough memory for 300 seeds at a time at width 1024."
        " Fix: lower batch_size, local_budget, width or local_layers",
        "steps: 0",
    ]


def test_where_nothing_is_known_of_memory_nothing_is_cut(tmp_path: Path) -> None:
    """Not Linux: there is no /proc."""
    assert free_bytes(root=tmp_path) == sys.maxsize
