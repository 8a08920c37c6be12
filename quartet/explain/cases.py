"""Known cases: seeds whose labels were known when somebody is asked about. What is usual is their mean or median.

The look-alikes of a seed are those among them that the model sees as most like it: that fall into the same leaves of
its trees, or whose vectors before the readout point the same way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quartet.causal import visible
from quartet.explain.parts import ColumnShares, mean_parts
from quartet.explain.reader import Floats, Ints, Piece, Reader, Reading
from quartet.explain.result import LookAlike
from quartet.features import ColumnWords
from quartet.times import NEVER
from quartet.training import RegressionOutput

_MOST = 512


class Cases:
    """The known cases at a time, and what the model has read of them."""

    def __init__(self, reader: Reader, time: int) -> None:
        live, record = reader.live, reader.live.members[0].task
        known = record.known_cases(live.database, time, live.labels)
        table = live.database[record.entity_table]
        is_shown = visible(table.known_at[known.node], known.time)
        if record.classes is not None:  # one that training does not have has no words
            is_shown &= np.asarray(known.target) < len(record.classes)
        known = known.select(is_shown)
        self.has_labels = len(known) > 0
        if not self.has_labels:  # those who are known are still usual
            rows = np.flatnonzero(visible(table.known_at, time))
            keys = live.views[0].graph.stable_key[rows + live.views[0].database.offsets[table.name]]
            rows = rows[np.argsort(keys, kind="stable")]
            self.rows, self.times, self.targets = rows, np.full(len(rows), time), np.full(len(rows), np.nan)
        else:
            self.rows, self.times, self.targets = known.node, known.time, np.asarray(known.target, np.float64)
        some = np.unique(np.linspace(0, len(self.rows) - 1, _MOST).astype(np.int64))
        self.rows, self.times, self.targets = self.rows[some], self.times[some], self.targets[some]
        self.reader, self.time = reader, time
        self.reading = reader.read(self.rows, self.times)
        self.means = mean_parts(self.reading)
        self.shares = ColumnShares(reader, self.reading)
        self.vectors = [
            _vectors(piece, reader, self.reading, number) for number, piece in enumerate(reader.pieces)
        ]

    def outcome(self, target: float) -> str:
        """Returns a label in words."""
        record = self.reader.live.members[0].task
        if record.classes is not None:
            return str(record.classes[int(target)])
        if record.spec.facts.is_number:
            return f"{target:.4g}"
        return f"{record.target}: {'yes' if target else 'no'}"

    def usual(self, member: int) -> dict[str, Floats]:
        """Returns the values of each column over all cases, by name."""
        names, matrix = self.reader.names[member], self.reading.columns[member].astype(np.float64)
        return dict(zip(names, matrix.T, strict=True))

    def look_alikes(
        self, reading: Reading, time: Ints, rows: Ints, most: int, sealed: int = NEVER
    ) -> list[tuple[LookAlike, ...]]:
        """Returns the cases most like each seed, best first; not the entity's own case of the same time.

        Labels of cases from `sealed` on are not to be told.
        """
        if not self.has_labels or not most:
            return [()] * len(reading)
        likeness = np.zeros((len(reading), len(self.rows)))
        for number, (piece, known) in enumerate(zip(self.reader.pieces, self.vectors, strict=True)):
            own = _vectors(piece, self.reader, reading, number)
            weight = piece.weight / len(self.reader.live.members)
            if piece.is_trees:
                likeness += weight * np.stack([(line == known).mean(1) for line in own])
            else:
                middle = known.mean(0)
                likeness += weight * np.maximum(0.0, _unit(own - middle) @ _unit(known - middle).T)
        is_same = (rows[:, None] == self.rows) & (time[:, None] == self.times)
        likeness[is_same | (self.times >= sealed)] = -np.inf
        order = np.argsort(-likeness, axis=1, kind="stable")[:, :most]
        name = self.reader.live.members[0].task.entity_table
        return [
            tuple(
                LookAlike(
                    *self.reader.key_and_name(name, int(self.rows[at]), self.time),
                    int(self.times[at]),
                    self.outcome(float(self.targets[at])),
                    float(likeness[seed, at]),
                )
                for at in places
                if np.isfinite(likeness[seed, at])
            )
            for seed, places in enumerate(order)
        ]

    # --- archetypes --------------------------------------------------------------------------------

    def archetypes(self, reading: Reading, words: dict[str, ColumnWords], sealed: int = NEVER) -> list[str]:
        """Returns in words as which learned archetype the heaviest network with a codebook reads each seed."""
        pieces = [
            (piece.weight, -number)
            for number, piece in enumerate(self.reader.pieces)
            if self.reading.archetypes[number] is not None
        ]
        if not pieces:
            return [""] * len(reading)
        known, own = (some.archetypes[-max(pieces)[1]] for some in (self.reading, reading))
        assert known is not None
        assert own is not None
        return [self._described(int(kind), known == kind, words, sealed) for kind in own]

    def _described(
        self, kind: int, members: NDArray[np.bool_], words: dict[str, ColumnWords], sealed: int
    ) -> str:
        count = int(members.sum())
        text = f"the same kind (archetype {kind}) as {count:,} of {len(members):,} known cases"
        if not count:
            return text
        member = self.reader.live.members[0]
        is_open = self.times < sealed
        if self.has_labels and member.task.classes is None and (members & is_open).any():
            means = [float(self.targets[some].mean()) for some in (members & is_open, is_open)]
            is_value = isinstance(member.output, RegressionOutput)
            shown = [f"{mean:.4g}" if is_value else f"{mean:.0%}" for mean in means]
            what = "on average" if is_value else f"{member.task.target}:"
            text += f" ({what} {shown[0]}, of all known cases {shown[1]})"
        common = []
        for name, values in self.usual(0).items():
            spread = np.nanstd(values) if np.isfinite(values).any() else 0.0
            if spread > 0 and np.isfinite(values[members]).any() and not words[name].names:
                middle, all_middle = np.nanmedian(values[members]), np.nanmedian(values)
                common.append((abs(middle - all_middle) / spread, name, middle, all_middle))
        shown = [
            f"{words[name].words}: {words[name].show(middle)}, usually {words[name].show(usual)}"
            for far, name, middle, usual in sorted(common, reverse=True)[:2]
            if far > 0.5
        ]
        return text + (f"; in common: {'; '.join(shown)}" if shown else "")


def _vectors(piece: Piece, reader: Reader, reading: Reading, number: int) -> NDArray[Any]:
    """Returns what a piece is about to answer by: leaves of trees, or the vector before the readout."""
    matrix = reader.columns_of(piece, reading.columns[piece.member])
    if piece.is_trees:
        leaves: NDArray[Any] = piece.model.leaves(matrix)
        return leaves
    parts = reading.parts[number]
    with torch.inference_mode():
        if not piece.is_network:
            device = piece.model.readout.bias.device
            return np.asarray(
                piece.model.readout.mixed(torch.from_numpy(matrix).to(device)).mean(1).cpu().numpy()
            )
        views = {name: part for name, part in parts.items() if name != "columns"}
        vectors = [piece.model.joined(views)]
        if "columns" in parts:
            vectors.append(parts["columns"].mean(1))
    return np.concatenate([_unit(vector.double().cpu().numpy()) for vector in vectors], 1)


def _unit(vectors: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12))
