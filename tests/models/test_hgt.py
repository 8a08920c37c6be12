"""HGT is PyTorch Geometric's operator with a residual and LayerNorm around: equal to it, and to a literal twin."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from quartet.models.hgt import HGT, HGTConv, HGTLayer, softmax
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

HEADS, INSIDE = SMALL.heads, SMALL.width // SMALL.heads


def literal(case: Asked, group: SeedGroup) -> Tensor:
    """The logits of a group's seeds: every token, every link and every head, one at a time."""
    states = inputs(case.model, case.batch, group)
    for layer in case.model.layers:
        assert isinstance(layer, HGTLayer)
        made = []
        for node, table in enumerate(group.type.flatten().tolist()):
            inside = states[node] + _literal_conv(case, layer.conv, group, states, node)
            norm = layer.norm.weight[table], layer.norm.bias[table]
            made.append(F.layer_norm(inside, inside.shape, *norm))
        states = torch.stack(made)
    return case.model.readout(states.unflatten(0, group.row.shape)[:, 0])


def _literal_conv(case: Asked, conv: HGTConv, group: SeedGroup, states: Tensor, node: int) -> Tensor:
    tables = group.type.flatten().tolist()
    links = list(incoming(case.model, group, node))
    heads = [_literal_head(conv, tables, states, node, links, head) for head in range(HEADS)]
    out = conv.out.weight[tables[node]] @ F.gelu(torch.cat(heads)) + conv.out.bias[tables[node]]  # type: ignore[index]
    gate = conv.gate[tables[node]].sigmoid()
    return gate * out + (1 - gate) * states[node]


def _literal_head(
    conv: HGTConv, tables: list[int], states: Tensor, node: int, links: list[tuple[int, int]], head: int
) -> Tensor:
    mine = slice(head * INSIDE, (head + 1) * INSIDE)

    def of(linears, place: int) -> Tensor:  # type: ignore[no-untyped-def]
        return (linears.weight[tables[place]] @ states[place] + linears.bias[tables[place]])[mine]

    if not links:
        return torch.zeros_like(states[0, mine])
    query, logits, values = of(conv.query, node), [], []
    for sender, relation in links:
        key = conv.key_relation.weight[relation, head] @ of(conv.key, sender)
        logits.append(conv.prior[relation, head] * query @ key / INSIDE**0.5)
        values.append(of(conv.value, sender) @ conv.value_relation.weight[relation, head])
    return torch.stack(logits).softmax(0) @ torch.stack(values)


@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("sampler", ["walk", "bfs", "uniform"])
def test_equal_to_its_literal_form(sampler: str, num_layers: int) -> None:
    case = asked("hgt", sampler=sampler, config=SMALL.changed(conv_layers=num_layers))
    vary(case)
    assert_equal_to(case, [literal(case, group) for group in case.batch.groups])


def vary(case: Asked) -> None:
    """Priors and gates start equal for all: what mixes them up would not be noticed."""
    with torch.no_grad():
        for layer in case.model.layers:
            assert isinstance(layer, HGTLayer)
            layer.conv.prior.uniform_(0.5, 2)
            layer.conv.gate.normal_()


def geometric(case: Asked, group: SeedGroup) -> Tensor:
    """The logits of a group's seeds by PyTorch Geometric's HGTConv, which knows nothing of how far a seed sees."""
    from torch_geometric.nn import HGTConv as Oracle

    nodes, edges, place = as_dicts(case.model, group, inputs(case.model, case.batch, group))
    names = relation_names(case.model.schema.links)
    for layer in case.model.layers:
        assert isinstance(layer, HGTLayer)
        oracle = Oracle(dict.fromkeys(nodes, SMALL.width), SMALL.width, (list(nodes), names), HEADS)
        copy_weights(layer.conv, oracle.double())
        for table, made in oracle(nodes, edges).items():
            number = int(table[1:])
            norm = layer.norm.weight[number], layer.norm.bias[number]
            nodes[table] = F.layer_norm(nodes[table] + made, (SMALL.width,), *norm)
    seeds = zip(group.type[:, 0].tolist(), place.view_as(group.row)[:, 0].tolist(), strict=True)
    return case.model.readout(torch.stack([nodes[f"t{table}"][row] for table, row in seeds]))


