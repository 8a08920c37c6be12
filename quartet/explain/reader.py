"""What the models behind a prediction have read of seeds, piece by piece, and the score that follows from it.

A piece is a model that answers by itself: trees, a tower, a network; of an ensemble or a portfolio there are several.
Trees and towers give logits of columns. A network gives views, which are joined, and what its columns have become.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quartet.contexts import Context, select
from quartet.errors import UsageError
from quartet.explain.occlude import occluded_batch, sketch_without
from quartet.features import columns_without
from quartet.machine import autocast
from quartet.runs import LiveModel
from quartet.tasks import Seeds
from quartet.tokens import TokenBatch
from quartet.training import Network, View

_BATCH = 512
PARTS = {  # in the order in which they are told, with what they are to people
    "local": "rows around it",
    "feature": "its own row",
    "topology": "how many rows it is linked to",
    "collab": "others who are linked to the same rows",
    "temporal": "what happened lately anywhere",
    "memory": "kinds of cases seen before",
    "columns": "cells and aggregates, read by networks",
    "trees": "cells and aggregates, read by trees",
}

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Parts = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Piece:
    """A model that answers by itself, the member of the ensemble it belongs to, and how much its logits weigh there."""

    member: int
    weight: float
    model: Any

    @property
    def is_network(self) -> bool:
        """Returns whether it reads contexts: trees and towers read columns alone."""
        return not hasattr(self.model, "raw")

    @property
    def is_trees(self) -> bool:
        return not isinstance(self.model, Network)

    @property
    def columns(self) -> tuple[str, ...]:
        columns: tuple[str, ...] = self.model.names if self.is_trees else self.model.schema.columns
        return columns

    def logits(self, parts: Parts) -> Floats:
        """Returns the (S, outputs) logits of its parts."""
        if not self.is_network:
            (own,) = parts.values()
            return own.double().numpy()
        with torch.inference_mode():
            logits: Floats = self.model.of_parts(parts).double().cpu().numpy()
        return logits


@dataclass(frozen=True, eq=False)
class Reading:
    """What every piece has read of S seeds: its parts, and the columns of its member."""

    parts: tuple[Parts, ...]
    columns: tuple[NDArray[np.float32], ...]  # of each member
    archetypes: tuple[
        Ints | None, ...
    ] = ()  # of each piece with a codebook, to which a seed pays most attention

    def __len__(self) -> int:
        return len(next(iter(self.parts[0].values())))


def part_of(name: str) -> str:
    """Returns the part with which something counts that a network has read: `feature` for `feature:seed`."""
    return name.partition(":")[0]


class Reader:
    """Reads seeds with all pieces of a bound model."""

    def __init__(self, live: LiveModel) -> None:
        record = live.members[0].task
        if record.type == "recommendation":
            text = f'there is no view of all that lists of task "{record.name}" come from'
            raise UsageError(
                "L07", text, "quartet evaluate RUN tells of pools and members, --entity KEY of a list"
            )
        self.live = live
        self.pieces: list[Piece] = []
        self._last: dict[tuple[Any, ...], Any] = {}
        self._bound = live.views
        for number, member in enumerate(live.members):
            model: Any = member.model
            inside = zip(model.members, model.weights, strict=True) if model.members else ()
            own = [(part.model, weight) for part, weight in inside] or [(model, 1.0)]
            self.pieces += [Piece(number, weight, part) for part, weight in own if weight]
        self.names = [
            tuple(dict.fromkeys(name for piece in self._of(number) for name in piece.columns))
            for number in range(len(live.members))
        ]

    def _of(self, member: int) -> Iterator[Piece]:
        return (piece for piece in self.pieces if piece.member == member)

    def part_names(self, reading: Reading) -> list[str]:
        """Returns the parts of all pieces, in the order in which they are told."""
        names = {part_of(name) for parts in reading.parts for name in parts}
        return [name for name in PARTS if name in names]

    def name_column(self, table: str, time: int) -> str | None:
        """Returns the column by which people know the rows of a table, as far as those known at a time tell."""
        return self.live.views[0].database[table].name_column_at(time)

    def key_and_name(self, table: str, row: int, time: int) -> tuple[str, str]:
        """Returns the key of a row as text, and its name at a time if it has one.

        Of a table without a key, entities are called by their place, as in predictions, and other rows not at all:
        places move with rows that come later.
        """
        known, name = self.live.views[0].database[table], self.name_column(table, time)
        key = ", ".join(str(known.data[column][row].as_py()) for column in known.primary_key)
        if not key and table == self.live.views[0].entity_table:
            key = str(row)
        return key, "" if name in (None, *known.primary_key) else str(known.data[name][row].as_py() or "")

    def seeds(self, view: View, rows: Ints, times: Ints) -> Seeds:
        """Returns rows of the entity table as a model is asked about them at times."""
        return view.asked(Seeds(rows + view.database.offsets[view.entity_table], times, None))

    def read(self, rows: Ints, times: Ints) -> Reading:
        """Reads rows of the entity table at times."""
        columns, batches = [], []
        for number, view in enumerate(self.live.views):
            seeds, names = self.seeds(view, rows, times), self.names[number]
            columns.append(view.matrix(seeds, names) if names else np.empty((len(rows), 0), np.float32))
            needs_context = any(piece.is_network for piece in self._of(number))
            contexts = list(view.contexts(seeds)) if needs_context else []
            batches.append([batch for context in contexts for batch in self._batches(view, context)])
        return self._reading(columns, batches)

    def read_without(self, row: int, time: int, variants: Sequence[Ints]) -> Reading:
        """Reads one seed once for each set of nodes of the first view, as if these rows had not been there."""
        if self._bound is not self.live.views:  # bound anew since: rows may have other places
            self._bound, self._last = self.live.views, {}
        columns, batches = [], []
        for number, view in enumerate(self.live.views):
            seeds, names = self.seeds(view, np.array([row]), np.array([time])), self.names[number]
            node, asked = int(seeds.node[0]), int(seeds.time[0])
            gone = [self._nodes_in(view, some) for some in variants]
            matrix = np.empty((len(gone), 0), np.float32)
            if names:
                known = {name: place for place, name in enumerate(view.columns.names)}
                wanted = frozenset(names)
                made = partial(view.columns.matrix, seeds, wanted)
                before = self._kept(("columns", number, row, time), made)
                whole = columns_without(view.columns, view.database, node, asked, gone, wanted, before)
                matrix = whole[:, [known[name] for name in names]]
            columns.append(matrix)
            own: list[TokenBatch] = []
            if any(piece.is_network for piece in self._of(number)):
                context = self._kept(("context", number, row, time), partial(_context, view, seeds))
                for first in range(0, len(gone), _BATCH):
                    some = gone[first : first + _BATCH]
                    copies = select(context, np.zeros(len(some), np.int64))
                    if context.sketch.shape[1]:
                        sketch = sketch_without(view, node, asked, context.sketch[0], some)
                        copies = replace(copies, sketch=sketch)
                    own.append(occluded_batch(view.tokenizer(copies), context, some))
            batches.append(own)
        return self._reading(columns, batches)

    def _kept(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """Returns what was made of the seed before, or makes it; that of other seeds is forgotten."""
        if key not in self._last:
            self._last = {known: made for known, made in self._last.items() if known[2:] == key[2:]}
            self._last[key] = make()
        return self._last[key]

    def _nodes_in(self, view: View, nodes: Ints) -> Ints:
        """Returns the nodes of another view that are the same rows as some of the first, where it has them."""
        first = self.live.views[0].database
        if view.database is first:
            return nodes
        names, starts = list(first.tables), np.array(list(first.offsets.values()))
        table = np.searchsorted(starts, nodes, side="right") - 1
        shift = [view.database.offsets.get(name, -1) - first.offsets[name] for name in names]
        is_there = np.array([name in view.database.tables for name in names])[table]
        return np.asarray((nodes + np.array(shift)[table])[is_there])

    def _batches(self, view: View, context: Context) -> Iterator[TokenBatch]:
        for first in range(0, len(context), _BATCH):
            yield view.tokenizer(select(context, np.arange(first, min(first + _BATCH, len(context)))))

    def _reading(self, columns: list[NDArray[np.float32]], batches: list[list[TokenBatch]]) -> Reading:
        parts: list[Parts] = []
        archetypes: list[Ints | None] = []
        for piece in self.pieces:
            archetypes.append(None)
            matrix = self.columns_of(piece, columns[piece.member])
            if not piece.is_network:
                name = "trees" if piece.is_trees else "columns"
                parts.append({name: torch.from_numpy(piece.model.raw(matrix))})
                continue
            device, precision = (
                next(piece.model.parameters()).device,
                self.live.views[piece.member].recipe.precision,
            )
            own, seen, first = [], list[Tensor](), 0
            piece.model.eval()
            feature = getattr(piece.model, "branches", {})
            hook = None
            if "feature" in feature:
                hook = feature["feature"].codebook.register_forward_hook(
                    lambda book, asked, _, seen=seen: seen.append(book.membership(*asked).argmax(1).cpu())
                )
            for batch in batches[piece.member]:
                cells = torch.from_numpy(np.ascontiguousarray(matrix[first : first + len(batch)]))
                first += len(batch)
                with torch.inference_mode(), autocast(device.type, precision):
                    own.append(piece.model.parts(replace(batch, columns=cells).to(device)))
            parts.append({name: torch.cat([some[name] for some in own]).float() for name in own[0]})
            if hook is not None:
                hook.remove()
                archetypes[-1] = torch.cat(seen).numpy()
        return Reading(tuple(parts), tuple(columns), tuple(archetypes))

    def with_columns(self, reading: Reading, columns: tuple[NDArray[np.float32], ...]) -> Reading:
        """Returns what would have been read with other columns, all else as it is."""
        parts = []
        for piece, own in zip(self.pieces, reading.parts, strict=True):
            matrix = self.columns_of(piece, columns[piece.member])
            if not piece.is_network:
                own = {name: torch.from_numpy(piece.model.raw(matrix)) for name in own}
            elif piece.columns:
                with torch.inference_mode():
                    cells = torch.from_numpy(matrix).to(own["columns"].device)
                    own = own | {"columns": piece.model.readout.mixed(cells)}
            parts.append(own)
        return replace(reading, parts=tuple(parts), columns=columns)

    def columns_of(self, piece: Piece, matrix: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns the columns that a piece reads, of those of its member."""
        place = {name: number for number, name in enumerate(self.names[piece.member])}
        return np.ascontiguousarray(matrix[:, [place[name] for name in piece.columns]])

    # --- scores ------------------------------------------------------------------------------------

    def logits(self, parts: Sequence[Parts]) -> list[Floats]:
        """Returns the (S, outputs) logits of each member."""
        totals: list[Any] = [0.0] * len(self.live.members)
        for piece, own in zip(self.pieces, parts, strict=True):
            totals[piece.member] = totals[piece.member] + piece.weight * piece.logits(own)
        return totals

    def scores(self, logits: Sequence[Floats]) -> Floats:
        """Returns the (S, outputs) scores, the mean of all members: probabilities of classes, or one number."""
        own = [
            member.output.scores(numbers).reshape(len(numbers), -1)
            for member, numbers in zip(self.live.members, logits, strict=True)
        ]
        return np.asarray(np.mean(own, axis=0))

    def score(self, reading: Reading, chosen: Ints) -> Floats:
        """Returns the (S,) scores of what was read, of one class each."""
        scores = self.scores(self.logits(reading.parts))
        return np.asarray(scores[np.arange(len(scores)), chosen])


def _context(view: View, seeds: Seeds) -> Context:
    (context,) = view.contexts(seeds)
    return context
