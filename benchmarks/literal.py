"""Quartet as the paper writes it, in batches: what the step of the network is measured against.

The same parameters and the same function, and nothing saved: local contexts are padded to their budget by
repeated rows, global ones likewise, every token is encoded on its own (all tokens of a table in one call), the
five components go side by side through the whole mix, the temporal context is encoded and read for each seed,
keys and values are projected for every token. As in the paper, the archetypes of a codebook serve all seeds of
a batch.

It is for the whole model: all four branches, with perceivers. Micro-batches of 16 seeds keep it in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from quartet.contexts import Context, select
from quartet.models.layers.attention import CrossAttention, join_heads, split_heads
from quartet.models.layers.encoders import Mix
from quartet.models.perceivers import Latents
from quartet.models.quartet import Quartet
from quartet.paper.literal import cells_of_each
from quartet.tokens import TableRows, TokenBatch, Tokenizer

MICRO_BATCH = 16
BUDGET = 300  # tokens of each context, padding included


@dataclass(frozen=True, eq=False)
class LiteralBatch:
    """b seeds, each with K local, C collaborative and C temporal tokens, every token for itself."""

    seed: Tensor  # (b,) places in the batch that the seeds came from
    tables: tuple[TableRows, ...]  # the cells of all tokens, table by table
    place: Tensor  # (b K + 2 b C,) where each token's cells stand: local, collaborative, temporal
    row_type: Tensor  # (b K + 2 b C,)
    hop: Tensor  # (b, K)
    age: Tensor  # (b, K)
    log_count: Tensor | None  # (b, K) -inf for tokens to hide; None where there are none
    noise: Tensor  # (b, K) of the distinct rows, which stand first
    edge: Tensor  # (2, E) among the distinct rows
    copied: Tensor  # (b, K) which distinct row each token repeats, counted through the batch
    global_age: Tensor  # (2, b, C)
    is_real: Tensor  # (2, b, C)
    has_context: Tensor  # (2, b)
    sketch: Tensor  # (b, sketch)


def literal_batches(
    tokenizer: Tokenizer, context: Context, size: int = MICRO_BATCH, budget: int = BUDGET
) -> Iterator[LiteralBatch]:
    """All seeds of a context, so many at a time."""
    together = Tokenizer(tokenizer.graph, tokenizer.features, tokenizer.rng_seed, group_tokens=size * budget)
    for first in range(0, len(context), size):
        places = np.arange(first, min(first + size, len(context)))
        yield padded(together(select(context, places)), torch.from_numpy(places), budget)


def padded(batch: TokenBatch, places: Tensor, budget: int = BUDGET) -> LiteralBatch:
    """Returns a batch of one group with every context padded to the budget; `places` say where its seeds come from."""
    (group,) = batch.groups
    copied, is_local = _copies(group.count.long(), budget)
    time = batch.time_index[group.seed]
    counts = torch.stack([group.num_collab, batch.num_temporal[time]])  # (2, b)
    repeated = [
        _repeated(place, count, budget)
        for place, count in zip((group.collab, batch.temporal[time]), counts, strict=True)
    ]
    context, is_real = (torch.stack(both) for both in zip(*repeated, strict=True))  # each (2, b, C)
    row = torch.cat([group.row.gather(1, copied).flatten(), batch.global_row[context].flatten()])
    tables, place = cells_of_each(batch, row)
    distinct = group.row.shape[1]
    line = torch.arange(len(group.seed))[:, None]
    return LiteralBatch(
        seed=places[group.seed],
        tables=tables,
        place=place,
        row_type=batch.row_type[row],
        hop=group.hop.gather(1, copied),
        age=group.age.gather(1, copied),
        log_count=None if is_local.all() else _log(is_local, group.age.dtype),
        noise=F.pad(group.noise, (0, budget - distinct)),
        edge=group.edge // distinct * budget + group.edge % distinct,
        copied=copied + line * budget,
        global_age=batch.global_age[context],
        is_real=is_real,
        has_context=counts > 0,
        sketch=batch.sketch[group.seed],
    )


def _log(is_real: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(is_real.shape, dtype=dtype).masked_fill(~is_real, -torch.inf)


def _copies(count: Tensor, budget: int) -> tuple[Tensor, Tensor]:
    """Which row each of the padded tokens repeats, row i as often as it counts, and which are real."""
    end = count.cumsum(1)  # (b, distinct)
    slot = torch.arange(budget).expand(len(count), -1).contiguous()
    return torch.searchsorted(end, slot, right=True).clamp(max=count.shape[1] - 1), slot < end[:, -1:]


def _repeated(place: Tensor, count: Tensor, budget: int) -> tuple[Tensor, Tensor]:
    """Contexts repeated to the budget, and which tokens count: every row equally often, the rest is hidden.

    An empty context repeats some row and hides nothing; what is read of it is thrown away.
    """
    slot, length = torch.arange(budget), count.clamp(min=1)[:, None]
    repeated = F.pad(place, (0, 1)).gather(1, slot % length)
    return repeated, slot < budget // length * length


def literal_logits(model: Quartet, batch: LiteralBatch) -> Tensor:
    """Returns (b, outputs) logits, in the order of `batch.seed`."""
    cells = torch.cat([encode(table) for encode, table in zip(model.tables, batch.tables, strict=True)])
    feature, of_type = F.embedding(batch.place, cells), model.tokens.types(batch.row_type)
    (local, context), (local_type, context_type) = (_split(x, batch) for x in (feature, of_type))
    position = model.tokens.position(batch.noise, batch.edge).flatten(0, 1)
    components = [
        local,
        local_type,
        model.tokens.time(batch.age),
        model.tokens.hop(batch.hop),
        F.embedding(batch.copied, position),
    ]
    tokens = _mixed(model.tokens.mix, components)  # (b, K, D)
    contexts = _mixed(model.global_tokens.mix, [context, context_type, model.tokens.time(batch.global_age)])
    topology, feature = model.branches["topology"], model.branches["feature"]
    views = {
        "local": _local(model, tokens, batch.log_count),
        "topology": topology.codebook(topology.normed(batch.sketch)),
        "feature": feature.codebook(feature.norm(local[:, 0])),
        **_global(model, tokens[:, 0], contexts, batch),
    }
    return model.readout(model.fusion(views))


def literal_backward(
    model: Quartet, batches: list[LiteralBatch], loss: Callable[[Tensor, Tensor], Tensor]
) -> None:
    """Adds the gradient of the micro-batches' summed losses to the model's parameters."""
    for batch in batches:
        loss(literal_logits(model, batch), batch.seed).backward()


def _split(tokens: Tensor, batch: LiteralBatch) -> tuple[Tensor, Tensor]:
    """Local tokens (b, K, D), and those of both contexts (2, b, C, D)."""
    local, context = tokens.split([batch.hop.numel(), batch.global_age.numel()])
    return local.unflatten(0, batch.hop.shape), context.unflatten(0, batch.global_age.shape)


def _mixed(mix: Mix, components: list[Tensor]) -> Tensor:
    """W_mix of the components' LayerNorms side by side (eq. 22)."""
    normed = torch.cat([norm(part) for norm, part in zip(mix.norms, components, strict=True)], -1)
    return mix.finish(F.linear(normed, torch.cat(list(mix.blocks), 1), mix.bias))


