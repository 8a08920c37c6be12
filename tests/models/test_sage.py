"""GraphSAGE is RelBench's function: equal to a literal twin, and to PyTorch Geometric's SAGEConv."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from quartet.models.sage import GraphSAGE, SageLayer
from quartet.tokens import SeedGroup
from tests.models.data import SMALL
from tests.models.messages import (
    Asked,
    as_dicts,
    asked,
    assert_equal_to,
    assert_equal_to_geometric,
    incoming,
    inputs,
    lonely,
    relation_names,
)
from tests.shop import day


def literal(case: Asked, group: SeedGroup) -> Tensor:
    """The logits of a group's seeds: every token, every link, one at a time."""
    states = inputs(case.model, case.batch, group)
    for layer in case.model.layers:
        assert isinstance(layer, SageLayer)
        states = torch.stack(
            [_literal_state(case, layer, group, states, node) for node in range(len(states))]
        )
    return case.model.readout(states.unflatten(0, group.row.shape)[:, 0])


def _literal_state(case: Asked, layer: SageLayer, group: SeedGroup, states: Tensor, node: int) -> Tensor:
    table = int(group.type.flatten()[node])
    neighbours = list(incoming(case.model, group, node))
    total = torch.zeros_like(states[0])
    for relation, receiver in enumerate(case.model.relations.receivers):
        if receiver == table:
            near = [states[sender] for sender, kind in neighbours if kind == relation]
            gathered = torch.stack(near).sum(0) if near else torch.zeros_like(total)
            total = total + layer.neighbours.weight[relation] @ gathered
            total = total + layer.own.weight[relation] @ states[node] + layer.bias[relation]
    return F.layer_norm(total, total.shape, layer.norm.weight[table], layer.norm.bias[table]).relu()


@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("sampler", ["walk", "bfs", "uniform"])
def test_equal_to_its_literal_form(sampler: str, num_layers: int) -> None:
    case = asked("sage", sampler=sampler, config=SMALL.changed(conv_layers=num_layers))
    assert_equal_to(case, [literal(case, group) for group in case.batch.groups])


def geometric(case: Asked, group: SeedGroup) -> Tensor:
    """The logits of a group's seeds by RelBench's layers, which know nothing of how far a seed sees."""
    from torch_geometric.nn import HeteroConv, LayerNorm, SAGEConv

    width, names = SMALL.width, relation_names(case.model.schema.links)
    nodes, edges, place = as_dicts(case.model, group, inputs(case.model, case.batch, group))
    for layer in case.model.layers:
        assert isinstance(layer, SageLayer)
        convs = {name: SAGEConv((width, width), width, aggr="sum").double() for name in names}
        for number, conv in enumerate(convs.values()):
            conv.load_state_dict(
                {
                    "lin_l.weight": layer.neighbours.weight[number],
                    "lin_l.bias": layer.bias[number],
                    "lin_r.weight": layer.own.weight[number],
                }
            )
        made = HeteroConv(convs, aggr="sum")(nodes, edges)
        for table in made:
            norm, number = LayerNorm(width, mode="node").double(), int(table[1:])
            norm.load_state_dict({"weight": layer.norm.weight[number], "bias": layer.norm.bias[number]})
            nodes[table] = norm(made[table]).relu()
    seeds = zip(group.type[:, 0].tolist(), place.view_as(group.row)[:, 0].tolist(), strict=True)
    return case.model.readout(torch.stack([nodes[f"t{table}"][row] for table, row in seeds]))


@pytest.mark.parametrize("sampler", ["walk", "bfs", "uniform"])
def test_equal_to_the_layers_of_pytorch_geometric(sampler: str) -> None:
    case = asked("sage", sampler=sampler)
    assert_equal_to_geometric(case, geometric)


def test_weights_start_as_in_pytorch_geometric() -> None:
    """Uniform up to the root of one over the width: their spread is that by the root of three."""
    model = GraphSAGE(SMALL.changed(width=64), asked("sage").model.schema)
    layer = model.layers[0]
    assert isinstance(layer, SageLayer)
    for parameter in (layer.neighbours.weight, layer.own.weight, layer.bias):
        assert parameter.abs().max() <= 1 / 8
        assert parameter.std().item() == pytest.approx(1 / 8 / 3**0.5, rel=0.1)


def test_a_table_without_links_is_still_read() -> None:
    """RelBench's model has no layer for it; here its own map stands alone."""
    case = asked("sage", lonely(), [(row, day(1)) for row in range(3)])
    (group,) = case.batch.groups
    states = inputs(case.model, case.batch, group)
    for layer in case.model.layers:
        assert isinstance(layer, SageLayer)
        inside = states @ layer.own.weight[0].T + layer.bias[0]
        states = F.layer_norm(inside, (SMALL.width,), layer.norm.weight[0], layer.norm.bias[0]).relu()
    expected = case.model.readout(states.unflatten(0, group.row.shape)[:, 0])
    torch.testing.assert_close(case.model(case.batch)[group.seed], expected, rtol=0, atol=1e-12)
    assert len(expected.unique(dim=0)) == 3
