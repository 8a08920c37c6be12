"""HGT, the Heterogeneous Graph Transformer: attention over links, with matrices for each table and relation.

The operator is PyTorch Geometric's `HGTConv`. Around it stand a residual, LayerNorm and dropout, as in public code that
runs HGT on RelBench; how the published figures were made is not public.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quartet.config import ModelConfig
from quartet.models.layers.dropout import Dropout
from quartet.models.layers.message import Linears, MessagePassing, Relations, Step, TableNorm, blocks, summed


class HGTConv(nn.Module):
    """sigmoid(g) W gelu(attention) + (1 - sigmoid(g)) x, with W and g of a node's table.

    Attention is one softmax over all links into a node: for neighbour s by relation r the logit of a head is
    p_r q . (A_r k_s) / sqrt(d), and the value B_r v_s. The matrices of relations are applied where links meet
    (A_r^T q, and B_r after the sum), which is the same function.
    """

    def __init__(self, config: ModelConfig, relations: Relations) -> None:
        super().__init__()
        width, tables, self.heads = config.width, relations.num_tables, config.heads
        self.query = Linears(tables, width, width)
        self.key, self.value = Linears(tables, width, width), Linears(tables, width, width)
        self.key_relation = HeadLinears(relations.count, width, self.heads)
        self.value_relation = HeadLinears(relations.count, width, self.heads)
        self.prior = nn.Parameter(torch.ones(relations.count, self.heads))  # p
        self.out = Linears(tables, width, width)
        self.gate = nn.Parameter(torch.ones(tables, 1))  # g

    def forward(self, states: Tensor, step: Step) -> Tensor:
        """Returns the (n, D) states after a step, from those before."""
        own = states.index_select(0, step.node)  # (n, D)
        query = self.query(own, step.num_nodes)
        key, value = (self._sent(linears, states, step) for linears in (self.key, self.value))  # (E, H, D/H)
        weight = softmax(self._logits(query, key, step), step.slot_node[step.slot], len(own))  # (E, H)
        inside = summed(weight[..., None] * value, step.slot, len(step.slot_node))  # (S, H, D/H)
        messages = self.value_relation(inside, step.num_slots).flatten(1)
        received = summed(messages, step.slot_node, len(own))  # (n, D)
        gate = F.embedding(step.table, self.gate).sigmoid()  # (n, 1)
        return gate * self.out(F.gelu(received), step.num_nodes) + (1 - gate) * own

    def _sent(self, linears: Linears, states: Tensor, step: Step) -> Tensor:
        sent = linears(states, step.num_before).index_select(0, step.neighbour)
        return sent.unflatten(1, (self.heads, -1))

    def _logits(self, query: Tensor, key: Tensor, step: Step) -> Tensor:
        """Returns (E, H) logits."""
        asked = query.index_select(0, step.slot_node).unflatten(1, (self.heads, -1))  # (S, H, D/H)
        scale = F.embedding(step.slot_relation, self.prior) * key.shape[-1] ** -0.5  # (S, H)
        asked = self.key_relation(asked, step.num_slots) * scale[..., None]
        return (asked.index_select(0, step.slot) * key).sum(-1)


class HeadLinears(nn.Module):
    """A matrix for each kind and head, of (n, H, D/H) rows that stand in the order of their kinds."""

    def __init__(self, kinds: int, width: int, heads: int) -> None:
        super().__init__()
        inside = width // heads
        most = inside**-0.5  # as in `nn.Linear`
        self.weight = nn.Parameter(torch.empty(kinds, heads, inside, inside).uniform_(-most, most))

    def forward(self, rows: Tensor, count: list[int]) -> Tensor:
        made = [
            torch.einsum("nhi,hio->nho", some, matrix) for some, matrix in blocks(rows, count, self.weight)
        ]
        return torch.cat(made)


def softmax(logits: Tensor, place: Tensor, num_places: int) -> Tensor:
    """Turns (E, H) logits into weights that sum to one over those of each place."""
    lines = place[:, None].expand_as(logits)
    most = logits.new_zeros(num_places, logits.shape[1]).scatter_reduce(
        0, lines, logits.detach(), "amax", include_self=False
    )
    weight = (logits - most.index_select(0, place)).exp()
    return weight / summed(weight, place, num_places).index_select(0, place)


class HGTLayer(nn.Module):
    """x <- LN(x + dropout(HGTConv(x))), where LayerNorm has its own weights for each table."""

    def __init__(self, config: ModelConfig, relations: Relations) -> None:
        super().__init__()
        rate, _ = config.dropouts
        self.conv = HGTConv(config, relations)
        self.dropout = Dropout(rate)
        self.norm = TableNorm(relations.num_tables, config.width)

    def forward(self, states: Tensor, step: Step) -> Tensor:
        own = states.index_select(0, step.node)
        return self.norm(own + self.dropout(self.conv(states, step)), step.table)  # (n, D)


class HGT(MessagePassing):
    """Layers of HGT, and the logits from the seed's last state."""

    layer = HGTLayer
