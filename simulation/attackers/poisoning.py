"""What lies do to the true coverage of certified thresholds, with and without `max_corrupt`.

Records are independent draws from the user's file, so true coverage at a threshold is the file's.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from confide.aggregator.procedures.counts.central import draw_afresh
from confide.aggregator.procedures.registry import Procedure, plan_procedure
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.exact.sampling import SeededEntropy
from confide.simulation.advice.curves import SizeCurve
from confide.simulation.attackers.lies import KINDS, LYING, ScoredRecords
from confide.simulation.driver import drive
from confide.simulation.planning import plan


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """The certified campaigns that are attacked."""

    method: str = "bits"
    epsilon: float = 4.0
    alpha: float = 0.1
    n: int = 20_000
    score: str = "hps"
    failure_probability: float = 0.1

    def __post_init__(self) -> None:
        check_choice("method", self.method, LYING)

    def procedure(self, k: int, *, max_corrupt: int) -> Procedure:
        """The procedure of a campaign over k labels that allows for so many lies."""
        asked = plan(
            f"{self.method}:certified",
            records=self.n,
            labels=k,
            score=self.score,
            epsilon=self.epsilon,
            alpha=self.alpha,
            failure_probability=self.failure_probability,
            max_corrupt=max_corrupt,
        )
        return plan_procedure(asked, draw_afresh)


@dataclass(frozen=True)
class Attack:
    """A share of the records that lies in one way to campaigns of one setting."""

    kind: str
    share: float
    setting: Attacked
    campaigns: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("attack", self.kind, KINDS)
        if not 0 < self.share < 1:
            raise BadInput(f"share is {self.share}; accepted is a share between 0 and 1")
        if self.campaigns < 1:
            raise BadInput(f"campaigns is {self.campaigns}; at least 1 is needed")

    @property
    def count(self) -> int:
        """The number of liars."""
        return max(1, round(self.share * self.setting.n))


@dataclass(frozen=True)
class Damage:
    """Campaigns with so many liars, of whom the certificate allows for `max_corrupt`.

    `below` is the number of campaigns whose true coverage is below the certified level.
    """

    liars: int
    max_corrupt: int
    campaigns: int
    below: int
    coverage: float
    size: float
    trivial: float

    @property
    def kept(self) -> bool:
        """Whether every campaign covers what it certified."""
        return self.below == 0


def damage(
    attack: Attack,
    curve: SizeCurve,
    *,
    liars: int,
    max_corrupt: int,
    progress: Callable[[], None] = lambda: None,
) -> Damage:
    """Run the campaigns of an attack, with so many liars and so many allowed for."""
    setting, covered, sizes, below = attack.setting, [], [], 0
    for number in range(attack.campaigns):
        rows = np.random.default_rng([attack.seed, number]).integers(0, len(curve), setting.n)
        records = ScoredRecords(curve.every[rows], curve.labels[rows])
        entropy = SeededEntropy("attack", attack.seed, number)
        users = LYING[setting.method](attack.kind, records, liars, entropy=entropy)
        certificate = drive(setting.procedure(curve.k, max_corrupt=max_corrupt), users)
        q = np.array(certificate.threshold)
        covered.append(float(curve.coverage(q)) if q < 1 else 1.0)
        sizes.append(float(curve.size(q)))
        below += covered[-1] < certificate.level - 1e-12
        progress()
    trivial = float(np.mean(np.array(covered) >= 1))
    numbers = float(np.mean(covered)), float(np.mean(sizes)), trivial
    return Damage(liars, max_corrupt, attack.campaigns, below, *numbers)


def compared(
    attack: Attack, curve: SizeCurve, *, progress: Callable[[], None] = lambda: None
) -> tuple[Damage, Damage, Damage]:
    """Run the campaigns three times, and return the damage of each.

    Nobody lies; users lie and the certificate allows for none; they lie and it allows for all.
    """
    return (
        damage(attack, curve, liars=0, max_corrupt=0, progress=progress),
        damage(attack, curve, liars=attack.count, max_corrupt=0, progress=progress),
        damage(attack, curve, liars=attack.count, max_corrupt=attack.count, progress=progress),
    )
