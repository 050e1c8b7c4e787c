"""The result that a calibration released, as every card shows it, and the clauses about it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from confide.protocol.cards.card import INFORMATIVE, RANDOMNESS, Layer
from confide.protocol.certificate import Certificate
from confide.protocol.exact.sampling import OPERATING_SYSTEM
from confide.protocol.plan import Plan
from confide.protocol.scores.base import Score
from confide.protocol.scores.registry import find_score
from confide.protocol.scores.regression import residual


@dataclass(frozen=True)
class Released:
    """A threshold, its score and its model, and the source of the noise behind the threshold.

    `model` is the SHA-256 of the model's bytes; `labels` is 0 for a score of numbers.
    """

    model: bytes
    score: Score
    labels: int
    threshold: float
    randomness: str
    # What the records are divided by, and the threshold of each part by its name.
    by: str | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)
    # The thresholds of a band, with the coverage of each.
    band: Sequence[tuple[float, float]] = ()

    def layer(self) -> Layer:
        shown: Layer = {
            "model": self.model.hex(),
            "task": self.score.task.name,
            "score": self.score.text,
            "labels": self.labels,
            "threshold": self.threshold,
            "randomness": self.randomness,
        }
        if self.score.task.of_numbers:
            # The threshold in the target's own unit; nothing bounds the intervals of a trivial one.
            reach = residual(self.score).reach(self.threshold)
            shown["reach"] = reach if math.isfinite(reach) else None
        parts = [{"name": name, "threshold": q} for name, q in self.thresholds.items()]
        if parts:
            shown["strata"] = {"by": self.by, "parts": parts}
        if self.band:
            shown["band"] = [{"coverage": at, "threshold": q} for at, q in self.band]
        return shown

    def flags(self) -> dict[str, bool]:
        """The clauses about a release: its noise is not seeded, and its threshold is below 1.

        Noise that can be drawn again protects nobody, and threshold 1 predicts every label of any
        model. Where parts of the records have thresholds, one of them must be below 1.
        """
        least = min([*self.thresholds.values()] or [self.threshold])
        return {RANDOMNESS: self.randomness == OPERATING_SYSTEM, INFORMATIVE: least < 1}


def campaign_released(plan: Plan, certificate: Certificate) -> Released:
    """The result that a campaign released."""
    return Released(
        plan.model,
        find_score(plan.score),
        plan.labels,
        certificate.threshold,
        certificate.randomness,
        certificate.by,
        # A threshold that is everybody's is the only one to predict with.
        {} if certificate.together else {one.name: one.threshold for one in certificate.strata},
        certificate.band,
    )


def decision(failed: Iterable[str]) -> str:
    """The decision of a card with these failed clauses; seeded randomness makes it a simulation."""
    names = set(failed)
    return "simulation" if RANDOMNESS in names else "infeasible" if names else "feasible"
