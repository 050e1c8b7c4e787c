"""Whether campaigns cover as they claim: every local method and score, in process and over the wire, on known populations."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregator.campaigns import run_campaign
from aggregator.central import draw_afresh
from aggregator.procedures import plan_procedure
from client.records import Records
from protocol.campaign import LOCAL_VARIANTS, Plan
from protocol.certificate import Certificate
from protocol.channels import LABEL_CHANNELS
from protocol.predictor import Predictor
from protocol.sampling import SeededEntropy
from protocol.scores import RANDOMIZED, SCORES, all_scores, true_scores
from simulation.driver import BitUsers, LabelUsers, drive
from tests.owners import MODEL, PLAN, POLICY, asking, owner, signed

Floats = NDArray[np.float64]

# Ledgers are synced to disk after every answer; in memory that costs nothing.
MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
OWNERS = 2


@dataclass(frozen=True, eq=False)
class Population:
    """Records of finitely many kinds, so that coverage is a finite sum.

    A record of kind j (one in `weights[j]`) has the probabilities `probs[j]`, which fall strictly, on its labels in random
    order; its true label is the one of rank r with probability `ranks[j, r]`.
    """

    weights: Floats
    probs: Floats
    ranks: Floats

    @property
    def labels(self) -> int:
        return self.probs.shape[1]

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Floats, NDArray[np.int64]]:
        """Probabilities and true labels of n records."""
        kind = rng.choice(len(self.weights), n, p=self.weights)
        order = rng.random((n, self.labels)).argsort(axis=1)
        probs = np.empty((n, self.labels))
        np.put_along_axis(probs, order, self.probs[kind], axis=1)
        rank = (self.ranks.cumsum(axis=1)[kind, :-1] <= rng.random((n, 1))).sum(axis=1)
        return probs, order[np.arange(n), rank]

    def coverage(self, score: str, threshold: float, dtype: Any = np.float64) -> float:
        """P(Y in C(X)) for the sets of the predictor, given probabilities of this precision.

        Randomised scores are linear in their number u, uniform on [0, 1], which is integrated out.
        """
        probs = self.probs.astype(dtype)
        if score in RANDOMIZED:
            least, most = (all_scores(SCORES[score], probs, u=np.full(len(probs), u, dtype)) for u in (0.0, 1.0))
            inside = np.clip((threshold - least) / (most - least), 0, 1)
        else:
            inside = Predictor(SCORES[score], threshold).sets(probs)
        return float(self.weights @ (self.ranks * inside).sum(axis=1))


def _falling(first: Floats, k: int) -> Floats:
    """Probabilities of k labels: the first as given, every further one 0.7 of the one before."""
    rest = 0.7 ** np.arange(k - 1)
    return np.column_stack([first, np.outer(1 - first, rest / rest.sum())])


def calibrated(least: float, most: float, k: int = 10) -> Population:
    """A calibrated model: the label of rank r is true with its own probability, the first with one from least to most."""
    probs = _falling(np.linspace(least, most, 211), k)
    return Population(np.full(len(probs), 1 / len(probs)), probs, probs)


def hair_below(k: int = 10, covered: float = 0.8999) -> Population:
    """One kind of record, whose label is the first with probability 0.8999 and the last otherwise.

    Between their scores coverage is a hair below 0.9 for every score: the hardest case for a guarantee of 0.9.
    """
    ranks = np.zeros((1, k))
    ranks[0, [0, -1]] = covered, 1 - covered
    return Population(np.ones(1), _falling(np.array([0.53]), k), ranks)


POPULATIONS = {"unsure": calibrated(0.37, 0.97), "confident": calibrated(0.9, 0.999), "hair below": hair_below()}


@dataclass(frozen=True)
class Method:
    """A local method that states a guarantee."""

    method: str
    variant: str
    channel: str

    def __str__(self) -> str:
        return f"{self.method}:{self.variant}" + ("" if self.method == "bits" else f" {self.channel}")


def _channels(method: str, variant: str) -> tuple[str, ...]:
    if method == "bits":
        return ("bit",)
    return tuple(LABEL_CHANNELS) if variant == "certified" else ("k-rr",)


METHODS = tuple(
    Method(method, variant, channel)
    for method, variants in LOCAL_VARIANTS.items()
    for variant in variants
    for channel in _channels(method, variant)
)


@dataclass(frozen=True)
class Cell:
    """A method and a score on a population. What certificates are judged by is what they claim at these alpha and delta."""

    method: Method
    score: str
    population: Population
    n: int
    epsilon: float = 4.0
    alpha: float = 0.1
    delta: float = 0.1

    @property
    def plan(self) -> Plan:
        return replace(
            PLAN, method=self.method.method, variant=self.method.variant, channel=self.method.channel, score=self.score,
            epsilon=self.epsilon, labels=self.population.labels, alpha=self.alpha, delta=self.delta, expected_records=self.n,
            minimum_reports=0,
        )  # fmt: skip

    def fails(self, certificate: Certificate) -> bool:
        """Whether sets cover less than the certificate says, of whichever precision the probabilities are."""
        reached = (self.population.coverage(self.score, certificate.threshold, dtype) for dtype in (np.float32, np.float64))
        # What is left of a sum of probabilities is not coverage.
        return min(reached) < certificate.level - 1e-9


Path_ = Callable[[Cell, int], Certificate]


def in_process(cell: Cell, seed: int) -> Certificate:
    """One campaign on arrays."""
    rng, entropy = np.random.default_rng([seed, 1]), SeededEntropy("coverage", seed)
    probs, labels = cell.population.draw(cell.n, rng)
    score, u = SCORES[cell.score], rng.random(cell.n)
    users: Any = (
        BitUsers(true_scores(score, probs, labels, u=u), entropy)
        if cell.method.method == "bits"
        else LabelUsers(all_scores(score, probs, u=u), labels, entropy)
    )
    return drive(plan_procedure(cell.plan, draw_afresh), users)


def over_the_wire(cell: Cell, seed: int) -> Certificate:
    """One campaign of owners behind policy and ledger, whose answers come in as bytes."""
    probs, labels = cell.population.draw(cell.n, np.random.default_rng([seed, 2]))
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        made = []
        for i, part in enumerate(np.array_split(np.arange(cell.n), OWNERS)):
            names = tuple(f"{seed}/{j}".encode() for j in part.tolist())
            held = Records(names, probs[part].astype(np.float32), labels[part], MODEL)
            entropy = SeededEntropy("coverage", seed, i)
            policy = replace(POLICY, minimum_group=1)
            made.append(owner(Path(folder) / str(i), seed=i, policy=policy, entropy=entropy, held=held))
        return run_campaign(cell.plan, asking(signed(cell.plan), made)).certificate


PATHS: dict[str, Path_] = {"in process": in_process, "wire": over_the_wire}


def failures(cell: Cell, path: str, *, campaigns: int) -> int:
    """How many campaigns end with a certificate that claims too much."""
    return sum(cell.fails(PATHS[path](cell, seed)) for seed in range(campaigns))
