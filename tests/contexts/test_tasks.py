"""The contexts of a task: the cache behind them, their checks, their measures, their picture, the commands."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from quartet.config import SamplingConfig, changes_from_text
from quartet.contexts import Context, connectivity, sample, task_context
from quartet.database import Database
from quartet.drawing import seed_svg
from quartet.errors import UsageError
from quartet.graph import TemporalGraph
from quartet.listener import Listener
from quartet.paper import connectivity_study
from quartet.tasks import Task
from tests.shared import shared_data
from tests.tasks.small import CHURN, small_shop, write_small_shop

CONFIG = SamplingConfig(num_walks=20, walk_length=5, local_budget=30, temporal_budget=20, collab_budget=20)


@pytest.fixture(scope="module")
def task() -> Task:
    return Task.from_sql(small_shop(), **CHURN, num_eval_timestamps=3)


@pytest.fixture(scope="module")
def graph(task: Task) -> TemporalGraph:
    return TemporalGraph.build(task.database)


class Told(Listener):
    def __init__(self) -> None:
        self.progressed: list[tuple[str, int]] = []

    def progress(self, what: str, done: int, total: int) -> None:  # noqa: ARG002
        self.progressed.append((what, done))


def test_the_second_time_contexts_come_from_the_cache(
    task: Task, graph: TemporalGraph, tmp_path: Path
) -> None:
    """The listener is told of none done before any work, and of nothing where there is none."""
    first, again = Told(), Told()
    contexts = [task_context(task, graph, CONFIG, "val", tmp_path, told) for told in (first, again)]
    live = sample(graph, task.under("frozen").asked_seeds("val"), CONFIG)
    assert first.progressed == [("contexts of churn-val", done) for done in (0, len(live))]
    assert again.progressed == []
    for name, array in live.arrays.items():
        for other in contexts:
            assert other.arrays[name].dtype == array.dtype
            assert other.arrays[name].tobytes() == array.tobytes()


def plain_measures(context: Context, seed: int) -> tuple[float, ...]:
    """The measures of one seed, with sets and a search."""
    nodes, _, _, edges = context.local(seed)
    beside: dict[int, set[int]] = {place: set() for place in range(len(nodes))}
    for child, parent in edges.tolist():
        beside[child].add(parent)
        beside[parent].add(child)
    groups, left = [], set(beside)
    while left:
        group, border = set(), {min(left)}
        while border:
            group |= border
            border = {other for place in border for other in beside[place]} - group
        groups.append(group)
        left -= group
    closed = [
        sum(b in beside[a] for a in near for b in near) / (len(near) * (len(near) - 1))
        if len(near) > 1
        else 0.0
        for near in beside.values()
    ]
    size = len(nodes)
    pairs = max(size * (size - 1) / 2, 1)
    share = len(groups[0]) / size  # place 0 is the seed
    mean = sum(map(len, groups)) / len(groups)
    return size, 2 * len(edges) / size, share, len(groups), mean, len(edges) / pairs, sum(closed) / size


def test_measures_equal_a_plain_search(task: Task, graph: TemporalGraph) -> None:
    for sampler in ("walk", "bfs", "uniform"):
        context = sample(graph, task.seeds("train"), CONFIG.changed(local_sampler=sampler))
        found = connectivity(context)
        for seed in range(0, len(context), 7):
            got = [getattr(found, name)[seed] for name in vars(found)]
            assert got == pytest.approx(plain_measures(context, seed)), seed


def test_triangles_count_as_clustering() -> None:
    """Three rows, each linked to the others: the coefficient is 1."""
    empty = np.empty(0, np.int32)
    context = Context(
        seed_node=np.zeros(1, np.int32),
        seed_time=np.zeros(1, np.int64),
        local_start=np.array([0, 3]),
        local_node=np.arange(3, dtype=np.int32),
        local_hop=np.array([0, 1, 1], np.uint8),
        local_count=np.ones(3, np.uint16),
        link_start=np.array([0, 4]),
        link=np.array([0, 2, 3, 4], np.uint8),  # none; row 0; row 0, and row 1
        collab_start=np.zeros(2, np.int64),
        collab_node=empty,
        time_index=np.zeros(1, np.int32),
        temporal_start=np.zeros(2, np.int64),
        temporal_node=empty,
        sketch=np.zeros((1, 0), np.float32),
        columns=np.zeros((1, 0), np.float32),
    )
    assert connectivity(context).means() == {
        "distinct": 3, "degree": 2, "seed_connected": 1, "components": 1, "component_size": 3, "density": 1,
        "clustering": 1,
    }  # fmt: skip
    assert set(connectivity(context).deviations().values()) == {0.0}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time_index", np.array([1], np.int32)),
        ("time_index", np.array([-1], np.int32)),
        ("local_start", np.array([0, 999])),
        ("link_start", np.array([1, 0])),
        ("link_start", np.array([0, 5, 3])),
        ("seed_time", np.zeros(2, np.int64)),
        ("collab_start", np.zeros(3, np.int64)),
        ("sketch", np.zeros((2, 5), np.float32)),
        ("local_node", np.zeros(3, np.int64)),
        ("link", np.zeros((3, 3), np.uint8)),
    ],
)
def test_a_context_that_does_not_fit_together_is_refused(
    task: Task, graph: TemporalGraph, name: str, value: np.ndarray
) -> None:
    context = sample(graph, task.seeds("train").select(np.arange(len(task.seeds("train"))) == 0), CONFIG)
    with pytest.raises(
        ValueError, match=rf"{name} (does not cut|is of another|names|has )|does not cut {name}|{name} does"
    ):
        replace(context, **{name: value})


@pytest.mark.parametrize("name", ["driver-top3", "driver-dnf"])
def test_rel_f1_is_near_the_paper(name: str) -> None:
    """Ours has no future rows in the fallback, and BFS2 loses no distinct row to replacement."""
    rows = connectivity_study(Task.load(Database.load(shared_data("rel-f1")), name), SamplingConfig())
    here, paper = (
        next(r.means for r in rows if (r.sampler, r.source) == ("walk", s)) for s in ("here", "paper")
    )
    assert here["distinct"] == pytest.approx(paper["distinct"], abs=2)
    assert here["seed_connected"] == pytest.approx(paper["seed_connected"], abs=0.01)
    assert here["components"] == pytest.approx(paper["components"], abs=2)
    assert here["degree"] == pytest.approx(paper["degree"], abs=0.2)
    ours = next(r.means for r in rows if (r.sampler, r.source) == ("bfs", "here"))
    assert here["degree"] > ours["degree"]
    assert here["seed_connected"] > ours["seed_connected"]


def test_the_picture_shows_every_row_and_edge(task: Task, graph: TemporalGraph) -> None:
    picture = ElementTree.fromstring(seed_svg(task, graph, CONFIG, 3))
    tags = [element.tag.rpartition("}")[2] for element in picture.iter()]
    one = task.seeds("train").select(np.arange(len(task.seeds("train"))) == 3)
    contexts = [sample(graph, one, CONFIG.changed(local_sampler=s, branches=())) for s in ("walk", "bfs")]
    assert tags.count("line") == sum(len(context.edges()[1]) for context in contexts)
    assert tags.count("polygon") == 2
    assert "script" not in tags
    with pytest.raises(UsageError, match=r"error\[C02\] there is no training seed 99999"):
        seed_svg(task, graph, CONFIG, 99_999)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["walk_lenght=5"],
            'error[C01] unknown field "walk_lenght" of a recipe (did you mean "walk_length"?)',
        ),
        (["walk_length"], 'error[C01] "walk_length" is not of the form field=value'),
        (["local_budget=1"], "error[C02] local_budget is 1. Fix: give a whole number from 2 to 32,768"),
        (["restart_prob=1.5"], "error[C02] restart_prob is 1.5. Fix: give a number from 0 to below 1"),
        (["branches=temporal,colab"], 'error[C02] there is no branch "colab" (did you mean "collab"?)'),
        (["local_sampler=dfs"], "error[C02] local_sampler is 'dfs'. Fix: say one of walk, bfs, uniform"),
        (
            ["num_walks=many"],
            "error[C02] num_walks is 'many'. Fix: give a whole number from 1 to 2,147,483,647",
        ),
        (["num_walks=2.5"], "error[C02] num_walks is 2.5. Fix: give a whole number from 1 to 2,147,483,647"),
    ],
)
def test_settings_that_cannot_be(words: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        SamplingConfig().changed(**changes_from_text(words))
    assert str(caught.value) == message


def test_settings_from_text() -> None:
    words = ["walk_length=5", "max_recent=null", "branches=temporal, collab", "time_rule=<"]
    config = SamplingConfig().changed(**changes_from_text(words))
    assert (config.walk_length, config.max_recent, config.branches, config.time_rule) == (
        5, None, ("temporal", "collab"), "<"
    )  # fmt: skip
    assert SamplingConfig().changed(**changes_from_text(["branches="])).branches == ()
    assert changes_from_text(["learning_rate=1e-3", "local_sampler=bfs"]) == {
        "learning_rate": 1e-3,
        "local_sampler": "bfs",
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A RelBench folder with one task, as a user would have it."""
    return write_small_shop(tmp_path_factory.mktemp("shop") / "shop")


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "quartet", *map(str, words)], capture_output=True, text=True, check=False
    )


def test_sample_command(folder: Path, tmp_path: Path) -> None:
    words = ("sample", folder, "churn", "--cache", tmp_path, "--set", "num_walks=20")
    done = run(*words, "--draw", tmp_path / "context.svg", "--seed", 2)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == ["train", "val", "test"]
    assert "seeds, about" in done.stderr
    assert ElementTree.parse(tmp_path / "context.svg").getroot() is not None
    again = run(*words)
    assert [line.split()[-1] for line in again.stdout.splitlines()[2:]] == ["cached"] * 3
    assert "seeds, about" not in again.stderr


def test_study_command(folder: Path, tmp_path: Path) -> None:
    done = run("study", "connectivity", folder, "churn", "--folder", tmp_path)
    picture = ElementTree.parse(tmp_path / "connectivity-small-churn.svg").getroot()
    tags = [element.tag.rpartition("}")[2] for element in picture.iter()]
    assert tags.count("rect") >= 8  # four panels, two samplers
    assert "± over seeds" in (tmp_path / "connectivity-small-churn.md").read_text(encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[2].split()[:2] == ["churn", "here"]
