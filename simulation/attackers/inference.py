"""What can be learned of one record from what leaves: lower bounds on epsilon, next to the claim.

In every run a coin decides which of two neighbours is used, and the attacker, who knows everything
else, sees what is released. How often it guesses right bounds epsilon from below (`estimator`).
Nothing here knows how the noise is made: the code of the product draws it.

    bits      membership: is the record's score within the threshold? One report.
    labels    attribute: has the record the first or the second label? One report.
    counts    membership among trusted counts: one release of the default mechanism.
    noised    membership in the counts that an owner noises: all rounds of a search.
    weights   membership in a step of training (`canaries`).
    cards     membership, from the threshold on a card of a trusted calibration.

`noise` is the part of the noise that is drawn: 0.5 plants a bug.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.campaigns.driver import conclude
from confide.aggregator.cards.issue import campaign_card
from confide.aggregator.procedures.counts.central import planned_rank
from confide.aggregator.procedures.registry import plan_procedure
from confide.aggregator.quantiles.base import REPLACE_ONE, Mechanism, Release
from confide.aggregator.quantiles.histogram import Histogram, histogram
from confide.aggregator.quantiles.registry import DEFAULT, within_budget
from confide.protocol.cards.card import Card, parse_card
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.registry import auto
from confide.protocol.errors import BadInput, check_choice, check_epsilon
from confide.protocol.exact.gaussian import discrete_gaussian
from confide.protocol.exact.grids import UNIFORM, uniform_grid
from confide.protocol.exact.lattice import CLIP_UNITS
from confide.protocol.exact.sampling import Entropy
from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.simulated.settings import ALWAYS, SIMULATION_KEY
from confide.simulation.attackers import canaries
from confide.simulation.attackers.estimator import by_definition, by_gaussian, watch
from confide.simulation.driver import CountingOwner, drive
from confide.simulation.planning import plan as make_plan

Array = NDArray[Any]
Floats = NDArray[np.float64]

LABELS = 10
# Records of the counts: few, so that one of them is not lost among the others.
RECORDS, BINS, ALPHA = 60, 64, 0.3
NOISED_DELTA = 1e-6


@dataclass(frozen=True)
class Runs:
    """What is run: the claim, the part of the noise that is drawn, a coin a run, randomness."""

    epsilon: float
    noise: float
    coins: Array
    entropy: Entropy

    @property
    def drawn(self) -> float:
        """The epsilon that is drawn with, instead of the claim."""
        return self.epsilon / self.noise


@dataclass(frozen=True)
class Watched:
    """Statistics of runs, positive where they speak for the truth, and where guesses begin."""

    statistics: Floats
    threshold: float
    delta: float = 0.0
    gaussian: bool = False


@dataclass(frozen=True)
class Bound:
    """A lower bound on epsilon at delta, wrong with probability `false_alarm` at most.

    `assumed` is the bound that takes the noise to be Gaussian, where it is.
    """

    target: str
    claim: float
    delta: float
    noise: float
    runs: int
    lower: float
    assumed: float | None

    @property
    def exceeds(self) -> bool:
        """Whether more was learned than the claim allows."""
        return max(self.lower, self.assumed or 0.0) > self.claim


def infer(
    target: str,
    *,
    epsilon: float,
    runs: int,
    entropy: Entropy,
    noise: float = 1.0,
    false_alarm: float = 1e-4,
    seed: int = 0,
) -> Bound:
    """Attack a release that claims epsilon, and bound epsilon from below."""
    check_choice("target", target, TARGETS)
    check_epsilon(epsilon)
    if runs < 1 or not 0 < false_alarm < 1 or not 0 < noise <= 1:
        raise BadInput(
            f"runs is {runs}, false alarm {false_alarm} and noise {noise}; accepted are at least 1 "
            "run, a false alarm between 0 and 1 and noise above 0 up to 1"
        )
    coins = np.random.default_rng(seed).random(runs) < 0.5
    seen = TARGETS[target](Runs(epsilon, noise, coins, entropy))
    lower = by_definition(
        seen.statistics, threshold=seen.threshold, delta=seen.delta, false_alarm=false_alarm
    )
    assumed = (
        by_gaussian(seen.statistics, delta=seen.delta, false_alarm=false_alarm)
        if seen.gaussian
        else None
    )
    return Bound(target, epsilon, seen.delta, noise, runs, lower, assumed)


def _signed(for_first: Floats, coins: Array) -> Floats:
    """Statistics that speak for the truth where positive, from ones that speak for the first."""
    return np.where(coins, for_first, -for_first)


def _bits(runs: Runs) -> Watched:
    said = Bit(epsilon=runs.drawn).randomize(runs.coins, runs.entropy)
    return Watched(_signed(np.where(said, 1.0, -1.0), runs.coins), 0.5)


def _labels(runs: Runs) -> Watched:
    channel = auto(k=LABELS, epsilon=runs.drawn)
    reports = channel.randomize(np.where(runs.coins, 0, 1), runs.entropy)
    first, second = channel.supports(reports)[:, :2].T
    return Watched(_signed(first.astype(np.float64) - second, runs.coins), 0.5)


def neighbours(rank: int) -> tuple[Array, Array]:
    """Scores of records that differ in one of them, the worst found for the default mechanism.

    The first half of the bins ends just below the target rank, one bin holds it, and the others
    start just after it. When the record moves from the first bin to the last, bins below lose
    weight and bins above gain it, at the two rates that together are epsilon.
    """
    middle = (BINS // 2 - 0.5) / BINS
    others = np.repeat([0.0, middle, 1.0], [rank - 2, 2, RECORDS - rank - 1])
    return np.append(others, 0.0), np.append(others, 1.0)


def _ratios(mechanism: Any, rank: int, grid: Floats, *, runs: int) -> tuple[Floats, float]:
    """Log-ratios of the claimed law of every bin under both neighbours, and where to guess.

    Guesses begin where the expected bound of so many runs is greatest; no run decides it.
    """
    first, second = (
        np.array([float(p) for p in mechanism.law(histogram(scores, grid), rank)])
        for scores in neighbours(rank)
    )
    ratio = np.log(first) - np.log(second)

    def promise(t: float) -> float:
        right = float(first[ratio >= t].sum() + second[ratio <= -t].sum()) / 2
        wrong = float(first[ratio <= -t].sum() + second[ratio >= t].sum()) / 2
        return right / (wrong + 3 * np.sqrt(wrong / runs) + 3 / runs)

    best = max(np.unique(np.abs(ratio[ratio != 0])), key=promise)
    return ratio, float(best) * (1 - 1e-9)


def _mechanism(epsilon: float) -> Mechanism:
    return within_budget(
        DEFAULT, bins=BINS, beta=0.0, adjacency=REPLACE_ONE, epsilon=epsilon, delta=0.0
    )


def _counts(runs: Runs) -> Watched:
    grid, claimed, drawn = uniform_grid(BINS), _mechanism(runs.epsilon), _mechanism(runs.drawn)
    rank = claimed.rank(n=RECORDS, alpha=ALPHA)
    ratio, threshold = _ratios(claimed, rank, grid, runs=len(runs.coins))
    first, second = (histogram(scores, grid) for scores in neighbours(rank))
    chosen = [
        drawn.release(first if coin else second, rank, runs.entropy).bin
        for coin in runs.coins.tolist()
    ]
    return Watched(_signed(ratio[chosen], runs.coins), threshold)


def _noised(runs: Runs) -> Watched:
    plan = make_plan(
        "central:owner-noised",
        records=RECORDS,
        labels=2,
        epsilon=runs.epsilon,
        privacy_delta=NOISED_DELTA,
    )
    terms = CentralTerms.of(plan.terms)
    variance = Fraction(terms.noise_variance) * Fraction(runs.noise) ** 2
    drawn = discrete_gaussian(variance, len(runs.coins) * terms.rounds, runs.entropy)
    # The record counts in every round, or in none; the counts of the others are known.
    sums = drawn.reshape(len(runs.coins), terms.rounds).sum(axis=1) + terms.rounds * (
        runs.coins - 0.5
    )
    # Where half of the noise makes one neighbour e^(1.2 runs.epsilon) times as likely.
    threshold = 1.2 * runs.epsilon * float(terms.noise_variance) / 4
    return Watched(_signed(sums, runs.coins), threshold, NOISED_DELTA, gaussian=True)


def _weights(runs: Runs) -> Watched:
    terms = canaries.claimed_terms(runs.epsilon)
    step = canaries.noisy_step(terms, canaries.closed_form(terms), runs.entropy, noise=runs.noise)
    statistics = watch(step, canaries.canaries(), runs=len(runs.coins), seed=1) / CLIP_UNITS
    threshold = 1.2 * runs.epsilon * terms.noise_multiplier**2 / 8
    return Watched(statistics, threshold, canaries.DELTA, gaussian=True)


def _cards(runs: Runs) -> Watched:
    plan = make_plan(
        "central:trusted",
        records=RECORDS,
        labels=2,
        epsilon=runs.epsilon,
        alpha=ALPHA,
        bins=BINS,
        grid=UNIFORM,
        beta=0.0,
    )
    terms, grid = CentralTerms.of(plan.terms), uniform_grid(BINS)
    claimed = _mechanism(runs.epsilon)
    rank = planned_rank(claimed, terms, n=RECORDS, alpha=ALPHA)
    ratio, at = _ratios(claimed, rank, grid, runs=len(runs.coins))
    chosen = []
    for coin in runs.coins.tolist():
        owner = CountingOwner(neighbours(rank)[0 if coin else 1])
        card = _card(plan, owner, drawn=lambda: _mechanism(runs.drawn), entropy=runs.entropy)
        chosen.append(int(card.formal["released"]["bin"]))
    return Watched(_signed(ratio[chosen], runs.coins), at)


def _card(
    plan: Any, owner: CountingOwner, *, drawn: Callable[[], Mechanism], entropy: Entropy
) -> Card:
    """A whole campaign's signed card; `drawn` makes the mechanism whose release it states."""

    def draw(_: Mechanism, counts: Histogram, rank: int) -> Release:
        return drawn().release(counts, rank, entropy)

    certificate = drive(plan_procedure(plan, draw), owner)
    outcome = conclude(plan, certificate, received={"OK": 1}, seeded=False, sizes=[RECORDS])
    made = campaign_card(plan, outcome, diagnostic={}, issued=ALWAYS[0])
    return parse_card(made.sign(SIMULATION_KEY).to_json())


TARGETS: dict[str, Callable[[Runs], Watched]] = {
    "bits": _bits,
    "labels": _labels,
    "counts": _counts,
    "noised": _noised,
    "weights": _weights,
    "cards": _cards,
}
