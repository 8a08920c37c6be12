"""The table encoder: h_feat of the rows of one table (eq. 16), with the semantics of PyTorch Frame."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quartet.config import ModelConfig
from quartet.features import CALENDAR, TableLayout
from quartet.models.layers.dropout import Dropout
from quartet.tokens import TableRows, TokenBatch

_WAVES = 8  # numbers that stand for one part of a calendar date
_CYCLES = (12, 31, 7, 24, 60, 60)  # values of month, day, weekday, hour, minute and second


class TableEncoder(nn.Module):
    """h_feat of the rows of one table: column encoders by kind, then residual blocks.

    Each column becomes a vector by its kind, absent cells the zero vector; the vectors side by side go through
    residual blocks. A table without columns has one vector for all its rows.
    """

    def __init__(self, layout: TableLayout, config: ModelConfig) -> None:
        super().__init__()
        width = config.encoder_width
        self.numbers = _NumberEncoder(len(layout.numbers), width, config.number_init_std)
        self.categories = _CategoryEncoder(layout.category_sizes, width)
        self.bags = nn.ModuleList(
            nn.EmbeddingBag(size, width, mode="mean", padding_idx=0) for size in layout.multicategory_sizes
        )
        self.calendar = _CalendarEncoder(len(layout.times), width)
        self.texts = nn.ModuleList(_TextEncoder(size, width) for size in layout.text_sizes)
        self.width = width
        kinds = (layout.numbers, (*layout.categories, *layout.multicategories), layout.times, layout.texts)
        self.nothing = None if layout.num_columns else nn.Parameter(torch.randn(1, width) * 0.01)
        self.sizes = [len(columns) for columns in kinds] if layout.num_columns else [0, 1, 0, 0]
        inputs = max(1, layout.num_columns) * width
        self.blocks = nn.Sequential(
            *(
                _ResidualBlock(inputs if layer == 0 else width, width, config.encoder_dropout)
                for layer in range(config.encoder_layers)
            )
        )
        self.decode = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, config.width))

    def forward(self, rows: TableRows) -> Tensor:
        first, *others = self.blocks
        vectors = first.finish(*self._inside(rows, *first.both()).chunk(2, 1))  # type: ignore[operator]
        for block in others:
            vectors = block(vectors)
        return self.decode(vectors)  # (n, D)

    def _inside(self, rows: TableRows, weight: Tensor, bias: Tensor) -> Tensor:
        """Returns what an affine map makes of the columns' vectors side by side: (n, outputs).

        Numbers and dates are maps of few inputs: they go into the weight, and no vectors of their columns are made.
        """
        of_numbers, of_codes, of_times, of_texts = weight.unflatten(1, (-1, self.width)).split(self.sizes, 1)
        made = bias.expand(len(rows), -1)
        for encode, cells, own in (
            (self.numbers, rows.numbers, of_numbers),
            (self.calendar, rows.calendar, of_times),
        ):
            folded = torch.einsum("ckw,ocw->ock", encode.maps, own).flatten(1)
            made = torch.addmm(made, encode.inputs(cells).flatten(1), folded.T)
        vectors = [
            self.categories(rows.categories),
            *(bag(code, start)[:, None] for bag, (start, code) in zip(self.bags, rows.bags, strict=True)),
            *(text(vectors)[:, None] for text, vectors in zip(self.texts, rows.texts, strict=True)),
        ]
        if self.nothing is not None:
            vectors.append(self.nothing.expand(len(rows), 1, -1))
        columns = torch.cat(vectors, 1).flatten(1)  # (n, columns * width)
        return torch.addmm(made, columns, torch.cat([of_codes, of_texts], 1).flatten(1).T)


class _NumberEncoder(nn.Module):
    """An affine map of its own for each column of standardised numbers; an absent one is the zero vector."""

    def __init__(self, columns: int, width: int, std: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, width) * std)
        self.bias = nn.Parameter(torch.zeros(columns, width))

    def inputs(self, numbers: Tensor) -> Tensor:
        return torch.stack(
            [numbers.nan_to_num(), (~numbers.isnan()).to(numbers.dtype)], -1
        )  # (n, columns, 2)

    @property
    def maps(self) -> Tensor:
        """(columns, 2, width), from inputs to a column's vector."""
        return torch.stack([self.weight, self.bias], 1)


