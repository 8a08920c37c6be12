"""A batch as RelGT's public code computes it: every token for itself, all seeds of the batch at once.

The same model gives the same answers on it, but for the noise of the position encoder. What is different is the cost:
a row is encoded as often as it stands in a context, repeated rows are tokens of their own, and nothing is cut
into parts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from quartet.features import Bags, rows_of
from quartet.tokens import Part, TableRows, TokenBatch


def literal(batch: TokenBatch) -> TokenBatch:
    """The same seeds with nothing shared among their local tokens. It has no other contexts."""
    parts = [_repeated(part) for part in batch.parts]
    width = max(part.row.shape[1] for part in parts)
    whole = _joined([_padded(part, width) for part in parts])
    row = whole.row.flatten()  # (tokens,) places among the batch's distinct rows
    tables, place = cells_of_each(batch, row)
    whole = replace(whole, row=place.view_as(whole.row))
    seed_row = torch.empty_like(batch.seed_row)
    seed_row[whole.seed] = whole.row[:, 0]
    row_type = torch.empty_like(row).index_copy(0, place, batch.row_type[row])
    return replace(batch, tables=tables, row_type=row_type, seed_row=seed_row, parts=(whole,))


def cells_of_each(batch: TokenBatch, row: Tensor) -> tuple[tuple[TableRows, ...], Tensor]:
    """The cells of each row as often as it is named, and where each stands."""
    order = row.argsort(stable=True)  # rows of one table lie side by side
    first = torch.tensor([0, *(len(table) for table in batch.tables)]).cumsum(0)
    ends = torch.searchsorted(row[order], first).tolist()
    tables = tuple(
        _cells(table, row[order[ends[number] : ends[number + 1]]] - first[number])
        for number, table in enumerate(batch.tables)
    )
    return tables, torch.empty_like(order).index_copy(0, order, torch.arange(len(order)))


def _cells(table: TableRows, rows: Tensor) -> TableRows:
    return TableRows(
        numbers=table.numbers[rows],
        categories=table.categories[rows],
        bags=tuple(_bags(start, code, rows) for start, code in table.bags),
        calendar=table.calendar[rows],
        texts=tuple(text[rows] for text in table.texts),
    )


def _bags(start: Tensor, code: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    bags = rows_of(Bags(np.append(start.numpy(), len(code)), code.numpy()), rows.numpy())
    return torch.from_numpy(bags.start[:-1]), torch.from_numpy(bags.code)


def _repeated(part: Part) -> Part:
    """Each token as often as its share says; links join the first copies."""
    copies = part.share.long()  # (b, K); 0 for padding
    length = copies.sum(1)
    width = int(length.max())
    seed = torch.arange(len(copies)).repeat_interleave(length)
    column = torch.cat([torch.arange(int(count)) for count in length])
    source = torch.arange(copies.numel()).repeat_interleave(copies.flatten())

    def spread(values: Tensor) -> Tensor:
        wide = values.new_zeros(len(copies), width)
        wide[seed, column] = values.flatten()[source]
        return wide

    start = torch.cumsum(copies, 1) - copies + width * torch.arange(len(copies))[:, None]
    return replace(
        part,
        row=spread(part.row),
        type=spread(part.type),
        hop=spread(part.hop),
        age=spread(part.age),
        share=spread((copies > 0).to(part.share.dtype)),
        noise=spread(part.noise),
        edge=start.flatten()[part.edge],
    )


def _padded(part: Part, width: int) -> Part:
    """The part with so many tokens a seed."""
    before = part.row.shape[1]
    more = {
        name: F.pad(getattr(part, name), (0, width - before))
        for name in ("row", "type", "hop", "age", "share", "noise")
    }
    return replace(part, edge=part.edge // before * width + part.edge % before, **more)


def _joined(parts: list[Part]) -> Part:
    """Parts of one width as one."""
    width = parts[0].row.shape[1]
    num_before = torch.cumsum(torch.tensor([0, *(len(part.seed) for part in parts)]), 0)
    names = ("seed", "row", "type", "hop", "age", "share", "noise")
    return replace(
        parts[0],
        **{name: torch.cat([getattr(part, name) for part in parts]) for name in names},
        edge=torch.cat([part.edge + width * num for part, num in zip(parts, num_before, strict=False)], 1),
        collab=parts[0].collab.new_zeros(int(num_before[-1]), 0),
        num_collab=parts[0].num_collab.new_zeros(int(num_before[-1])),
    )
