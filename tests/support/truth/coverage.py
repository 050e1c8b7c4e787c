"""Measure whether campaigns cover as they claim, on known populations.

Every local method and score is covered, in process and over the wire.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.campaigns.driver import run_campaign
from confide.aggregator.procedures.counts.central import draw_afresh
from confide.aggregator.procedures.ladder import public_ladder
from confide.aggregator.procedures.registry import plan_procedure
from confide.client.records.records import Records
from confide.protocol.certificate import BAND, MARGINAL, PAC, Certificate
from confide.protocol.channels.registry import LABEL_CHANNELS
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.levels import band_levels, marginal_levels
from confide.protocol.methods.base import Terms
from confide.protocol.methods.labels.terms import CLASS_CONDITIONAL
from confide.protocol.methods.owner_terms import EACH, GROUP_VARIANTS, PART_VARIANTS
from confide.protocol.methods.registry import METHODS as METHODS_BY_NAME
from confide.protocol.methods.registry import local_variants
from confide.protocol.plan import Plan
from confide.protocol.scores.registry import SCORES
from confide.protocol.scores.scoring import all_scores, true_scores
from confide.simulation.driver import BitUsers, CountingOwner, LabelUsers, PairUsers, drive
from tests.support.cards.central import OPEN_POLICY
from tests.support.owners.owners import (
    BY_WARD,
    MODEL,
    PLAN,
    WARDS,
    asking,
    changed,
    level_fields,
    owner,
    signed,
)
from tests.support.truth.populations import EVERY

Floats = NDArray[np.float64]

# Ledgers are synced to disk after every answer, which costs nothing on a disk in memory.
MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None


@dataclass(frozen=True)
class Method:
    """A method that states a guarantee, with other settings of its terms than the usual ones."""

    method: str
    variant: str
    channel: str
    own: tuple[tuple[str, Any], ...] = ()
    named: str = ""
    guarantee: str = PAC

    def __str__(self) -> str:
        channel = f", {self.channel}" if self.channel not in ("bit", "") else ""
        promised = "" if self.guarantee == PAC else f", {self.guarantee}"
        return f"{self.method}:{self.variant}{channel}{self.named}{promised}"

    def terms(self, *, epsilon: float, delta: float) -> Terms:
        """Return the terms of its campaigns."""
        asked: dict[str, Any] = {"variant": self.variant, "epsilon": epsilon, "delta": delta}
        own: dict[str, Any] = {} if self.channel in ("bit", "") else {"channel": self.channel}
        if self.variant in (CLASS_CONDITIONAL, *EACH):
            # So that delta bounds the failure of any class, or of any part.
            own["joint"] = True
        if self.method == "labels" and self.variant in PART_VARIANTS:
            # Every part walks it, and a short one is walked faster.
            own["ladder"] = tuple(public_ladder(100).tolist())
        if self.variant in GROUP_VARIANTS:
            own |= BY_WARD
        if self.guarantee == MARGINAL:
            # A few levels, so that campaigns are short.
            own |= level_fields(marginal_levels(0.1, error=0.02, count=6)) | {"delta": 0.0}
        if self.guarantee == BAND:
            own |= level_fields(band_levels(0.1, delta))
        return METHODS_BY_NAME[self.method](**asked | own | dict(self.own))

    @property
    def records(self) -> int:
        """The records needed for thresholds below 1: the trivial threshold cannot fail."""
        many = (
            ("bits", "published-star"),
            ("labels", CLASS_CONDITIONAL),
            ("pairs", CLASS_CONDITIONAL),
        )
        # Two owners or three groups, each tested on its own records; one round of bits spreads
        # those of an owner over a ladder.
        apart = {"for-every-owner": 2_000, "per-owner": 4_000}
        apart |= {"for-every-group": 3_000, "per-group": 3_000}
        most = 6_000 if (self.method, self.variant) in many else 1_000
        return apart.get(self.variant, most)


# Averages and bands; the other variants promise PAC coverage.
LEVELED = tuple(
    Method(method, variant, channel, guarantee=guarantee)
    for method, variant, channel, guarantees in (
        ("labels", "certified", "k-rr", (MARGINAL, BAND)),
        ("bits", "certified", "bit", (MARGINAL,)),
        ("bits", "one-shot", "bit", (MARGINAL, BAND)),
    )
    for guarantee in guarantees
)


def _channels(method: str, variant: str) -> tuple[str, ...]:
    if method == "bits":
        return ("bit",)
    return tuple(LABEL_CHANNELS) if variant == "certified" else ("k-rr",)


METHODS = tuple(
    Method(method, variant, channel)
    for method, variants in local_variants().items()
    for variant in variants
    # Groups, as owners by another key: tests/aggregator/procedures/owners/test_groups.py.
    if variant not in GROUP_VARIANTS
    for channel in _channels(method, variant)
)

_COUNTS = (("mechanism", "rank-exponential"), ("bins", 256), ("beta", 0.0), ("grid", "mixed"))
# All that certify the target itself, of one calibration but for delta.
CERTIFIED = (
    *(one for one in METHODS if not one.variant.startswith("published")),
    Method("bits", "certified", "bit", (("planned_mixture", True),), ", planned mixture"),
    Method("bits", "certified", "bit", (("smallest_owner", 200),), ", smallest owner 200"),
    *(Method("labels", variant, "k-rr") for variant in GROUP_VARIANTS),
    *(Method("bits", variant, "bit") for variant in GROUP_VARIANTS),
    Method("central", "trusted", "", _COUNTS),
    Method(
        "central",
        "trusted",
        "",
        (*_COUNTS, ("by", "group"), ("parts", len(WARDS)), *BY_WARD.items()),
        ", by group",
    ),
)


@dataclass(frozen=True)
class Cell:
    """Campaigns of one method and score on one population, by one of `PATHS`."""

    method: Method
    score: str
    population: str
    path: str
    n: int
    epsilon: float = 4.0
    alpha: float = 0.1
    delta: float = 0.1

    @property
    def plan(self) -> Plan:
        return changed(
            PLAN,
            terms=self.method.terms(epsilon=self.epsilon, delta=self.delta),
            score=SCORES[self.score].text,
            labels=EVERY[self.population].labels,
            alpha=self.alpha,
            expected_records=self.n,
            minimum_reports=1,
        )

    def certificate(self, campaign: int) -> Certificate:
        """Run the campaign with this number and return its certificate.

        Campaigns are independent, also across cells.
        """
        return PATHS[self.path](self, f"{self} {campaign}")

    def fails(self, certificate: Certificate, level: float | None = None) -> bool:
        """Whether sets cover less than the certificate says (or than `level`), in any precision.

        A band fails where any of its levels does. Labels are in random order, so each class is
        covered as all records are at its threshold; so are each owner and each group.
        """
        if certificate.band:
            below = [self.missed(q) > 1 - covered + 1e-9 for covered, q in certificate.band]
            return any(below)
        population = EVERY[self.population]
        each = [] if certificate.together else [one.threshold for one in certificate.strata]
        if not getattr(self.plan.terms, "joint", False):
            # What is promised of each part alone is as likely to fail in the first as in any.
            each = each[:1]
        lowest = min(each or [certificate.threshold])
        reached = (
            population.coverage(self.score, lowest, dtype) for dtype in (np.float32, np.float64)
        )
        # Sums of doubles may be too small by a billionth.
        return min(reached) < (certificate.level if level is None else level) - 1e-9

    def missed(self, threshold: float) -> float:
        """What a threshold misses, in the worse precision."""
        population = EVERY[self.population]
        covered = (population.coverage(self.score, threshold, t) for t in (np.float32, np.float64))
        return 1 - min(covered)

    def failures(self, campaigns: int, *, level: float | None = None) -> int:
        """Count the failures among this many campaigns."""
        return sum(self.fails(self.certificate(i), level) for i in range(campaigns))


def _drawn(cell: Cell, seed: str) -> tuple[Floats, NDArray[np.int64], np.random.Generator]:
    rng = np.random.default_rng(list(seed.encode()))
    return *EVERY[cell.population].draw(cell.n, rng), rng


def _wards(n: int) -> NDArray[np.str_]:
    return np.array(WARDS)[np.arange(n) % len(WARDS)]


def in_process(cell: Cell, seed: str) -> Certificate:
    """Run one campaign on arrays."""
    probs, labels, rng = _drawn(cell, seed)
    # The precision in which owners score.
    score, single, u = SCORES[cell.score], probs.astype(np.float32), rng.random(cell.n)
    entropy = SeededEntropy(seed)
    own, owners, wards = (
        true_scores(score, single, labels, u=u),
        np.arange(cell.n) % 2,
        _wards(cell.n),
    )
    parts = wards if cell.method.variant in GROUP_VARIANTS else owners
    choose: dict[str, Callable[[], Any]] = {
        "bits": lambda: BitUsers(own, entropy, parts),
        "pairs": lambda: PairUsers(own, labels, entropy),
        "labels": lambda: LabelUsers(all_scores(score, single, u=u), labels, entropy, parts),
        "central": lambda: CountingOwner(own, labels, wards),
    }
    return drive(plan_procedure(cell.plan, draw_afresh), choose[cell.method.method]())


def over_the_wire(cell: Cell, seed: str) -> Certificate:
    """Run one campaign of two owners behind policy and ledger, whose answers arrive as bytes."""
    probs, labels, _ = _drawn(cell, seed)
    policy, wards = replace(OPEN_POLICY, minimum_group=1), _wards(cell.n)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        made = []
        # One owner's model computes in single precision, the other's file holds doubles.
        for i, (part, dtype) in enumerate(
            zip(np.array_split(np.arange(cell.n), 2), (np.float32, np.float64), strict=True)
        ):
            names = tuple(f"{seed}/{j}".encode() for j in part.tolist())
            public = {"ward": wards[part]}
            held = Records(names, probs[part].astype(dtype), labels[part], MODEL, public=public)
            made.append(
                owner(
                    Path(folder) / str(i),
                    seed=i,
                    policy=policy,
                    entropy=SeededEntropy(seed, i),
                    held=held,
                )
            )
        outcome = run_campaign(cell.plan, asking(signed(cell.plan), made))
    assert set(outcome.received) == {"OK"}, outcome.received
    return outcome.certificate


PATHS: dict[str, Callable[[Cell, str], Certificate]] = {
    "in process": in_process,
    "wire": over_the_wire,
}