def copy_weights(conv: HGTConv, oracle) -> None:  # type: ignore[no-untyped-def]
    kqv = (conv.key, conv.query, conv.value)
    # There the matrices of heads stand before those of relations, and keys are multiplied from the left.
    oracle.k_rel.weight.copy_(conv.key_relation.weight.transpose(2, 3).transpose(0, 1).flatten(0, 1))
    oracle.v_rel.weight.copy_(conv.value_relation.weight.transpose(0, 1).flatten(0, 1))
    for number, (prior, name) in enumerate(zip(conv.prior, oracle.edge_types, strict=True)):
        oracle.p_rel["__".join(name)].copy_(prior[None])
        assert oracle.edge_types_map[name] == number
    for number, name in enumerate(oracle.node_types):
        oracle.kqv_lin.lins[name].weight.copy_(torch.cat([linears.weight[number] for linears in kqv]))
        oracle.kqv_lin.lins[name].bias.copy_(torch.cat([linears.bias[number] for linears in kqv]))  # type: ignore[index]
        oracle.out_lin.lins[name].weight.copy_(conv.out.weight[number])
        oracle.out_lin.lins[name].bias.copy_(conv.out.bias[number])  # type: ignore[index]
        oracle.skip[name].copy_(conv.gate[number])


@pytest.mark.parametrize("sampler", ["walk", "bfs", "uniform"])
def test_equal_to_the_operator_of_pytorch_geometric(sampler: str) -> None:
    case = asked("hgt", sampler=sampler)
    vary(case)
    assert_equal_to_geometric(case, geometric)


def test_weights_start_as_in_pytorch_geometric() -> None:
    """Uniform up to the root of one over the inputs; priors and gates at one."""
    model = HGT(SMALL.changed(width=64), asked("hgt").model.schema)
    layer = model.layers[0]
    assert isinstance(layer, HGTLayer)
    conv = layer.conv
    assert conv.prior.eq(1).all()
    assert conv.gate.eq(1).all()
    for parameter, inputs_of in (
        (conv.query.weight, 64),
        (conv.out.weight, 64),
        (conv.key_relation.weight, 32),
    ):
        assert parameter.abs().max() <= inputs_of**-0.5
        assert parameter.std().item() == pytest.approx((3 * inputs_of) ** -0.5, rel=0.1)


# --- odd cases --------------------------------------------------------------------------------------


def test_weights_of_each_place_sum_to_one_however_large_the_logits() -> None:
    logits = torch.tensor([[1e4, 0.0], [1e4, 0.0], [-1e4, 3.0]], dtype=torch.float64)
    found = softmax(logits, torch.tensor([2, 2, 0]), 4)
    assert found.tolist() == [[0.5, 0.5], [0.5, 0.5], [1.0, 1.0]]


def test_a_seed_that_nothing_links_to_keeps_itself() -> None:
    """Without neighbours attention is zero, GELU leaves it so, and the bias and the gate remain."""
    case = asked("hgt", lonely(), [(row, day(1)) for row in range(3)])
    vary(case)
    (group,) = case.batch.groups
    states = inputs(case.model, case.batch, group)
    for layer in case.model.layers:
        assert isinstance(layer, HGTLayer)
        gate = layer.conv.gate[0].sigmoid()
        kept = states + gate * layer.conv.out.bias[0] + (1 - gate) * states  # type: ignore[index]
        states = F.layer_norm(kept, (SMALL.width,), layer.norm.weight[0], layer.norm.bias[0])
    expected = case.model.readout(states.unflatten(0, group.row.shape)[:, 0])
    torch.testing.assert_close(case.model(case.batch)[group.seed], expected, rtol=0, atol=1e-12)
    assert len(expected.unique(dim=0)) == 3
