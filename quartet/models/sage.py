"""GraphSAGE over many tables, RelBench's reference model: sums of neighbours, with matrices for each relation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from quartet.config import ModelConfig
from quartet.models.layers.dropout import Dropout
from quartet.models.layers.message import Linears, MessagePassing, Relations, Step, TableNorm, linears, summed


class SageLayer(nn.Module):
    """x_v <- ReLU(LN(sum over relations r into v's table of W_r (sum of neighbours by r) + U_r x_v + b_r)).

    LayerNorm has its own weights for each table. As in RelBench every relation has its U_r, although their sum is
    one matrix for each table. A table without links has a U and b of its own: RelBench's model has no layer for it.
    """

    receiver: Tensor

    def __init__(self, config: ModelConfig, relations: Relations) -> None:
        super().__init__()
        width, (rate, _) = config.width, config.dropouts
        linked = relations.receivers
        receivers = linked + [table for table in range(relations.num_tables) if table not in linked]
        self.register_buffer("receiver", torch.tensor(receivers), persistent=False)
        self.neighbours = Linears(relations.count, width, width, bias=False)
        self.own = Linears(len(receivers), width, width, bias=False)
        self.bias = nn.Parameter(torch.empty(len(receivers), width).uniform_(-(width**-0.5), width**-0.5))
        self.norm = TableNorm(relations.num_tables, width)
        self.dropout = Dropout(rate)

    def forward(self, states: Tensor, step: Step) -> Tensor:
        """Returns the (n, D) states after a step, from those before."""
        inside = summed(states.index_select(0, step.neighbour), step.slot, len(step.slot_node))  # (S, D)
        messages = self.neighbours(inside, step.num_slots)
        received = summed(messages, step.slot_node, len(step.node))  # (n, D)
        own = self._own(states.index_select(0, step.node), step)
        return self.dropout(self.norm(received + own, step.table).relu())

    def _own(self, states: Tensor, step: Step) -> Tensor:
        """Returns the sum over relations of U_r x_v + b_r, multiplied once."""
        num_tables = len(step.num_nodes)
        weight, bias = (summed(each, self.receiver, num_tables) for each in (self.own.weight, self.bias))
        return linears(states, step.num_nodes, weight, bias)


class GraphSAGE(MessagePassing):
    """RelBench's model on this project's contexts: `dropout` after each layer is not in it, and 0 leaves it out."""

    layer = SageLayer
