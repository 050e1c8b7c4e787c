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
from confide.aggregator.procedures.central import draw_afresh
from confide.aggregator.procedures.ladder import public_ladder
from confide.aggregator.procedures.registry import plan_procedure
from confide.client.records.records import Records
from confide.protocol.certificate import BAND, MARGINAL, PAC, Certificate
from confide.protocol.channels.registry import LABEL_CHANNELS
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.levels import band_levels, marginal_levels
from confide.protocol.methods.base import Terms
from confide.protocol.methods.owner_terms import GROUP_VARIANTS, OWNER_VARIANTS
from confide.protocol.methods.registry import METHODS as METHODS_BY_NAME
from confide.protocol.methods.registry import local_variants
from confide.protocol.plan import Plan
from confide.protocol.prediction.predictor import Predictor
from confide.protocol.scores.registry import SCORES
from confide.protocol.scores.scoring import all_scores, true_scores
from confide.simulation.driver import BitUsers, LabelUsers, PairUsers, drive
from tests.support import owners as held_by
from tests.support.owners import MODEL, PLAN, POLICY, asking, changed, owner, signed

Floats = NDArray[np.float64]

# Ledgers are synced to disk after every answer, which costs nothing on a disk in memory.
MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None


@dataclass(frozen=True, eq=False)
class Population:
    """Records of finitely many kinds, so that coverage is a finite sum.

    A record is of kind j with probability `weights[j]`. It has the probabilities `probs[j]`, which
    fall strictly, on its labels in random order; its true label is the one of rank r with
    probability `ranks[j, r]`.
    """

    weights: Floats
    probs: Floats
    ranks: Floats

    @property
    def labels(self) -> int:
        return self.probs.shape[1]

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Floats, NDArray[np.int64]]:
        """Draw probabilities and true labels of n records."""
        kind = rng.choice(len(self.weights), n, p=self.weights)
        order = rng.random((n, self.labels)).argsort(axis=1)
        probs = np.empty((n, self.labels))
        np.put_along_axis(probs, order, self.probs[kind], axis=1)
        rank = (self.ranks.cumsum(axis=1)[kind, :-1] <= rng.random((n, 1))).sum(axis=1)
        return probs, order[np.arange(n), rank]

    def coverage(self, score: str, threshold: float, dtype: Any = np.float64) -> float:
        """P(Y in C(X)) for the predictor's sets, made from probabilities of this precision.

        Randomised scores are linear in their number u, uniform on [0, 1], which is integrated out.
        """
        if SCORES[score].randomized:
            least, most = (
                all_scores(SCORES[score], self.probs, u=np.full(len(self.probs), u))
                for u in (0.0, 1.0)
            )
            inside = np.clip((threshold - least) / (most - least), 0, 1)
        else:
            inside = Predictor(SCORES[score], threshold).predict_set(self.probs.astype(dtype))
        return float(self.weights @ (self.ranks * inside).sum(axis=1))


def _falling(first: Floats, k: int) -> Floats:
    """Probabilities of k labels: the first as given, every further one 0.7 of the one before."""
    rest = 0.7 ** np.arange(k - 1)
    return np.column_stack([first, np.outer(1 - first, rest / rest.sum())])


def calibrated(least: float, most: float, k: int = 10) -> Population:
    """A calibrated model: the label of rank r is true with its own probability.

    The first label has a probability from least to most.
    """
    probs = _falling(np.linspace(least, most, 211), k)
    return Population(np.full(len(probs), 1 / len(probs)), probs, probs)


def hair_below(k: int = 10, covered: float = 0.8999) -> Population:
    """One kind of record, whose label is the first with probability 0.8999, else the last.

    Between their scores, coverage is slightly below 0.9 for every score: the hardest case for a
    guarantee of 0.9.
    """
    ranks = np.zeros((1, k))
    ranks[0, [0, -1]] = covered, 1 - covered
    return Population(np.ones(1), _falling(np.array([0.53]), k), ranks)


POPULATIONS = {
    "unsure": calibrated(0.37, 0.97),
    "confident": calibrated(0.9, 0.999),
    "hair below": hair_below(),
}
OWNER_LABELS = tuple(("labels", variant) for variant in OWNER_VARIANTS)


