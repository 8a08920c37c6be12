"""Readouts: the last step of every network, from what it has read of a seed to logits.

`LinearReadout` is the paper's head. `Tower` also reads the seed's relational columns: numbers over all rows, of which a
context of some rows holds but a sample. Its k heads share their weights in the manner of TabM (Gorishniy et al., 2025).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from quartet.config import ModelConfig
from quartet.models.layers.dropout import Dropout
from quartet.training import ModelSchema

_QUANTILES = 65
_MOST_ROWS = 20_000  # of training, spread among all, from which quantiles are learned
_CODE_WIDTH = 8
_STEPS = 16  # of integrated gradients
_FURTHEST = 8.0  # of a column from its middle, after the logarithm


def new_readout(config: ModelConfig, schema: ModelSchema) -> LinearReadout | Tower:
    return Tower(config, schema) if schema.columns else LinearReadout(config.width, schema.num_outputs)


class LinearReadout(nn.Linear):
    """W h + b."""

    def forward(self, hidden: Tensor, columns: Tensor | None = None) -> Tensor:  # noqa: ARG002
        return super().forward(hidden)

    def answer(self, hidden: Tensor, mixed: Tensor | None) -> Tensor:  # noqa: ARG002
        return super().forward(hidden)

    def vector(self, hidden: Tensor, columns: Tensor | None = None) -> Tensor:  # noqa: ARG002
        return hidden

    def begin(
        self,
        start: list[float],
        columns: NDArray[np.float32] | None,  # noqa: ARG002
        gains: Sequence[float] = (),  # noqa: ARG002
    ) -> None:
        """Sets the first answer to the base rate."""
        with torch.no_grad():
            self.bias.copy_(torch.tensor(start))


class Tower(nn.Module):
    """k heads on ReLU(W tower(columns) + U LN(h)). In training each has an answer of its own; later their mean is it.

    A number is read twice, by its rank among training rows on a normal scale and by its logarithm, and as a flag where
    it is absent; a code by an embedding. What trees gained by a column says how loud it is: of hundreds of columns most
    tell little, and a network would learn from each as fast as from the best. A tower that stands alone has no h.
    """

    knots: Tensor
    middle: Tensor
    spread: Tensor
    loudness: Tensor
    number: Tensor
    code: Tensor

    def __init__(self, config: ModelConfig, schema: ModelSchema, is_alone: bool = False) -> None:
        super().__init__()
        heads, width, (rate, _) = config.tower, config.width, config.dropouts
        sizes = dict(schema.codes)
        numbers = [place for place in range(len(schema.columns)) if place not in sizes]
        kept = {place: size for place, size in sizes.items() if size}
        self.register_buffer("number", torch.tensor(numbers, dtype=torch.int64), persistent=False)
        self.register_buffer("code", torch.tensor(list(kept), dtype=torch.int64), persistent=False)
        self.register_buffer("knots", torch.zeros(len(numbers), _QUANTILES))
        self.register_buffer("middle", torch.zeros(len(numbers)))
        self.register_buffer("spread", torch.ones(len(numbers)))
        self.embeddings = nn.ModuleList(nn.Embedding(size, _CODE_WIDTH) for size in kept.values())
        inputs = 3 * len(numbers) + _CODE_WIDTH * len(kept)
        self.register_buffer("loudness", torch.ones(inputs))
        self.member = nn.Parameter(torch.randint(2, (heads, inputs)) * 2.0 - 1)
        self.layers = nn.Sequential(
            nn.Linear(inputs, 2 * width), nn.ReLU(), Dropout(rate),
            nn.Linear(2 * width, width), nn.ReLU(), Dropout(rate),
        )  # fmt: skip
        self.mix = nn.Linear(width, width)
        self.join = (
            None if is_alone else nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width, bias=False))
        )
        self.active = nn.Sequential(nn.ReLU(), Dropout(rate))
        self.weight = nn.Parameter(torch.randn(heads, width, schema.num_outputs) * width**-0.5)
        self.bias = nn.Parameter(torch.zeros(heads, schema.num_outputs))

    def forward(self, hidden: Tensor | None, columns: Tensor) -> Tensor:
        return self.answer(hidden, self.mixed(columns))

    def mixed(self, columns: Tensor) -> Tensor:
        """Returns what (b, columns) are to each head before it knows of h: (b, k, D).

        Of many seeds no input is multiplied that is zero for all, and none is written once for each head.
        """
        first = self.layers[0]
        assert isinstance(first, nn.Linear)
        if len(columns) < first.out_features:
            return self.mixed_views(self.views(columns))
        numbers, place = self._number_views(columns)
        codes = torch.arange(3 * len(self.number), first.in_features, device=place.device)
        parts = (numbers, place), (self._code_views(columns), codes)
        return self._behind(_of_members(first, self.member, parts))

    def mixed_views(self, views: Tensor) -> Tensor:
        """Returns the same from all (b, inputs) views."""
        return self._behind(self.layers[0](views[:, None] * self.member))

    def _behind(self, inside: Tensor) -> Tensor:
        """Returns the same from what the first linear map has made: (b, k, 2 D)."""
        return self.mix(self.layers[1:](inside))

    def vector(self, hidden: Tensor | None, columns: Tensor) -> Tensor:
        """Returns what the heads are about to answer by, the mean of all: (b, D)."""
        return self._active(hidden, self.mixed(columns)).mean(1)

    def answer(self, hidden: Tensor | None, mixed: Tensor) -> Tensor:
        """Returns the logits of h and of what the columns have become."""
        mixed = self._active(hidden, mixed)
        logits = torch.einsum("bkd,kdo->bko", mixed, self.weight) + self.bias
        return logits if self.training else logits.mean(1)

    def _active(self, hidden: Tensor | None, mixed: Tensor) -> Tensor:
        return self.active(mixed if self.join is None else mixed + self.join(hidden)[:, None])

    def contributions(self, hidden: Tensor | None, columns: Tensor, usual: Tensor) -> Tensor:
        """Returns what each column adds to each logit on the way from the usual views to its own, all at once.

        These are integrated gradients by the midpoints of some steps: (b, outputs, columns).
        """
        views = self.views(columns).detach()
        added = views.new_zeros(len(views), self.bias.shape[1], columns.shape[1])
        for step in range(_STEPS):
            at = usual + (step + 0.5) / _STEPS * (views - usual)
            with torch.enable_grad():
                at = at.requires_grad_()
                logits = self.answer(hidden, self.mixed_views(at))
                for place in range(logits.shape[1]):
                    (slope,) = torch.autograd.grad(logits[:, place].sum(), at, retain_graph=True)
                    added[:, place].index_add_(1, self.view_columns, slope * (views - usual) / _STEPS)
        return added

    @property
    def view_columns(self) -> Tensor:
        """Returns the column that each of the inputs is a view of."""
        return torch.cat([self.number.repeat(3), self.code.repeat_interleave(_CODE_WIDTH)])

    def views(self, columns: Tensor) -> Tensor:
        """Returns the (b, inputs) views of (b, columns): those of numbers, then those of codes."""
        known, place = self._number_views(columns)
        numbers = known.new_zeros(len(columns), 3 * len(self.number)).index_copy(1, place, known)
        return torch.cat([numbers, self._code_views(columns)], 1)

    def _number_views(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the views of numbers that are not zero for all seeds, and their places among the inputs.

        A number that never varied in training tells nothing but where it is absent.
        """
        varies = _true_places(self.knots[:, 0] < self.knots[:, -1])
        knots, middle, spread = self.knots[varies], self.middle[varies], self.spread[varies]
        number = columns.index_select(1, self.number)
        absent = number.isnan()
        is_told, number = ~absent.index_select(1, varies), number.index_select(1, varies)
        filled = torch.where(is_told, number, middle)
        rank = _normal(_places(knots, filled)) * is_told
        size = torch.asinh((filled - middle) / spread).clamp(-_FURTHEST, _FURTHEST)
        gaps = _true_places(absent.any(0))
        place = torch.cat([varies, len(self.number) + varies, 2 * len(self.number) + gaps])
        views = torch.cat([rank, size, absent.index_select(1, gaps).to(rank.dtype)], 1)
        return views * self.loudness[place], place

    def _code_views(self, columns: Tensor) -> Tensor:
        """Returns the vector of each code; of one that training did not have, that of the highest."""
        codes = columns.index_select(1, self.code).nan_to_num().long()
        embedded = [
            embedding(codes[:, place].clamp(0, len(embedding.weight) - 1))  # type: ignore[arg-type]
            for place, embedding in enumerate(self.embeddings)
        ]
        vectors = torch.cat([columns.new_empty(len(columns), 0), *embedded], 1)
        return vectors * self.loudness[3 * len(self.number) :]

    def go_on_from(self, weights: Mapping[str, Tensor]) -> None:
        """Takes over the weights of a tower that stood alone: the first answer is that tower's."""
        self.load_state_dict(dict(weights), strict=False)
        if self.join is not None:
            with torch.no_grad():
                self.join[1].weight.zero_()  # type: ignore[operator]

    def begin(
        self, start: list[float], columns: NDArray[np.float32] | None, gains: Sequence[float] = ()
    ) -> None:
        """Sets the first answer to the base rate, and learns the scale of each number from training rows.

        `gains` are what trees gained by each column, as parts of all; without them all columns are as loud.
        """
        assert columns is not None
        some = np.unique(np.linspace(0, len(columns) - 1, _MOST_ROWS).astype(np.int64))
        knots, middle, spread = (
            np.zeros_like(buffer.numpy()) for buffer in (self.knots, self.middle, self.spread)
        )
        for place, column in enumerate(self.number.tolist()):
            values = columns[some, column]
            values = values[np.isfinite(values)]
            if len(values):
                knots[place] = np.quantile(values, np.linspace(0, 1, _QUANTILES))
                middle[place] = np.median(values)
                spread[place] = np.abs(values - middle[place]).mean()
        with torch.no_grad():
            self.bias.copy_(torch.tensor(start).expand_as(self.bias))
            for buffer, learned in ((self.knots, knots), (self.middle, middle), (self.spread, spread)):
                buffer.copy_(torch.from_numpy(learned))
            self.spread[self.spread <= 0] = 1.0
            if any(gains):
                gained = torch.tensor(gains, dtype=torch.float32)
                loudness = gained.clamp(min=float(gained[gained > 0].min()) / 2).sqrt()[self.view_columns]
                self.loudness.copy_(loudness / loudness.square().mean().sqrt())

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        """Loads weights; in those of before there was loudness, all columns are as loud."""
        state_dict.setdefault(f"{prefix}loudness", torch.ones_like(self.loudness))
        super()._load_from_state_dict(state_dict, prefix, *args)


