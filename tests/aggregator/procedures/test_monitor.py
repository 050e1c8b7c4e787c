"""A monitor raises few false alarms, by the exact law of its bits, and soon sees a fall."""

import math
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from confide.protocol.errors import BadInput
from confide.protocol.methods import monitor
from confide.protocol.methods.monitor import E_DETECTOR, E_PROCESS, MonitorTerms
from tests.support.cards.monitors import TERMS, WATCHING, alarm_probability, rate, tally, watched
from tests.support.cards.mutants import mutant


def test_false_alarms_are_as_rare_as_stated() -> None:
    """At coverage 0.9 exactly, in 60 rounds of 25 bits, and at more coverage less often."""
    found = [
        alarm_probability(each=25, rounds=60, honest_rate=rate(coverage))
        for coverage in (0.9, 0.91, 0.95)
    ]
    assert 0.01 < found[0] <= TERMS.delta
    assert found[0] > found[1] > found[2]


def test_a_wrong_rate_would_be_seen() -> None:
    """With the level taken 3 % too high, false alarms exceed delta: the check above can fail."""
    wrong = mutant(
        monitor, "level = 1 - Fraction(alpha)", "level = (1 - Fraction(alpha)) * 103/100"
    )
    assert alarm_probability(each=25, rounds=60, honest_rate=rate(0.9), module=wrong) > TERMS.delta


def test_liars_raise_no_more_false_alarms() -> None:
    """Ten ones that are told as zeros change nothing where ten lies are provided for."""
    given: dict[str, Any] = {"each": 25, "rounds": 30, "honest_rate": rate(0.9), "lies": 10}
    assert alarm_probability(**given) > TERMS.delta
    assert alarm_probability(**given, max_corrupt=10) <= TERMS.delta


@pytest.mark.parametrize("variant", [E_PROCESS, E_DETECTOR])
def test_capital_has_no_drift_upwards(variant: str) -> None:
    """The mean of the evidence after two rounds, over all outcomes at coverage 0.9: at most 1, or
    at most the number of rounds for the detector, which begins anew in each."""
    terms, first, second = replace(TERMS, variant=variant), 12, 20
    p = rate(0.9)
    mean = sum(
        binom.pmf(a, first, p)
        * binom.pmf(b, second, p)
        * math.exp(terms.alarm([tally(first, a), tally(second, b)], alpha=0.1).log_evidence)
        for a in range(first + 1)
        for b in range(second + 1)
    )
    assert mean == pytest.approx(1 if variant == E_PROCESS else 2, rel=1e-9)
    assert mean <= (1 if variant == E_PROCESS else 2) * (1 + 1e-9)


@pytest.mark.parametrize(("epsilon", "bits"), [(4.0, 2_500), (1.0, 22_000)])
def test_a_fall_to_85_percent_is_seen(epsilon: float, bits: int) -> None:
    """In so many bits with probability 0.99 or more, by the exact law of the sum: an alarm that
    the sum shows at the end was raised by then."""
    terms = replace(TERMS, epsilon=epsilon)
    ones = np.arange(bits + 1)
    law = binom.pmf(ones, bits, rate(0.85, terms))
    seen = [terms.alarm([tally(bits, int(k))], alpha=0.1).raised for k in ones[law > 1e-9]]
    assert float(law[law > 1e-9][seen].sum()) >= 0.99


def test_a_detector_forgets_good_months() -> None:
    """After 40 good rounds a fall is seen many rounds earlier than by all answers together."""
    good, bad = (500, round(500 * rate(0.95))), (500, round(500 * rate(0.85)))
    counts = [good] * 40 + [bad] * 100
    ends = {}
    for variant in (E_PROCESS, E_DETECTOR):
        plan = replace(WATCHING, terms=replace(TERMS, variant=variant, delta=0.01))
        found = watched(plan, counts)
        assert found.alarm
        ends[variant] = len(found.rounds)
    assert 40 < ends[E_DETECTOR] < 46 < 60 < ends[E_PROCESS]


def test_the_certificate_ends_with_the_alarm_or_with_the_plan() -> None:
    """Rounds that nobody answers are not counted, by either variant."""
    good, bad = (200, round(200 * rate(0.93))), (200, 100)
    found = watched(WATCHING, [good, (0, 0), bad, good])
    assert found.alarm
    assert [one.n for one in found.rounds] == [200, 200]
    assert found.level == 0
    for variant in (E_PROCESS, E_DETECTOR):
        quiet = watched(replace(WATCHING, terms=replace(TERMS, variant=variant)), [good] * 3)
        assert not quiet.alarm
        assert quiet.n == 600


@pytest.mark.parametrize(
    "change", [{"threshold": 1.0}, {"threshold": -0.1}, {"card": b""}, {"periods": 0}]
)
def test_terms_that_make_no_sense_are_refused(change: dict[str, Any]) -> None:
    values = asdict(TERMS)
    with pytest.raises(BadInput, match="accepted"):
        MonitorTerms(**values | change)
