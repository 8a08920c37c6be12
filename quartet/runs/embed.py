"""Embeddings: every entity at a time as the vector that networks have made of it, its look-alikes, and segments.

The vector is the last one before the answer, of each network that reads rows (of a model without any, of each tower);
of several they stand side by side, each as long as it weighs in the blend. Of a recommender it is the vector of the
source that its towers multiply by those of items. Likeness is the cosine of two vectors as seen from the middle of all.
All of it rests on rows known at that time, like a prediction.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.console import Group, RenderableType

from quartet.database import DatabaseTable
from quartet.drawing import cell, new_grid, rendered
from quartet.errors import UsageError
from quartet.listener import Listener
from quartet.machine import as_path, new_file
from quartet.recommend import Towers
from quartet.runs.alike import directions, groups, nearest
from quartet.runs.predictions import asked_columns
from quartet.runs.segments import segment_table
from quartet.tasks import Seeds
from quartet.times import show_instant, show_length
from quartet.training import Network

if TYPE_CHECKING:
    from quartet.runs.live import LiveModel, Times

_PARTS = ("", "neighbours", "segments")  # of the names of files and tables
_KEYS = ("model", "time")

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Embeddings:
    """The vectors of entities at a time, whom each is most like, and which segments they make up. Prints as a table.

    `table` has a row for each entity, with its `segment` and its `embedding`; `neighbours` a row for each place in the
    list of an entity; `segments` a row for each, with what its members have in common.
    """

    table: pa.Table
    neighbours: pa.Table
    segments: pa.Table
    headline: str = ""
    model: str = ""
    horizon: str = ""

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __str__(self) -> str:
        return rendered(self.grid())

    __repr__ = __str__

    @property
    def vectors(self) -> NDArray[np.float32]:
        column = self.table["embedding"].combine_chunks()
        return np.asarray(column.flatten().to_numpy(zero_copy_only=False)).reshape(len(self), -1)

    def alike(self, keys: Any) -> pa.Table:
        """Returns the look-alikes of some entities, the nearest first."""
        names = self.table.column_names
        wanted = pa.array(list(keys)).cast(pa.string())
        missing = [
            key for key in wanted if not pc.any(pc.equal(self.table[0].cast(pa.string()), key)).as_py()
        ]
        if missing:
            what = f'{names[0]} "{missing[0]}" is not among those who are embedded'
            raise UsageError("L11", what, "give keys of entities that are known then")
        return self.neighbours.filter(pc.is_in(self.neighbours[0].cast(pa.string()), wanted))

    def grid(self, keys: Any = ()) -> RenderableType:
        """Returns the segments for people, and the look-alikes of some entities."""
        parts: list[RenderableType] = [cell(self.headline, "bold")] if self.headline else []
        if self.segments.num_rows:
            shown = new_grid(
                "", "segment", "entities", "what they have in common", right=("segment", "entities")
            )
            for row in self.segments.to_pylist():
                shown.add_row(cell(row["segment"]), cell(f"{row['entities']:,}"), cell(row["common"] or "–"))
            parts.append(shown)
        if len(keys):
            alike = self.alike(keys)
            columns = [name for name in alike.column_names if name != "time"]
            shown = new_grid("look-alikes", *columns, right=("rank", "similarity"))
            for row in alike.select(columns).to_pylist():
                told = [f"{v:.4f}" if isinstance(v, float) else "–" if v is None else v for v in row.values()]
                shown.add_row(*map(cell, told))
            parts.append(shown)
        return Group(*parts)

    def write(self, target: str | Path) -> list[str]:
        """Writes the tables to .parquet files or into tables of a database, and returns where.

        `like.parquet` has the vectors, `like-neighbours.parquet` and `like-segments.parquet` the rest; in a database
        `shop.sqlite#like`, `like_neighbours` and `like_segments`, with the columns `model` and `horizon` besides, where
        rows of the same model and time are replaced.
        """
        written: list[str] = embedding_writer(target)(self)
        return written

    def _tables(self) -> list[tuple[str, pa.Table]]:
        tables = zip(_PARTS, (self.table, self.neighbours, self.segments), strict=True)
        return [(part, table) for part, table in tables if table.num_columns]


def embedding_writer(target: str | Path) -> Any:
    """Returns what writes embeddings to files or into a database; an error where nothing does."""
    path = as_path(target, "the file")
    if path.suffix == ".parquet" and "://" not in str(target):

        def write_files(embeddings: Embeddings) -> list[str]:
            written = []
            for part, table in embeddings._tables():
                own = path.with_stem(f"{path.stem}-{part}") if part else path
                with new_file(own) as fresh:
                    pq.write_table(table, fresh)
                written.append(str(own))
            return written

        return write_files
    place = DatabaseTable.parse(str(target))
    if place is None:
        fix = "name a .parquet file, or a table of a database: shop.sqlite#like"
        raise UsageError("C02", f'embeddings cannot be written as "{path.suffix}"', fix)

    def write_tables(embeddings: Embeddings) -> list[str]:
        names = {part: f"{place.name}_{part}" if part else place.name for part in _PARTS}
        tables = {names[part]: _kept(table, embeddings) for part, table in embeddings._tables()}
        place.write_together(tables, _KEYS)
        return [str(DatabaseTable(place.address, name)) for name in tables]

    return write_tables


def _kept(table: pa.Table, embeddings: Embeddings) -> pa.Table:
    """Returns rows of a table in a database: a vector is JSON there, which `pgvector` reads as one."""
    columns: dict[str, Any] = {"model": pa.array([embeddings.model] * len(table), pa.string())}
    for name in table.column_names:
        column = table[name]
        if name == "embedding":
            column = pa.array([json.dumps([float(f"{x:.9g}") for x in v]) for v in column.to_pylist()])
        columns[f"key.{name}" if name in ("model", "horizon") else name] = column
        if name == "time":
            columns["horizon"] = pa.array([embeddings.horizon] * len(table), pa.string())
    return pa.table(columns)


def vectors_of(
    live: LiveModel, rows: Ints, times: Ints, listener: Listener | None = None
) -> NDArray[np.float32]:
    """Returns the (S, D) embeddings of rows of the entity table at times."""
    parts = []
    for member, view in zip(live.members, live.views, strict=True):
        model: Any = member.model
        pieces = [(getattr(model, "towers", model), 1.0)]
        if model.members:
            pieces = [
                (piece.model, weight) for piece, weight in zip(model.members, model.weights, strict=True)
            ]
        networks = [pair for pair in pieces if isinstance(pair[0], Network | Towers)]
        reading = [
            pair for pair in networks if not hasattr(pair[0], "raw")
        ]  # rows, as towers of `auto` do not
        networks = reading or networks
        heavy = [pair for pair in networks if pair[1] > 0] or [(piece, 1.0) for piece, _ in networks]
        total = sum(weight for _, weight in heavy)
        seeds = Seeds(rows + view.database.offsets[view.entity_table], times, None)
        for piece, weight in heavy:
            made = piece.embeddings(view, seeds, listener or live.listener)
            length = np.linalg.norm(made, axis=1, keepdims=True)
            scale = np.sqrt(weight / total / len(live.members)) / np.where(length > 0, length, 1.0)
            parts.append(made * scale)
    if not parts:
        what = "the model is of trees alone: they sort by columns, and have no embedding"
        fix = "train a network: `--model quartet`, or `auto` with a longer --time-limit"
        raise UsageError("C02", f"{live.name}: {what}", fix)
    return np.concatenate(parts, 1).astype(np.float32)


def embed(
    live: LiveModel,
    at: Times | None,
    *,
    neighbours: int,
    segments: int,
    everyone: bool,
    listener: Listener | None,
) -> Embeddings:
    """Returns the embeddings of all entities that are known at a time; see `LiveModel.embed`."""
    for name, value in (("neighbours", neighbours), ("segments", segments)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise UsageError("C02", f"{name} is {value!r}", "give a whole number from 0 on")
    asked = live.asked(None, at, everyone=everyone)
    rows, times, view = asked.rows, asked.times, live.views[0]
    vectors = vectors_of(live, rows, times, listener)
    table, units = view.database[view.entity_table], directions(vectors)
    columns = asked_columns(table, rows, times)
    key = next(iter(columns))
    own = f"{table.name}.{key}" if key in ("segment", "embedding", "neighbour", "similarity") else key
    names = table.names_of(rows, times)
    columns = {own: columns[key], **({"name": names} if names is not None else {}), "time": columns["time"]}
    found: dict[str, Any] = {"neighbours": pa.table({}), "segments": pa.table({})}
    if neighbours:
        found["neighbours"] = _neighbour_table(columns, own, *nearest(units, neighbours))
    if segments:
        group = groups(units, segments)
        columns["segment"] = pa.array(group + 1)
        seeds = Seeds(rows + view.database.offsets[table.name], times, None)
        found["segments"] = segment_table(view, seeds, group, columns["time"])
    size = vectors.shape[1]
    columns["embedding"] = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), size)
    horizon = view.spec.horizon
    when = show_instant(int(times[0])) if len(times) else "a time at which nobody is known"
    words = f"{view.spec.name}: {len(rows):,} {table.name} at {when}, {size} numbers each"
    return Embeddings(pa.table(columns), **found, headline=words, model=live.name,
                      horizon=show_length(horizon) if horizon else "")  # fmt: skip


def _neighbour_table(
    columns: dict[str, Any], key: str, places: Ints, cosines: NDArray[np.float32]
) -> pa.Table:
    count, most = places.shape
    of, whom = pa.array(np.repeat(np.arange(count), most)), pa.array(places.ravel())
    told = {name: column.take(of) for name, column in columns.items()}
    told["rank"] = pa.array(np.tile(np.arange(1, most + 1), count))
    told["neighbour"] = columns[key].take(whom)
    if "name" in columns:
        told["neighbour name"] = columns["name"].take(whom)
    return pa.table(told | {"similarity": pa.array(cosines.ravel().astype(np.float64))})
