"""What a calibration released, as it stands on every card, and the clauses that rest on it."""

from collections.abc import Iterable
from dataclasses import dataclass

from confide.protocol.cards.card import INFORMATIVE, RANDOMNESS, Layer
from confide.protocol.certificate import Certificate
from confide.protocol.exact.sampling import OPERATING_SYSTEM
from confide.protocol.plan import Plan


@dataclass(frozen=True)
class Released:
    """A threshold, the score and the model (SHA-256 of its bytes) it is for, and where the noise
    behind it was drawn."""

    model: bytes
    score: str
    threshold: float
    randomness: str

    def layer(self) -> Layer:
        return {
            "model": self.model.hex(),
            "score": self.score,
            "threshold": self.threshold,
            "randomness": self.randomness,
        }

    def flags(self) -> dict[str, bool]:
        """Noise that can be drawn again protects nobody, and threshold 1 predicts every label of
        any model."""
        return {RANDOMNESS: self.randomness == OPERATING_SYSTEM, INFORMATIVE: self.threshold < 1}


def campaign_released(plan: Plan, certificate: Certificate) -> Released:
    """What a campaign released."""
    return Released(plan.model, plan.score, certificate.threshold, certificate.randomness)


def decision(failed: Iterable[str]) -> str:
    """Seeded randomness makes a simulation of it, whatever else holds."""
    names = set(failed)
    return "simulation" if RANDOMNESS in names else "infeasible" if names else "feasible"
