"""What a training is said to take: measured without touching the run, and what is left of it."""

from __future__ import annotations

from typing import Any

import pytest

from quartet.training import Trainer, TrainingData, duration
from quartet.training.cost import Pace
from quartet.training.trainer import TrainingState
from tests.trained import TINY, Heard, churn, same_weights

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in the same order: bits are compared here


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    return TrainingData.prepare(churn(), TINY, tmp_path_factory.mktemp("cache"))


def test_the_estimate_changes_nothing_of_a_run(data: TrainingData) -> None:
    recipe = TINY.changed(epochs=1)
    plain, told = (Trainer(data, recipe=recipe) for _ in range(2))
    pace = Pace(told)
    names = [name for name, _ in pace.lines()]
    assert {"model", "epochs", "device", "cost"} <= set(names)
    assert pace.seed_seconds > 0
    assert pace.validation_seconds > 0
    assert plain.run()
    assert told.run()
    assert same_weights(plain.network, told.network)


def test_what_is_left_of_a_run(data: TrainingData) -> None:
    """Eight epochs of 300 seeds at 10 ms, each with a validation of 1 s."""

    def left(limit: float | None = None, **state: Any) -> float:
        recipe = TINY.changed(time_limit=limit, epochs=8, seeds_per_epoch=300, batch_size=64)
        trainer = Trainer(data, recipe=recipe)
        trainer.state = TrainingState(**state)
        return Pace(trainer, 0.01, 1.0).seconds_left()

    assert left() == pytest.approx(8 * 4)
    assert left(epoch=7) == pytest.approx(4)
    assert left(epoch=7, batch=2) == pytest.approx((300 - 128) * 0.01 + 1)
    assert left(epoch=7, batch=5) == 1  # the last batch has 44 seeds
    assert left(epoch=8) == 0
    assert left(limit=7.0) == pytest.approx(7 + 3)  # two epochs and a third of the third
    assert left(limit=7.0, epoch=2, batch=1, seconds=6.64) == pytest.approx(0.36 + 1)
    assert left(limit=7.0, epoch=2, batch=1, seconds=8.0) == 1


def test_the_bar_counts_the_seeds_of_the_epoch(data: TrainingData) -> None:
    trainer = Trainer(data, recipe=TINY.changed(epochs=1, seeds_per_epoch=70))
    pace, seen = Pace(trainer, 0.01, 1.0), []

    class Watch(Heard):
        def step(self, num_seeds: int) -> None:
            super().step(num_seeds)
            seen.append(pace.bar()[1:3])

    assert trainer.run(Watch())
    assert seen == [(32, 70), (64, 70), (70, 70)]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (2.46, "2.5 s"), (9.96, "10 s"), (99.4, "99 s"), (99.6, "2 min"), (5900, "98 min"),
     (9000, "2.5 h")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
