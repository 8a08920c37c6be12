"""A batch as RelGT's public code computes it: every token for itself, all seeds of the batch at once.

The same model gives the same answers on it, but for the noise of the position encoder. What is different is the cost:
a row is encoded as often as it stands in a context, repeated rows are tokens of their own, and nothing is cut
into parts.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from quartet.tokens import Part, TableRows, TokenBatch


def literal(batch: TokenBatch) -> TokenBatch:
    """The same seeds with nothing shared among their local tokens. It has no other contexts."""
    parts = [_repeated(part) for part in batch.parts]
    width = max(part.row.shape[1] for part in parts)
    whole = _joined([_padded(part, width) for part in parts])
    order = whole.type.flatten().argsort(stable=True)  # tables stand one after the other
    row = whole.row.flatten()[order]  # (tokens,) places among the batch's distinct rows
    first = torch.cumsum(torch.tensor([0, *map(len, batch.tables)]), 0)
    bounds = torch.searchsorted(whole.type.flatten()[order], torch.arange(len(batch.tables) + 1))
    tables = tuple(
        _taken(table, row[bounds[number] : bounds[number + 1]] - first[number])
        for number, table in enumerate(batch.tables)
    )
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    whole = replace(whole, row=place.view_as(whole.row))
    seed_row = torch.empty_like(batch.seed_row)
    seed_row[whole.seed] = whole.row[:, 0]
    return replace(
        batch, tables=tables, row_type=whole.type.flatten()[order], seed_row=seed_row, parts=(whole,)
    )


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


def _taken(table: TableRows, rows: Tensor) -> TableRows:
    """The cells of some rows, as often as they are named."""
    return TableRows(
        numbers=table.numbers[rows],
        categories=table.categories[rows],
        bags=tuple(_bags_taken(start, code, rows) for start, code in table.bags),
        calendar=table.calendar[rows],
        texts=tuple(text[rows] for text in table.texts),
    )


def _bags_taken(start: Tensor, code: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    end = torch.cat([start[1:], torch.tensor([len(code)])])
    length = (end - start)[rows]
    begin = torch.cumsum(length, 0) - length
    inside = torch.arange(int(length.sum())) - begin.repeat_interleave(length)
    return begin, code[start[rows].repeat_interleave(length) + inside]
