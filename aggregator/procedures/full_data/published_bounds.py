"""Bounds on coverage that the papers state under assumptions which no record can confirm.

Each is computed from public numbers and constants that the user vouches for, and names what it
assumes. None of them is a certificate: a rank that a bound asks for is used only where the user
gave its constants.
"""

import math
from dataclasses import dataclass

from confide.aggregator.procedures.full_data.levels import Stability
from confide.protocol.errors import BadInput, check_probability
from confide.protocol.privacy.losses import SampledGaussian


@dataclass(frozen=True)
class ConditionalBound:
    """Coverage between `lower` and `upper` if what is assumed holds.

    With a `failure`, the bound holds for the model at hand except with that probability; without
    one it is marginal.
    """

    source: str
    assumes: str
    lower: float
    upper: float | None = None
    failure: float | None = None


def theorem_12(*, alpha: float, epsilon: float, delta: float, n: int) -> ConditionalBound:
    """Coverage of differential CP from both sides (DPCP Theorem 12).

        1 - alpha - e^epsilon/(n+1)  <=  coverage
            <=  1 - e^(-2 epsilon) alpha + e^-epsilon (delta (1 + e^-epsilon) + 2/(n+1))

    The upper side needs scores without ties. The lower one gives e^epsilon/(n+1) away: the rank
    used here covers 1 - alpha (`confide.simulation.evaluate.full_data.pipelines.differential`).
    """
    check_probability("alpha", alpha)
    less = math.exp(-epsilon)
    upper = 1 - less**2 * alpha + less * (delta * (1 + less) + 2 / (n + 1))
    return ConditionalBound(
        "DPCP Theorem 12",
        "exchangeable records; for the upper side no two scores are equal",
        max(0.0, 1 - alpha - math.exp(epsilon) / (n + 1)),
        min(1.0, upper),
    )


def theorem_15(*, alpha: float, n: int, failure: float) -> ConditionalBound:
    """Coverage of differential CP for the model at hand (DPCP Theorem 15).

    At least 1 - alpha - sqrt(log(2/failure)/(2n)), except with probability `failure`. It takes the
    scores of the training records, given the model, for independent draws of what a new record
    scores: a model that knows its records breaks that, so this is for models that hardly fit them.
    """
    check_probability("alpha", alpha)
    if not 0 < failure <= 0.5:
        raise BadInput(
            f"the failure probability of Theorem 15 is {failure!r}; accepted is above 0 and at "
            "most 0.5"
        )
    return ConditionalBound(
        "DPCP Theorem 15",
        "given the model, scores of training records and of new ones are independent and alike",
        max(0.0, 1 - alpha - math.sqrt(math.log(2 / failure) / (2 * n))),
        failure=failure,
    )


@dataclass(frozen=True)
class Smoothness:
    """Constants of SCP Theorem 4, which the user vouches for, and two numbers of a training.

    Scores are `lipschitz` in the weights with density at most `density` near the quantile, and the
    gradient of every record's loss is `smoothness`-Lipschitz in the weights. Training takes steps
    of plain gradient descent at `rate`, with gradients clipped to `clip`.
    """

    lipschitz: float
    density: float
    smoothness: float
    rate: float
    clip: float

    def __post_init__(self) -> None:
        for name in ("smoothness", "rate", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise BadInput(
                    f"{name} is {getattr(self, name)!r}; it must be a finite number above 0"
                )

    def distance(self, training: SampledGaussian, *, n: int) -> float:
        """How far one more record moves the trained weights, in the mean, at most.

        SCP Theorem 4 for trainings that divide the noisy sum by a public batch b = n q and not, as
        there, by the number of records drawn. Couple two trainings by batches and noise. The noise
        cancels. Clipping is a projection, so a record's clipped gradients differ by at most S times
        the distance D of the weights, with S the smoothness; the record added is drawn with
        probability q and adds at most C. With batch sizes drawn afresh at every step,

            E D' <= (1 + rate S n q/b) E D + rate q C/b,   so   E D <= C/(n S) ((1 + rate S)^T - 1).

        Arithmetic is taken to be exact.
        """
        growth = training.steps * math.log1p(self.rate * self.smoothness)
        return self.clip / (n * self.smoothness) * _expm1(growth)

    def published_distance(self, training: SampledGaussian, *, n: int, weights: int) -> float:
        """The expression of SCP Theorem 4, for trainings that divide by the records drawn.

        (1 - (1-q)^(n+1))/((n+1) S) (2C + sigma sqrt(d)) (e^(rate S T) - 1). Its sigma is the
        deviation of the noise, noise multiplier times clip: the proof absorbs the clip, the theorem
        calls sigma the noise multiplier, which is the same at C = 1 only.
        """
        drawn = (
            1.0
            if training.sampling_rate == 1
            else -math.expm1((n + 1) * math.log1p(-training.sampling_rate))
        )
        spread = self.clip * (2 + training.noise_multiplier * math.sqrt(weights))
        grown = _expm1(self.rate * self.smoothness * training.steps)
        return drawn / ((n + 1) * self.smoothness) * spread * grown

    def stability(self, training: SampledGaussian, *, n: int) -> Stability:
        """Assumption 1 by Markov's inequality: u = E^(2/3), delta = E^(1/3) (SCP Corollary 2)."""
        mean = self.distance(training, n=n)
        if not mean < 1:
            raise BadInput(
                f"with these constants one record moves the weights by up to {mean:.3g} in the "
                "mean, of which SCP Theorem 4 makes no bound; accepted are a smaller rate, fewer "
                "steps, a smaller clip or more records, until it is below 1"
            )
        return Stability(self.lipschitz, self.density, mean ** (2 / 3), mean ** (1 / 3))


def _expm1(exponent: float) -> float:
    return math.expm1(exponent) if exponent < 700 else math.inf
