"""Quartet once more, literally: the paper's equations for one seed at a time, nothing shared, nothing folded.

Local contexts are padded to K by repeating rows, global ones are read as they are, every token is encoded on its
own, the temporal context once for each seed, attention is written out with its softmax. It borrows the parameters
of a `Quartet`, so that both are the same function of the same numbers, or one of them is wrong. Dropout is off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from quartet.models.layers.attention import CrossAttention, SelfAttentionBlock
from quartet.models.layers.encoders import Mix, PositionEncoder
from quartet.models.local import LocalModule
from quartet.models.quartet import Quartet
from quartet.tokens import SeedGroup, TokenBatch


@dataclass(frozen=True)
class Seed:
    """One seed's context, every token on its own."""

    row: Tensor  # (K,) with repetitions; the seed first
    hop: Tensor
    age: Tensor
    position: Tensor  # (K,) which distinct token each is a copy of
    noise: Tensor  # (distinct,)
    edge: Tensor  # (2, E) among the distinct tokens
    collab: tuple[Tensor, Tensor]  # rows and ages
    temporal: tuple[Tensor, Tensor]


def literal_logits(model: Quartet, batch: TokenBatch) -> Tensor:
    """Returns (B, outputs) logits, each from its own context alone; the sketches are normalised as one batch."""
    logits = [torch.empty(0)] * len(batch)
    sketch = model.branches["topology"].normed(batch.sketch) if "topology" in model.branches else None
    for group in batch.groups:
        for place, number in enumerate(group.seed.tolist()):
            seed = unpacked(batch, group, place)
            logits[number] = literal_logit(model, batch, seed, None if sketch is None else sketch[number])
    return torch.stack(logits)


