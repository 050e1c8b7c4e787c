"""Randomness of training: which records join a step, and the bytes of training in process.

Training in process draws from a secret key and the step's number. The key comes from the operating
system (or from a seed, in simulations) and is kept in the owner's checkpoint until training is
over. A step that is repeated after a crash draws the same records and the same noise, so it reveals
nothing new.
"""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from confide.protocol.exact.sampling import Entropy, bernoulli, words

KEY_BYTES = 32
# Steps count from 0; the largest number is the one of the order of the records.
_ORDER = (1 << 64) - 1


def stream(key: bytes, step: int) -> Entropy:
    """The bytes of one step: ChaCha20 under the key, with the step as nonce."""
    cipher = Cipher(
        algorithms.ChaCha20(key, bytes(8) + step.to_bytes(8, "little")), mode=None
    ).encryptor()
    return lambda size: cipher.update(bytes(size))


def random_order(key: bytes, n: int) -> NDArray[np.int64]:
    """A uniformly random order of n records.

    After it training cannot depend on the order of the file, not even by rounding.
    """
    return np.argsort(words(n, 64, stream(key, _ORDER)), kind="stable")


def poisson_batch(n: int, sampling_rate: float, entropy: Entropy) -> NDArray[np.int64]:
    """Each of n records independently, with probability `sampling_rate` rounded down to 32 bits."""
    return np.flatnonzero(bernoulli(int(sampling_rate * 2**32), n, entropy, bits=32))
