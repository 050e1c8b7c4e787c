"""The embedded data set for simulations: Letter Recognition and a small model.

The data set has 20,000 records and 26 labels. The model is linear discriminant analysis of the
first 4,000 records, fitted at run time in closed form: the provider's own records are used for it
and for nothing else. The other 16,000 records are for calibration and testing.
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]

PROVIDER_RECORDS = 4_000


@cache
def predictions() -> tuple[Floats, Array]:
    """Return probabilities and labels of the 16,000 records that the provider does not own."""
    features, labels = letters()
    own, others = slice(None, PROVIDER_RECORDS), slice(PROVIDER_RECORDS, None)
    return discriminant(features[own], labels[own], features[others]), labels[others]


def owned() -> tuple[Floats, Array]:
    """Return features and labels of the records that the provider does not own.

    They are in the order of `predictions`.
    """
    features, labels = letters()
    return features[PROVIDER_RECORDS:], labels[PROVIDER_RECORDS:]


@cache
def letters() -> tuple[Floats, Array]:
    """Return the features, in [0, 1], and the labels of all records."""
    lines = files("confide.protocol").joinpath("data/letter.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    features = np.array([[int(digit, 16) for digit in record[1:]] for record in records]) / 15
    return features, np.array([ord(record[0]) - ord("A") for record in records])


@cache
def embedded_model() -> bytes:
    """Return the embedded model as an ONNX file, for an aggregator that scores."""
    from confide.protocol.architectures.export import to_onnx
    from confide.protocol.architectures.stacks import Linear

    features, labels = letters()
    own = slice(None, PROVIDER_RECORDS)
    slopes, offsets = _coefficients(features[own], labels[own])
    # The file has features from -1 to 1.
    matrix, bias = slopes.T / 2, offsets + slopes.sum(axis=0) / 2
    network = Linear.of({}, features=features.shape[1], outputs=len(bias))
    weights = np.concatenate([matrix.reshape(-1), bias]).astype(np.float32)
    return to_onnx(network, weights, centre=0.5)


def discriminant(features: Floats, labels: Array, unseen: Floats) -> Floats:
    """Return class probabilities under Gaussian classes that share one covariance."""
    slopes, offsets = _coefficients(features, labels)
    logits = unseen @ slopes + offsets
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _coefficients(features: Floats, labels: Array) -> tuple[Floats, Floats]:
    """Return the slopes and the offsets of linear discriminant analysis."""
    means = np.array([features[labels == label].mean(axis=0) for label in range(labels.max() + 1)])
    within = features - means[labels]
    slopes = np.linalg.solve(within.T @ within / len(features), means.T)
    offsets = np.log(np.bincount(labels) / len(labels)) - 0.5 * np.sum(means.T * slopes, axis=0)
    return slopes, offsets
