"""Towers: the vector of a source, as Quartet reads it, times that of an item, and what a pair has in common.

    score = q(source) · v(item) + b(item) + f(pair)

q is what a network of the box makes of the source's context; v and b are made of the item's own columns and, for items
that training has seen, of a vector of its own; f reads the pair columns, as ContextGNN fuses both. The first two parts
alone rank all items that exist: the nearest are candidates.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from quartet.config import Recipe
from quartet.contexts import Context, select
from quartet.listener import SILENT, Listener
from quartet.machine import autocast
from quartet.recommend.candidates import Pool
from quartet.recommend.clock import Clock
from quartet.recommend.events import Floats, Ints
from quartet.recommend.pairs import Block, Matrix, Reader
from quartet.recommend.rows import PairRows
from quartet.registry import model_row
from quartet.tasks import Seeds
from quartet.training import Adam, Output, TrainingData, View, flat

WIDTH = 32  # of the vectors of sources and items
_INSIDE = 64
_NEAREST = 40  # items that are candidates
_AT_ONCE = 65_536  # items whose nearness is in memory together
_PART = 1024  # rows that are scored together
_FASTER = 3.0  # than the network do they learn that read items and pairs
_STEPS_OF_FEW, _SMALLEST_BATCH = 64, 16  # an epoch of few seeds has so many steps
_ROWS_OF_A_SEED = 96  # pairs of a seed in a step
_NETWORK, _WEIGHTS, _FACTS = "network", "towers.safetensors", "towers.json"


class Towers(nn.Module):
    """A network that gives each source a vector, and what reads items and pairs."""

    network: Any
    keys: Tensor
    middle: Tensor
    spread: Tensor
    item_middle: Tensor
    item_spread: Tensor

    def __init__(
        self, network: nn.Module, names: tuple[str, ...], num_keys: int, num_item_columns: int
    ) -> None:
        super().__init__()
        self.network, self.names, self.num_item_columns = network, names, num_item_columns
        self.register_buffer("keys", torch.zeros(num_keys, dtype=torch.int64))
        self.register_buffer("middle", torch.zeros(len(names)))
        self.register_buffer("spread", torch.ones(len(names)))
        self.register_buffer("item_middle", torch.zeros(num_item_columns))
        self.register_buffer("item_spread", torch.ones(num_item_columns))
        self.own = nn.Embedding(
            num_keys + 1, WIDTH + 1, padding_idx=0
        )  # 0: of items that training has not seen
        nn.init.zeros_(self.own.weight)
        self.item = nn.Sequential(
            nn.Linear(2 * num_item_columns, _INSIDE), nn.ReLU(), nn.Linear(_INSIDE, WIDTH + 1)
        )
        self.pair = nn.Sequential(
            nn.Linear(2 * len(names), _INSIDE), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(_INSIDE, _INSIDE), nn.ReLU(), nn.Linear(_INSIDE, 1),
        )  # fmt: skip

    def item_vectors(self, columns: Tensor, own: Tensor) -> Tensor:
        """Returns (I, WIDTH + 1): the vector of each item, and its bias."""
        return self.item(_views(columns, self.item_middle, self.item_spread)) + self.own(own)

    def nearness(self, source: Tensor, item: Tensor) -> Tensor:
        return (source * item[:, :WIDTH]).sum(1) / math.sqrt(WIDTH) + item[:, WIDTH]

    def pair_scores(self, matrix: Tensor) -> Tensor:
        return self.pair(_views(matrix, self.middle, self.spread))[:, 0]

    def own_numbers(self, reader: Reader) -> Ints:
        """Returns for each item of a database its number among those of training, 0 for all others."""
        keys, key = self.keys.numpy().view(np.uint64), reader.past.items.key
        if not len(keys):
            return np.zeros(len(key), np.int64)
        at = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        return np.where(keys[at] == key, at + 1, 0)

    # --- scoring -------------------------------------------------------------------------------------

    def of_items(self, block: Block, own: Ints) -> NDArray[np.float32]:
        """Returns the vectors of all items at the moment of a block. Those that come later stand behind the others."""
        order = np.argsort(block.moment.past.items.known_at, kind="stable")
        found = np.empty((len(own), WIDTH + 1), np.float32)
        found[order] = _in_parts(self.item_vectors, item_matrix(block)[order], own[order])
        return found

    def nearest(self, source: NDArray[np.float32], items: NDArray[np.float32], block: Block) -> Pool:
        """Returns the items that exist whose vectors are nearest to those of sources."""
        shown = block.moment.items
        vectors = items[shown]
        parts = [
            _best_of(source, vectors[first : first + _AT_ONCE], shown[first : first + _AT_ONCE])
            for first in range(0, len(shown), _AT_ONCE)
        ]
        none = np.empty(0, np.int64)
        whole = Pool(
            np.concatenate([none, *(part.source for part in parts)]),
            np.concatenate([none, *(part.item for part in parts)]),
            np.concatenate([np.empty(0), *(part.score for part in parts)]),
        )
        return whole.best(_NEAREST)

    def scores(
        self,
        source: NDArray[np.float32],
        items: NDArray[np.float32],
        of: Ints,
        item: Ints,
        matrix: Matrix,
    ) -> Floats:
        """Returns the scores of pairs: the place of a source among those given, and the item."""

        def score(source: Tensor, item: Tensor, matrix: Tensor) -> Tensor:
            return self.nearness(source, item) + self.pair_scores(matrix)

        return _in_parts(score, source[of], items[item], matrix).astype(np.float64)

    # --- learning ------------------------------------------------------------------------------------

    @staticmethod
    def fit(
        data: TrainingData,
        context: Context,
        seeds: Seeds,
        reader: Reader,
        names: tuple[str, ...],
        train: PairRows,
        validate: Callable[[Towers], float],
        seconds: float,
        should_stop: Callable[[], bool],
    ) -> Towers | None:
        """Returns towers that have learned to tell items that came true from others; None if it was stopped.

        Of each seed the loss is that of a softmax over its pairs, by all parts and by the vectors alone.
        """
        clock, recipe, tokenizer = Clock(max(seconds, 1e-9)), data.recipe, data.view.tokenizer
        item_columns, item_row = item_rows(reader, seeds, train)
        towers = Towers.new(data, reader, names, train, item_columns.numpy())
        own = torch.from_numpy(towers.own_numbers(reader)[train.item])
        theirs = [p for name, p in towers.named_parameters() if not name.startswith("network.")]
        own_rates = ((list(towers.network.parameters()), 1.0), (theirs, _FASTER))
        parts = [(Adam(some, recipe.weight_decay), faster) for some, faster in own_rates]
        firsts = np.searchsorted(train.seed, np.arange(len(context) + 1))
        taught = np.flatnonzero(np.bincount(train.seed, train.label, minlength=len(context)) > 0)
        best, step, weights, validating = -1.0, 0, {}, 0.0
        per_epoch = min(len(taught), recipe.seeds_per_epoch or len(taught))
        size = int(np.clip(len(taught) // _STEPS_OF_FEW, _SMALLEST_BATCH, recipe.batch_size))
        num_steps = recipe.epochs * -(-per_epoch // size)
        for epoch in range(recipe.epochs):
            rng = np.random.default_rng([recipe.rng_seed, epoch])
            order = rng.permutation(taught)[:per_epoch]
            for first in range(0, len(order), size):
                if should_stop():
                    return None
                if step and clock.left < validating:
                    break
                places = np.sort(order[first : first + size])
                done = max((step + 0.5) / num_steps, min(1.0, clock.spent / clock.limit))
                rate = min(1.0, done / 0.05) * (1 + math.cos(math.pi * done)) / 2
                torch.manual_seed((recipe.rng_seed << 32) + step)
                towers.train()
                sketch = torch.from_numpy(context.sketch[places])
                towers.network.update_batch_stats(sketch)
                rows = _some_rows(train, firsts, places, rng)
                seed = torch.from_numpy(np.searchsorted(places, train.seed[rows]))
                is_true = torch.from_numpy(train.label[rows])
                with autocast("cpu", recipe.precision):
                    batch = replace(tokenizer(select(context, places), draw=step + 1), whole_sketch=sketch)
                    source = _one_head(towers.network(batch))
                vectors = towers.item_vectors(item_columns[item_row[rows]], own[rows])
                near = towers.nearness(source.float()[seed], vectors)
                whole = near + towers.pair_scores(torch.from_numpy(train.matrix[rows]))
                free = is_true | torch.from_numpy(
                    train.is_random[rows]
                )  # beside candidates vectors would learn pools
                losses = [
                    _softmax_loss(whole, seed, is_true, len(places)),
                    _softmax_loss(near[free], seed[free], is_true[free], len(places)),
                ]
                towers.zero_grad()
                torch.stack(losses).sum().backward()
                torch.nn.utils.clip_grad_norm_(towers.parameters(), recipe.clip_norm)
                for adam, faster in parts:
                    gradient = flat([p.grad for p in adam.parameters], adam.parameters)
                    adam.step(gradient, recipe.learning_rate * rate * faster)
                towers.network.after_step(lambda rows: rows)
                step += 1
            towers.eval()
            before = clock.spent
            value, validating = validate(towers), clock.spent - before
            if value >= best:
                best, weights = value, {name: t.detach().clone() for name, t in towers.state_dict().items()}
            if clock.left < validating:
                break
        towers.load_state_dict(weights)
        return towers.eval()

    @staticmethod
    def new(
        data: TrainingData, reader: Reader, names: tuple[str, ...], train: PairRows, item_columns: Matrix
    ) -> Towers:
        """Returns towers with random weights, which know the scale of each column."""
        network = model_row(data.recipe.model.architecture).model_class.new(data, data.recipe)
        keys = np.unique(reader.past.items.key[np.unique(train.item[train.label])])
        towers = Towers(network, names, len(keys), item_columns.shape[1])
        towers.keys.copy_(torch.from_numpy(keys.view(np.int64)))
        for matrix, middle, spread in (
            (train.matrix, towers.middle, towers.spread),
            (item_columns, towers.item_middle, towers.item_spread),
        ):
            filled = np.where(np.isfinite(matrix), matrix, np.nan)
            some = filled[np.unique(np.linspace(0, len(filled) - 1, 20_000).astype(np.int64))]
            centre = np.nan_to_num(_nanmedian(some))
            away = np.nan_to_num(_nanmean(np.abs(some - centre)))
            middle.copy_(torch.from_numpy(centre))
            spread.copy_(torch.from_numpy(np.where(away > 0, away, 1.0)))
        return towers

    # --- on disk -------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        (folder / _NETWORK).mkdir()
        self.network.save(folder / _NETWORK)
        own = {n: t.contiguous() for n, t in self.state_dict().items() if not n.startswith("network.")}
        save_file(own, folder / _WEIGHTS)
        facts = {"names": self.names, "num_keys": len(self.keys), "num_item_columns": self.num_item_columns}
        (folder / _FACTS).write_text(json.dumps(facts), encoding="utf-8")

    @staticmethod
    def load(folder: Path, recipe: Recipe, output: Output) -> Towers:
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        network = model_row(recipe.model.architecture).model_class.load(folder / _NETWORK, recipe, output)
        towers = Towers(network, tuple(facts["names"]), facts["num_keys"], facts["num_item_columns"])
        missing, unexpected = towers.load_state_dict(load_file(folder / _WEIGHTS), strict=False)
        if unexpected or any(not name.startswith("network.") for name in missing):
            raise ValueError("weights of other towers")
        return towers.eval()

    def embeddings(self, view: View, seeds: Seeds, listener: Listener = SILENT) -> NDArray[np.float32]:
        """Returns the vectors of the sources of seeds."""
        return np.asarray(self.network.logits(view, seeds, listener), np.float32)


def _in_parts(made_of: Callable[..., Tensor], *columns: NDArray[Any]) -> NDArray[np.float32]:
    """Returns what a network makes of rows.

    Kernels round by how many there are, so every part has as many: rows that come later change no bit of the others.
    """
    size, parts = len(columns[0]), []
    for first in range(0, max(1, size), _PART):
        some = [column[first : first + _PART] for column in columns]
        absent = _PART - len(some[0])
        whole = [np.concatenate([own, np.zeros((absent, *own.shape[1:]), own.dtype)]) for own in some]
        with torch.inference_mode():
            parts.append(made_of(*map(torch.from_numpy, whole)).numpy())
    return np.concatenate(parts)[:size]


def _best_of(source: NDArray[np.float32], vectors: NDArray[np.float32], item: Ints) -> Pool:
    """Returns the nearest of some items to each source, exactly."""
    near = source @ vectors[:, :WIDTH].T / np.float32(math.sqrt(WIDTH)) + vectors[:, WIDTH]  # (S, I)
    most = min(_NEAREST, near.shape[1])
    best = np.argpartition(-near, most - 1, axis=1)[:, :most]
    score = np.take_along_axis(near, best, 1).astype(np.float64)
    return Pool(np.repeat(np.arange(len(near)), most), item[best.ravel()], score.ravel())


def item_matrix(block: Block) -> Matrix:
    """Returns the columns of all items at the time of a block."""
    return np.stack([np.asarray(column, np.float32) for column in block.columns.of_items.values()], 1)


def item_rows(reader: Reader, seeds: Seeds, train: PairRows) -> tuple[Tensor, Ints]:
    """Returns the columns of the distinct (item, time) of pairs, and which row of them each pair has."""
    moment, at = np.unique(reader.moments(seeds.time[train.seed]), return_inverse=True)
    key, row = np.unique(at * len(reader.past.items) + train.item, return_inverse=True)
    parts = []
    for number, time_ in enumerate(moment.tolist()):
        items = key[key // len(reader.past.items) == number] % len(reader.past.items)
        one = next(reader.blocks(Seeds(seeds.node[:1], np.array([time_]), None)))
        parts.append(item_matrix(one)[items])
    return torch.from_numpy(np.concatenate(parts)), row


def _some_rows(train: PairRows, firsts: Ints, places: Ints, rng: np.random.Generator) -> Ints:
    """Returns some pairs of each seed: those that came true first, and others at random."""
    rows = np.concatenate([np.arange(firsts[place], firsts[place + 1]) for place in places])
    drawn = Pool(train.seed[rows], rows, np.where(train.label[rows], 1.0, 0.0) + rng.random(len(rows)))
    return np.sort(drawn.best(_ROWS_OF_A_SEED).item)


def _softmax_loss(score: Tensor, seed: Tensor, is_true: Tensor, num_seeds: int) -> Tensor:
    """Returns the mean, over seeds, of −log of the share that each item that came true has among all of its seed."""
    highest = (
        score.detach().new_full((num_seeds,), -torch.inf).scatter_reduce(0, seed, score.detach(), "amax")
    )
    power = torch.exp(score - highest[seed])
    total = torch.zeros_like(highest).index_add(0, seed, power)
    missed = (torch.log(total) + highest)[seed] - score
    num_true = torch.zeros_like(highest).index_add(0, seed, is_true.to(score.dtype))
    each = torch.zeros_like(highest).index_add(0, seed, missed * is_true)
    return (each / num_true.clamp(min=1)).mean()


def _views(columns: Tensor, middle: Tensor, spread: Tensor) -> Tensor:
    """Returns columns on a logarithmic scale around their middle, and which are absent."""
    absent = ~columns.isfinite()
    size = torch.asinh((torch.where(absent, middle, columns) - middle) / spread).clamp(-8.0, 8.0)
    return torch.cat([size, absent.to(size.dtype)], 1)


def _one_head(vectors: Tensor) -> Tensor:
    return vectors.mean(1) if vectors.dim() == 3 else vectors


def _nanmedian(matrix: Matrix) -> NDArray[np.float32]:
    columns = [column[~np.isnan(column)] for column in matrix.T]
    return np.array([np.median(column) if len(column) else 0.0 for column in columns], np.float32)


def _nanmean(matrix: Matrix) -> NDArray[np.float32]:
    columns = [column[~np.isnan(column)] for column in matrix.T]
    return np.array([column.mean() if len(column) else 0.0 for column in columns], np.float32)
