"""Context: everything that the samplers gathered for S seeds, as a few flat arrays.

The fields of `Context` are a table: each says its type, its inner shape, whose parts it holds (a seed's or a distinct
time's) and which `*_start` cuts it into them. Checking, selecting, joining and caching loop over that table. Rows are
kept once, with how often each stands in the padded sequence of the paper (`count`); the temporal context is kept once
for each distinct time. Sampled live or opened from the cache, a context is the same object with the same bytes.
"""

# ruff: noqa: RUF009 (a field is made by a function that describes it)
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quartet.contexts.links import read_links
from quartet.machine import compiled

Array = NDArray[Any]
Arrays = Mapping[str, Array]
Owner = Literal["seed", "time"]


class ArrayField(NamedTuple):
    """An array of a context: `name` is filled in from the class; a None in `shape` is any width."""

    name: str
    owner: Owner
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] = ()
    start: str | None = None  # the field that cuts this one; without, there is one row for each owner
    is_start: bool = False

    def empty(self, num_owners: int) -> Array:
        """Returns the array of a context that was not asked for."""
        length = 0 if self.start else num_owners + self.is_start
        return np.zeros((length, *(width or 0 for width in self.shape)), self.dtype)

    def problem(self, array: Array, context: Context) -> str | None:
        """Returns what is wrong with the array of a context, if anything is."""
        if array.dtype != self.dtype or array.ndim != 1 + len(self.shape):
            return f"{self.name} has {array.ndim} dimensions of {array.dtype}"
        if any(want not in (None, got) for want, got in zip(self.shape, array.shape[1:], strict=True)):
            return f"{self.name} has rows of shape {array.shape[1:]}"
        if self.start:
            is_right = len(array) == getattr(context, self.start)[-1]
            return None if is_right else f"{self.start} does not cut {self.name} into parts"
        if len(array) != context.num_owners(self.owner) + self.is_start:
            return f"{self.name} is of another number of {self.owner}s"
        if self.is_start and (array[0] != 0 or (array[1:] < array[:-1]).any()):
            return f"{self.name} does not cut anything into parts"
        return None


def _row(dtype: str, *shape: int | None, start: str | None = None, owner: Owner = "seed") -> Any:
    return field(metadata={"row": ArrayField("", owner, np.dtype(dtype), shape, start)})


def _start(owner: Owner = "seed") -> Any:
    return field(metadata={"row": ArrayField("", owner, np.dtype(np.int64), is_start=True)})


@dataclass(frozen=True, eq=False)
class Context:
    """The contexts of S seeds. The seed itself is the first of its local rows.

    A context that was not asked for has zero rows everywhere, and costs nothing.
    """

    seed_node: Array = _row("int32")
    seed_time: Array = _row("int64")
    local_start: Array = _start()
    local_node: Array = _row("int32", start="local_start")
    local_hop: Array = _row("uint8", start="local_start")  # 0: the seed; the fallback bin: drawn at random
    local_count: Array = _row("uint16", start="local_start")  # how often it stands in the padded sequence
    link_start: Array = _start()
    link: Array = _row("uint8", start="link_start")  # the edges among them, as `links.py` writes them
    collab_start: Array = _start()
    collab_node: Array = _row("int32", start="collab_start")  # look-alikes, best first
    time_index: Array = _row("int32")  # which temporal context is the seed's
    temporal_start: Array = _start("time")
    temporal_node: Array = _row("int32", start="temporal_start", owner="time")
    sketch: Array = _row("float32", None)  # 4 + tables wide
    columns: Array = _row("float32", None)  # relational columns, where a tower reads them; never in the cache

    def __post_init__(self) -> None:
        for each in FIELDS:
            problem = each.problem(getattr(self, each.name), self)
            if problem:
                raise ValueError(problem)
        times = self.time_index
        if len(self) and not 0 <= times.min() <= times.max() < self.num_owners("time"):
            raise ValueError("time_index names a temporal context that is not there")

    def __len__(self) -> int:
        return len(self.seed_node)

    def num_owners(self, owner: Owner) -> int:
        """Returns the number of seeds, or of distinct times."""
        return len(self.seed_node) if owner == "seed" else len(self.temporal_start) - 1

    @property
    def arrays(self) -> dict[str, Array]:
        return {each.name: getattr(self, each.name) for each in FIELDS}

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    def part(self, name: str, seed: int) -> Array:
        """Returns the part of an array that belongs to one seed."""
        each = _BY_NAME[name]
        place = seed if each.owner == "seed" else self.time_index[seed]
        if each.start is None:
            return np.asarray(getattr(self, name)[place])
        start = getattr(self, each.start)
        return np.asarray(getattr(self, name)[start[place] : start[place + 1]])

    def local(self, seed: int) -> tuple[Array, Array, Array, Array]:
        """Returns nodes, hops, counts and edges of one seed."""
        node, hop, count, link = (
            self.part(name, seed) for name in ("local_node", "local_hop", "local_count", "link")
        )
        return node, hop, count, read_links(np.array([0, len(link)]), link)[1]

    def edges(self) -> tuple[Array, Array]:
        """Returns where the edges of each seed begin, and (E, 2) child and parent, as places among its local rows."""
        start, edge = read_links(self.link_start, self.link)
        return start, edge

    def collab(self, seed: int) -> Array:
        return self.part("collab_node", seed)

    def temporal(self, seed: int) -> Array:
        return self.part("temporal_node", seed)


