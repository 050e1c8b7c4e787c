"""The two stages in which the threshold of one label is tested on pairs of label and bit."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtri

from confide.aggregator.procedures.labels.betting import Payoffs, betting_evidence
from confide.aggregator.procedures.pairs.curve import ClassCurve
from confide.protocol.certificate import LabelRung

STAGE_SHARES = (0.25, 0.5)
RESERVE = 0.1
# How far above what a test needs coverage should lie, in standard errors of test and curve: in the
# first stage, in the second after a pass or a failure, and where both stages test together.
SURE_FIRST, SURE_LOWER, SURE_AGAIN, SURE_WHOLE = 2.0, 1.0, 1.5, 1.6
# Coverage asked for exceeds the target by at most this share of alpha.
MOST_OF_ALPHA = 0.9


@dataclass
class StageTests:
    """The two stages of one label: which level a threshold is tested at, and what passed."""

    delta: float
    max_corrupt: int
    threshold: float = 1.0
    rungs: list[LabelRung] = field(default_factory=list)
    # The threshold that both stages test together, and the payoffs of the first.
    whole: float | None = None
    kept: list[Payoffs] = field(default_factory=list)

    @property
    def level(self) -> float:
        if self.whole is not None:
            return self.delta
        if not self.rungs:
            return (1 - RESERVE) * self.delta
        return self.delta if self.rungs[0].passed else RESERVE * self.delta

    def place(self, curve: ClassCurve, error: float, *, share: float, alpha: float) -> float:
        """The threshold to test next; 1 if none is worth it. `error` is that of all records."""
        if self.whole is not None:
            return self.whole
        sure = SURE_FIRST if not self.rungs else SURE_LOWER if self.rungs[0].passed else SURE_AGAIN
        found, likely = self._lowest(curve, error / math.sqrt(share), sure=sure, alpha=alpha)
        if not likely and not self.rungs:
            # So few records that one test needs those of both stages.
            self.whole = 1.0
            both = error / math.sqrt(sum(STAGE_SHARES))
            found, _ = self._lowest(curve, both, sure=SURE_WHOLE, alpha=alpha)
            self.whole = found
        return found if found < self.threshold else 1.0

    def _lowest(
        self, curve: ClassCurve, error: float, *, sure: float, alpha: float
    ) -> tuple[float, bool]:
        """The lowest threshold that should pass, and whether one is as likely to as it should."""
        wanted = -float(ndtri(self.level)) * error + sure * np.hypot(error, curve.doubt)
        q, most = curve.thresholds, MOST_OF_ALPHA * alpha
        good = (curve.coverage - (1 - alpha) >= np.minimum(wanted, most)) & (q < 1)
        place = int(good.argmax()) if good.any() else int(np.flatnonzero(q < 1)[-1])
        return float(q[place]), bool(wanted[place] <= most)

    def due(self, payoffs: Payoffs, *, last: bool) -> Payoffs | None:
        """The payoffs that decide a threshold now; None if they are kept for both stages."""
        self.kept.append(payoffs)
        if self.whole is not None and not last:
            return None
        stages, self.kept = self.kept, []
        return Payoffs(
            np.concatenate([one.sums for one in stages], axis=2),
            np.concatenate([one.sizes for one in stages]),
            payoffs.most,
        )

    def decide(self, q: float, capital: float, needed: float) -> None:
        """Take in the evidence for a threshold."""
        self.rungs.append(LabelRung(q, capital, needed))
        if self.rungs[-1].passed:
            self.threshold = q


def decide_all(due: Iterable[tuple[StageTests, float, Payoffs]]) -> None:
    """Test a threshold of every label; labels that are tested alike are bet on at once."""
    alike: dict[tuple[float, int, int], list[tuple[StageTests, float, Payoffs]]] = {}
    for one, q, payoffs in due:
        key = one.level, one.max_corrupt, len(payoffs.sizes)
        alike.setdefault(key, []).append((one, q, payoffs))
    for (level, lies, _), some in alike.items():
        payoffs = Payoffs.together([own for _, _, own in some])
        evidence = betting_evidence(payoffs, delta=level, max_corrupt=lies)
        capital, needed = (column.tolist() for column in evidence)
        for (one, q, _), found, least in zip(some, capital, needed, strict=True):
            one.decide(q, found, least)