class _CategoryEncoder(nn.Module):
    """An embedding for each value of each column: all in one table, every column from its own place on."""

    first: Tensor

    def __init__(self, sizes: tuple[int, ...], width: int) -> None:
        super().__init__()
        # Place 0 is the zero vector of absent cells; the codes of a column start at 1, so each has one spare.
        self.embedding = nn.Embedding(1 + sum(sizes), width, padding_idx=0)
        first = [sum(sizes[:column]) for column in range(len(sizes))]
        self.register_buffer("first", torch.tensor(first, dtype=torch.int64), persistent=False)

    def forward(self, codes: Tensor) -> Tensor:
        return self.embedding(torch.where(codes == 0, 0, codes + self.first))  # (n, columns, width)


class _CalendarEncoder(nn.Module):
    """An affine map for each column of the waves of its calendar parts: the year's sink, the others come round.

    An absent date is the zero vector.
    """

    year_rate: Tensor
    waves: Tensor
    first: Tensor

    def __init__(self, columns: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, len(CALENDAR) * _WAVES, width) * 0.01)
        self.bias = nn.Parameter(torch.zeros(columns, width))
        rates = 1e-4 ** (torch.arange(0, _WAVES, 2) / _WAVES)
        self.register_buffer("year_rate", rates, persistent=False)
        multiple = torch.arange(1, _WAVES // 2 + 1)
        phase = torch.cat([torch.arange(cycle)[:, None] / cycle * multiple for cycle in _CYCLES])
        waves = torch.cat([(phase * math.pi).sin(), (phase * 2 * math.pi).cos()], -1)
        self.register_buffer("waves", waves, persistent=False)  # of each value of each part but the year
        first = [sum(_CYCLES[:part]) for part in range(len(_CYCLES))]
        self.register_buffer("first", torch.tensor(first), persistent=False)

    def inputs(self, calendar: Tensor) -> Tensor:
        is_there = (calendar[..., :1] >= 0).to(self.weight.dtype)  # (n, columns, 1)
        parts = calendar.clamp(min=0).long()
        year = parts[..., :1].to(self.weight.dtype) * self.year_rate  # (n, columns, waves / 2)
        others = F.embedding(parts[..., 1:] + self.first, self.waves)  # (n, columns, 6, waves)
        waves = torch.cat([year.sin(), year.cos(), others.flatten(2)], -1)  # (n, columns, 7 * waves)
        return torch.cat([waves, torch.ones_like(is_there)], -1) * is_there  # (n, columns, 7 * waves + 1)

    @property
    def maps(self) -> Tensor:
        """(columns, 7 * waves + 1, width), from inputs to a column's vector."""
        return torch.cat([self.weight, self.bias[:, None]], 1)


class _TextEncoder(nn.Linear):
    """A linear map of a text column's vectors; an absent text, whose vector is zero, stays the zero vector."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__(size, width)
        nn.init.normal_(self.weight, std=0.01)
        nn.init.zeros_(self.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        return super().forward(vectors) * vectors.any(1, keepdim=True)


class _ResidualBlock(nn.Module):
    """Two layers of linear, LayerNorm, ReLU and dropout, and a short cut."""

    def __init__(self, inputs: int, width: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(inputs, width), nn.LayerNorm(width), nn.ReLU(), Dropout(dropout)),
            *(nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU(), Dropout(dropout)),
        )
        self.short_cut = nn.Identity() if inputs == width else nn.Linear(inputs, width)

    def forward(self, rows: Tensor) -> Tensor:
        return self.finish(self.layers[0](rows), self.short_cut(rows))

    def finish(self, made: Tensor, short_cut: Tensor) -> Tensor:
        """Returns the block's (n, width) from what its first layer and its short cut have made of rows."""
        return self.layers[1:](made) + short_cut

    def both(self) -> tuple[Tensor, Tensor]:
        """Returns first layer and short cut as one affine map: (2 width, inputs) and (2 width,)."""
        first, short_cut = self.layers[0], self.short_cut
        assert isinstance(first, nn.Linear)
        if isinstance(short_cut, nn.Linear):
            return torch.cat([first.weight, short_cut.weight]), torch.cat([first.bias, short_cut.bias])
        same = torch.eye(first.out_features, dtype=first.weight.dtype, device=first.weight.device)
        return torch.cat([first.weight, same]), torch.cat([first.bias, torch.zeros_like(first.bias)])


class TableEncoders(nn.ModuleList):
    """The encoders of all tables, or none where no branch reads a row's features."""

    def __init__(self, layouts: tuple[TableLayout, ...], config: ModelConfig) -> None:
        super().__init__(TableEncoder(layout, config) for layout in layouts)

    def forward(self, batch: TokenBatch) -> Tensor:
        """Returns h_feat of the batch's distinct rows: (R, D), or (R, 0) without encoders."""
        if not len(self):
            return batch.sketch.new_empty(len(batch.row_type), 0)
        return torch.cat([encode(table) for encode, table in zip(self, batch.tables, strict=True)])
