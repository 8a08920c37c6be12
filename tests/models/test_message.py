"""What HGT and GraphSAGE have in common: relations, how far a seed sees, and what is learned for each table.

Both are tried on the shop, where customers refer to customers, orders have two links to customers, and countries have
no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

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
from quartet.models.layers.message import (
    AgeEncoder,
    Linears,
    MessageModel,
    Relations,
    Step,
    TableNorm,
    links_from_seed,
)
from quartet.models.registry import NETWORKS
from quartet.tasks import Seeds
from quartet.tokens import Part, TokenBatch, Tokenizer
from quartet.training import ModelSchema, step_tensor_bytes
from quartet.training.trainer import table_links
from tests.models.data import SMALL, RandomFeatures
from tests.models.test_equality import randomise
from tests.shop import day, shop

SAMPLERS = {
    "walk": SamplingConfig(local_budget=12, fallback="null"),
    "bfs": SamplingConfig(local_sampler="bfs", local_budget=20),
}
COUNTRIES, CUSTOMERS, PRODUCTS, ORDERS, VISITS = range(5)
LINKS = (
    (CUSTOMERS, COUNTRIES), (CUSTOMERS, CUSTOMERS), (ORDERS, PRODUCTS), (ORDERS, CUSTOMERS), (VISITS, CUSTOMERS),
)  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """A model with random weights in double precision, and the batch it is asked about."""

    model: MessageModel
    batch: TokenBatch


def asked(
    name: str,
    database: Database | None = None,
    seeds: list[tuple[int, int]] | None = None,
    sampler: str = "walk",
    config: ModelConfig = SMALL,
) -> Asked:
    """By default all customers of the shop at day 5 and at day 9, in parts of a few seeds."""
    database = database or shop()
    graph = TemporalGraph.build(database)
    first = int(graph.offsets[CUSTOMERS]) if len(graph.names) > 1 else 0
    seeds = seeds or [(first + row, day(number)) for number in (5, 9) for row in range(6)]
    chosen = config.changed(branches=()).sampler(SAMPLERS[sampler])
    node, time = map(np.array, zip(*seeds, strict=True))
    features = RandomFeatures.of(graph)
    batch = Tokenizer(graph, features, part_tokens=48)(sample(graph, Seeds(node, time, None), chosen))  # type: ignore[arg-type]
    torch.manual_seed(0)
    config = config.changed(architecture=name)
    model = NETWORKS[name](config, ModelSchema(features.layouts, chosen.num_hops, 2, table_links(database)))
    assert isinstance(model, MessageModel)
    randomise(model)
    return Asked(model.double().eval(), batch.to(torch.float64))


def lonely(num_rows: int = 3) -> Database:
    """One table, and nothing that links to it."""
    said = Schema({"alone": TableSchema(("id",), settled=FACTS)})
    return Database.build({"alone": pa.table({"id": range(num_rows), "a": [1.0] * num_rows})}, said)


def inputs(model: MessageModel, batch: TokenBatch, part: Part) -> Tensor:
    """(b K, D) what the first layer is given, each token on its own."""
    rows, waves = model.share(batch).local.row, model.age.linears
    states = []
    for row, table, age in zip(part.row.flatten(), part.type.flatten(), part.age.flatten(), strict=True):
        state = rows[row]
        if not age.isnan():
            angle = age * model.age.rate
            state = state + waves.weight[table] @ torch.cat([angle.sin(), angle.cos()]) + waves.bias[table]  # type: ignore[index]
        states.append(state)
    return torch.stack(states)


def incoming(model: MessageModel, part: Part, node: int) -> Iterator[tuple[int, int]]:
    """The neighbour and the relation of every link into a token."""
    table, half = part.type.flatten().tolist(), part.edge.shape[1] // 2
    for number, (sender, receiver) in enumerate(part.edge.T.tolist()):
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
    model: MessageModel, part: Part, states: Tensor
) -> tuple[dict[str, Tensor], dict[tuple[str, str, str], Tensor], Tensor]:
    """All tokens of a part by table, all links by relation, and the place of each token in its table."""
    table = part.type.flatten()
    place = torch.zeros_like(table)
    nodes = {}
    for number in range(len(model.schema.tables)):
        mine = table == number
        place[mine] = torch.arange(int(mine.sum()))
        nodes[f"t{number}"] = states[mine]
    names = relation_names(model.schema.links)
    links: dict[tuple[str, str, str], list[tuple[int, int]]] = {name: [] for name in names}
    for receiver in range(len(table)):
        for sender, relation in incoming(model, part, receiver):
            links[names[relation]].append((int(place[sender]), int(place[receiver])))
    edges = {name: torch.tensor(some, dtype=torch.int64).reshape(-1, 2).T for name, some in links.items()}
    return nodes, edges, place


def assert_equal_to_geometric(case: Asked, geometric: Callable[[Asked, Part], Tensor]) -> None:
    """Every part's answers are those of PyTorch Geometric's operators with the same weights."""
    pytest.importorskip("torch_geometric")
    with torch.no_grad():
        shared = case.model.share(case.batch)
        found = [case.model.answer(shared, case.batch, part) for part in case.batch.parts]
        expected = [geometric(case, part) for part in case.batch.parts]
    torch.testing.assert_close(torch.cat(found), torch.cat(expected), rtol=0, atol=1e-12)


def assert_equal_to(case: Asked, literal: list[Tensor]) -> None:
    """The model's answers, part by part, are the literal ones; and so are the gradients."""
    answers = [case.model.answer(case.model.share(case.batch), case.batch, part) for part in case.batch.parts]
    found, expected = torch.cat(answers), torch.cat(literal)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert found.std(0).min() > 1e-2, "answers that do not differ prove nothing"
    weight = torch.randn_like(found)
    for gradient, other in zip(
        *(_gradients(case.model, (a * weight).sum()) for a in (found, expected)), strict=True
    ):
        torch.testing.assert_close(gradient, other, rtol=0, atol=1e-11 * (1 + other.abs().max().item()))


