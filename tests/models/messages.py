"""HGT and GraphSAGE on the shop, and what their literal forms and those of PyTorch Geometric have in common.

In the shop customers refer to customers, orders have two links to customers, and countries have no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from quartet.config import ModelConfig, SamplingConfig
from quartet.contexts import sample
from quartet.database import FACTS, Database, TableSchema
from quartet.database.schema import Schema
from quartet.graph import TemporalGraph
from quartet.models.layers.message import MessagePassing
from quartet.registry import model_row
from quartet.tasks import Seeds
from quartet.tokens import SeedGroup, TokenBatch, Tokenizer
from quartet.training import ModelSchema
from tests.models.data import SMALL, RandomFeatures, randomise
from tests.shop import day, shop

SAMPLERS = {
    "walk": SamplingConfig(local_budget=12, fallback="null"),
    "bfs": SamplingConfig(local_sampler="bfs", local_budget=20),
    "uniform": SamplingConfig(local_sampler="uniform", local_budget=20, first_fanout=3, second_fanout=2),
}
COUNTRIES, CUSTOMERS, PRODUCTS, ORDERS, VISITS = range(5)
LINKS = (
    (CUSTOMERS, COUNTRIES), (CUSTOMERS, CUSTOMERS), (ORDERS, PRODUCTS), (ORDERS, CUSTOMERS), (VISITS, CUSTOMERS),
)  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """A model with random weights in double precision, and the batch it is asked about."""

    model: MessagePassing
    batch: TokenBatch


GROUP_TOKENS = 96  # of a group: three seeds, however short their contexts


def asked(
    name: str,
    database: Database | None = None,
    seeds: list[tuple[int, int]] | None = None,
    sampler: str = "walk",
    config: ModelConfig = SMALL,
) -> Asked:
    """By default all customers of the shop at day 5 and at day 9, in groups of a few seeds."""
    database = database or shop()
    graph = TemporalGraph.build(database)
    first = int(graph.offsets[CUSTOMERS]) if len(graph.names) > 1 else 0
    seeds = seeds or [(first + row, day(number)) for number in (5, 9) for row in range(6)]
    chosen = config.changed(branches=()).sampling(SAMPLERS[sampler])
    node, time = map(np.array, zip(*seeds, strict=True))
    features = RandomFeatures.of(graph)
    batch = Tokenizer(graph, features, group_tokens=GROUP_TOKENS)(
        sample(graph, Seeds(node, time, None), chosen)
    )  # type: ignore[arg-type]
    torch.manual_seed(0)
    config = config.changed(architecture=name)
    schema = ModelSchema(features.layouts, chosen.num_hops, 2, table_links(database))
    model = model_row(name).model_class(config, schema)
    assert isinstance(model, MessagePassing)
    randomise(model)
    return Asked(model.double().eval(), batch.to(torch.float64))


def table_links(database: Database) -> tuple[tuple[int, int], ...]:
    """The places of child and parent table of every link, each pair once."""
    place = {name: number for number, name in enumerate(database.tables)}
    return tuple(dict.fromkeys((place[r.table], place[r.parent]) for r in database.relations))


def lonely(num_rows: int = 3) -> Database:
    """One table, and nothing that links to it."""
    said = Schema({"alone": TableSchema(("id",), settled=FACTS)})
    return Database.build({"alone": pa.table({"id": range(num_rows), "a": [1.0] * num_rows})}, said)


def inputs(model: MessagePassing, batch: TokenBatch, group: SeedGroup) -> Tensor:
    """(b K, D) what the first layer is given, each token on its own."""
    rows, waves = model.encode(batch).rows, model.age.linears
    states = []
    for row, table, age in zip(group.row.flatten(), group.type.flatten(), group.age.flatten(), strict=True):
        state = rows[row]
        if not age.isnan():
            angle = age * model.age.rate
            state = state + waves.weight[table] @ torch.cat([angle.sin(), angle.cos()]) + waves.bias[table]  # type: ignore[index]
        states.append(state)
    return torch.stack(states)


def incoming(model: MessagePassing, group: SeedGroup, node: int) -> Iterator[tuple[int, int]]:
    """The neighbour and the relation of every link into a token."""
    table, half = group.type.flatten().tolist(), group.edge.shape[1] // 2
    for number, (sender, receiver) in enumerate(group.edge.T.tolist()):
        if receiver == node:
            is_back = number >= half
            child, parent = (receiver, sender) if is_back else (sender, receiver)
            link = model.schema.links.index((table[child], table[parent]))
            yield sender, link + is_back * len(model.schema.links)


def relation_names(links: tuple[tuple[int, int], ...]) -> list[tuple[str, str, str]]:
    """As PyTorch Geometric calls them, in the order of their numbers."""
    there = [(f"t{child}", "to", f"t{parent}") for child, parent in links]
    return there + [(f"t{parent}", "back", f"t{child}") for child, parent in links]


def as_dicts(
    model: MessagePassing, group: SeedGroup, states: Tensor
) -> tuple[dict[str, Tensor], dict[tuple[str, str, str], Tensor], Tensor]:
    """All tokens of a group by table, all links by relation, and the place of each token in its table."""
    table = group.type.flatten()
    place = torch.zeros_like(table)
    nodes = {}
    for number in range(len(model.schema.tables)):
        mine = table == number
        place[mine] = torch.arange(int(mine.sum()))
        nodes[f"t{number}"] = states[mine]
    names = relation_names(model.schema.links)
    links: dict[tuple[str, str, str], list[tuple[int, int]]] = {name: [] for name in names}
    for receiver in range(len(table)):
        for sender, relation in incoming(model, group, receiver):
            links[names[relation]].append((int(place[sender]), int(place[receiver])))
    edges = {name: torch.tensor(some, dtype=torch.int64).reshape(-1, 2).T for name, some in links.items()}
    return nodes, edges, place


def logits_by_group(case: Asked) -> list[Tensor]:
    encoded = case.model.encode(case.batch)
    return [case.model.forward_group(encoded, case.batch, group) for group in case.batch.groups]


def assert_equal_to_geometric(case: Asked, geometric: Callable[[Asked, SeedGroup], Tensor]) -> None:
    """Every group's logits are those of PyTorch Geometric's operators with the same weights."""
    pytest.importorskip("torch_geometric")
    with torch.no_grad():
        found = logits_by_group(case)
        expected = [geometric(case, group) for group in case.batch.groups]
    torch.testing.assert_close(torch.cat(found), torch.cat(expected), rtol=0, atol=1e-12)


def assert_equal_to(case: Asked, literal: list[Tensor]) -> None:
    """The model's answers, group by group, are the literal ones; and so are the gradients."""
    found, expected = torch.cat(logits_by_group(case)), torch.cat(literal)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert found.std(0).min() > 1e-2, "logits that do not differ prove nothing"
    weight = torch.randn_like(found)
    for gradient, other in zip(
        *(_gradients(case.model, (a * weight).sum()) for a in (found, expected)), strict=True
    ):
        torch.testing.assert_close(gradient, other, rtol=0, atol=1e-11 * (1 + other.abs().max().item()))


def _gradients(model: MessagePassing, loss: Tensor) -> list[Tensor]:
    parameters = [p for p in model.parameters() if p.numel()]
    return list(torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True))
