"""Accuracy of the embedded network under exact and floating-point noise: for `training.py`."""

import argparse
import statistics
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from benchmarks.training.federated_training import accuracy as trained_accuracy
from benchmarks.training.federated_training import learn, with_noise
from confide.protocol.exact.lattice import sensitivity
from confide.protocol.exact.sampling import Entropy, words
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.privacy.losses import SampledGaussian
from confide.protocol.privacy.profiles import Profile
from confide.protocol.privacy.renyi import training_epsilon
from confide.protocol.simulated.embedded import owned
from confide.protocol.simulated.records import EMBEDDED_RECORDS

Row = dict[str, Any]
OWNERS = 10


def embedded_terms() -> tuple[TrainingTerms, float]:
    """The terms of the run configuration, and its delta."""
    file = Path(__file__).parents[2] / "pyproject.toml"
    config = tomllib.loads(file.read_text())["tool"]["flwr"]["app"]["config"]
    expected = {"expected": EMBEDDED_RECORDS, "owners": OWNERS}
    terms = TrainingTerms.from_settings("federated-averaging", config | expected)
    return terms, terms.privacy_delta


def float_noise(terms: TrainingTerms, entropy: Entropy) -> NDArray[np.float64]:
    uniform = ((words(terms.size, 64, entropy) >> np.uint64(11)) + 0.5) * 2.0**-53
    return np.asarray(terms.noise_multiplier * sensitivity(terms.size) * ndtri(uniform))


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
            name: [
                trained_accuracy(
                    terms,
                    owned(),
                    records=EMBEDDED_RECORDS,
                    owners=OWNERS,
                    seed=seed,
                    learns=learns,
                )
                for seed in range(arguments.seeds)
            ]
            for name, learns in {"exact": learn, "floating point": with_noise(float_noise)}.items()
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