def _gradients(model: MessageModel, loss: Tensor) -> list[Tensor]:
    parameters = [p for p in model.parameters() if p.numel()]
    return list(torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True))


# --- relations ------------------------------------------------------------------------------------


def a_part(types: list[list[int]], links: list[tuple[int, int]]) -> Part:
    """A part with these tables, and links from child to parent token, as the tokenizer lays them out."""
    table = torch.tensor(types)
    there = torch.tensor(links, dtype=torch.int64).reshape(-1, 2).T
    some = torch.zeros(table.shape)
    return Part(
        seed=torch.arange(len(table)), row=torch.zeros_like(table), type=table, hop=torch.zeros_like(table), age=some,
        share=some, noise=some, edge=torch.cat([there, there.flip(0)], 1), collab=torch.empty(0), num_collab=some,
    )  # fmt: skip


def relations(links: tuple[tuple[int, int], ...] = LINKS, num_tables: int = 5) -> Relations:
    graph = TemporalGraph.build(shop())
    return Relations(ModelSchema(RandomFeatures.of(graph).layouts[:num_tables], 4, links=links))


def test_a_relation_is_a_pair_of_tables_and_a_direction() -> None:
    """An order of tea whose buyer, and whose recipient, was referred by another customer."""
    assert table_links(shop()) == LINKS
    part = a_part([[CUSTOMERS, CUSTOMERS, ORDERS, PRODUCTS]], [(0, 1), (2, 3), (2, 0), (2, 1)])
    assert relations().count == 10
    assert relations().of_links(part).tolist() == [1, 2, 3, 3, 6, 7, 8, 8]
    assert relations().receivers == [COUNTRIES, CUSTOMERS, PRODUCTS, CUSTOMERS, CUSTOMERS,
                                     CUSTOMERS, CUSTOMERS, ORDERS, ORDERS, VISITS]  # fmt: skip


@pytest.mark.parametrize("name", ["hgt", "sage"])
def test_a_link_that_the_schema_does_not_know_is_no_link_of_another_relation(name: str) -> None:
    case = asked(name)
    schema = replace(case.model.schema, links=LINKS[:-2])
    with pytest.raises((IndexError, ValueError), match=r"index out of range|zip"):
        NETWORKS[name](SMALL, schema).double()(case.batch)


# --- how far a seed sees ----------------------------------------------------------------------------


def test_links_are_counted_from_the_seed() -> None:
    """Two seeds of four tokens: a chain, whose end links back to none; and a seed alone, with one padding token."""
    part = a_part([[CUSTOMERS] * 4, [CUSTOMERS] * 4], [(1, 0), (1, 2), (3, 2), (6, 5)])
    assert links_from_seed(part, 2).tolist() == [0, 1, 2, 3, 0, 3, 3, 3]
    assert links_from_seed(part, 3).tolist() == [0, 1, 2, 3, 0, 4, 4, 4]


def test_a_layer_makes_what_the_seeds_need_of_it() -> None:
    """Order 1 joins customer 0, the seed, with product 2, which order 3 has too. Tables: 1, 3, 2, 3."""
    part = a_part([[CUSTOMERS, ORDERS, PRODUCTS, ORDERS]], [(1, 0), (1, 2), (3, 2)])
    tokens, (first, last) = relations().steps(part, 2)
    assert tokens.tolist() == [0, 2, 1]  # by table; order 3 is three links away
    assert first.num_before == [0, 1, 1, 1, 0]
    assert first.node.tolist() == [0, 2]  # the seed and its order
    assert (first.table.tolist(), first.num_nodes) == ([CUSTOMERS, ORDERS], [0, 1, 0, 1, 0])
    assert first.slot_relation.tolist() == [3, 7, 8]  # order to buyer; product to order; buyer to order
    assert first.num_slots == [0, 0, 0, 1, 0, 0, 0, 1, 1, 0]
    assert first.slot_node.tolist() == [0, 1, 1]
    assert sorted(zip(first.slot.tolist(), first.neighbour.tolist(), strict=True)) == [(0, 2), (1, 1), (2, 0)]
    assert last.num_before == first.num_nodes
    assert (last.node.tolist(), last.slot_relation.tolist(), last.neighbour.tolist()) == ([0], [3], [1])


