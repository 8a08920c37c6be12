"""How much each part of a model moved a score, and within the parts that read columns each of these.

Parts share the way from the base to the score by their exact Shapley values: every coalition of parts is tried, with
the mean over known cases in the place of those that are absent. It costs a fusion and a readout each, no sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import factorial

import numpy as np
import torch
from numpy.typing import NDArray

from quartet.explain.reader import Floats, Ints, Parts, Piece, Reader, Reading, part_of

_POINTS = 16  # of the mean slope of a score between two logits
_STEP = 1e-4
_MOST_MEAN = 64  # known cases whose contributions by trees are averaged


def mean_parts(reading: Reading) -> list[Parts]:
    """Returns the mean of each part over what was read, each (1, ...)."""
    return [{name: part.mean(0, keepdim=True) for name, part in parts.items()} for parts in reading.parts]


def shapley(
    reader: Reader, reading: Reading, means: Sequence[Parts], chosen: Ints
) -> tuple[dict[str, Floats], Floats, Floats]:
    """Returns the (S,) effects of parts, which add up to the difference of the scores of all of them and of none."""
    names, values = reader.part_names(reading), {}
    known: dict[
        tuple[int, frozenset[str]], Floats
    ] = {}  # logits of a piece by those of its parts that are there
    for present in product((False, True), repeat=len(names)):
        there = frozenset(name for name, is_there in zip(names, present, strict=True) if is_there)
        totals: list[NDArray[np.float64]] = [np.zeros(())] * len(reader.live.members)
        for number, (piece, own, mean) in enumerate(zip(reader.pieces, reading.parts, means, strict=True)):
            key = number, there & {part_of(name) for name in own}
            if key not in known:
                mixed = {
                    name: part if part_of(name) in there else mean[name].expand_as(part)
                    for name, part in own.items()
                }
                known[key] = piece.logits(mixed)
            totals[piece.member] = totals[piece.member] + piece.weight * known[key]
        scores = reader.scores(totals)
        values[there] = scores[np.arange(len(scores)), chosen]
    effects = {}
    for name in names:
        effect = np.zeros(len(reading))
        for there, value in values.items():
            if name in there:
                others = len(there) - 1
                weight = factorial(others) * factorial(len(names) - len(there)) / factorial(len(names))
                effect += weight * (value - values[there - {name}])
        effects[name] = effect
    return effects, values[frozenset(names)], values[frozenset()]


class ColumnShares:
    """Shares the effects of the parts that read columns among these columns."""

    def __init__(self, reader: Reader, cases: Reading) -> None:
        self.reader = reader
        some = np.unique(np.linspace(0, len(cases) - 1, _MOST_MEAN).astype(np.int64))
        self.usual = []  # of trees the mean contribution of each column, of a tower its mean inputs
        for piece in reader.pieces:
            usual: NDArray[np.float64] = np.empty(0)
            if piece.columns:
                matrix = reader.columns_of(piece, cases.columns[piece.member])
                if piece.is_trees:
                    usual = piece.model.contributions(matrix[some]).mean(0, keepdims=True)
                else:
                    usual = _tower_views(piece, matrix)
            self.usual.append(usual)

    def effects(
        self, reading: Reading, means: Sequence[Parts], chosen: Ints, of_parts: dict[str, Floats]
    ) -> tuple[list[str], Floats]:
        """Returns names and the (S, names) effects; those of the columns of a part add up to its effect.

        A contribution to a logit counts by the mean slope of the score between the base and where it is. What then
        remains of a part's effect is shared by the sizes of these.
        """
        slopes = self._slopes(reading, means, chosen)
        names = list(dict.fromkeys(name for own in self.reader.names for name in own))
        place = {name: number for number, name in enumerate(names)}
        total = np.zeros((len(reading), len(names)))
        for part in ("columns", "trees"):
            if part not in of_parts:
                continue
            shares = np.zeros_like(total)
            for piece, parts, usual in zip(self.reader.pieces, reading.parts, self.usual, strict=True):
                if piece.columns and (part == "trees") == piece.is_trees:
                    matrix = self.reader.columns_of(piece, reading.columns[piece.member])
                    if piece.is_trees:
                        added = piece.model.contributions(matrix) - usual
                    else:
                        added = _tower_contributions(piece, parts, matrix, usual)
                    moved = piece.weight * np.einsum("so,son->sn", slopes[piece.member], added)
                    shares[:, [place[name] for name in piece.columns]] += moved
            size = np.abs(shares)
            rest = of_parts[part] - shares.sum(1)
            size /= np.maximum(size.sum(1, keepdims=True), 1e-300)
            total += shares + rest[:, None] * size
        return names, total

    def _slopes(self, reading: Reading, means: Sequence[Parts], chosen: Ints) -> list[Floats]:
        """Returns for each member the (S, outputs) mean slope of the score by its logits, from the base to them."""
        reader, seeds = self.reader, np.arange(len(reading))
        start, end = reader.logits(means), reader.logits(reading.parts)
        slopes = []
        for number, member in enumerate(reader.live.members):
            slope = np.zeros_like(end[number])
            for point in (np.arange(_POINTS) + 0.5) / _POINTS:
                at = start[number] + point * (end[number] - start[number])
                for output in range(at.shape[1]):
                    aside = _STEP * (np.arange(at.shape[1]) == output)
                    ends = [
                        member.output.scores(at + sign * aside).reshape(len(at), -1)[seeds, chosen]
                        for sign in (1, -1)
                    ]
                    slope[:, output] += (ends[0] - ends[1]) / (2 * _STEP) / _POINTS
            slopes.append(slope / len(reader.live.members))
        return slopes


def _tower_views(piece: Piece, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
    readout = piece.model.readout
    with torch.inference_mode():
        views = readout.views(torch.from_numpy(matrix).to(readout.bias.device))
        mean: NDArray[np.float64] = views.mean(0, keepdim=True).double().cpu().numpy()
    return mean


def _tower_contributions(
    piece: Piece, parts: Parts, matrix: NDArray[np.float32], usual: NDArray[np.float64]
) -> Floats:
    readout, hidden = piece.model.readout, None
    device = readout.bias.device
    if piece.is_network:
        with torch.inference_mode():
            joined = piece.model.joined({n: part.to(device) for n, part in parts.items() if n != "columns"})
        hidden = joined.clone()  # no longer a tensor of inference
    added = readout.contributions(
        hidden, torch.from_numpy(matrix).to(device), torch.from_numpy(usual).float().to(device)
    )
    return np.asarray(added.double().cpu().numpy())
