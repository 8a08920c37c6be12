"""The trainer: it goes on bit for bit where it was cut, heeds its recipe, and fails with an explanation."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from quartet.config import Recipe
from quartet.errors import DataError
from quartet.evaluation import measures
from quartet.training import (
    Adam,
    Trainer,
    TrainingData,
    counted_masks,
    flat,
    next_mask,
    step_tensor_bytes,
    weight_bytes,
)
from quartet.training.memory import parts_that_fit
from tests.trained import SIZES, TINY, Heard, churn, same_weights, without_seconds

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in the same order: bits are compared here


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    return TrainingData.prepare(churn(), TINY, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def whole(data: TrainingData) -> Trainer:
    """A run that nobody interrupted."""
    trainer = Trainer(data)
    assert trainer.run()
    return trainer


@pytest.mark.parametrize("cut", [1, 5, 7])
def test_an_interrupted_run_goes_on_as_if_it_had_not_been(
    cut: int, data: TrainingData, whole: Trainer, tmp_path: Path
) -> None:
    """150 seeds are five batches: cuts within the first epoch, at its end, and in the last one."""
    begun = Trainer(data)
    assert not begun.run(Heard(stop_at=cut), tmp_path / "state")
    assert begun.state.step == cut
    trainer = Trainer(data)
    trainer.restore(tmp_path / "state")
    assert trainer.run()
    assert without_seconds(trainer.state.epochs) == without_seconds(whole.state.epochs)
    assert same_weights(trainer.network, whole.network)
    assert trainer.best_weights.keys() == whole.best_weights.keys()
    assert all(torch.equal(t, whole.best_weights[name]) for name, t in trainer.best_weights.items())


def test_without_a_state_a_run_begins_anew(data: TrainingData, tmp_path: Path) -> None:
    trainer = Trainer(data)
    trainer.restore(tmp_path / "absent")
    assert trainer.state.step == 0


def test_seeds_of_an_epoch_are_other_ones_each_time(data: TrainingData) -> None:
    trainer = Trainer(data)
    first, second = (np.concatenate(trainer.epoch_places(epoch)) for epoch in (0, 1))
    assert len(first) == len(np.unique(first)) == 150
    assert set(first) != set(second)
    assert np.concatenate(trainer.epoch_places(0)).tolist() == first.tolist()
    other = Trainer(data, recipe=TINY.changed(rng_seed=1))
    assert np.concatenate(other.epoch_places(0)).tolist() != first.tolist()


def test_time_runs_out(data: TrainingData) -> None:
    """One step is taken and validated, however short the time."""
    trainer = Trainer(data, recipe=TINY.changed(time_limit=1e-6, epochs=50))
    assert trainer.run()
    assert len(trainer.state.epochs) == 1
    assert trainer.state.step == 1


def test_validation_takes_of_the_time_too(data: TrainingData, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which only validation takes time, ten seconds: the second one is beyond fifteen."""
    now = count(0.0, 10.0)
    clock = SimpleNamespace(perf_counter=lambda: clock.seconds, seconds=next(now))
    monkeypatch.setattr("quartet.training.trainer.time", clock)
    validate = Trainer.validate

    def slow(self: Trainer) -> float:
        clock.seconds = next(now)
        return validate(self)

    monkeypatch.setattr(Trainer, "validate", slow)
    trainer = Trainer(data, recipe=TINY.changed(time_limit=15.0, epochs=50))
    assert trainer.run()
    assert [(epoch.seconds, epoch.validation_seconds) for epoch in trainer.state.epochs] == [(0.0, 10.0)] * 2
    assert trainer.state.seconds == 20.0