def _of_members(linear: nn.Linear, member: Tensor, parts: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Returns linear(x * m) for each of k lines m of a (k, inputs) member, as (W * m) x: (b, k, outputs).

    x comes in parts, each with the places of its inputs; others are zero. One without gradient spares a third of the
    work.
    """
    made: Tensor = linear.bias
    for part, place in parts:
        weight = linear.weight.T.index_select(0, place)  # (inputs, outputs)
        lines = member.index_select(1, place)[..., None]
        made = made + torch.stack([part @ (weight * line) for line in lines], 1)
    return made


def _true_places(is_true: Tensor) -> Tensor:
    """Returns the places of what is true; all of them where tensors have no content."""
    if is_true.is_meta:
        return torch.arange(len(is_true), device=is_true.device)
    return is_true.nonzero()[:, 0]


def _places(knots: Tensor, values: Tensor) -> Tensor:
    """Returns where (b, F) values stand among the (F, Q) quantiles of training, from 0 to 1; ties in their middle."""
    turned = values.T.contiguous()
    left, right = (torch.searchsorted(knots, turned, right=is_right) for is_right in (False, True))
    low, high = (left - 1).clamp(min=0), left.clamp(max=knots.shape[1] - 1)
    below, above = knots.gather(1, low), knots.gather(1, high)
    part = ((turned - below) / (above - below).clamp(min=1e-12)).clamp(0, 1)
    place = torch.where(right > left, (left + right - 1) / 2, low + part * (high > low))
    return (place / (knots.shape[1] - 1)).T


def _normal(place: Tensor) -> Tensor:
    """Returns the normal quantile of places from 0 to 1, none further out than the first and the last knot."""
    edge = 0.5 / _QUANTILES
    return math.sqrt(2) * torch.erfinv(2 * place.clamp(edge, 1 - edge) - 1)
