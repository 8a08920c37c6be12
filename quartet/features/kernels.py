"""Texts taken apart into words and groups of letters, counted by their hashes: the loops of the embedder.

A word is a run of letters and digits; every byte beyond ASCII counts as part of a letter. Of each word, with a mark
before and after it, all groups of 3 to 5 letters count, and the word itself. Everything that happens to a text depends
on that text alone, in an order of its own, so that its vector is the same to the last bit in whatever company.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quartet.machine import compiled, part

_SHORTEST, _LONGEST = 3, 5
_START = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)
_MARK = np.uint64(0x20)
_MOST_SWEEPS, _ROUNDING = 50, 1e-15
_WHOLE = np.uint64(0x57)  # begins the hash of a whole word, so that it is not that of a group


@part
def _is_letter(byte: Any) -> Any:
    return byte >= 0x80 or 0x61 <= byte <= 0x7A or 0x30 <= byte <= 0x39


@part
def _bucket(state: Any, bits: Any) -> Any:
    state = (state ^ (state >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return np.int64(state >> np.uint64(64 - bits))


@part
def _count(bucket: Any, counts: Any, touched: Any, size: Any) -> Any:
    if counts[bucket] == 0:
        touched[size] = bucket
        size += 1
    counts[bucket] += 1
    return size


@part
def _count_groups(letters: Any, begin: Any, end: Any, bits: Any, counts: Any, touched: Any) -> Any:
    """Returns how many buckets a text touches; `touched` lists them, `counts` says how often (to be cleared)."""
    size, place = 0, begin
    while place < end:
        if not _is_letter(letters[place]):
            place += 1
            continue
        stop = place
        whole = (_START ^ _WHOLE) * _PRIME
        while stop < end and _is_letter(letters[stop]):
            whole = (whole ^ np.uint64(letters[stop])) * _PRIME
            stop += 1
        size = _count(_bucket(whole, bits), counts, touched, size)
        size = _count_word(letters, place, stop, bits, counts, touched, size)
        place = stop
    return size


@part
def _count_word(letters: Any, begin: Any, stop: Any, bits: Any, counts: Any, touched: Any, size: Any) -> Any:
    """Groups start at the mark before the word or at a letter, and may end with the mark behind it."""
    for start in range(begin - 1, stop):
        if start >= begin and (letters[start] & 0xC0) == 0x80:
            continue  # inside a letter of several bytes
        state, length, place = _START, 0, start
        while length < _LONGEST and place <= stop:
            byte = _MARK if place < begin or place == stop else np.uint64(letters[place])
            state = (state ^ byte) * _PRIME
            place += 1
            if place < stop and place > begin and (letters[place] & 0xC0) == 0x80:
                continue
            length += 1
            if length >= _SHORTEST:
                size = _count(_bucket(state, bits), counts, touched, size)
    return size


@compiled
def count_documents(starts: Any, letters: Any, bits: Any) -> Any:
    """Returns in how many texts each bucket occurs."""
    documents = np.zeros(1 << bits, dtype=np.int64)
    counts = np.zeros(1 << bits, dtype=np.int32)
    touched = np.empty(1 << bits, dtype=np.int32)
    for text in range(len(starts) - 1):
        size = _count_groups(letters, starts[text], starts[text + 1], bits, counts, touched)
        for number in range(size):
            documents[touched[number]] += 1
            counts[touched[number]] = 0
    return documents


@compiled
def sparse_rows(starts: Any, letters: Any, bits: Any, column: Any, rarity: Any) -> Any:
    """Returns the weights of each text, a row of length 1, as a sparse matrix (indptr, columns, weights)."""
    counts, touched = np.zeros(1 << bits, dtype=np.int32), np.empty(1 << bits, dtype=np.int32)
    weight = np.empty(len(rarity))
    most = 5 * (starts[-1] - starts[0]) + 4 * len(starts)
    indptr = np.zeros(len(starts), dtype=np.int64)
    columns, weights = np.empty(most, dtype=np.int32), np.empty(most, dtype=np.float32)
    for text in range(len(starts) - 1):
        size = _count_groups(letters, starts[text], starts[text + 1], bits, counts, touched)
        begin, end, total = indptr[text], 0, 0.0
        for number in range(size):
            bucket = touched[number]
            place = column[bucket]
            if place >= 0:
                often = 1.0 if counts[bucket] == 1 else 1.0 + np.log(counts[bucket])
                columns[begin + end], weight[end] = place, often * rarity[place]
                total += weight[end] * weight[end]
                end += 1
            counts[bucket] = 0
        length = np.sqrt(total)
        for number in range(end):
            weights[begin + number] = weight[number] / length
        indptr[text + 1] = begin + end
    return indptr, columns[: indptr[-1]], weights[: indptr[-1]]


@compiled
def times_dense(indptr: Any, columns: Any, weights: Any, dense: Any) -> Any:
    """Returns the sparse rows times a dense matrix."""
    width = dense.shape[1]
    product = np.zeros((len(indptr) - 1, width), dtype=np.float32)
    for row in range(len(product)):
        total = product[row]
        for entry in range(indptr[row], indptr[row + 1]):
            weight, vector = weights[entry], dense[columns[entry]]
            for place in range(width):
                total[place] += weight * vector[place]
    return product


@compiled
def transposed_times_dense(indptr: Any, columns: Any, weights: Any, dense: Any, num_columns: Any) -> Any:
    """Returns the sparse rows, read as columns, times a dense matrix."""
    width = dense.shape[1]
    product = np.zeros((num_columns, width), dtype=np.float32)
    for row in range(len(dense)):
        vector = dense[row]
        for entry in range(indptr[row], indptr[row + 1]):
            weight, total = weights[entry], product[columns[entry]]
            for place in range(width):
                total[place] += weight * vector[place]
    return product


@compiled
def eigen(symmetric: Any) -> Any:
    """Returns the eigenvalues of a small symmetric matrix and, in columns, its eigenvectors, by Jacobi's rotations.

    LAPACK is no slower, until other programs hold the cores on which its threads wait for each other.
    """
    matrix, vectors = symmetric.copy(), np.eye(len(symmetric))
    nothing = _ROUNDING * np.trace(symmetric)
    for _ in range(_MOST_SWEEPS):
        is_done = True
        for one in range(len(matrix) - 1):
            for other in range(one + 1, len(matrix)):
                shared = matrix[one, other]
                if abs(shared) <= nothing:
                    continue
                is_done = False
                slope = (matrix[other, other] - matrix[one, one]) / (2.0 * shared)
                tangent = (1.0 if slope >= 0 else -1.0) / (abs(slope) + np.sqrt(slope * slope + 1.0))
                cosine = 1.0 / np.sqrt(tangent * tangent + 1.0)
                _rotate(matrix, one, other, cosine, tangent * cosine)
                _rotate(matrix.T, one, other, cosine, tangent * cosine)
                _rotate(vectors, one, other, cosine, tangent * cosine)
        if is_done:
            break
    return np.diag(matrix), vectors


@part
def _rotate(matrix: Any, one: Any, other: Any, cosine: Any, sine: Any) -> Any:
    """Turns two columns in their plane."""
    for row in range(len(matrix)):
        left, right = matrix[row, one], matrix[row, other]
        matrix[row, one] = cosine * left - sine * right
        matrix[row, other] = sine * left + cosine * right
