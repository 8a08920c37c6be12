"""What HGT and GraphSAGE have in common: relations, how far a seed sees, and what is learned for each table."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch

from quartet.graph import TemporalGraph
from quartet.models.layers.message import AgeEncoder, Linears, Relations, Step, TableNorm, links_from_seed
from quartet.registry import model_row
from quartet.tokens import SeedGroup
from quartet.training import ModelSchema, step_tensor_bytes
from tests.models.data import SMALL, RandomFeatures
from tests.models.messages import (
    COUNTRIES,
    CUSTOMERS,
    LINKS,
    ORDERS,
    PRODUCTS,
    VISITS,
    asked,
    lonely,
    table_links,
)
from tests.shop import day, shop

# --- relations ------------------------------------------------------------------------------------


def a_group(types: list[list[int]], links: list[tuple[int, int]]) -> SeedGroup:
    """A group with these tables, and links from child to parent token, as the tokenizer lays them out."""
    table = torch.tensor(types)
    there = torch.tensor(links, dtype=torch.int64).reshape(-1, 2).T
    some = torch.zeros(table.shape)
    return SeedGroup(
        seed=torch.arange(len(table)), row=torch.zeros_like(table), type=table, hop=torch.zeros_like(table), age=some,
        count=some, noise=some, edge=torch.cat([there, there.flip(0)], 1), collab=torch.empty(0), num_collab=some,
    )  # fmt: skip


def relations(links: tuple[tuple[int, int], ...] = LINKS, num_tables: int = 5) -> Relations:
    graph = TemporalGraph.build(shop())
    return Relations(ModelSchema(RandomFeatures.of(graph).layouts[:num_tables], 4, links=links))


def test_a_relation_is_a_pair_of_tables_and_a_direction() -> None:
    """An order of tea whose buyer, and whose recipient, was referred by another customer."""
    assert table_links(shop()) == LINKS
    group = a_group([[CUSTOMERS, CUSTOMERS, ORDERS, PRODUCTS]], [(0, 1), (2, 3), (2, 0), (2, 1)])
    assert relations().count == 10
    assert relations().of_links(group).tolist() == [1, 2, 3, 3, 6, 7, 8, 8]
    assert relations().receivers == [COUNTRIES, CUSTOMERS, PRODUCTS, CUSTOMERS, CUSTOMERS,
                                     CUSTOMERS, CUSTOMERS, ORDERS, ORDERS, VISITS]  # fmt: skip


@pytest.mark.parametrize("name", ["hgt", "sage"])
def test_a_link_that_the_schema_does_not_know_is_no_link_of_another_relation(name: str) -> None:
    case = asked(name)
    schema = replace(case.model.schema, links=LINKS[:-2])
    with pytest.raises((IndexError, ValueError), match=r"index out of range|zip"):
        model_row(name).model_class(SMALL, schema).double()(case.batch)


# --- how far a seed sees ----------------------------------------------------------------------------


def test_links_are_counted_from_the_seed() -> None:
    """Two seeds of four tokens: a chain, whose end links back to none; and a seed alone, with one padding token."""
    group = a_group([[CUSTOMERS] * 4, [CUSTOMERS] * 4], [(1, 0), (1, 2), (3, 2), (6, 5)])
    assert links_from_seed(group, 2).tolist() == [0, 1, 2, 3, 0, 3, 3, 3]
    assert links_from_seed(group, 3).tolist() == [0, 1, 2, 3, 0, 4, 4, 4]


def test_a_layer_makes_what_the_seeds_need_of_it() -> None:
    """Order 1 joins customer 0, the seed, with product 2, which order 3 has too. Tables: 1, 3, 2, 3."""
    group = a_group([[CUSTOMERS, ORDERS, PRODUCTS, ORDERS]], [(1, 0), (1, 2), (3, 2)])
    tokens, (first, last) = relations().steps(group, 2)
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
    for group in case.batch.groups:
        ages = group.age.nan_to_num().requires_grad_()  # a time for every token, padding included
        encoded = case.model.encode(case.batch)
        case.model.forward_group(encoded, case.batch, replace(group, age=ages)).sum().backward()
        assert ages.grad is not None
        is_near = links_from_seed(group, num_layers) <= num_layers
        assert (ages.grad.flatten() != 0).equal(is_near)


@pytest.mark.parametrize("name", ["hgt", "sage"])
def test_seeds_of_several_tables_keep_their_places(name: str) -> None:
    """Products stand after customers in a group's nodes, whatever the order of the seeds."""
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
    group = case.batch.groups[0]
    (tokens, steps), (most_tokens, largest) = (
        case.model.relations.steps(one, 2) for one in (group, case.batch.to("meta").groups[0])
    )
    assert len(tokens) <= len(most_tokens)
    for step, other in zip(steps, largest, strict=True):
        assert all(_size(step, f.name) <= _size(other, f.name) for f in fields(Step))
    assert step_tensor_bytes(case.model, case.batch.to(torch.float32)) > 0


def _size(step: Step, name: str) -> int:
    value = getattr(step, name)
    return sum(value) if isinstance(value, list) else len(value)