@pytest.mark.parametrize("name", ["hgt", "sage"])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_rows_count_that_are_no_more_links_away_than_there_are_layers(name: str, num_layers: int) -> None:
    case = asked(name, config=SMALL.changed(conv_layers=num_layers))
    for part in case.batch.parts:
        ages = part.age.nan_to_num().requires_grad_()  # a time for every token, padding included
        case.model.answer(case.model.share(case.batch), case.batch, replace(part, age=ages)).sum().backward()
        assert ages.grad is not None
        is_near = links_from_seed(part, num_layers) <= num_layers
        assert (ages.grad.flatten() != 0).equal(is_near)


@pytest.mark.parametrize("name", ["hgt", "sage"])
def test_seeds_of_several_tables_keep_their_places(name: str) -> None:
    """Products stand after customers in a part's nodes, whatever the order of the seeds."""
    graph = TemporalGraph.build(shop())
    customer, tea = int(graph.offsets[CUSTOMERS]), int(graph.offsets[PRODUCTS])
    seeds = [(tea, day(9)), (customer, day(9)), (tea + 1, day(9)), (customer + 1, day(9))]
    together = asked(name, seeds=seeds)
    for place, seed in enumerate(seeds):
        alone = asked(name, seeds=[seed])
        torch.testing.assert_close(
            alone.model(alone.batch)[0], together.model(together.batch)[place], rtol=0, atol=1e-12
        )


# --- what is learned for each table -----------------------------------------------------------------


def test_each_kind_has_its_linear_map() -> None:
    maps, rows = Linears(3, 4, 2), torch.randn(5, 4)
    found = maps(rows, [2, 0, 3])
    expected = [
        maps.weight[kind] @ row + maps.bias[kind] for kind, row in zip([0, 0, 2, 2, 2], rows, strict=True)
    ]  # type: ignore[index]
    torch.testing.assert_close(found, torch.stack(expected))


def test_no_rows_still_reach_the_parameters() -> None:
    """DistributedDataParallel waits for every parameter's gradient."""
    maps = Linears(3, 4, 2)
    found = maps(torch.empty(0, 4), [0, 0, 0])
    assert found.shape == (0, 2)
    found.sum().backward()
    assert all(p.grad is not None and p.grad.eq(0).all() for p in maps.parameters())


def test_each_table_has_its_norm() -> None:
    norm, rows = TableNorm(2, 8), torch.randn(3, 8)
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()
    for row, table, found in zip(rows, (1, 0, 1), norm(rows, torch.tensor([1, 0, 1])), strict=True):
        expected = torch.nn.functional.layer_norm(row, (8,), norm.weight[table], norm.bias[table])
        torch.testing.assert_close(found, expected)


def test_a_row_without_a_time_gets_nothing_of_time() -> None:
    encoder = AgeEncoder(2, SMALL)
    found = encoder(torch.tensor([float("nan"), 0.0, 2.0]), [2, 1])
    assert found[0].eq(0).all()
    waves = torch.cat([torch.zeros(4), torch.ones(4)])
    torch.testing.assert_close(found[1], encoder.linears.weight[0] @ waves + encoder.linears.bias[0])  # type: ignore[index]
    angle = 2 * torch.tensor([1, 10 ** (-4 / 3), 10 ** (-8 / 3), 1e-4])
    waves = torch.cat([angle.sin(), angle.cos()])
    torch.testing.assert_close(found[2], encoder.linears.weight[1] @ waves + encoder.linears.bias[1])  # type: ignore[index]


# --- memory -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hgt", "sage"])
@pytest.mark.parametrize("database", [shop, lonely])
def test_steps_without_content_are_at_least_as_large(name: str, database) -> None:  # type: ignore[no-untyped-def]
    case = asked(name, database(), None if database is shop else [(0, day(1))])
    part = case.batch.parts[0]
    (tokens, steps), (most_tokens, largest) = (
        case.model.relations.steps(one, 2) for one in (part, case.batch.to("meta").parts[0])
    )
    assert len(tokens) <= len(most_tokens)
    for step, other in zip(steps, largest, strict=True):
        assert all(_size(step, f.name) <= _size(other, f.name) for f in fields(Step))
    assert step_tensor_bytes(case.model, case.batch.to(torch.float32)) > 0


def _size(step: Step, name: str) -> int:
    value = getattr(step, name)
    return sum(value) if isinstance(value, list) else len(value)
