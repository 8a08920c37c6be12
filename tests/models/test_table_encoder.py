"""The table encoder against PyTorch Frame's ResNet with the same weights, and what it does with absent cells."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from quartet.config import ModelConfig
from quartet.features import TableLayout
from quartet.features.arrays import MISSING, NO_DATE
from quartet.models.layers.table_encoder import TableEncoder
from quartet.tokens import TableRows

ROWS, WIDTH, OUT = 9, 8, 16
CONFIG = ModelConfig(width=OUT, encoder_width=WIDTH, encoder_layers=3, encoder_dropout=0.0)
LAYOUT = TableLayout(
    "items",  # a name that breaks modules which are named after tables
    numbers=("forward", "b"),
    categories=("c", "d", "e"),
    category_sizes=(6, 3, 4),
    multicategories=("f",),
    multicategory_sizes=(7,),
    times=("g", "h"),
    texts=("i", "j"),
    text_sizes=(5, 3),
)


def random_rows(rng: np.random.Generator) -> TableRows:
    """Rows with every kind of cell; some numbers and categories are absent, no dates are."""
    numbers = rng.normal(size=(ROWS, 2))
    numbers[2, 0] = numbers[5] = np.nan
    codes = np.stack([rng.integers(0, size, ROWS) for size in LAYOUT.category_sizes], 1)
    calendar = np.stack([rng.integers(0, most, (ROWS, 2)) for most in (40, 12, 31, 7, 24, 60, 60)], -1)
    count = rng.integers(1, 4, ROWS)
    start = torch.from_numpy(np.concatenate([[0], np.cumsum(count)[:-1]]))
    return TableRows(
        numbers=torch.from_numpy(numbers),
        categories=torch.from_numpy(codes),
        bags=((start, torch.from_numpy(rng.integers(1, 7, count.sum()))),),
        calendar=torch.from_numpy(calendar),
        texts=tuple(torch.from_numpy(rng.normal(size=(ROWS, size))) for size in LAYOUT.text_sizes),
    )


def encoder() -> TableEncoder:
    torch.manual_seed(0)
    encoder = TableEncoder(LAYOUT, CONFIG).double().eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        encoder.categories.embedding.weight[0] = 0
        encoder.bags[0].weight[0] = 0  # type: ignore[index]
    return encoder


def test_equals_pytorch_frame() -> None:
    frame = pytest.importorskip("torch_frame", reason="pytorch-frame is not installed")
    rows, ours = random_rows(np.random.default_rng(0)), encoder()
    theirs = frame_model(frame, ours).double().eval()
    found, expected = ours(rows), theirs(tensor_frame(frame, rows))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)  # its calendar is in single precision
    assert expected.std(0).min() > 0.01


def frame_model(frame, ours: TableEncoder):  # type: ignore[no-untyped-def]
    """PyTorch Frame's ResNet for the same columns, with our weights."""
    from torch_frame.data.stats import StatType
    from torch_frame.nn import encoder as encoders
    from torch_frame.nn.models import ResNet

    stype = frame.stype
    stats = {name: {StatType.MEAN: 0.0, StatType.STD: 1 - 1e-6} for name in LAYOUT.numbers}
    # A column of ours has one code more than theirs: 0 stands for absent, and is not among its own.
    for name, size in zip(LAYOUT.categories, LAYOUT.category_sizes, strict=True):
        stats[name] = {StatType.COUNT: (list(range(size)), [1] * size)}  # type: ignore[dict-item]
    stats["f"] = {StatType.MULTI_COUNT: (list(range(6)), [1] * 6)}  # type: ignore[dict-item]
    for name in LAYOUT.times:
        stats[name] = {StatType.YEAR_RANGE: [0, 40]}  # type: ignore[dict-item]
    for name, size in zip(LAYOUT.texts, LAYOUT.text_sizes, strict=True):
        stats[name] = {StatType.EMB_DIM: size}  # type: ignore[dict-item]
    model = ResNet(
        channels=WIDTH,
        out_channels=OUT,
        num_layers=3,
        col_stats=stats,
        col_names_dict={kind: list(names) for kind, names in columns(stype).items()},
        stype_encoder_dict={
            stype.numerical: encoders.LinearEncoder(),
            stype.categorical: encoders.EmbeddingEncoder(),
            stype.multicategorical: encoders.MultiCategoricalEmbeddingEncoder(),
            stype.timestamp: encoders.TimestampEncoder(na_strategy=None),
            stype.embedding: encoders.LinearEmbeddingEncoder(),
        },
    )
    copy_weights(model, ours)
    return model


def columns(stype) -> dict:  # type: ignore[no-untyped-def,type-arg]
    """In the order of our encoder, so that the columns lie side by side alike."""
    return {
        stype.numerical: LAYOUT.numbers,
        stype.categorical: LAYOUT.categories,
        stype.multicategorical: LAYOUT.multicategories,
        stype.timestamp: LAYOUT.times,
        stype.embedding: LAYOUT.texts,
    }