def test_refitting_shows_all_seeds_of_train_and_validation(
    data: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of the steps, at most half of the rate; batches are of one split, and a seed comes once a pass."""
    shown: dict[str, list[int]] = {"train": [], "val": []}
    rates: list[float] = []

    def watched(self: Trainer, places: np.ndarray) -> None:
        assert len(places) <= TINY.batch_size
        shown[self.split] += places.tolist()
        rates.append(self._rate())
        self.state.step += 1

    monkeypatch.setattr(Trainer, "_step", watched)
    trainer = Trainer(data)
    seeds = {split: len(data.seeds[split]) for split in ("train", "val")}
    a_pass = sum(-(-number // TINY.batch_size) for number in seeds.values())
    trainer.state.step = 4 * a_pass
    assert trainer.refit()
    assert len(rates) == a_pass
    assert {split: sorted(places) for split, places in shown.items()} == {
        split: list(range(number)) for split, number in seeds.items()
    }
    assert 0 < min(rates) < 0.01
    assert 0.45 < max(rates) <= 0.5
    assert trainer.network.is_refit
    rates.clear()
    trainer.state.step = 3
    assert trainer.refit()
    assert len(rates) == 10  # of few steps a quarter would be none


def test_a_loss_that_is_no_number_ends_with_an_explanation(data: TrainingData) -> None:
    trainer = Trainer(data)
    with torch.no_grad():
        trainer.network.readout.weight.fill_(float("inf"))
    with pytest.raises(DataError, match=r"C12.*step 1 \(epoch 1\).*lower learning_rate"):
        trainer.run()
    assert trainer.state.step == 0


def test_weights_that_the_last_step_spoiled_end_with_the_same_explanation(data: TrainingData) -> None:
    trainer = Trainer(data)
    with torch.no_grad():
        trainer.network.readout.weight.fill_(float("nan"))
    with pytest.raises(DataError, match=r"C12.*validation.*not finite.*lower learning_rate"):
        trainer.validate()


def rates(data: TrainingData, **changes: object) -> list[float]:
    """The learning rate of each step, as a fraction of the recipe's."""
    trainer = Trainer(data, recipe=TINY.changed(**changes))
    found: list[float] = []

    class Watch(Heard):
        def step(self, num_seeds: int) -> None:
            super().step(num_seeds)
            found.append(trainer.optimizer.rate / TINY.learning_rate)

    trainer.run(Watch())
    return found


def test_a_cosine_rises_shortly_and_ends_near_zero(data: TrainingData) -> None:
    found = rates(
        data, schedule="cosine", seeds_per_epoch=40, batch_size=2, epochs=2
    )  # twenty steps an epoch
    assert len(found) == 40
    assert found[:2] == pytest.approx([0.25, 0.75])
    assert found[2:] == sorted(found[2:], reverse=True)
    assert found[2] > 0.98
    assert found[20] == pytest.approx(0.5, abs=0.03)
    assert 0 < found[-1] < 0.002
    assert rates(data, schedule="constant", seeds_per_epoch=64, epochs=1) == [1.0] * 2


def test_a_cosine_follows_the_time_limit(data: TrainingData) -> None:
    """Half of the time is over: the rate is that of the middle, however many steps were planned."""
    trainer = Trainer(data, recipe=TINY.changed(schedule="cosine", epochs=1000, time_limit=1e6))
    trainer.state.seconds = 5e5
    trainer._step(trainer.epoch_places(0)[0])
    assert trainer.optimizer.rate == pytest.approx(TINY.learning_rate / 2, rel=1e-3)


def test_the_latest_seeds_are_those_that_are_trained_on(data: TrainingData) -> None:
    times = data.context("train").seed_time
    trainer = Trainer(data, recipe=TINY.changed(train_fraction=0.3, seeds_per_epoch=None))
    used = np.concatenate(trainer.epoch_places(0))
    left_out = np.setdiff1d(np.arange(len(times)), used)
    assert len(np.unique(used)) == len(used) == trainer.seeds_an_epoch
    assert times[left_out].max() < times[used].min()
    assert 0.3 * len(times) <= len(used) < 0.3 * len(times) + (times == times[used].min()).sum() + 1


def test_epochs_are_compared_on_some_validation_seeds(data: TrainingData) -> None:
    every, some = (Trainer(data, recipe=TINY.changed(validation_seeds=count)) for count in (None, 20))
    assert every.validated.tolist() == list(range(len(data.labels("val"))))
    assert len(some.validated) == len(set(some.validated.tolist())) == 20
    score = data.output.scores(some.logits(data.context("val")))[some.validated]
    kind, labels = data.task.spec.type, data.labels("val")[some.validated]
    expected = measures(kind, labels, score, num_resamples=0)["roc_auc"].value
    assert some.validate() == pytest.approx(expected, abs=1e-6)
    other = Trainer(data, recipe=TINY.changed(validation_seeds=20, rng_seed=5))
    assert other.validated.tolist() == some.validated.tolist()


# --- threads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["quartet", "relgt"])
def test_no_bit_depends_on_how_many_threads_there_are(model: str, data: TrainingData) -> None:
    """Batches of four parts and of three, the last with fewer seeds; with dropout of everything."""
    recipe = Recipe.load(
        "small", "", model, **SIZES, batch_size=32, seeds_per_epoch=150, epochs=1, attention_dropout=0.2
    )
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            trainer = Trainer(data, micro_batch=9, recipe=recipe)
            assert trainer.run()
            assert torch.get_num_threads() == threads
            found.append(trainer)
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert without_seconds(other.state.epochs) == without_seconds(found[0].state.epochs)
        assert same_weights(other.network, found[0].network)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adam_moves_as_that_of_torch(weight_decay: float) -> None:
    """Also a parameter that the loss does not reach at first: its gradient is zero."""
    torch.manual_seed(0)
    ours, theirs = (
        [nn.Parameter(torch.ones(size, dtype=torch.float64)) for size in ((3, 2), (), (4,))] for _ in "12"
    )
    adam, oracle = Adam(ours, weight_decay), torch.optim.Adam(theirs, weight_decay=weight_decay)
    for step in range(20):
        gradients = [torch.randn_like(parameter) for parameter in ours]
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient.clone()
        if step < 5:
            theirs[1].grad = torch.zeros_like(theirs[1])
        oracle.param_groups[0]["lr"] = 0.1 / (step + 1)
        oracle.step()
        adam.step(
            flat([gradients[0], None if step < 5 else gradients[1], gradients[2]], ours), 0.1 / (step + 1)
        )
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_masks_follow_from_their_key_alone() -> None:
    """Not from what another thread has drawn, nor from torch's generator; without a key they are drawn from it."""

    def masks(*key: int) -> list[int]:
        with counted_masks(*key):
            return [next_mask() for _ in range(3)]

    expected = masks(0, 1, 2)
    assert len(set(expected)) == 3
    with counted_masks(5), ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: masks(0, 1, 2), range(4))) == [expected] * 4
        assert not set(expected) & set(pool.submit(masks, 0, 1, 3).result())
    torch.manual_seed(0)
    drawn = next_mask()
    assert next_mask() != drawn
    torch.manual_seed(0)
    assert next_mask() == drawn


def test_parts_are_taken_together_as_far_as_they_fit(data: TrainingData) -> None:
    trainer = Trainer(data, micro_batch=8)
    batch = trainer._tokens(np.arange(8))
    kept = 6 * weight_bytes(trainer.network) + 80 * 10**6
    one = int(1.25 * step_tensor_bytes(trainer.network, batch))
    own = one + weight_bytes(trainer.network)
    for parts in (1, 2, 5):
        enough = (kept + one + (parts - 1) * own) / 0.9
        assert parts_that_fit(trainer.network, batch, int(enough) + 10) == parts
        assert parts_that_fit(trainer.network, batch, int(enough) - 10) == max(1, parts - 1)