FIELDS: tuple[ArrayField, ...] = tuple(
    each.metadata["row"]._replace(name=each.name) for each in fields(Context)
)
_BY_NAME = {each.name: each for each in FIELDS}


def joined(parts: Sequence[Arrays]) -> dict[str, Array]:
    """Returns the arrays of several groups of owners as those of one."""
    whole = {}
    for name in parts[0]:
        arrays = [part[name] for part in parts]
        if _BY_NAME[name].is_start:
            whole[name] = starts(np.concatenate([np.diff(array) for array in arrays]))
        else:
            whole[name] = np.concatenate(arrays)
    return whole


def starts(counts: Array) -> NDArray[np.int64]:
    """Returns where each of some parts begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


# --- batches --------------------------------------------------------------------------------------


def select(context: Context, seeds: ArrayLike) -> Context:
    """Returns the contexts of some seeds, named by their places, in that order; a place may be repeated.

    They are the bytes that sampling these seeds alone would give. Temporal contexts are kept once for
    each distinct time among them. It does not matter whether `context` lies in memory or in a file.
    """
    places = _checked(np.asarray(seeds), len(context))
    times, time_index = np.unique(context.time_index[places], return_inverse=True)
    chosen = {"seed": places, "time": times}
    cuts: dict[str, tuple[Array, Array]] = {}
    arrays: dict[str, Array] = {}
    for each in FIELDS:
        array, owners = getattr(context, each.name), chosen[each.owner]
        if each.is_start:
            cuts[each.name] = begin, end = array[owners], array[owners + 1]
            arrays[each.name] = starts(end - begin)
        elif each.start:
            arrays[each.name] = parts_of(array, *cuts[each.start], arrays[each.start][-1])
        else:
            arrays[each.name] = array[owners]
    arrays["time_index"] = time_index.astype(np.int32).reshape(-1)
    return Context(**arrays)


def _checked(places: NDArray[Any], num_seeds: int) -> NDArray[np.int64]:
    """Returns the places as integers; compiled code does not notice one that is out of range."""
    if places.size and places.dtype.kind not in "iu":
        raise TypeError(f"seeds are named by their places, whole numbers, not by {places.dtype}")
    places = places.astype(np.int64).reshape(-1)
    if places.size and not 0 <= places.min() <= places.max() < num_seeds:
        raise IndexError(f"there are seeds 0 to {num_seeds - 1}, asked for {places.min()} to {places.max()}")
    return places


def parts_of(array: Array, begin: Array, end: Array, total: int) -> Array:
    """Returns some parts of an array, one after the other, copied as bytes: one kernel serves every type."""
    chosen = np.empty((total, *array.shape[1:]), array.dtype)
    width = array.dtype.itemsize * math.prod(array.shape[1:])
    source = array.reshape(-1).view(np.uint8)
    source.flags.writeable = False  # as if from a file, so that one compiled kernel serves both
    _copy(begin * width, end * width, source, chosen.reshape(-1).view(np.uint8))
    return chosen


@compiled
def _copy(begin: Any, end: Any, content: Any, out: Any) -> None:
    """Copies the parts of `content` one after the other into `out`.

    Places are unsigned: a signed one might count from the end, and looking for that costs five times the copy.
    """
    at = np.uint64(0)
    for part in range(len(begin)):
        first = np.uint64(begin[part])
        length = np.uint64(end[part]) - first
        for byte in range(length):
            out[at + byte] = content[first + byte]
        at += length
