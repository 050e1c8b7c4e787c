"""The records that answer a query, as a method sees them."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from confide.protocol.exact.sampling import Entropy
from confide.protocol.wire.columns import Array


class Subjects(Protocol):
    """The records that answer a query, as their owner shows them to the method."""

    @property
    def entropy(self) -> Entropy: ...
    def __len__(self) -> int: ...
    @property
    def labels(self) -> Array:
        """The true labels, including labels that are not in the plan."""

    @property
    def positions(self) -> NDArray[np.float64]:
        """The positions of the records in [0, 1)."""

    def scores(self) -> Array:
        """Return the scores of the true labels; a label that is not in the plan scores 1."""

    def probabilities(self) -> Array:
        """Return the model's probabilities of every label."""

    def features(self) -> Array:
        """Return the features as finite float32, a row per record."""

    def public(self, column: str) -> NDArray[np.str_]:
        """Return the values of a column that the owner lets out in clear, as plans name them."""

    def train(self, weights: Array) -> Array:
        """Return the weights after this owner's private steps."""

    def noised_errors(self, weights: Array) -> int:
        """Return the noised number of records that a network of these weights predicts wrongly."""
