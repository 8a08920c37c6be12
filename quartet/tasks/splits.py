"""Splits: the two cut-offs of a task, the prediction times of a forecast, and proposals for both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.database import Possible
from quartet.errors import TimeError
from quartet.times import DAY, show_instant, show_length

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
_PROPOSED_SHARE = 0.1
_FEWEST_TRAIN_TIMES = 3
ENOUGH_ROWS = 1000  # of test, for a score that is not vague
_FEWEST_WINDOWS = 3  # of test, where there is room
_MOST_WINDOWS = 10_000


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


def propose(first: int, last: int, lag: int, share: float = _PROPOSED_SHARE) -> Splits:
    """Returns cut-offs that leave a tenth of the span for test and for validation, and room for a label in each."""
    room = max(lag, int(share * (last - first)))
    grain = DAY if room >= 2 * DAY else 1000 if room >= 2000 else 1  # SQL counts microseconds
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


def no_times(what: str, possible: Sequence[Possible]) -> TimeError:
    """Returns the error of a database without times: it names what may be one, and the line for the best."""
    times = sorted((g for g in possible if g.fact == "time_col"), key=lambda g: -g.confidence)
    if not times:
        return TimeError("T10", what, "name a time_col in the schema file")
    shown = "; ".join(f"{g.table}.{g.columns[0]} ({g.confidence:.0%}: {g.why})" for g in times[:3])
    fix = f"if that is when its rows became known, write {times[0].line} in the schema file"
    return TimeError("T10", f"{what}. Possible, but not certain: {shown}", fix)


def forecast_times(
    split: Split,
    splits: Splits,
    horizon: int,
    num_eval_times: int,
    span: tuple[int, int],
    known_after: int = 0,
) -> NDArray[np.int64]:
    """Returns the prediction times of a split, as RelBench lays them.

    Train goes back from the last time whose label is known when validation begins to the first row; validation and
    test go forward from their cut-offs, as long as their labels are known in time.
    """
    (first, last), lag = span, horizon + known_after
    if split == "train":
        times = _steps(splits.val - lag, first, -horizon)
        if len(times) < _FEWEST_TRAIN_TIMES:
            raise TimeError(
                "T13",
                f"only {len(times)} training times of {show_length(horizon)} fit between "
                f"{show_instant(first)} and {show_instant(splits.val)}",
                "shorten the horizon or move val_timestamp",
            )
        return times
    start, limit = (splits.val, splits.test) if split == "val" else (splits.test, last)
    if start + lag > limit:
        ends = "test begins" if split == "val" else "data ends"
        raise TimeError(
            "T13",
            f"labels for {show_instant(start)} need data until {show_instant(start + lag)}; "
            f"{ends} {show_instant(limit)}",
            f"move {split}_timestamp or shorten the horizon",
        )
    end = min(start + horizon * (num_eval_times - 1), limit - lag)
    return _steps(start, end, horizon)


def enough_windows(num_rows: int, possible: int) -> int:
    """Returns how many windows make a test that is not vague: by its rows, and because one time may be an odd one."""
    return min(possible, max(_FEWEST_WINDOWS, -(-ENOUGH_ROWS // max(num_rows, 1))))


def last_windows(span: tuple[int, int], horizon: int, num_windows: int, known_after: int) -> Splits:
    """Returns cut-offs between which, and after which, so many windows just fit before the end of the data.

    A model is asked about now: it should learn from what is recent, and be judged by what is most recent.
    """
    return propose(*span, known_after + horizon * num_windows, share=0.0)


def most_windows(splits: Splits, horizon: int, span: tuple[int, int], known_after: int) -> int:
    """Returns how many windows fit into both validation and test; at least one, which may prove too many."""
    try:
        return min(
            len(forecast_times(split, splits, horizon, _MOST_WINDOWS, span, known_after))
            for split in ("val", "test")
        )
    except TimeError:
        return 1  # said where labels are made


def past_label_times(
    splits: Splits, horizon: int, num_eval_times: int, first: int, upto: int, known_after: int = 0
) -> NDArray[np.int64]:
    """Returns the prediction times whose labels are known at `upto`, one window beside the other.

    They are those of the splits and, between the last window of validation and the test cut-off, as many as fit
    before the cut-off. So a seed of a split mostly sees a window that has just closed. They depend on the data
    through `first`, the time of the first row, alone.
    """
    lag = horizon + known_after
    last_val = min(splits.val + horizon * (num_eval_times - 1), splits.test - lag)
    gap = max(last_val + horizon, splits.val)

    def before(cut_off: int, begin: int) -> list[NDArray[np.int64]]:
        known, waiting = cut_off - lag, known_after // horizon * horizon
        return [
            _steps(known, begin, -horizon)[::-1],
            _steps(max(known + horizon, begin), known + waiting, horizon),
        ]

    val, test = _steps(splits.val, last_val, horizon), _steps(splits.test, upto, horizon)
    times = np.concatenate([*before(splits.val, first), val, *before(splits.test, gap), test])
    return times[times + lag <= upto]


def _steps(start: int, end: int, step: int) -> NDArray[np.int64]:
    """Returns start, start + step, ... up to and including end, in exact integers.

    `np.arange` finds its length by floating division, which loses the last of these large numbers.
    """
    return start + step * np.arange(max(0, (end - start) // step + 1), dtype=np.int64)


def split_of_labels(time: NDArray[np.int64], lag: int, splits: Splits) -> dict[Split, NDArray[np.bool_]]:
    """Returns which rows of a label table belong to which split, their labels being known `lag` later.

    A label of train must be known at `val`, one of validation at `test`; rows that wait for theirs across a cut-off
    belong to no split.
    """
    known_at = time + lag
    if lag:
        val, test = (time >= splits.val) & visible(known_at, splits.test), time >= splits.test
    else:  # a label that is known at its own time: RelBench's convention for autocomplete
        val, test = (time > splits.val) & (time <= splits.test), time > splits.test
    return {"train": visible(known_at, splits.val), "val": val, "test": test}
