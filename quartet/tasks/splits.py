"""Splits: the two cut-offs of a task, the prediction times of a forecast, and proposals for both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from quartet.errors import TimeError
from quartet.times import DAY, show_instant, show_length

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
_PROPOSED_SHARE = 0.1
_FEWEST_TRAIN_TIMES = 3


@dataclass(frozen=True)
class Splits:
    """Validation begins at `val` and test at `test`; `is_proposed` says that they were chosen from the data."""

    val: int
    test: int
    is_proposed: bool = False

    def __post_init__(self) -> None:
        if self.test <= self.val:
            raise TimeError(
                "T12",
                f"cut-offs must increase: val {show_instant(self.val)}, test {show_instant(self.test)}",
                "give a later test_timestamp",
            )


def propose(first: int, last: int, horizon: int) -> Splits:
    """Returns cut-offs that leave a tenth of the span (at least one horizon) for test and for validation."""
    room = max(horizon, int(_PROPOSED_SHARE * (last - first)))
    grain = DAY if room >= 2 * DAY else 1
    test = (last - room) // grain * grain
    val = (test - room) // grain * grain
    if val - first < room:
        raise TimeError(
            "T13",
            f"the data span {show_length(max(last - first, 1))}, too short for train, validation and test "
            f"windows of {show_length(max(room, 1))}",
            "shorten the horizon, or give val_timestamp and test_timestamp",
        )
    return Splits(val, test, is_proposed=True)


def forecast_times(
    split: Split, splits: Splits, horizon: int, num_eval_times: int, span: tuple[int, int]
) -> NDArray[np.int64]:
    """Returns the prediction times of a split, as RelBench lays them.

    Train goes back from one horizon before validation to the first row; validation and test go
    forward from their cut-offs, as long as their label windows end in time.
    """
    first, last = span
    if split == "train":
        times = _steps(splits.val - horizon, first, -horizon)
        if len(times) < _FEWEST_TRAIN_TIMES:
            raise TimeError(
                "T13",
                f"only {len(times)} training times of {show_length(horizon)} fit between "
                f"{show_instant(first)} and {show_instant(splits.val)}",
                "shorten the horizon or move val_timestamp",
            )
        return times
    start, limit = (splits.val, splits.test) if split == "val" else (splits.test, last)
    if start + horizon > limit:
        ends = "test begins" if split == "val" else "data ends"
        raise TimeError(
            "T13",
            f"labels for {show_instant(start)} need data until {show_instant(start + horizon)}; "
            f"{ends} {show_instant(limit)}",
            f"move {split}_timestamp or shorten the horizon",
        )
    end = min(start + horizon * (num_eval_times - 1), limit - horizon)
    return _steps(start, end, horizon)


def past_label_times(
    splits: Splits, horizon: int, num_eval_times: int, first: int, upto: int
) -> NDArray[np.int64]:
    """Returns the prediction times whose windows have closed at `upto`, one window beside the other.

    They are those of the splits and, between the last window of validation and the test cut-off, as many as fit
    before the cut-off. So a seed of a split mostly sees a window that has just closed. They depend on the data
    through `first`, the time of the first row, alone.
    """
    last_val = min(splits.val + horizon * (num_eval_times - 1), splits.test - horizon)
    gap = max(last_val, splits.val - horizon) + horizon
    train = _steps(splits.val - horizon, first, -horizon)[::-1]
    val = _steps(splits.val, last_val, horizon)
    between = _steps(splits.test - horizon, gap, -horizon)[::-1]
    times = np.concatenate([train, val, between, _steps(splits.test, upto, horizon)])
    return times[times + horizon <= upto]


def _steps(start: int, end: int, step: int) -> NDArray[np.int64]:
    """Returns start, start + step, ... up to and including end, in exact integers.

    `np.arange` finds its length by floating division, which loses the last of these large numbers.
    """
    return start + step * np.arange(max(0, (end - start) // step + 1), dtype=np.int64)


def split_of_labels(time: NDArray[np.int64], horizon: int, splits: Splits) -> dict[Split, NDArray[np.bool_]]:
    """Returns which rows of a label table belong to which split.

    A label of train must be known at `val`, one of validation at `test`; rows whose window crosses
    a cut-off belong to no split.
    """
    closed_at = time + horizon
    if horizon:
        val, test = (time >= splits.val) & (closed_at <= splits.test), time >= splits.test
    else:  # a label that is known at its own time: RelBench's convention for autocomplete
        val, test = (time > splits.val) & (time <= splits.test), time > splits.test
    return {"train": closed_at <= splits.val, "val": val, "test": test}
