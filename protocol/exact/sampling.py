"""Exact sampling from integers of entropy: no floating-point number decides a probability here.

A source of entropy is a callable `entropy(size) -> bytes`. `os_entropy` is the operating system's;
`SeededEntropy` is for simulations and says so on everything it touches through
`randomness(entropy)`.
"""

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from confide.protocol.errors import BadInput

Entropy = Callable[[int], bytes]
Integers = NDArray[np.int64]

OPERATING_SYSTEM = "operating system"
SEEDED = "seeded (simulation only)"

WORDS: dict[int, np.dtype[Any]] = {16: np.dtype("<u2"), 32: np.dtype("<u4"), 64: np.dtype("<u8")}


os_entropy: Entropy = os.urandom


class SeededEntropy:
    """A repeatable stream for simulations and tests: ChaCha20 under a key hashed from the seed."""

    def __init__(self, *seed: int | str) -> None:
        key = hashlib.sha256(repr(seed).encode()).digest()
        self._stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()

    def __call__(self, size: int) -> bytes:
        return self._stream.update(bytes(size))


def randomness(entropy: Entropy) -> str:
    """The stamp that reports and certificates carry about their source of randomness."""
    return OPERATING_SYSTEM if entropy is os_entropy else SEEDED


def words(count: int, bits: int, entropy: Entropy) -> NDArray[Any]:
    """`count` uniform words of 16, 32 or 64 bits."""
    dtype = WORDS[bits]
    return np.frombuffer(entropy(count * dtype.itemsize), dtype=dtype)


def in_chunks(work: Callable[[slice], None], count: int, *, size: int, entropy: Entropy) -> None:
    """Call `work` on slices of at most `size` rows that cover `count`.

    The operating system's source may be read from several threads at once (it and numpy let go of
    the interpreter's lock); any other source is read in order, so that a seed means one result.
    """
    parts = [slice(start, min(start + size, count)) for start in range(0, count, size)]
    if entropy is os_entropy and len(parts) > 1:
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            list(pool.map(work, parts))
    else:
        for part in parts:
            work(part)


def words_below(limit: int, count: int, entropy: Entropy, *, bits: int) -> NDArray[Any]:
    """`count` uniform words in [0, limit).

    A word at or above the limit is drawn again, so no value is favoured.
    """
    drawn = words(count, bits, entropy)
    if limit == 1 << bits:
        return drawn
    high = np.flatnonzero(drawn >= limit)
    if high.size:
        drawn = drawn.copy()
    while high.size:
        drawn[high] = words(high.size, bits, entropy)
        high = high[drawn[high] >= limit]
    return drawn


def uniform(m: int, count: int, entropy: Entropy) -> Integers:
    """`count` exact uniform integers in [0, m), by rejection.

    A bare modulo would favour small values.
    """
    if not 1 <= m <= 1 << 62:
        raise BadInput(f"uniform choice among {m}; between 1 and 2^62 values are possible")
    bits = 16 if m <= 1 << 12 else 32 if m <= 1 << 28 else 64
    drawn = words_below((1 << bits) // m * m, count, entropy, bits=bits)
    return (drawn % WORDS[bits].type(m)).astype(np.int64)


def bernoulli(numerator: int, count: int, entropy: Entropy, *, bits: int = 64) -> NDArray[np.bool_]:
    """`count` exact draws that are true with probability `numerator / 2**bits`."""
    if not 0 <= numerator <= 1 << bits:
        raise BadInput(f"Bernoulli numerator {numerator} is outside 0..2^{bits}")
    if numerator == 1 << bits:
        return np.ones(count, dtype=np.bool_)
    return words(count, bits, entropy) < WORDS[bits].type(numerator)