def _local(model: Quartet, tokens: Tensor, log_count: Tensor | None) -> Tensor:
    module = model.branches["local"].module
    for block in module.blocks:
        tokens = block(tokens, log_count)
    weights = tokens.new_zeros(tokens.shape[:2]) if log_count is None else log_count
    return module.pool(module.norm(tokens), weights)  # (b, D)


def _global(model: Quartet, seed: Tensor, contexts: Tensor, batch: LiteralBatch) -> dict[str, Tensor]:
    """Returns h_collab and h_temp."""
    branch = model.branches["perceivers"]
    latents = zip(
        (branch.latents["collab"], branch.latents["temporal"]), contexts, batch.is_real, batch.has_context,
        strict=True,
    )  # fmt: skip
    together = branch.stack(torch.cat([_latents(*each) for each in latents], 1))  # (b, 2 Z, D)
    query, blocks = branch.seed(seed), together.chunk(2, 1)
    return {
        name: read(query, block) for (name, read), block in zip(branch.reads.items(), blocks, strict=True)
    }


def _latents(latents: Latents, context: Tensor, is_real: Tensor, has_context: Tensor) -> Tensor:
    """Z_0 + CrossAttn(Z_0, C), eq. 5: (b, Z, D)."""
    query = latents.norm_start(latents.start).expand(len(context), -1, -1)
    read = _cross(latents.attention, query, latents.norm_context(context), is_real)
    return latents.start + read * has_context[:, None, None]


def _cross(attention: CrossAttention, query: Tensor, context: Tensor, is_real: Tensor) -> Tensor:
    heads = (
        split_heads(linear(tokens), attention.heads)
        for linear, tokens in ((attention.query, query), (attention.key, context), (attention.value, context))
    )
    dropout = attention.dropout if attention.training else 0.0
    mask = None if is_real.all() else is_real[:, None, None, :]
    return attention.out(
        join_heads(F.scaled_dot_product_attention(*heads, attn_mask=mask, dropout_p=dropout))
    )
