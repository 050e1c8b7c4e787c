"""Advice: every method at the same epsilon, from the smallest sets to the largest, with reasons."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.simulation.advice.candidates import CANDIDATES, Candidate, Case
from confide.simulation.advice.curves import SizeCurve, curve_of
from confide.simulation.advice.question import BEST, AdviceQuestion
from confide.simulation.advice.search import Size, least_epsilon, records_needed
from confide.simulation.data.population import Predictions

Floats = NDArray[np.float64]

SCORES = ("hps", "aps", "raps", "saps", "top-k")
# Without a wanted size, users are counted for sets this much larger than those without privacy.
ROOM = 1.1


@dataclass(frozen=True)
class Expected:
    """What equally likely thresholds give on a curve: means, and the share of those that are 1."""

    size: float
    coverage: float
    trivial: float

    @classmethod
    def of(cls, curve: SizeCurve, thresholds: Floats) -> "Expected":
        top = thresholds >= 1
        covered = np.where(top, 1.0, curve.coverage(thresholds))
        return cls(float(curve.size(thresholds).mean()), float(covered.mean()), float(top.mean()))


@dataclass(frozen=True)
class Option:
    """One method: what to expect of it at the epsilon of the advice, and what it would need.

    `records_needed` and `least_epsilon` are for the wanted size; None: not within reach.
    `simulated` is the mean size of campaigns, if they were run.
    """

    method: str
    score: str
    channel: str
    expected: Expected
    refusal: str | None
    shows: str
    records_needed: int | None = None
    least_epsilon: float | None = None
    why: str = ""
    simulated: float | None = None


@dataclass(frozen=True)
class Advice:
    """The options in the order of the advice; those that are not allowed come last."""

    asked: AdviceQuestion
    data: str
    labels: int
    epsilon: float
    wanted: float
    plain: float
    options: tuple[Option, ...] = field(default=())

    @property
    def best(self) -> Option | None:
        """The allowed method with the smallest sets."""
        first = self.options[0]
        return None if first.refusal else first


class ScoreCurves:
    """The curves of a population under every score, made when they are asked for."""

    def __init__(self, population: Predictions) -> None:
        self.name = population.name
        self.curve: Callable[[str], SizeCurve] = cache(lambda score: curve_of(population, score))

    def plain(self, score: str, coverage: float) -> float:
        """The size of the smallest sets of this coverage, without privacy."""
        curve = self.curve(score)
        return float(curve.size(curve.threshold(np.array(coverage))))

    def best_score(self, coverage: float) -> str:
        """The score with the smallest sets of this coverage."""
        return min(SCORES, key=lambda score: self.plain(score, min(coverage, 1.0)))


def expected(one: Candidate, scored: ScoreCurves, case: Case) -> tuple[Case, Expected]:
    """What to expect of a candidate, with the case of the best score.

    The best score is sought once more at the coverage that the first choice ends with.
    """
    # A method that is not allowed is only named with its size.
    campaigns = one.campaigns if one.refusal(case.asked) is None else one.few
    first = Expected.of(case.curve, one.law(case, campaigns))
    score = case.curve.score
    other = scored.best_score(first.coverage) if case.asked.score == BEST else score
    if other == score:
        return case, first
    changed = replace(case, curve=scored.curve(other))
    second = Expected.of(changed.curve, one.law(changed, campaigns))
    return (changed, second) if second.size < first.size else (case, first)


def ranked(scored: ScoreCurves, asked: AdviceQuestion) -> Advice:
    """Rank the methods at the epsilon of a question; what other sizes need is not sought."""
    if asked.epsilon is None:
        raise BadInput("epsilon is not given; accepted is one at which methods are compared")
    score = scored.best_score(1 - asked.alpha) if asked.score == BEST else asked.score
    curve, plain = scored.curve(score), scored.plain(score, 1 - asked.alpha)
    options = []
    for one in CANDIDATES:
        case, found = expected(one, scored, Case(curve, asked, asked.records, asked.epsilon))
        named = case.curve.score, one.channel(case)
        options.append(Option(one.name, *named, found, one.refusal(asked), one.shows))
    wanted = asked.size or min(ROOM * plain, float(curve.k))
    return Advice(asked, scored.name, curve.k, asked.epsilon, wanted, plain, _explained(options))


def advise(population: Predictions, asked: AdviceQuestion) -> Advice:
    """Rank the methods for a question by the size curves of these records, and say what they need.

    Without an epsilon the methods are compared at the least with which one of them gives the size.
    """
    scored = ScoreCurves(population)
    score = scored.best_score(1 - asked.alpha) if asked.score == BEST else asked.score
    curve, plain = scored.curve(score), scored.plain(score, 1 - asked.alpha)
    wanted = _wanted(asked, plain=plain, labels=curve.k)
    allowed = {one.name: one for one in CANDIDATES if one.refusal(asked) is None}

    def size(name: str) -> Size:
        def mean(n: int, epsilon: float) -> float:
            thresholds = allowed[name].law(Case(curve, asked, n, epsilon), allowed[name].few)
            return float(curve.size(thresholds).mean())

        return mean

    least = {name: least_epsilon(size(name), asked.records, wanted=wanted) for name in allowed}
    epsilon = asked.epsilon or _least_of(least.values(), asked, wanted=wanted)
    advice = ranked(scored, replace(asked, epsilon=epsilon))
    options = [
        replace(
            one,
            records_needed=records_needed(size(one.method), epsilon, wanted=wanted),
            least_epsilon=least[one.method],
        )
        if one.method in allowed
        else one
        for one in advice.options
    ]
    return replace(advice, asked=asked, options=tuple(options))


def _wanted(asked: AdviceQuestion, *, plain: float, labels: int) -> float:
    wanted = asked.size or min(ROOM * plain, float(labels))
    if wanted <= plain:
        raise BadInput(
            f"size is {wanted:g}; sets without privacy hold {plain:.2f} labels, so accepted is more"
        )
    return wanted


def _least_of(found: Iterable[float | None], asked: AdviceQuestion, *, wanted: float) -> float:
    """The least epsilon of any method."""
    least = min((one for one in found if one is not None), default=None)
    if least is None:
        raise BadInput(
            f"size is {wanted:g}; no allowed method gives sets as small with {asked.records} "
            "records at any epsilon; accepted is a larger size, more records, or an epsilon"
        )
    return least


def _explained(options: list[Option]) -> tuple[Option, ...]:
    """The options in order, each with the reason of its place."""
    ordered = sorted(options, key=lambda one: (one.refusal is not None, one.expected.size))
    best = ordered[0]
    return tuple(replace(one, why=_why(one, best)) for one in ordered)


def _why(one: Option, best: Option) -> str:
    size = one.expected.size
    if one.refusal is not None:
        return f"not allowed: {one.refusal}; its sets would hold {size:.2f} labels"
    if one is best:
        return f"smallest sets of what is allowed; {one.shows}"
    reason = f"sets hold {size - best.expected.size:.2f} labels more than those of {best.method}"
    if size < 1.05 * best.expected.size:
        reason = f"sets hold about as many labels as those of {best.method}"
    if one.expected.trivial >= 0.1:
        reason += f", because {one.expected.trivial:.0%} of campaigns certify nothing"
    return f"{reason}; {one.shows}"
