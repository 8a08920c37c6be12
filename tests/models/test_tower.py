"""The tower: how it reads columns, that its heads answer together, what it is alone, and how others go on from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from quartet.config import ModelConfig, Recipe
from quartet.contexts import select
from quartet.errors import UsageError
from quartet.features import is_about_others
from quartet.models.layers.readout import LinearReadout, Tower, new_readout
from quartet.models.quartet import Quartet
from quartet.models.tower import TowerAlone
from quartet.runs import fit
from quartet.tasks import Seeds, Task
from quartet.training import ModelSchema, TrainingData
from tests.models.data import randomise
from tests.trained import QUICK, SIZES, Heard, churn, network_of

NAMES = ("a", "b (code)", "c", "d (code)")
SCHEMA = ModelSchema((), 3, 2, (), NAMES, ((1, 4), (3, 0)))
CONFIG = ModelConfig(width=16, heads=2, tower=5, dropout=0.0)


def training_rows() -> np.ndarray:
    """`a` from 0 to 100, `b` a code, `c` mostly 7, in part absent, `d` a code with too many values to read."""
    rows = np.zeros((101, 4), np.float32)
    rows[:, 0] = np.arange(101)
    rows[:, 1] = np.arange(101) % 4
    rows[:, 2] = 7
    rows[90:, 2] = np.nan
    rows[:, 3] = np.arange(101)
    return rows


@pytest.fixture
def tower() -> Tower:
    torch.manual_seed(0)
    made = new_readout(CONFIG, SCHEMA)
    assert isinstance(made, Tower)
    made.begin([0.5, -0.5], training_rows())
    return made.eval()


def test_a_number_is_read_by_its_rank_its_size_and_its_absence(tower: Tower) -> None:
    nan = float("nan")
    views = tower.views(
        torch.tensor([[50, 0, 7, 0], [100, 1, nan, 0], [1e9, 3, 7, 0], [25, 3, 8, 0]]).float()
    )
    rank, size, absent = views[:, 0:2], views[:, 2:4], views[:, 4:6]
    assert rank[:, 0].tolist() == pytest.approx([0.0, 2.42, 2.42, -0.6745], abs=0.02)  # normal quantiles
    assert rank[0, 1] == 0.0  # ties stand in their middle
    assert absent[:, 1].tolist() == [0, 1, 0, 0]
    assert (rank[1, 1], size[1, 1]) == (0.0, 0.0)
    assert size[0, 0] == 0.0
    assert size[:, 0].max() <= 8.0
    assert views.isfinite().all()
    assert views.shape[1] == 3 * 2 + 8


def test_the_answer_is_the_mean_of_its_heads(tower: Tower) -> None:
    hidden, columns = torch.randn(6, 16), torch.tensor(training_rows()[:6])
    heads = tower.train()(hidden, columns)
    assert heads.shape == (6, 5, 2)
    assert len(heads[0].unique(dim=0)) == 5
    torch.testing.assert_close(tower.eval()(hidden, columns), heads.mean(1))


def test_many_seeds_are_answered_as_one_by_one(tower: Tower) -> None:
    """Of many the members go into the weights, of few into the columns; gradients are the same, too."""
    tower = tower.double().train()
    hidden, columns = torch.randn(90, 16).double(), torch.tensor(training_rows()[:90]).double()
    together = tower(hidden, columns)
    alone = torch.cat([tower(hidden[seed : seed + 1], columns[seed : seed + 1]) for seed in range(90)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-12)
    loss = torch.randn_like(together)
    gradients = (torch.autograd.grad((made * loss).sum(), tower.parameters()) for made in (together, alone))
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_it_reads_both_columns_and_what_the_network_has_read(tower: Tower) -> None:
    hidden, columns = torch.randn(2, 16), torch.tensor(training_rows()[:1]).expand(2, -1)
    other = columns.clone()
    other[:, 0] = 90
    assert not torch.equal(tower(hidden[:1], columns[:1]), tower(hidden[1:], columns[1:]))
    assert not torch.equal(tower(hidden, columns), tower(hidden, other))


def test_a_number_that_never_varied_in_training_moves_nothing(tower: Tower) -> None:
    """`c` is 7 wherever it is there: what another value means, nothing has told."""
    columns = torch.tensor([[50.0, 0.0, value, 0.0] for value in (7.0, 8.0, -1e9)])
    hidden = torch.randn(1, 16).expand(3, -1)
    usual, *others = tower(hidden, columns)
    for other in others:
        torch.testing.assert_close(other, usual)
    varied = training_rows()
    varied[0, 2] = 8
    tower.begin([0.5, -0.5], varied)
    usual, *others = tower(hidden, columns)
    assert all((other - usual).abs().max() > 1e-3 for other in others)


def test_columns_by_which_trees_gained_are_louder(tower: Tower) -> None:
    """`a` gained four times as much as `b` and is twice as loud; `c` gained nothing, and is a little softer."""
    plain = tower.views(torch.tensor(training_rows()))
    tower.begin([0.5, -0.5], training_rows(), [0.8, 0.2, 0.0, 0.0])
    views = tower.views(torch.tensor(training_rows()))
    share = (views / plain)[95].detach()[[0, 2, 5, 6]].tolist()
    assert share[0] == share[1] == pytest.approx(2 * share[3])  # rank and size of `a`, and the code `b`
    assert share[2] == pytest.approx(share[3] / 2**0.5)  # where `c` is absent
    assert tower.loudness.square().mean() == pytest.approx(1.0)


def test_weights_of_before_there_was_loudness_are_read(tower: Tower) -> None:
    weights = {name: tensor for name, tensor in tower.state_dict().items() if name != "loudness"}
    other = new_readout(CONFIG, SCHEMA).eval()
    other.load_state_dict(weights)
    columns = torch.tensor(training_rows()[:4])
    assert torch.equal(other(torch.zeros(4, 16), columns), tower(torch.zeros(4, 16), columns))


def test_codes_that_training_did_not_have_are_read(tower: Tower) -> None:
    columns = torch.tensor([[1.0, 99.0, 7.0, 5.0], [1.0, float("nan"), 7.0, 5.0]])
    assert tower(torch.zeros(2, 16), columns).isfinite().all()


def test_without_columns_there_is_no_tower() -> None:
    assert isinstance(new_readout(CONFIG, ModelSchema((), 3, 2)), LinearReadout)


# --- alone ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def task() -> Task:
    return churn()


@pytest.fixture(scope="module")
def data(task: Task, tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    """What a tower reads of the small shop: all columns but those about others, of which there is no need here."""
    recipe = Recipe.load("small", model="tower", **SIZES)
    data = TrainingData.prepare(task, recipe, tmp_path_factory.mktemp("cache"))
    near = tuple(name for name in data.column_names if not is_about_others(name))
    return data.changed(data.recipe, near)


@pytest.fixture(scope="module")
def alone(data: TrainingData) -> TowerAlone:
    """A tower by itself, whose answers differ from seed to seed."""
    network = TowerAlone.new(data, data.recipe)
    randomise(network)
    return network.eval()


def test_a_tower_alone_has_nothing_that_reads_a_network(tower: Tower) -> None:
    alone = Tower(CONFIG, SCHEMA, is_alone=True)
    names = {name for name, _ in tower.named_parameters()}
    left_out = names - {name for name, _ in alone.named_parameters()}
    assert left_out == {name for name in names if name.startswith("join.")} != set()
    assert alone.eval()(None, torch.tensor(training_rows()[:3])).shape == (3, 2)


def test_its_logits_are_those_of_batches(
    alone: TowerAlone, data: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For which contexts are sampled, as in training, and none for the logits; however many are asked at once."""
    seeds = data.seeds["val"]
    with torch.no_grad():
        batches = [
            alone(data.view.tokenizer(select(context, np.arange(len(context))))).double().numpy()
            for context in data.view.contexts(seeds, data.column_names)
        ]
    expected = np.concatenate(batches)
    assert len(np.unique(expected)) > 10
    monkeypatch.setattr(data.view, "contexts", None)
    np.testing.assert_allclose(alone.logits(data.view, seeds), expected, rtol=1e-5, atol=1e-5)
    monkeypatch.setattr("quartet.training.data._ROWS_AT_ONCE", 15)
    monkeypatch.setattr("quartet.models.tower._BATCH", 4)
    heard = Heard()
    np.testing.assert_allclose(alone.logits(data.view, seeds, heard), expected, rtol=1e-5, atol=1e-5)
    assert sum(done for done, _ in heard.work["scores"]) == len(seeds)
    assert len(heard.work["scores"]) == -(-len(seeds) // 15)
    assert alone.logits(data.view, Seeds(seeds.node[:0], seeds.time[:0], None)).shape == (0, 1)


def test_what_it_learns_is_kept(task: Task, tmp_path: Path) -> None:
    settings = QUICK | {
        "epochs": 3,
        "seeds_per_epoch": None,
    }  # the same seeds each time: losses can be compared
    model = fit(task, "tower", runs=tmp_path, cache=tmp_path, listener=Heard(), **settings)
    network = network_of(model)
    assert isinstance(network, TowerAlone)
    assert network.readout.join is None
    first, *_, last = model.run.epochs()
    assert last.loss < first.loss


def test_a_tower_without_heads_is_refused(task: Task, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"C02.*without heads reads nothing"):
        fit(task, "tower", runs=tmp_path, cache=tmp_path, listener=Heard(), **QUICK, tower=0)


# --- a network that goes on from it -----------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_who_goes_on_from_a_tower_first_answers_as_it_did(tower: Tower, scale: float) -> None:
    """Exactly, and whatever the network has read; what it has read is heard from the first step on."""
    torch.manual_seed(1)
    alone = Tower(CONFIG, SCHEMA, is_alone=True).eval()
    alone.begin([0.1, 0.2], 3 * training_rows() + 1)
    randomise(alone)
    columns = torch.tensor(training_rows()[::5])
    hidden = scale * torch.randn(len(columns), 16)
    before = tower(hidden, columns)
    tower.go_on_from(alone.state_dict())
    assert torch.equal(tower(hidden, columns), alone(None, columns))
    assert not torch.equal(tower(hidden, columns), before)
    assert torch.equal(tower.train()(hidden, columns), alone.train()(None, columns))
    tower(hidden, columns).square().sum().backward()
    assert tower.join is not None
    assert tower.join[1].weight.grad.any() or not scale  # type: ignore[union-attr]


def test_quartet_goes_on_from_a_tower(alone: TowerAlone, data: TrainingData) -> None:
    """On the seeds of a task the logits are the tower's, whatever has been read; without a start they are not."""
    recipe = data.recipe.changed(architecture="quartet", local=True, branches=("feature", "topology"))
    started = data.changed(recipe, data.column_names, alone.readout.state_dict())
    one, other = Quartet.new(started, recipe).eval(), Quartet.new(started, recipe.changed(rng_seed=1)).eval()
    fresh = Quartet.new(data.changed(recipe, data.column_names), recipe).eval()
    seeds = data.seeds["val"]
    (context,) = started.view.contexts(seeds, data.column_names)
    batch = started.view.tokenizer(select(context, np.arange(len(context))))
    expected = alone.logits(data.view, seeds)
    with torch.no_grad():
        logits = [network(batch) for network in (one, other, fresh)]
    assert torch.equal(logits[0], logits[1])  # two networks that have read something else
    np.testing.assert_allclose(logits[0].numpy(), expected, rtol=1e-5, atol=1e-5)
    assert not np.allclose(logits[2].numpy(), expected, atol=1e-2)
