"""Terms, first weights and sums of stacks of linear layers, by their widths."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.client.training.layers import Stack, by_layer
from confide.client.training.local_round import Trainer
from confide.protocol.architectures.base import Weights, scaled
from confide.protocol.exact.sampling import Entropy
from confide.protocol.methods.training.network_terms import described
from confide.protocol.methods.training.terms import TrainingTerms


def layered(*widths: int) -> dict[str, Any]:
    """The fields of terms that describe linear layers of these widths, with ReLU between them."""
    features, *hidden, outputs = widths
    name = f"mlp hidden={','.join(map(str, hidden))}" if hidden else "linear"
    return described(name, features=features, outputs=outputs)


def stack_terms(*widths: int, rounds: int = 1, **changes: Any) -> TrainingTerms:
    """The terms of a training of linear layers, of one step in a round."""
    usual: dict[str, Any] = {"noise_multiplier": 10.0, "sampling_rate": 0.1}
    return TrainingTerms(
        epsilon=40.0,
        privacy_delta=1e-5,
        **layered(*widths),
        rounds=rounds,
        local_steps=1,
        clip=1.0,
        batch=10.0,
        learning_rate=1.0,
        **usual | changes,
    )


def widths_of(terms: TrainingTerms) -> tuple[int, ...]:
    widths = terms.network().widths
    assert widths is not None
    return widths


def first_weights(terms: TrainingTerms) -> Weights:
    return terms.network().first_weights()


def split(
    terms: TrainingTerms, weights: NDArray[Any]
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    return by_layer(widths_of(terms), weights)


def stack_at(terms: TrainingTerms, weights: NDArray[Any]) -> Stack:
    return Stack(widths_of(terms), weights, clip=terms.clip, centre=terms.centre)


def predict(
    terms: TrainingTerms, weights: NDArray[Any], features: NDArray[Any]
) -> NDArray[np.float64]:
    """Class probabilities in plain float64."""
    values = scaled(features, terms.centre)
    layers = list(split(terms, weights))
    for place, (matrix, bias) in enumerate(layers):
        values = values @ matrix.T.astype(np.float64) + bias
        if place < len(layers) - 1:
            values = np.maximum(values, 0)
    odds = np.exp(values - values.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def learn(
    terms: TrainingTerms,
    weights: Weights,
    features: NDArray[Any],
    labels: NDArray[Any],
    *,
    entropy: Entropy,
) -> Weights:
    return Trainer(terms).learn(weights, features, labels, entropy=entropy)