def unpacked(batch: TokenBatch, group: SeedGroup, place: int) -> Seed:
    """Returns the context of one seed of a group, with rows repeated as often as they count."""
    count = group.count[place].long()
    length, width = int((count > 0).sum()), group.row.shape[1]
    position = torch.arange(length).repeat_interleave(count[:length])
    mine = (group.edge[0] // width) == place
    time = batch.time_index[group.seed[place]]
    return Seed(
        row=group.row[place][position],
        hop=group.hop[place][position],
        age=group.age[place][position],
        position=position,
        noise=group.noise[place, :length],
        edge=group.edge[:, mine] % width,
        collab=_context(batch, group.collab[place, : group.num_collab[place]]),
        temporal=_context(batch, batch.temporal[time, : batch.num_temporal[time]]),
    )


def _context(batch: TokenBatch, places: Tensor) -> tuple[Tensor, Tensor]:
    return batch.global_row[places], batch.global_age[places]


def literal_logit(model: Quartet, batch: TokenBatch, seed: Seed, sketch: Tensor | None) -> Tensor:
    config, branches, views = model.config, model.branches, []
    tokens = None
    if config.local or config.has("collab") or config.has("temporal"):
        tokens = local_tokens(model, batch, seed)  # (K, D)
    if config.local:
        views.append(literal_local(branches["local"].module, tokens))
    if config.has("topology"):
        views.append(literal_codebook(branches["topology"].codebook, sketch))
    if config.has("feature"):
        feature = branches["feature"].norm(encode_rows(model, batch, seed.row[:1])[0])
        views.append(literal_codebook(branches["feature"].codebook, feature))
    views += literal_global(model, batch, seed, tokens)
    fused = torch.cat([norm(view) for norm, view in zip(model.fusion.norms, views, strict=True)])
    return model.readout(model.fusion.feed(model.fusion.project(fused)))


def encode_rows(model: Quartet, batch: TokenBatch, rows: Tensor) -> Tensor:
    """h_feat of rows, each encoded on its own however often it stands there: (n, D)."""
    first = [0]
    for table in batch.tables:
        first.append(first[-1] + len(table))
    encoded = []
    for row in rows.tolist():
        number = int(batch.row_type[row])
        encoded.append(model.tables[number](one_row(batch.tables[number], row - first[number]))[0])
    return torch.stack(encoded) if encoded else model.tokens.types.weight.new_empty(0, model.config.width)


def one_row(table, row: int):  # type: ignore[no-untyped-def]
    """A table of one row."""
    bags = []
    for start, code in table.bags:
        end = int(start[row + 1]) if row + 1 < len(start) else len(code)
        bags.append((torch.zeros(1, dtype=torch.int64), code[int(start[row]) : end]))
    chosen = slice(row, row + 1)
    return type(table)(
        numbers=table.numbers[chosen],
        categories=table.categories[chosen],
        bags=tuple(bags),
        calendar=table.calendar[chosen],
        texts=tuple(text[chosen] for text in table.texts),
    )


def local_tokens(model: Quartet, batch: TokenBatch, seed: Seed) -> Tensor:
    """W_mix [h_feat | h_type | h_time | h_hop | h_pe] of each token: (K, D)."""
    return literal_mix(
        model.tokens.mix,
        [
            encode_rows(model, batch, seed.row),
            model.tokens.types(batch.row_type[seed.row]),
            model.tokens.time(seed.age),
            model.tokens.hop(seed.hop),
            literal_positions(model.tokens.position, seed.noise, seed.edge)[seed.position],
        ],
    )


def literal_positions(encoder: PositionEncoder, noise: Tensor, edge: Tensor) -> Tensor:
    """The GIN with a dense adjacency matrix."""
    adjacency = torch.zeros(len(noise), len(noise), dtype=noise.dtype)
    for start, end in edge.T.tolist():
        adjacency[end, start] += 1
    nodes = encoder.start(noise[:, None])
    for epsilon, layer in zip(encoder.epsilon, encoder.layers, strict=True):
        nodes = nodes + layer((1 + epsilon) * nodes + adjacency @ nodes)
    return encoder.linear(nodes)


def literal_mix(mix: Mix, components: list[Tensor]) -> Tensor:
    normed = torch.cat([norm(part) for norm, part in zip(mix.norms, components, strict=True)], -1)
    return mix.finish(normed @ torch.cat(list(mix.blocks), 1).T + mix.bias)


def attend(query: Tensor, key: Tensor, value: Tensor, heads: int) -> Tensor:
    """softmax(q k^T / sqrt(d_k)) v, head by head: (n, D)."""
    size = query.shape[1] // heads
    read = []
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        logits = query[:, part] @ key[:, part].T / math.sqrt(size)
        weight = logits.exp() / logits.exp().sum(1, keepdim=True)
        read.append(weight @ value[:, part])
    return torch.cat(read, 1)


def literal_block(block: SelfAttentionBlock, tokens: Tensor) -> Tensor:
    normed, attention = block.norm_attention(tokens), block.attention
    read = attend(attention.query(normed), attention.key(normed), attention.value(normed), attention.heads)
    tokens = tokens + attention.out(read)
    return tokens + block.feed(block.norm_feed(tokens))


def literal_cross(attention: CrossAttention, query: Tensor, context: Tensor) -> Tensor:
    if not len(context):
        return torch.zeros_like(query)
    read = attend(attention.query(query), attention.key(context), attention.value(context), attention.heads)
    return attention.out(read)


def literal_local(module: LocalModule, tokens: Tensor) -> Tensor:
    for block in module.blocks:
        tokens = literal_block(block, tokens)
    tokens = module.norm(tokens)
    logits = module.pool.score(tokens[1:])[:, 0]
    weight = logits.exp() / logits.exp().sum()
    return module.pool.norm(tokens[0] + weight @ tokens[1:])


def literal_codebook(codebook, query: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
    return literal_cross(codebook.attention, codebook.query(query)[None], codebook.archetypes)[0]


def global_tokens(model: Quartet, batch: TokenBatch, context: tuple[Tensor, Tensor]) -> Tensor:
    row, age = context
    return literal_mix(
        model.global_tokens.mix,
        [encode_rows(model, batch, row), model.tokens.types(batch.row_type[row]), model.tokens.time(age)],
    )


def literal_global(model: Quartet, batch: TokenBatch, seed: Seed, tokens: Tensor | None) -> list[Tensor]:
    """Returns h_collab and h_temp."""
    contexts = {"collab": seed.collab, "temporal": seed.temporal}
    sequences = {
        name: global_tokens(model, batch, context)
        for name, context in contexts.items()
        if model.config.has(name)  # type: ignore[arg-type]
    }
    if not sequences:
        return []
    if not model.config.perceiver:
        return [literal_direct(model, tokens, sequence) for sequence in sequences.values()]
    branch, blocks = model.branches["perceivers"], []
    for name, sequence in sequences.items():
        latents = branch.latents[name]
        normed = latents.norm_context(sequence)
        blocks.append(
            latents.start + literal_cross(latents.attention, latents.norm_start(latents.start), normed)
        )
    together = torch.cat(blocks)
    for block in branch.stack:
        together = literal_block(block, together)
    query = branch.seed(tokens[0])[None]
    return [
        literal_cross(branch.reads[name].attention, query, branch.reads[name].norm(block))[0]
        for name, block in zip(sequences, together.chunk(len(sequences)), strict=True)
    ]


def literal_direct(model: Quartet, tokens: Tensor, sequence: Tensor) -> Tensor:
    branch = model.branches["direct"]
    together = torch.cat([branch.seed(tokens[0])[None], sequence])
    for block in branch.blocks:
        together = literal_block(block, together)
    return branch.norm(together[0])
