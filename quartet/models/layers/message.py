"""Message passing over the links of local contexts, the common part of HGT and GraphSAGE.

A link from a table to another is a relation in each direction; two foreign keys between the same tables count as one.
A layer makes only the states that the seeds need of it: the last one theirs, the one before also their neighbours'.
The parameters of all tables or relations stand in one tensor: so every group of a batch reaches every parameter,
whichever tables it has rows of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quartet.config import ModelConfig
from quartet.models.layers.readout import new_readout
from quartet.models.layers.table_encoder import TableEncoders
from quartet.tokens import SeedGroup, TokenBatch
from quartet.training import Encoded, ModelSchema, Network


@dataclass(frozen=True, eq=False)
class Step:
    """The work of a layer in a group: n states from those before it, by E links from a neighbour into a slot.

    A node has a slot for each relation that brings it something. Nodes stand in the order of their tables, slots in
    that of their relations.
    """

    node: Tensor  # (n,) places among the states before
    table: Tensor  # (n,)
    num_nodes: list[int]  # of each table
    num_before: list[int]  # of each table, of the states before
    slot_node: Tensor  # (S,) places among the n
    slot_relation: Tensor  # (S,)
    num_slots: list[int]  # of each relation
    neighbour: Tensor  # (E,) places among the states before
    slot: Tensor  # (E,)


class Relations(nn.Module):
    """The number of each link's relation: first those from child to parent, then the same ones back."""

    number: Tensor

    def __init__(self, schema: ModelSchema) -> None:
        super().__init__()
        self.num_tables, self.num_links = len(schema.tables), len(schema.links)
        # A database without links has one relation, which nothing comes by: torch has no use for empty parameters.
        self.count = max(1, 2 * self.num_links)
        self.receivers = [parent for _, parent in schema.links] + [child for child, _ in schema.links]
        number = torch.full((self.num_tables, self.num_tables), self.count)
        for place, (child, parent) in enumerate(schema.links):
            number[child, parent] = place
        self.register_buffer("number", number, persistent=False)

    def of_links(self, group: SeedGroup) -> Tensor:
        """Returns the (E,) relations of a group's links, in both directions."""
        child, parent = group.type.flatten()[group.edge[:, : group.edge.shape[1] // 2]]
        there = self.number[child, parent]
        return torch.cat([there, there + self.num_links])

    def steps(self, group: SeedGroup, num_layers: int) -> tuple[Tensor, list[Step]]:
        """Returns the tokens that the first layer reads, and the step of each layer. The last leaves the seeds."""
        if group.row.is_meta:
            return self._largest(group, num_layers)
        distance = links_from_seed(group, num_layers)
        by_table = group.type.flatten().argsort(stable=True)
        levels = [by_table[distance[by_table] <= most] for most in range(num_layers, -1, -1)]
        relation = self.of_links(group)
        return levels[0], [self._step(group, relation, *levels) for levels in pairwise(levels)]

    def _step(self, group: SeedGroup, relation: Tensor, before: Tensor, after: Tensor) -> Step:
        num_tokens, table = group.row.numel(), group.type.flatten()
        place_before, place_after = _places(before, num_tokens), _places(after, num_tokens)
        sender, receiver = group.edge
        is_used = place_after[receiver] >= 0
        slots, slot = (relation * num_tokens + place_after[receiver])[is_used].unique(return_inverse=True)
        return Step(
            node=place_before[after],
            table=table[after],
            num_nodes=_counts(table[after], self.num_tables),
            num_before=_counts(table[before], self.num_tables),
            slot_node=slots % num_tokens,
            slot_relation=slots // num_tokens,
            num_slots=_counts(slots // num_tokens, self.count),
            neighbour=place_before[sender[is_used]],
            slot=slot,
        )

    def _largest(self, group: SeedGroup, num_layers: int) -> tuple[Tensor, list[Step]]:
        """Returns steps of at least the true sizes, for tensors without content: all tokens and all links."""
        token, link = group.row.flatten(), group.edge[0]
        num_nodes = [len(token)] + [0] * (self.num_tables - 1)
        num_slots = [len(link)] + [0] * (self.count - 1)
        step = Step(token, token, num_nodes, num_nodes, link, link, num_slots, link, link)
        return token, [step] * num_layers


def links_from_seed(group: SeedGroup, most: int) -> Tensor:
    """Returns (b K,) how many links each token is away from its seed; `most + 1` where it is more, or padding."""
    distance = torch.full_like(group.row, most + 1)
    distance[:, 0] = 0
    distance = distance.flatten()
    sender, receiver = group.edge
    for steps in range(most):
        reached = sender[distance[receiver] <= steps]
        distance[reached] = distance[reached].clamp(max=steps + 1)
    return distance


def _places(tokens: Tensor, num_tokens: int) -> Tensor:
    """Returns (tokens of the group,) where each stands among some of them; -1 for the others."""
    place = tokens.new_full((num_tokens,), -1)
    place[tokens] = torch.arange(len(tokens), device=tokens.device)
    return place


def _counts(kind: Tensor, num_kinds: int) -> list[int]:
    return torch.bincount(kind, minlength=num_kinds).tolist()


class Linears(nn.Module):
    """A linear map for each kind, of rows that stand in the order of their kinds."""

    def __init__(self, kinds: int, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__()
        most = inputs**-0.5  # as in `nn.Linear`
        self.weight = nn.Parameter(torch.empty(kinds, outputs, inputs).uniform_(-most, most))
        self.bias = nn.Parameter(torch.empty(kinds, outputs).uniform_(-most, most)) if bias else None

    def forward(self, rows: Tensor, count: Sequence[int]) -> Tensor:
        return linears(rows, count, self.weight, self.bias)


def linears(rows: Tensor, count: Sequence[int], weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Maps (n, inputs) rows, so many of each kind, to (n, outputs) by (kinds, outputs, inputs) weights."""
    if bias is None:
        return torch.cat([F.linear(some, matrix) for some, matrix in blocks(rows, count, weight)])
    return torch.cat([F.linear(some, matrix, one) for some, matrix, one in blocks(rows, count, weight, bias)])


def blocks(rows: Tensor, count: Sequence[int], *of_kinds: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yields the rows of each kind that has any, with its parameters; one kind at least, to reach every parameter."""
    of_each = list(zip(rows.split(list(count)), *(each.unbind() for each in of_kinds), strict=True))
    yield from [block for block, number in zip(of_each, count, strict=True) if number] or of_each[:1]


class TableNorm(nn.Module):
    """LayerNorm with a scale and a shift for each table."""

    def __init__(self, tables: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(tables, width))
        self.bias = nn.Parameter(torch.zeros(tables, width))

    def forward(self, rows: Tensor, table: Tensor) -> Tensor:
        normal = F.layer_norm(rows, rows.shape[-1:])
        return normal * F.embedding(table, self.weight) + F.embedding(table, self.bias)


def summed(messages: Tensor, place: Tensor, num_places: int) -> Tensor:
    """Returns the (places, ...) sums of the messages for each place, in single precision at least."""
    messages = messages.to(torch.promote_types(messages.dtype, torch.float32))
    return messages.new_zeros(num_places, *messages.shape[1:]).index_add(0, place, messages)


class AgeEncoder(nn.Module):
    """A linear map for each table of the waves of ages in days; zero for rows without a time."""

    rate: Tensor

    def __init__(self, tables: int, config: ModelConfig) -> None:
        super().__init__()
        rates = torch.logspace(0, -4, config.num_frequencies)
        self.register_buffer("rate", rates, persistent=False)  # radians a day
        self.linears = Linears(tables, 2 * len(rates), config.width)

    def forward(self, age: Tensor, count: Sequence[int]) -> Tensor:
        """Encodes (n,) ages, in the order of their tables: (n, D)."""
        angle = age.nan_to_num()[:, None] * self.rate
        encoded = self.linears(torch.cat([angle.sin(), angle.cos()], 1), count)
        return encoded * ~age.isnan()[:, None]


class MessagePassing(Network):
    """Layers of message passing over the rows of local contexts; logits are read from the seed's last state."""

    layer: type[nn.Module]

    def __init__(self, config: ModelConfig, schema: ModelSchema) -> None:
        super().__init__(config, schema)
        self.tables = TableEncoders(schema.tables, config)
        self.relations = Relations(schema)
        self.age = AgeEncoder(len(schema.tables), config)
        self.layers = nn.ModuleList(self.layer(config, self.relations) for _ in range(config.conv_layers))
        self.readout = new_readout(config, schema)

    def encode(self, batch: TokenBatch) -> Encoded:
        return Encoded(self.tables(batch))

    def views(self, encoded: Encoded, batch: TokenBatch, group: SeedGroup) -> dict[str, Tensor]:  # noqa: ARG002
        tokens, steps = self.relations.steps(group, len(self.layers))
        states = F.embedding(group.row.flatten()[tokens], encoded.rows)
        states = states + self.age(group.age.flatten()[tokens], steps[0].num_before)  # (n, D)
        for layer, step in zip(self.layers, steps, strict=True):
            states = layer(states, step)
        place = group.type[:, 0].argsort(stable=True).argsort()  # of each seed, in the order of their tables
        return {"local": states.index_select(0, place)}

    def joined(self, views: dict[str, Tensor]) -> Tensor:
        return views["local"]  # (b, D)
