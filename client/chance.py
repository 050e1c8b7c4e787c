"""The chance in training: which records join a step, and its noise, all of it a function of a secret key and the step.

The key comes from the operating system (or from a seed, in simulations). A step that is taken again after a crash draws the
same records and the same noise, so it tells nothing that it did not tell before.
"""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray
from scipy.special import ndtri

from protocol.sampling import Entropy, bernoulli, words

KEY_BYTES = 32
# Steps count from 0; the last number there is names the order of the records.
_ORDER = (1 << 64) - 1


def stream(key: bytes, step: int) -> Entropy:
    """The bytes of one step: ChaCha20 under the key, with the step as nonce."""
    cipher = Cipher(algorithms.ChaCha20(key, bytes(8) + step.to_bytes(8, "little")), mode=None).encryptor()
    return lambda size: cipher.update(bytes(size))


def random_order(key: bytes, n: int) -> NDArray[np.int64]:
    """A uniformly random order of n records: after it, training cannot depend on the order they came in, roundings included."""
    return np.argsort(words(n, 64, stream(key, _ORDER)), kind="stable")


def poisson_batch(n: int, sampling_rate: float, entropy: Entropy) -> NDArray[np.int64]:
    """Each of n records with probability `sampling_rate` (rounded down to 32 bits), independently."""
    return np.flatnonzero(bernoulli(int(sampling_rate * 2**32), n, entropy, bits=32))


def gaussian(count: int, entropy: Entropy) -> NDArray[np.float64]:
    """Standard normal draws by inversion of 53-bit uniforms: floating-point noise, and labelled so wherever it is used."""
    return np.asarray(ndtri(((words(count, 64, entropy) >> np.uint64(11)) + 0.5) * 2.0**-53))
