"""Cut-offs and prediction times, exact in integers."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from quartet.errors import TimeError
from quartet.tasks import SPLITS, Splits, forecast_times
from quartet.tasks.splits import (
    enough_windows,
    last_windows,
    most_windows,
    past_label_times,
    propose,
    split_of_labels,
)
from quartet.times import DAY, parse_instant


def at(text: str) -> int:
    return parse_instant(text, "test")


def test_cut_offs_must_increase() -> None:
    with pytest.raises(TimeError) as caught:
        Splits(at("2024-01-01"), at("2023-12-01"))
    assert str(caught.value) == (
        "error[T12] cut-offs must increase: val 2024-01-01, test 2023-12-01. Fix: give a later test_timestamp"
    )


def test_forecast_times_of_rel_f1_end_where_relbench_ends() -> None:
    """40 windows of 30 days from 2005 end on 2008-03-16; a floating-point length loses that one."""
    splits, span = Splits(at("2005-01-01"), at("2010-01-01")), (at("1950-05-13"), at("2023-11-26"))
    times = forecast_times("val", splits, 30 * DAY, 40, span)
    assert len(times) == 40
    assert times[-1] == at("2008-03-16")


@given(
    horizon=st.integers(1, 400),
    windows=st.integers(1, 60),
    room=st.integers(0, 3000),
    offset=st.integers(0, DAY - 1),
)
def test_forecast_windows_end_in_time(horizon: int, windows: int, room: int, offset: int) -> None:
    step = horizon * DAY
    val = at("2010-01-01") + offset
    splits = Splits(val, val + step + room * DAY)
    span = (val - 10 * step, splits.test + step + room * DAY)
    train, valid, test = (forecast_times(split, splits, step, windows, span) for split in SPLITS)
    assert train.max() + step == splits.val
    assert span[0] <= train.min() < span[0] + step
    for times, start, limit in ((valid, splits.val, splits.test), (test, splits.test, span[1])):
        expected = [start + k * step for k in range(windows) if start + (k + 1) * step <= limit]
        assert times.tolist() == expected


def test_window_past_the_end_of_the_data() -> None:
    splits = Splits(at("2024-03-01"), at("2024-06-01"))
    with pytest.raises(TimeError) as caught:
        forecast_times("test", splits, 30 * DAY, 1, (at("2023-01-01"), at("2024-06-12")))
    assert str(caught.value) == (
        "error[T13] labels for 2024-06-01 need data until 2024-07-01; data ends 2024-06-12. "
        "Fix: move test_timestamp or shorten the horizon"
    )


def test_too_few_training_times() -> None:
    with pytest.raises(TimeError, match=r"error\[T13\] only 1 training times of 30 days fit between"):
        forecast_times("train", Splits(0, 60 * DAY), 30 * DAY, 1, (-40 * DAY, 100 * DAY))


@given(first=st.integers(-(10**18), 10**18), days=st.integers(1, 20_000), horizon=st.integers(0, 200))
def test_proposed_cut_offs_leave_room(first: int, days: int, horizon: int) -> None:
    last = first + days * DAY
    room = max(horizon * DAY, (last - first) // 10)
    if (
        days < 10 or 5 * horizon > days
    ):  # short spans may or may not leave room; they must never leave too little
        with contextlib.suppress(TimeError):
            assert propose(first, last, horizon * DAY).val - first >= room
        return
    splits = propose(first, last, horizon * DAY)
    assert splits.is_proposed
    assert splits.test + horizon * DAY <= last
    assert splits.val + horizon * DAY <= splits.test
    assert splits.val > first


@given(
    days=st.integers(100, 20_000),
    horizon=st.integers(1, 30),
    late=st.integers(0, 9),
    rows=st.integers(0, 2000),
)
def test_proposed_windows_are_the_last_that_fit(days: int, horizon: int, late: int, rows: int) -> None:
    """As many as asked in validation and in test, with no room for one more behind them."""
    span, length, wait = (0, days * DAY), horizon * DAY, late * DAY
    splits = propose(*span, length + wait) if days >= 5 * (horizon + late) else None
    assume(splits is not None)
    count = enough_windows(rows, most_windows(splits, length, span, wait))
    assert count == min(most_windows(splits, length, span, wait), max(3, -(-1000 // max(rows, 1))))
    last = last_windows(span, length, count, wait)
    assert last.val >= splits.val
    for split in ("val", "test"):
        assert len(forecast_times(split, last, length, count, span, wait)) == count
    assert span[1] - last.test < (count + 1) * length + wait + DAY


@given(
    st.lists(st.integers(0, 100), min_size=1, max_size=50),
    st.integers(0, 30),
    st.integers(10, 50),
    st.integers(1, 40),
)
def test_label_rows_never_reach_over_a_cut_off(times: list[int], horizon: int, val: int, gap: int) -> None:
    time = np.array(times, dtype=np.int64)
    splits = Splits(val, val + gap)
    chosen = split_of_labels(time, horizon, splits)
    assert all(t + horizon <= splits.val for t in time[chosen["train"]])
    assert all(t >= splits.val and t + horizon <= splits.test for t in time[chosen["val"]])
    assert all(t >= splits.test for t in time[chosen["test"]])
    assert (sum(mask.astype(int) for mask in chosen.values()) <= 1).all()
    if horizon == 0:
        assert (sum(mask.astype(int) for mask in chosen.values()) == 1).all()


@given(
    horizon=st.integers(1, 50),
    windows=st.integers(1, 6),
    past=st.integers(-20, 300),
    room=st.integers(1, 300),
    after=st.integers(-400, 300),
    offset=st.integers(-(10**18), 10**18),
    late=st.sampled_from([0, 0, 1, 7, 60]),
)
def test_windows_of_past_labels(
    horizon: int, windows: int, past: int, room: int, after: int, offset: int, late: int
) -> None:
    """Those of all splits that have closed, one beside the other: none reaches into another."""
    splits = Splits(offset, offset + room)
    first, upto = splits.val - past, splits.test + after
    times, lag = past_label_times(splits, horizon, windows, first, upto, late), horizon + late
    assert times.dtype == np.int64
    assert (times + lag <= upto).all()
    assert (np.diff(times) >= horizon).all()
    for split in SPLITS:
        with contextlib.suppress(TimeError):  # a split that has no room for a window
            span = (first, splits.test + 1000 * horizon)
            asked = forecast_times(split, splits, horizon, windows, span, late)
            assert set(asked[asked + lag <= upto].tolist()) <= set(times.tolist())
    if past >= lag and splits.val <= upto:
        assert splits.val - lag in times
    if (
        late == 0 and max(past, room) >= horizon and splits.test <= upto
    ):  # one has closed less than a horizon before
        assert splits.test - horizon < times[times + horizon <= splits.test].max() + horizon
    earlier = past_label_times(splits, horizon, windows, first, upto - room, late)
    assert earlier.tolist() == [time for time in times.tolist() if time + lag <= upto - room]


def test_windows_between_validation_and_test_end_at_its_cut_off() -> None:
    """Validation has one window, of days 100 to 110; the three days after it are no window."""
    splits = Splits(100, 133)
    times = past_label_times(splits, 10, 1, 75, 160)
    assert times.tolist() == [80, 90, 100, 113, 123, 133, 143]
    assert past_label_times(splits, 10, 1, 75, 153).tolist() == [80, 90, 100, 113, 123, 133, 143]
    assert past_label_times(splits, 10, 1, 75, 152).tolist() == [80, 90, 100, 113, 123, 133]
    assert past_label_times(splits, 10, 2, 75, 133).tolist() == [80, 90, 100, 110, 123]
    assert past_label_times(splits, 10, 9, 75, 133).tolist() == [80, 90, 100, 110, 120]
    assert past_label_times(Splits(100, 105), 10, 1, 75, 115).tolist() == [80, 90, 105]
    assert past_label_times(splits, 10, 1, 75, 89).tolist() == []
