"""Terms, records and hostile weights for tests of the exact stack."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.client.training.layers import value_bits
from confide.protocol.architectures.base import Weights
from confide.protocol.methods.training.terms import TrainingTerms
from tests.support.networks.stacks import first_weights, layered, split, stack_terms, widths_of

Array = NDArray[Any]

TERMS = stack_terms(48, 24, 7, noise_multiplier=1.0, sampling_rate=0.5)
SMALL = replace(TERMS, **layered(5, 4, 3))
STRANGE = (0.0, -1.0, 1e300, np.inf, -np.inf, np.nan, 5e-324, 1e-310, 2.0**-30, 1.0 - 2.0**-53)


def people(n: int, width: int, labels: int, seed: int = 0) -> tuple[Array, Array]:
    """Records of all sorts: some with features far outside their bounds, subnormal or no number,
    some with unknown labels."""
    rng = np.random.default_rng(seed)
    features = rng.random((n, width))
    odd = rng.random((n, width)) < 0.1
    features[odd] = rng.choice(STRANGE, odd.sum())
    return features, rng.integers(-2, labels + 2, n)


def cancelling(terms: TrainingTerms, record: Array, seed: int) -> Weights:
    """Weights whose first pre-activations cancel on a record, and whose others tell the last bit of
    it from 0."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(0, 4, terms.size).astype(np.float32)
    (first, bias), *others = split(terms, weights)
    first[:, -1] = -(first[:, :-1].astype(np.float64) @ record[:-1]) / record[-1]
    bias[:] = 0
    for matrix, _ in others:
        matrix *= np.float32(1e6)
    return weights


def halfway(terms: TrainingTerms, record: Array, seed: int) -> Array:
    """Weights that put a record's first pre-activations halfway between two units of the grid, but
    for the last bit."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=terms.size)
    first, bias = next(split(terms, weights))
    unit = 2.0 ** -(value_bits(widths_of(terms)[1]) - 5)
    seen = np.rint(record * 2.0 ** value_bits(widths_of(terms)[0])) * 2.0 ** -value_bits(
        widths_of(terms)[0]
    )
    bias[:] = (np.arange(len(bias)) + 0.5) * unit - first @ seen
    return weights


def hostile(terms: TrainingTerms, record: Array) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    size = terms.size
    return {
        "first": first_weights(terms),
        "cancelling": cancelling(terms, record, 1),
        "halfway": halfway(terms, record, 1),
        "largest": np.full(size, 3e38, dtype=np.float32),
        "signs": np.where(rng.random(size) < 0.5, -32, 32).astype(np.float32),
        "subnormal": np.full(size, 1e-45, dtype=np.float32),
        "zero": np.zeros(size, dtype=np.float32),
        "all sizes": (rng.normal(size=size) * 10.0 ** rng.uniform(-30, 30, size)).astype(
            np.float32
        ),
    }
