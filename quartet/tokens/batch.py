"""TokenBatch: the contexts of a batch of seeds as tensors, with nothing in them twice.

Every distinct row of the batch stands once in `tables`, and everything else names it by its place. A temporal context
stands once for each distinct time. A row that the paper would repeat stands once, with a count. Local contexts come
in groups of seeds of similar length, so that short ones are not padded to the longest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class TableRows:
    """n distinct rows of one table: the cells of `TableFeatures`, gathered."""

    numbers: Tensor  # (n, numbers), NaN where absent
    categories: Tensor  # (n, categories) codes
    bags: tuple[tuple[Tensor, Tensor], ...]  # for each multi-category column: starts (n,) and codes
    calendar: Tensor  # (n, times, 7)
    texts: tuple[Tensor, ...]  # for each text column (n, size)

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True, eq=False)
class SeedGroup:
    """The local and collaborative contexts of b seeds of similar length. The seed is token 0 of its K."""

    seed: Tensor  # (b,) places in the batch
    row: Tensor  # (b, K) places among the batch's rows
    type: Tensor  # (b, K) the row's table
    hop: Tensor  # (b, K)
    age: Tensor  # (b, K) days from the row to the seed's time; NaN for rows without a time
    count: Tensor  # (b, K) how often the token stands in the paper's padded sequence; 0 for padding
    noise: Tensor  # (b, K) standard normal
    edge: Tensor  # (2, E) from and to, as places among the b * K tokens: first all from child to parent, then back
    collab: Tensor  # (b, C) places among the batch's global tokens
    num_collab: Tensor  # (b,)

    @property
    def log_count(self) -> Tensor:
        """(b, K) what a token's count adds to its logits in attention; -inf for padding."""
        return self.count.log()


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """B seeds, R distinct rows, T distinct times, and P global tokens: the distinct pairs of a row and a time."""

    tables: tuple[TableRows, ...]  # one for each table of the database; together R rows, in this order
    row_type: Tensor  # (R,)
    seed_row: Tensor  # (B,)
    sketch: Tensor  # (B, sketch)
    global_row: Tensor  # (P,)
    global_age: Tensor  # (P,)
    num_collab_tokens: int  # the first so many global tokens are those of collaborative contexts
    temporal: Tensor  # (T, C) places among the global tokens
    num_temporal: Tensor  # (T,)
    time_index: Tensor  # (B,)
    columns: Tensor  # (B, columns) relational columns, NaN where absent
    groups: tuple[SeedGroup, ...]
    whole_sketch: Tensor | None = None  # (S, sketch) of all seeds of a step, where these are some of them

    def __len__(self) -> int:
        return len(self.seed_row)

    @property
    def order(self) -> Tensor:
        """(B,) the places of the seeds in the batch, in the order of the groups."""
        return torch.cat([group.seed for group in self.groups])

    def to(self, *target: Any) -> TokenBatch:
        """Returns the batch on another device, or with its floating point numbers in another type."""
        device = [word for word in target if not isinstance(word, torch.dtype)]

        def move(tensor: Tensor) -> Tensor:
            where = target if tensor.is_floating_point() else device  # whole numbers keep their type
            return tensor.to(*where) if where else tensor

        moved: TokenBatch = with_tensors(self, move)
        return moved


def with_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Returns the value with every tensor in it, in dataclasses and tuples inside each other, changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple):
        items = [with_tensors(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if is_dataclass(value):
        return replace(value, **{f.name: with_tensors(getattr(value, f.name), change) for f in fields(value)})  # type: ignore[type-var]
    return value
