"""An owner's part in federated training: its steps of DP-SGD from the weights it is sent.

Everything an answer tells of records is in integers: sums of clipped gradients on the lattice (`protocol.lattice`) plus exact
discrete Gaussian noise. The update is a function of these integers and public numbers (`moved`), so the last bit of a weight
tells no more than the first. Gradients come from `client.stack`, where a record's own gradient does not depend on the others.
"""

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client.chance import poisson_batch
from client.stack import Stack, bounded
from protocol.errors import BadInput
from protocol.gaussian import discrete_gaussian
from protocol.lattice import CLIP_UNITS, MOST_BATCH, sensitivity
from protocol.sampling import Entropy
from protocol.training import Terms, Weights


def learn(terms: Terms, weights: Weights, features: NDArray[Any], labels: NDArray[Any], *, entropy: Entropy) -> Weights:
    """The weights after one round's steps. `entropy` must be fresh: two answers with the same noise tell their difference.

    All records can join a step, whatever they hold: the number of records is public (replace-one), their content is not.
    """
    if len(features) > MOST_BATCH:
        raise BadInput(f"there are {len(features)} records to train on; accepted are at most {MOST_BATCH}")
    variance = (Fraction(terms.noise_multiplier) * sensitivity(terms.size)) ** 2
    current = bounded(weights)
    for _ in range(terms.local_steps):
        rows = poisson_batch(len(features), terms.sampling_rate, entropy)
        noise = discrete_gaussian(variance, terms.size, entropy)
        current = moved(terms, current, Stack(terms, current).clipped_sum(features[rows], labels[rows]) + noise)
    return current.astype(np.float32)


def moved(terms: Terms, weights: NDArray[np.float64], noisy: NDArray[np.int64]) -> NDArray[np.float64]:
    """The weights after a step whose noisy sum is given in lattice units. Finite: at most 1e3 1e6 (2^20 + noise) is added."""
    return bounded(weights - terms.learning_rate * terms.clip / terms.batch / CLIP_UNITS * noisy)
