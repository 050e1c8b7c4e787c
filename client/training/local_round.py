"""An owner's part in federated training: its steps of DP-SGD from the weights it is sent.

Everything an answer says about records is in integers: sums of clipped gradients on the lattice
(`confide.protocol.exact.lattice`) plus exact discrete Gaussian noise. The update is a function of
these integers and public numbers (`moved`), so the last bit of a weight tells no more than the
first. Gradients come from `confide.client.training.networks`, where a record's own gradient does
not depend on the others.
"""

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.client.training.computing import USUAL, Computing
from confide.client.training.layers import bounded
from confide.client.training.networks import count_errors, open_sums
from confide.client.training.randomness import poisson_batch
from confide.protocol.architectures.base import Weights
from confide.protocol.errors import BadInput
from confide.protocol.exact.gaussian import discrete_gaussian
from confide.protocol.exact.lattice import CLIP_UNITS, MOST_BATCH, sensitivity
from confide.protocol.exact.sampling import Entropy
from confide.protocol.methods.training.terms import TrainingTerms


class Trainer:
    """The network of a plan, ready to be trained on this machine.

    Making one reads no record. It is refused with `BadInput` if the network is not installed here
    as the plan names it, or treats records together. A network of another package sees one record
    at a time unless its owner has vetted it.
    """

    def __init__(
        self, terms: TrainingTerms, *, computing: Computing = USUAL, vetted: bool = False
    ) -> None:
        self._terms = terms
        self.sums = open_sums(
            terms.network(),
            clip=terms.clip,
            centre=terms.centre,
            batch=terms.batch,
            computing=computing,
            alone=terms.code is not None and not vetted,
            span=terms.span,
        )

    def learn(
        self,
        weights: Weights,
        features: NDArray[Any],
        labels: NDArray[Any],
        *,
        entropy: Entropy,
    ) -> Weights:
        """The weights after one round's steps.

        `entropy` must be fresh: the difference of two answers with the same noise has no noise. All
        records can join a step, whatever they hold: the number of records is public (replace-one),
        their content is not.
        """
        if len(features) > MOST_BATCH:
            raise BadInput(
                f"there are {len(features)} records to train on; accepted are at most {MOST_BATCH}"
            )
        terms = self._terms
        variance = (Fraction(terms.noise_multiplier) * sensitivity(terms.size)) ** 2
        current = bounded(weights)
        for _ in range(terms.local_steps):
            rows = poisson_batch(len(features), terms.sampling_rate, entropy)
            noise = discrete_gaussian(variance, terms.size, entropy)
            sums = self.sums(current, (features[rows], labels[rows]), entropy)
            current = moved(terms, current, sums + noise)
        return current.astype(np.float32)

    def noised_errors(
        self,
        weights: Weights,
        features: NDArray[Any],
        labels: NDArray[Any],
        *,
        entropy: Entropy,
    ) -> int:
        """How many records a network of these weights predicts wrongly, with the plan's noise.

        Whether a prediction is wrong depends on the record and the weights alone, so replacing a
        record changes the number by at most 1, whatever the weights.
        """
        terms = self._terms
        rows = (features, labels)
        wrong = count_errors(terms.network(), bounded(weights), rows, centre=terms.centre)
        noise = discrete_gaussian(Fraction(terms.loss_noise) ** 2, 1, entropy)[0]
        return wrong + int(noise)


def moved(
    terms: TrainingTerms, weights: NDArray[np.float64], noisy: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The weights after a step whose noisy sum is given in lattice units.

    They stay finite: at most 1e3 1e6 (2^20 + noise) is added.
    """
    return bounded(weights - terms.learning_rate * terms.clip / terms.batch / CLIP_UNITS * noisy)
