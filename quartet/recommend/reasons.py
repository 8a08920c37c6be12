"""What speaks for the items of a list: the pools that proposed them, the members, and the pair columns.

Effects are those beside the mean of all candidates of a seed. Those of members add up to the score, and those of
columns, by TreeSHAP, to the part of the trees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from quartet.recommend.candidates import Pool
from quartet.recommend.events import Floats, Ints, places_in
from quartet.recommend.pairs import Reader
from quartet.recommend.recommender import TREES, Recommender, Scored, chosen
from quartet.recommend.rows import standardised
from quartet.tasks import Seeds
from quartet.training import View

_MOST_COLUMNS = 12


@dataclass(frozen=True)
class ItemReasons:
    """What speaks for an item: the members' parts of its score, the pools that proposed it, the strongest columns."""

    rank: int
    node: int
    score: float
    parts: tuple[tuple[str, float], ...]
    pools: tuple[tuple[str, int], ...]  # and its place there
    columns: tuple[tuple[str, float | None, float], ...]  # value and effect


def item_reasons(model: Recommender, view: View, seeds: Seeds, most: int) -> dict[int, list[ItemReasons]]:
    """Returns what speaks for the first items of each seed, by the place of the seed, best first."""
    reader = Reader.of(view, model.paths, step=model.step)
    vectors = model.towers.embeddings(view, seeds) if model.towers is not None and model.has_towers else None
    found: dict[int, list[ItemReasons]] = {}
    for scored in model.scored(reader, seeds, vectors, with_rules=False):
        for place, told in _of_block(model, reader, scored, most):
            found.setdefault(int(scored.block.at[place]), []).append(told)
    return found


def _of_block(
    model: Recommender, reader: Reader, scored: Scored, most: int
) -> Iterator[tuple[int, ItemReasons]]:
    of, item, size = scored.of, scored.item, len(reader.past.items)
    parts = {n: w * standardised(of, scored.scores[n]) for n, w in model.weights.items() if w}
    total, effects = sum(parts.values(), np.zeros(len(of))), np.empty((len(of), 0))
    read: tuple[str, ...] = ()
    if TREES in parts and model.ranker is not None:
        read = model.ranker.names
        own = model.ranker.contributions(chosen(scored.matrix, scored.names, read))
        own = own - _list_means(of, own)
        spread = np.sqrt(_list_means(of, own.sum(1, keepdims=True) ** 2))
        effects = model.weights[TREES] * own / np.where(spread > 0, spread, 1.0)
    values = chosen(scored.matrix, scored.names, read)
    places = {name: _places(pool, size) for name, pool in scored.pools.items()}
    order = np.lexsort((item, -total, of))
    rank = places_in(of[order])
    for at, place in zip(order[rank < most].tolist(), rank[rank < most].tolist(), strict=True):
        key = int(of[at]) * size + int(item[at])
        strongest = np.argsort(-np.abs(effects[at]), kind="stable")[:_MOST_COLUMNS].tolist()
        node = int(reader.past.items.nodes(item[at : at + 1])[0])
        yield (
            int(of[at]),
            ItemReasons(
                place + 1,
                node,
                float(total[at]),
                tuple((model.shown(name), float(part[at])) for name, part in parts.items()),
                tuple((name, own[key]) for name, own in places.items() if key in own),
                tuple((read[n], _told(values[at, n]), float(effects[at, n])) for n in strongest),
            ),
        )


def _told(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _list_means(of: Ints, values: Floats) -> Floats:
    """Returns for each pair the means over all pairs of its list."""
    total = np.zeros((int(of.max(initial=-1)) + 1, values.shape[1]))
    np.add.at(total, of, values)
    return (total / np.maximum(1, np.bincount(of, minlength=len(total)))[:, None])[of]


def _places(pool: Pool, num_items: int) -> dict[int, int]:
    """Returns the place of each pair in a pool, from 1; it is in order."""
    keys = (pool.source * num_items + pool.item).tolist()
    return dict(zip(keys, (places_in(pool.source) + 1).tolist(), strict=True))