@torch.no_grad()
def copy_weights(model, ours: TableEncoder) -> None:  # type: ignore[no-untyped-def]
    numbers, categories, bags, times, texts = model.encoder.encoder_dict.values()
    numbers.weight.copy_(ours.numbers.weight)
    numbers.bias.copy_(ours.numbers.bias)
    categories.emb.weight.copy_(ours.categories.embedding.weight)
    bags.embs[0].weight.copy_(ours.bags[0].weight)  # type: ignore[index]
    times.weight.copy_(ours.calendar.weight.reshape(times.weight.shape))
    times.bias.copy_(ours.calendar.bias)
    for number, text in enumerate(ours.texts):
        texts.weight_list[number].copy_(text.weight.T)  # type: ignore[union-attr]
        texts.biases[number].copy_(text.bias)
    for theirs, block in zip(model.backbone, ours.blocks, strict=True):
        pairs = [(theirs.lin1, 0), (theirs.norm1, 1), (theirs.lin2, 4), (theirs.norm2, 5)]
        for module, place in pairs:
            module.load_state_dict(block.layers[place].state_dict())  # type: ignore[union-attr,index]
        if theirs.shortcut is not None:
            theirs.shortcut.load_state_dict(block.short_cut.state_dict())
    model.decoder.load_state_dict(ours.decode.state_dict())


def tensor_frame(frame, rows: TableRows):  # type: ignore[no-untyped-def]
    from torch_frame.data import MultiEmbeddingTensor, MultiNestedTensor

    stype = frame.stype
    start, code = rows.bags[0]
    ends = torch.cat([start, torch.tensor([len(code)])])
    widths = torch.tensor([0, *np.cumsum(LAYOUT.text_sizes)])
    names = {kind: list(names) for kind, names in columns(stype).items()}
    cells = {
        stype.numerical: rows.numbers,
        # Theirs counts from 0 with -1 for absent; ours from 1 with 0 for absent.
        stype.categorical: rows.categories - 1,
        stype.multicategorical: MultiNestedTensor(ROWS, 1, code - 1, ends),
        stype.timestamp: rows.calendar,
        stype.embedding: MultiEmbeddingTensor(ROWS, 2, torch.cat(rows.texts, 1), widths),
    }
    return frame.TensorFrame(cells, names)


def changed(rows: TableRows, **cells: Tensor) -> TableRows:
    from dataclasses import replace

    return replace(rows, **cells)


def test_an_absent_cell_is_the_zero_vector_whatever_stood_there() -> None:
    ours, rows = encoder(), random_rows(np.random.default_rng(1))
    rows.categories[:, 1] = MISSING
    rows.calendar[:, 0] = NO_DATE
    numbers, dates = (
        torch.einsum("nck,ckw->ncw", encode.inputs(cells), encode.maps)
        for encode, cells in ((ours.numbers, rows.numbers), (ours.calendar, rows.calendar))
    )
    assert numbers[5].eq(0).all()
    assert ours.categories(rows.categories)[:, 1].eq(0).all()
    assert dates[:, 0].eq(0).all()
    assert dates[:, 1].ne(0).any()
    assert ours.texts[0](torch.zeros(1, 5, dtype=torch.float64)).eq(0).all()  # type: ignore[operator]
    assert ours(rows).isfinite().all()


def test_an_empty_bag_is_the_zero_vector() -> None:
    ours = encoder()
    start = torch.tensor([0, 0, 2])  # the first row has none, the second two, the third an absent one
    assert ours.bags[0](torch.tensor([1, 2, 0]), start)[[0, 2]].eq(0).all()  # type: ignore[operator]


def test_a_table_without_columns_has_one_vector() -> None:
    ours = TableEncoder(TableLayout("links"), CONFIG).double()
    nothing = torch.empty(3, 0, dtype=torch.float64)
    rows = TableRows(nothing, nothing.long(), (), torch.empty(3, 0, 7), ())
    found = ours(rows)
    assert found.shape == (3, OUT)
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-12)
    found.sum().backward()
    assert ours.nothing is not None
    assert ours.nothing.grad is not None


def test_no_rows_of_a_table() -> None:
    rows = random_rows(np.random.default_rng(2))
    none = TableRows(
        rows.numbers[:0],
        rows.categories[:0],
        tuple((start[:0], code[:0]) for start, code in rows.bags),
        rows.calendar[:0],
        tuple(text[:0] for text in rows.texts),
    )
    assert encoder()(none).shape == (0, OUT)


def test_an_absent_category_of_one_column_is_not_a_category_of_the_one_before() -> None:
    """Codes of all columns lie in one table: code 0 of the second must not be the last of the first."""
    ours = encoder()
    codes = torch.tensor([[5, 0, 0], [0, 2, 0], [0, 0, 3]])
    vectors = ours.categories(codes)
    assert vectors[0, 0].ne(0).all()
    assert vectors[1, 1].ne(0).all()
    assert vectors[2, 2].ne(0).all()
    assert len({tuple(vectors[i, i].tolist()) for i in range(3)}) == 3
    assert vectors[0, 1:].eq(0).all()
