"""Canaries for the engines of training, and the noisy sums of a step to audit.

The network is one linear layer with two labels and weights of 0, so a record's signal is (-1/2,
1/2) under its first label and the opposite under its second: the two canaries have opposite
gradients, as far apart as clipping allows. The records beside them come in pairs that cancel, so
the auditor knows their sum.
"""

from fractions import Fraction

import numpy as np

from confide.client.training.layers import Stack
from confide.protocol.exact.gaussian import discrete_gaussian
from confide.protocol.exact.lattice import sensitivity
from confide.protocol.exact.sampling import Entropy
from confide.protocol.methods.training.network_terms import described
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.privacy.renyi import training_noise
from confide.simulation.attackers.estimator import Array, Canaries, Release

DELTA = 1e-5
FEATURES, PAIRS = 6, 4


def claimed_terms(epsilon: float, *, steps: int = 1) -> TrainingTerms:
    """Steps on all records with the least noise that this epsilon allows.

    The learning rate is so small that weights of 0 stay where gradients do not change.
    """
    return TrainingTerms(
        epsilon=epsilon,
        privacy_delta=DELTA,
        **described("linear", features=FEATURES, outputs=2),
        noise_multiplier=training_noise(
            epsilon=epsilon, delta=DELTA, sampling_rate=1.0, steps=steps
        ),
        sampling_rate=1.0,
        rounds=1,
        local_steps=steps,
        clip=1.0,
        batch=1000.0,
        learning_rate=1e-4,
    )


def canaries() -> Canaries:
    """Two labels of one record, among pairs of records that cancel."""
    features = np.ones((1 + 2 * PAIRS, FEATURES))
    features[1:] = np.repeat(np.random.default_rng(1).random((PAIRS, FEATURES)), 2, axis=0)
    labels = np.concatenate([[0], np.tile([0, 1], PAIRS)])
    gradient = np.outer([-0.5, 0.5], np.ones(FEATURES)).ravel()
    gradient = np.concatenate([gradient, [-0.5, 0.5]])
    return Canaries(
        (features, labels),
        (features, np.concatenate([[1], labels[1:]])),
        gradient / np.linalg.norm(gradient),
    )


def noisy_step(
    terms: TrainingTerms, sums: Release, entropy: Entropy, *, noise: float = 1.0
) -> Release:
    """A step's noisy integer sum; `noise` is the part of the stated noise that is drawn."""
    variance = (Fraction(terms.noise_multiplier * noise) * sensitivity(terms.size)) ** 2

    def release(features: Array, labels: Array) -> Array:
        return sums(features, labels) + discrete_gaussian(variance, terms.size, entropy)

    return release


def closed_form(terms: TrainingTerms) -> Release:
    """The clipped integer sums of the exact stack, at weights of 0."""
    widths = terms.network().widths
    assert widths is not None
    return Stack(widths, np.zeros(terms.size), clip=terms.clip, centre=terms.centre).clipped_sum
