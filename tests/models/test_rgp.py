"""RGP is its equations: equal to a literal form, one seed at a time, gradients too; tokens, counts, odd cases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from quartet.config import ModelConfig, SamplingConfig
from quartet.contexts import sample
from quartet.database import Database
from quartet.graph import TemporalGraph
from quartet.models.rgp import RGP, Reader, num_links
from quartet.tasks import Seeds
from quartet.tokens import TokenBatch, Tokenizer
from quartet.training import ModelSchema
from tests.contexts.small import random_sales, sales
from tests.models.data import SMALL, RandomFeatures, assert_same, gradients, randomise
from tests.reference.model import Seed, encode_rows, literal_block, literal_cross, unpacked
from tests.strategies import SECOND

CONFIG = SMALL.changed(architecture="rgp", branches=("temporal",))
SAMPLER = SamplingConfig(local_sampler="bfs", temporal_unit="links", recent_links=3, local_budget=12)


def asked(
    graph: TemporalGraph, seeds: list[tuple[int, int]], config: ModelConfig = CONFIG, num_outputs: int = 1,
    **changes: object,
) -> tuple[RGP, TokenBatch]:  # fmt: skip
    """A model with random weights in double precision, and a batch of seeds (node, time) in several parts."""
    sampler = config.sampling(SAMPLER.changed(**changes))
    features = RandomFeatures.of(graph)
    node, time = np.array(seeds, np.int64).T
    context = sample(graph, Seeds(node.copy(), time.copy(), None), sampler)
    torch.manual_seed(0)
    model = RGP(config, ModelSchema(features.layouts, sampler.num_hops, num_outputs)).double().eval()
    randomise(model)
    batch = Tokenizer(graph, features, group_tokens=64)(context)  # type: ignore[arg-type]
    return model, batch.to(torch.float64)


def buyers(number: int, count: int = 14) -> tuple[TemporalGraph, list[tuple[int, int]]]:
    """Buyers asked about at few random times; some of them have bought nothing yet."""
    graph, _ = random_sales(number)
    rng = np.random.default_rng(number)
    moments = graph.times[[1, *rng.integers(1, len(graph.times), count // 3)]]  # the first sale's among them
    return graph, [
        (int(node), int(rng.choice(moments))) for node in rng.integers(0, int(graph.offsets[1]), count)
    ]


# --- the literal form -------------------------------------------------------------------------------


def literal_logits(model: RGP, batch: TokenBatch) -> Tensor:
    logits = [torch.empty(0)] * len(batch)
    for group in batch.groups:
        for place, number in enumerate(group.seed.tolist()):
            logits[number] = literal_logit(model, batch, unpacked(batch, group, place))
    return torch.stack(logits)


def literal_logit(model: RGP, batch: TokenBatch, seed: Seed) -> Tensor:
    """Rows repeated as often as the paper would, the temporal context read for this seed alone."""
    near = literal_tokens(model, batch, seed.row, seed.age, model.tokens.hop(seed.hop), literal_links(seed))
    row, age = seed.temporal
    own_bin = model.tokens.hop.weight[model.schema.num_hops].expand(len(row), -1)
    recent = literal_tokens(model, batch, row, age, own_bin, [0] * len(row))
    latents = torch.cat(
        [
            literal_reader(model.structure, model.latents, near),
            literal_reader(model.temporal, model.latents, recent),
        ]
    )
    for block in model.stack:
        latents = literal_block(block, latents)  # type: ignore[arg-type]
    return model.readout(literal_reader(model.decoder, near[:1], latents)[0])


def literal_tokens(
    model: RGP, batch: TokenBatch, row: Tensor, age: Tensor, hop: Tensor, links: list[int]
) -> Tensor:
    if not len(row):
        return hop
    tokens = model.tokens
    feature = tokens.norm(encode_rows(model, batch, row))  # type: ignore[arg-type]
    centrality = torch.tensor(links, dtype=hop.dtype).log1p()[:, None] * tokens.centrality.weight[:, 0]
    return feature + tokens.types(batch.row_type[row]) + centrality + hop + tokens.time(age)


def literal_links(seed: Seed) -> list[int]:
    """The number of distinct other rows of the context that each token is linked with."""
    pairs = {frozenset(pair) for pair in seed.edge.T.tolist()}
    return [sum(place in pair for pair in pairs) for place in seed.position.tolist()]


def literal_reader(reader: Reader, query: Tensor, context: Tensor) -> Tensor:
    read = literal_cross(reader.attention, reader.norm_query(query), reader.norm_context(context))
    query = query + read
    return query + reader.feed(reader.norm_feed(query))


def check(model: RGP, batch: TokenBatch) -> None:
    weight = torch.randn(len(batch), model.schema.num_outputs, dtype=torch.float64)
    answers = model(batch)
    (answers * weight).sum().backward()
    found = gradients(model)
    literal = literal_logits(model, batch)
    (literal * weight).sum().backward()
    torch.testing.assert_close(answers, literal, rtol=0, atol=1e-12)
    assert_same(found, gradients(model))
    assert answers.std() > 1e-2, "answers that do not differ prove nothing"


@pytest.mark.parametrize("number", [1, 3, 4, 5])
def test_it_equals_its_literal_form(number: int) -> None:
    model, batch = asked(*buyers(number))
    assert any((group.count > 1).any() for group in batch.groups), "no repeated token, no proof"
    assert any((group.count == 0).any() for group in batch.groups), "no padding, no proof"
    assert 1 < len(batch.num_temporal) < len(batch), "no shared time, no proof"
    assert batch.num_temporal.unique().numel() > 1, "no padding of temporal contexts, no proof"
    check(model, batch)


@pytest.mark.parametrize(
    "config",
    [
        CONFIG.changed(num_latents=1, latent_layers=1, heads=4),
        CONFIG.changed(time="linear"),
        CONFIG.changed(local=False),  # the seed is its whole neighbourhood
        CONFIG.changed(branches=("temporal", "collab")),  # look-alikes are global tokens, and are not read
    ],
)
def test_other_shapes_equal_theirs(config: ModelConfig) -> None:
    check(*asked(*buyers(3), config, num_outputs=3))


def test_newest_rows_may_stand_for_newest_links() -> None:
    check(*asked(*buyers(3), temporal_unit="rows", temporal_budget=5))


# --- tokens -----------------------------------------------------------------------------------------


def test_links_are_counted_within_the_context() -> None:
    """Buyer 0 has three sales, each of its own thing: the seed has 3 links, each sale 2, each thing 1."""
    graph = TemporalGraph.build(Database.build(*sales([(0, 0), (0, 1), (0, 2), (1, 2)], 3, 3)))
    _, batch = asked(graph, [(0, 2 * SECOND), (2, 2 * SECOND)], fallback="null")
    for group in batch.groups:
        for place, number in enumerate(group.seed.tolist()):
            found = num_links(group)[place][group.count[place] > 0].tolist()
            assert found[0] == (3 if number == 0 else 0)
            assert sorted(found[1:]) == ([1, 1, 1, 2, 2, 2] if number == 0 else [])


def test_repeated_tokens_weigh_as_often_as_they_stand() -> None:
    """A token with count 3 is read as three tokens; one with count 0 is not there, whatever it holds."""
    torch.manual_seed(0)
    reader = Reader(CONFIG).double().eval()
    query, tokens = torch.randn(4, 16, dtype=torch.float64), torch.randn(1, 3, 16, dtype=torch.float64)
    count = torch.tensor([[1.0, 3.0, 0.0]], dtype=torch.float64)
    found = reader.read_counted(query, tokens, count)
    torch.testing.assert_close(
        found[0], literal_reader(reader, query, tokens[0, [0, 1, 1, 1]]), rtol=0, atol=1e-12
    )
    tokens[0, 2] = 1e6
    assert reader.read_counted(query, tokens, count).equal(found)


def test_padding_gets_no_gradient() -> None:
    reader = Reader(CONFIG).double().eval()
    tokens = torch.randn(2, 3, 16, dtype=torch.float64, requires_grad=True)
    count = torch.tensor([[1.0, 2.0, 0.0], [1.0, 0.0, 0.0]], dtype=torch.float64)
    query = torch.randn(4, 16, dtype=torch.float64)
    reader.read_counted(query, tokens, count).square().sum().backward()
    assert tokens.grad is not None
    assert tokens.grad[0, 2].eq(0).all()
    assert tokens.grad[1, 1:].eq(0).all()
    assert tokens.grad[0, :2].ne(0).any(-1).all()


# --- odd cases --------------------------------------------------------------------------------------


def test_before_anything_happened() -> None:
    """No link is recent yet: the temporal latents are the learned ones, and answers are finite."""
    graph, seeds = buyers(3)
    model, batch = asked(graph, [(node, -SECOND) for node, _ in seeds], fallback="null")
    assert batch.num_temporal.tolist() == [0]
    encoded = model.encode(batch)
    latents = model.latents + model.temporal.feed(model.temporal.norm_feed(model.latents))
    torch.testing.assert_close(encoded.temporal[0], latents, rtol=0, atol=1e-12)
    assert model(batch).isfinite().all()


def test_a_seed_without_neighbours_stands_alone() -> None:
    """Buyer 2 never buys: with no fallback its context is itself, and others in the batch do not matter."""
    graph = TemporalGraph.build(Database.build(*sales([(0, 0), (1, 1)], 3, 2)))
    model, batch = asked(graph, [(0, SECOND), (2, SECOND)], fallback="null")
    check(model, batch)
    _, alone = asked(graph, [(2, SECOND)], fallback="null")
    assert alone.groups[0].row.shape == (1, 1)
    torch.testing.assert_close(model(alone)[0], model(batch)[1], rtol=0, atol=1e-12)


def test_a_table_without_rows() -> None:
    graph = TemporalGraph.build(Database.build(*sales([], num_buyers=2, num_things=0)))
    model, batch = asked(graph, [(0, 0), (1, 0)])
    answers = model(batch)
    answers.sum().backward()
    assert answers.shape == (2, 1)
    assert answers.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_what_happened_lately_changes_the_answer() -> None:
    """Two seeds that are linked to nothing, at two times: only the sales of others tell them apart."""
    graph = TemporalGraph.build(Database.build(*sales([(0, 0), (1, 1)], 3, 2)))
    model, batch = asked(graph, [(2, 0), (2, SECOND)], fallback="null")
    answers = model(batch)
    assert (answers[0] - answers[1]).abs() > 1e-3
    swapped = replace(batch, time_index=1 - batch.time_index)
    torch.testing.assert_close(model(swapped), answers.flip(0), rtol=0, atol=1e-12)


def test_hops_and_links_change_the_answer() -> None:
    model, batch = asked(*buyers(3))

    def changed(change: dict[str, Tensor]) -> bool:
        groups = tuple(replace(each, **change) if each is group else each for each in batch.groups)
        return not model(replace(batch, groups=groups)).equal(model(batch))

    group = next(group for group in batch.groups if group.edge.shape[1] > 0)
    assert changed({"hop": group.hop.flip(1)})
    assert changed({"edge": group.edge[:, :0]})
    assert changed({"age": group.age + 100})
    assert not changed({"noise": group.noise + 1})  # RGP has no random positions


def test_latents_and_embeddings_start_small() -> None:
    torch.manual_seed(0)
    model = RGP(CONFIG.changed(width=256, num_latents=64), ModelSchema((), 12))
    for start in (model.latents, model.tokens.hop.weight):
        assert abs(start.std().item() - 0.02) < 2e-3
