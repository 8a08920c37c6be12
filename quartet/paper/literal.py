"""A batch as RelGT's public code computes it: every token for itself, all seeds of the batch at once.

A model gives the same logits for it, but for the noise of the position encoder. Only the cost differs: a row is encoded
as often as it stands in a context, repeated rows are tokens of their own, and nothing is cut into groups.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from quartet.contexts import Context
from quartet.graph import TemporalGraph
from quartet.times import DAY
from quartet.tokens import SeedGroup, TableRows, TokenBatch

_OF_TOKENS = ("row", "type", "hop", "age", "count", "noise")  # fields of a group with a number for each token


def literal(batch: TokenBatch) -> TokenBatch:
    """Returns the same seeds with nothing shared among their local tokens, and without other contexts."""
    groups = [_repeated(group) for group in batch.groups]
    width = max(group.row.shape[1] for group in groups)
    whole = _joined([_padded(group, width) for group in groups])
    row = whole.row.flatten()  # (tokens,) places among the batch's distinct rows
    tables, place = cells_of_each(batch, row)
    whole = replace(whole, row=place.view_as(whole.row))
    seed_row = torch.empty_like(batch.seed_row).index_copy(0, whole.seed, whole.row[:, 0])
    row_type = torch.empty_like(row).index_copy(0, place, batch.row_type[row])
    return replace(batch, tables=tables, row_type=row_type, seed_row=seed_row, groups=(whole,))


def cells_of_each(batch: TokenBatch, row: Tensor) -> tuple[tuple[TableRows, ...], Tensor]:
    """Returns the cells of each row as often as it is named, and where each stands."""
    order = row.argsort(stable=True)  # rows of one table lie side by side
    first = row.new_tensor([0, *(len(table) for table in batch.tables)]).cumsum(0)
    ends = torch.searchsorted(row[order], first).tolist()
    tables = tuple(
        _cells(table, row[order[ends[number] : ends[number + 1]]] - first[number])
        for number, table in enumerate(batch.tables)
    )
    return tables, order.argsort()


def _cells(table: TableRows, rows: Tensor) -> TableRows:
    return TableRows(
        numbers=table.numbers[rows],
        categories=table.categories[rows],
        bags=tuple(_bags(start, code, rows) for start, code in table.bags),
        calendar=table.calendar[rows],
        texts=tuple(text[rows] for text in table.texts),
    )


def _bags(start: Tensor, code: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    length = torch.cat([start, start.new_tensor([len(code)])]).diff()[rows]
    first = length.cumsum(0) - length
    shift = (start[rows] - first).repeat_interleave(length)
    return first, code[torch.arange(len(shift), device=shift.device) + shift]


def _repeated(group: SeedGroup) -> SeedGroup:
    """Returns each token as often as it counts; links join the first copies."""
    copies = group.count.long()  # (b, K); 0 for padding
    length = copies.sum(1)
    is_real = torch.arange(int(length.max()), device=length.device) < length[:, None]  # (b, longest)
    source = torch.arange(copies.numel(), device=length.device).repeat_interleave(copies.flatten())

    def spread(values: Tensor) -> Tensor:
        wide = values.new_zeros(is_real.shape)
        wide[is_real] = values.flatten()[source]
        return wide

    line = torch.arange(len(copies), device=length.device)[:, None]
    start = copies.cumsum(1) - copies + is_real.shape[1] * line
    tokens = {name: spread(getattr(group, name)) for name in _OF_TOKENS}
    tokens["count"] = is_real.to(group.count.dtype)
    return replace(group, edge=start.flatten()[group.edge], **tokens)


def _padded(group: SeedGroup, width: int) -> SeedGroup:
    """Returns the group with so many tokens a seed."""
    before = group.row.shape[1]
    wide = {name: F.pad(getattr(group, name), (0, width - before)) for name in _OF_TOKENS}
    return replace(group, edge=group.edge // before * width + group.edge % before, **wide)


def _joined(groups: list[SeedGroup]) -> SeedGroup:
    """Returns groups of one width as one, without collaborative contexts."""
    joined = {name: torch.cat([getattr(group, name) for group in groups]) for name in ("seed", *_OF_TOKENS)}
    num_seeds, width = joined["row"].shape
    edges, first = [], 0
    for group in groups:
        edges.append(group.edge + width * first)
        first += len(group.seed)
    return replace(
        groups[0],
        **joined,
        edge=torch.cat(edges, 1),
        collab=groups[0].collab.new_zeros(num_seeds, 0),
        num_collab=groups[0].num_collab.new_zeros(num_seeds),
    )


def write_padded(path: Path, context: Context, graph: TemporalGraph) -> None:
    """Writes local contexts as RelGT's public code stores them: every slot of the budget, links in both directions."""
    import h5py

    path.parent.mkdir(parents=True, exist_ok=True)
    node, seed = (
        np.repeat(each, context.local_count)
        for each in (context.local_node, np.repeat(np.arange(len(context)), np.diff(context.local_start)))
    )
    table = np.searchsorted(graph.offsets, node, side="right") - 1
    rank = graph.node_rank[node]
    age = np.where(rank > 0, (context.seed_time[seed] - graph.times[rank]) / DAY, 0.0)
    edge_start, links = context.edges()
    edge = np.concatenate([links, links[:, ::-1]]).T
    arrays = {
        "types": table.astype(np.int16),
        "indices": (node - graph.offsets[table]).astype(np.int32),
        "hops": np.repeat(context.local_hop, context.local_count).astype(np.int8),
        "times": age.astype(np.float32),
        "edges": edge.astype(np.int16),
        "edges_offsets": (2 * edge_start).astype(np.uint64),
    }
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array)
