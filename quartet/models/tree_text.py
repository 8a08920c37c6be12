"""Trees as text, read and written anew: LightGBM never sees what somebody else wrote.

Its own reader ends the process at what it does not expect, and its trees follow any number that they find. So every
field that a prediction needs is checked here, and nothing else is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

_MOST_DECISIONS = 12  # bits: a set of categories, a way for what is absent, and which of three kinds that is


def checked_text(text: str, num_features: int, num_outputs: int) -> str:
    """Returns the trees of a text in LightGBM's format; a ValueError where a prediction could go astray."""
    parts = re.split(r"^Tree=\d+$", text.partition("\nend of trees")[0], flags=re.MULTILINE)[1:]
    if not parts or len(parts) % num_outputs:
        raise ValueError(f"{len(parts)} trees for {num_outputs} outputs")
    lines = ["tree", "version=v4", f"num_class={num_outputs}", f"num_tree_per_iteration={num_outputs}"]
    lines += ["label_index=0", f"max_feature_idx={num_features - 1}"]
    lines.append("feature_names=" + " ".join(f"Column_{place}" for place in range(num_features)))
    lines += ["feature_infos=" + " ".join(["none"] * num_features), ""]
    for number, part in enumerate(parts):
        fields = dict(line.split("=", 1) for line in part.split("\n") if "=" in line)
        lines += [f"Tree={number}", *_checked_tree(fields, num_features), "", ""]
    return "\n".join([*lines, "end of trees", ""])


def joined_labels(text: str, base: NDArray[np.float64], rounds: NDArray[np.int64], num_features: int) -> str:
    """Returns the trees of labels that were grown side by side, each label with its own rounds and its base added."""
    parts = re.split(r"^Tree=\d+$", text.partition("\nend of trees")[0], flags=re.MULTILINE)[1:]
    num, kept = len(base), []
    for number, part in enumerate(parts[: int(rounds.max()) * num]):
        label, turn = number % num, number // num
        added = base[label] if turn == 0 else 0.0
        if turn >= rounds[label]:
            part = f"\nnum_leaves=1\nleaf_value={added:.17g}\n"
        elif added:
            leaf = _numbers(
                dict(re.findall(r"^(leaf_value)=(.*)$", part, re.MULTILINE)), "leaf_value", np.float64
            )
            part = re.sub(r"^leaf_value=.*$", _line("leaf_value", leaf + added), part, flags=re.MULTILINE)
        kept.append(f"Tree={number}\n{part}")
    return checked_text("\n".join(kept), num_features, num)


def _checked_tree(fields: Mapping[str, str], num_features: int) -> list[str]:
    """Returns the lines of one tree: each of its splits and leaves is reached on one way, and names what exists."""
    leaf = _numbers(fields, "leaf_value", np.float64)
    feature, decision, left, right = (
        _numbers(fields, name, np.int64)
        for name in ("split_feature", "decision_type", "left_child", "right_child")
    )
    threshold, count = _numbers(fields, "threshold", np.float64), len(leaf) - 1
    gain = _numbers(fields, "split_gain", np.float64)  # no prediction needs it; it tells which columns matter
    boundary, words = (_numbers(fields, name, np.int64) for name in ("cat_boundaries", "cat_threshold"))
    place, num_sets = np.arange(count), max(0, len(boundary) - 1)
    below = np.concatenate([left, right])
    by_set = threshold[decision % 2 == 1] if len(decision) == len(threshold) else threshold
    is_right = (
        len(leaf) > 0
        and fields.get("is_linear", "0") == "0"
        and {len(feature), len(decision), len(left), len(right), len(threshold)} == {count}
        and np.isfinite(leaf).all() and not np.isnan(threshold).any()
        and ((feature >= 0) & (feature < num_features)).all()
        and ((decision >= 0) & (decision < _MOST_DECISIONS)).all()
        and sorted(below.tolist()) == [*range(-len(leaf), 0 if count else -1), *range(1, count)]
        and all(((side < 0) | (side > place)).all() for side in (left, right))  # no way leads back
        and (by_set == np.floor(by_set)).all() and ((by_set >= 0) & (by_set < num_sets)).all()
        and (not num_sets or boundary[0] == 0) and (np.diff(boundary) >= 0).all()
        and (boundary[-1] if num_sets else 0) == len(words)
        and ((words >= 0) & (words < 2**32)).all()
    )  # fmt: skip
    if not is_right:
        raise ValueError("a tree whose splits and leaves do not fit together")
    lines = [f"num_leaves={len(leaf)}", f"num_cat={num_sets}"]
    # No prediction needs counts; by them contributions of columns are weighed. Without any, leaves weigh the same.
    rows = _numbers(fields, "leaf_count", np.int64)
    rows = (
        rows
        if len(rows) == len(leaf) and ((rows > 0) & (rows < 2**31)).all()
        else np.ones_like(leaf, np.int64)
    )
    if count:
        lines += [
            _line("split_feature", feature),
            _line("split_gain", gain if len(gain) == count and np.isfinite(gain).all() else np.zeros(count)),
            _line("threshold", threshold),
            _line("decision_type", decision),
        ]
        lines += [_line("left_child", left), _line("right_child", right)]
        inside = np.zeros(count, np.int64)
        for split in reversed(range(count)):
            inside[split] = sum(
                rows[~side] if side < 0 else inside[side] for side in (left[split], right[split])
            )
        lines.append(_line("internal_count", np.minimum(inside, 2**31 - 1)))
    lines += [_line("leaf_value", leaf), _line("leaf_count", rows)]
    if num_sets:
        lines += [_line("cat_boundaries", boundary), _line("cat_threshold", words)]
    return [*lines, "is_linear=0", "shrinkage=1"]


def _numbers(fields: Mapping[str, str], name: str, kind: type) -> NDArray[np.int64 | np.float64]:
    read = (
        float if kind is np.float64 else int
    )  # Python's own are several times as fast as numpy's, word by word
    return np.array([read(word) for word in fields.get(name, "").split()], kind)


def _line(name: str, values: NDArray[np.int64 | np.float64]) -> str:
    words = [f"{v:.17g}" for v in values.tolist()] if values.dtype.kind == "f" else map(str, values.tolist())
    return f"{name}=" + " ".join(words)


def leading_columns(gains: Mapping[str, float]) -> list[str]:
    """Returns the three columns by which splits gained most, each with its part of all that was gained."""
    best = sorted(gains.items(), key=lambda gain: -gain[1])[:3]
    return [f'"{name}" ({gain:.0%})' for name, gain in best if gain > 0]
