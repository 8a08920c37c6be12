"""The tower: how it reads columns, and that its heads answer together."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from quartet.config import ModelConfig
from quartet.models.layers.readout import LinearReadout, Tower, new_readout
from quartet.training import ModelSchema

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


def test_it_reads_both_columns_and_what_the_network_has_read(tower: Tower) -> None:
    hidden, columns = torch.randn(2, 16), torch.tensor(training_rows()[:1]).expand(2, -1)
    other = columns.clone()
    other[:, 0] = 90
    assert not torch.equal(tower(hidden[:1], columns[:1]), tower(hidden[1:], columns[1:]))
    assert not torch.equal(tower(hidden, columns), tower(hidden, other))


def test_codes_that_training_did_not_have_are_read(tower: Tower) -> None:
    columns = torch.tensor([[1.0, 99.0, 7.0, 5.0], [1.0, float("nan"), 7.0, 5.0]])
    assert tower(torch.zeros(2, 16), columns).isfinite().all()


def test_without_columns_there_is_no_tower() -> None:
    assert isinstance(new_readout(CONFIG, ModelSchema((), 3, 2)), LinearReadout)
