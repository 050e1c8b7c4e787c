"""Accuracy of the embedded network under exact and floating-point noise: for `training.py`."""

import argparse
import statistics
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from confide.aggregator.procedures.averaging import federated_averaging
from confide.client.training.layers import Stack, bounded
from confide.client.training.local_round import learn, moved
from confide.client.training.randomness import poisson_batch
from confide.protocol.embedded import deal, owned
from confide.protocol.exact.lattice import sensitivity
from confide.protocol.exact.sampling import Entropy, SeededEntropy, words
from confide.protocol.methods.training import TrainingTally, TrainingTerms, Weights, predict
from confide.protocol.privacy.losses import SampledGaussian
from confide.protocol.privacy.profiles import Profile
from confide.protocol.privacy.renyi import training_epsilon

Row = dict[str, Any]


def embedded_terms() -> tuple[TrainingTerms, float]:
    """The terms of the run configuration, and its delta."""
    file = Path(__file__).parent.parent / "pyproject.toml"
    config = tomllib.loads(file.read_text())["tool"]["flwr"]["app"]["config"]
    terms = TrainingTerms.from_settings("federated-averaging", config)
    return terms, terms.privacy_delta


def float_noise(terms: TrainingTerms, entropy: Entropy) -> NDArray[np.float64]:
    uniform = ((words(terms.size, 64, entropy) >> np.uint64(11)) + 0.5) * 2.0**-53
    return np.asarray(terms.noise_multiplier * sensitivity(terms.size) * ndtri(uniform))


def float_learn(
    terms: TrainingTerms,
    weights: Weights,
    features: NDArray[Any],
    labels: NDArray[Any],
    *,
    entropy: Entropy,
) -> Weights:
    """What `learn` does, with noise in floating point."""
    current = bounded(weights)
    for _ in range(terms.local_steps):
        rows = poisson_batch(len(features), terms.sampling_rate, entropy)
        noisy: Any = Stack(terms, current).clipped_sum(features[rows], labels[rows]) + float_noise(
            terms, entropy
        )
        current = moved(terms, current, noisy)
    return current.astype(np.float32)


def trained_accuracy(
    terms: TrainingTerms, learns: Callable[..., Weights], name: str, seed: int
) -> float:
    """How often a model that ten owners trained is right on the letters that nobody was dealt."""
    features, labels = owned()
    shares, rest = deal(labels, owners=10, records=10_000, seed=seed)
    entropies = [SeededEntropy(name, seed, owner) for owner in range(10)]
    procedure, tally = federated_averaging(terms), None
    while True:
        try:
            start = procedure.send(tally).weights  # type: ignore[arg-type]
        except StopIteration as finished:
            return float(
                np.mean(
                    predict(terms, finished.value.weights, features[rest]).argmax(axis=1)
                    == labels[rest]
                )
            )
        tally = TrainingTally(
            [
                learns(terms, start, features[share], labels[share], entropy=entropy)
                for share, entropy in zip(shares, entropies, strict=True)
            ]
        )


def accuracy(arguments: argparse.Namespace) -> list[Row]:
    planned, delta = embedded_terms()
    rows = []
    for multiplier in (*arguments.noise, planned.noise_multiplier):
        rate, steps = planned.sampling_rate, planned.rounds * planned.local_steps
        cost = training_epsilon(
            noise_multiplier=multiplier, sampling_rate=rate, steps=steps, delta=delta
        )
        terms = replace(planned, noise_multiplier=multiplier, epsilon=cost)
        spent = SampledGaussian(multiplier, rate, steps)
        found = {
            name: [trained_accuracy(terms, learns, name, seed) for seed in range(arguments.seeds)]
            for name, learns in {"exact": learn, "floating point": float_learn}.items()
        }
        differences = np.subtract(found["exact"], found["floating point"])
        rows.append(
            {
                "noise multiplier": multiplier,
                **{name: statistics.mean(values) for name, values in found.items()},
                "difference": float(differences.mean()),
                "standard error": float(differences.std() / arguments.seeds**0.5),
                "epsilon, replace-one (RDP)": cost,
                "epsilon, add-remove (PLD)": Profile().then(spent).epsilon(delta),
            }
        )
    return rows