@dataclass(frozen=True)
class Method:
    """A local method that states a guarantee."""

    method: str
    variant: str
    channel: str
    guarantee: str = PAC

    def __str__(self) -> str:
        name = f"{self.method}:{self.variant}"
        name += "" if self.method == "bits" else f", {self.channel}"
        return name + ("" if self.guarantee == PAC else f", {self.guarantee}")

    def terms(self, *, epsilon: float, delta: float) -> Terms:
        """Return the terms of its campaigns."""
        asked: dict[str, Any] = {"variant": self.variant, "epsilon": epsilon, "delta": delta}
        own: dict[str, Any] = {} if self.channel == "bit" else {"channel": self.channel}
        if self.variant in ("class-conditional", "per-owner"):
            # So that delta bounds the failure of any class, or at any owner.
            own["joint"] = True
        if (self.method, self.variant) in OWNER_LABELS:
            # Every owner walks it, and a short one is walked faster.
            own["ladder"] = tuple(public_ladder(100).tolist())
        if self.guarantee == MARGINAL:
            # A few levels, so that campaigns are short.
            own |= held_by.level_fields(marginal_levels(0.1, error=0.02, count=6)) | {"delta": 0.0}
        if self.guarantee == BAND:
            own |= held_by.level_fields(band_levels(0.1, delta))
        return METHODS_BY_NAME[self.method](**asked | own)

    @property
    def records(self) -> int:
        """The records needed for thresholds below 1: the trivial threshold cannot fail."""
        many = (
            ("bits", "published-star"),
            ("labels", "class-conditional"),
            ("pairs", "class-conditional"),
        )
        # Two owners, each tested on its own records; one round of bits spreads them over a ladder.
        apart = {"for-every-owner": 2_000, "per-owner": 4_000}
        most = 6_000 if (self.method, self.variant) in many else 1_000
        return apart.get(self.variant, most)


# Averages and bands; the other variants promise PAC coverage.
LEVELED = (
    Method("labels", "certified", "k-rr", MARGINAL),
    Method("labels", "certified", "k-rr", BAND),
    Method("bits", "certified", "bit", MARGINAL),
    Method("bits", "one-shot", "bit", MARGINAL),
    Method("bits", "one-shot", "bit", BAND),
)


def _channels(method: str, variant: str) -> tuple[str, ...]:
    if method == "bits":
        return ("bit",)
    return tuple(LABEL_CHANNELS) if variant == "certified" else ("k-rr",)


METHODS = tuple(
    Method(method, variant, channel)
    for method, variants in local_variants().items()
    for variant in variants
    # Groups are tested as owners are, by another key: tests/aggregator/procedures/test_groups.py.
    if variant not in GROUP_VARIANTS
    for channel in _channels(method, variant)
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
            labels=POPULATIONS[self.population].labels,
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
        covered as all records are at its threshold; so is each owner.
        """
        if certificate.band:
            return any(self.missed(q) > 1 - at + 1e-9 for at, q in certificate.band)
        population = POPULATIONS[self.population]
        each = () if certificate.together else certificate.strata
        lowest = min([one.threshold for one in each] or [certificate.threshold])
        reached = (
            population.coverage(self.score, lowest, dtype) for dtype in (np.float32, np.float64)
        )
        # Sums of doubles may be too small by a billionth.
        return min(reached) < (certificate.level if level is None else level) - 1e-9

    def missed(self, threshold: float) -> float:
        """What a threshold misses, in the worse precision."""
        population = POPULATIONS[self.population]
        kinds = (np.float32, np.float64)
        return 1 - min(population.coverage(self.score, threshold, dtype) for dtype in kinds)

    def failures(self, campaigns: int, *, level: float | None = None) -> int:
        """Count the failures among this many campaigns."""
        return sum(self.fails(self.certificate(i), level) for i in range(campaigns))


def _drawn(cell: Cell, seed: str) -> tuple[Floats, NDArray[np.int64], np.random.Generator]:
    rng = np.random.default_rng(list(seed.encode()))
    return *POPULATIONS[cell.population].draw(cell.n, rng), rng


def in_process(cell: Cell, seed: str) -> Certificate:
    """Run one campaign on arrays."""
    probs, labels, rng = _drawn(cell, seed)
    # The precision in which owners score.
    score, single, u = SCORES[cell.score], probs.astype(np.float32), rng.random(cell.n)
    entropy = SeededEntropy(seed)
    own, owners = true_scores(score, single, labels, u=u), np.arange(cell.n) % 2
    choose: dict[str, Callable[[], Any]] = {
        "bits": lambda: BitUsers(own, entropy, owners),
        "pairs": lambda: PairUsers(own, labels, entropy),
        "labels": lambda: LabelUsers(all_scores(score, single, u=u), labels, entropy, owners),
    }
    return drive(plan_procedure(cell.plan, draw_afresh), choose[cell.method.method]())


def over_the_wire(cell: Cell, seed: str) -> Certificate:
    """Run one campaign of two owners behind policy and ledger, whose answers arrive as bytes."""
    probs, labels, _ = _drawn(cell, seed)
    policy = replace(POLICY, minimum_group=1)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        made = []
        # One owner's model computes in single precision, the other's file holds doubles.
        for i, (part, dtype) in enumerate(
            zip(np.array_split(np.arange(cell.n), 2), (np.float32, np.float64), strict=True)
        ):
            names = tuple(f"{seed}/{j}".encode() for j in part.tolist())
            held = Records(names, probs[part].astype(dtype), labels[part], MODEL)
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
