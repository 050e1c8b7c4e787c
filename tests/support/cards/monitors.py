"""Plans of monitors, and the exact probability that they raise an alarm."""

from bisect import bisect_left
from dataclasses import asdict, replace
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np
from scipy.stats import binom

from confide.aggregator.campaigns.driver import Outcome, run_procedure
from confide.aggregator.procedures.counts.central import draw_afresh
from confide.aggregator.procedures.registry import plan_procedure
from confide.protocol.cards.card import Card
from confide.protocol.exact.sampling import OPERATING_SYSTEM
from confide.protocol.methods import monitor
from confide.protocol.methods.monitor import E_PROCESS, MonitorTerms
from confide.protocol.methods.parts import BitTally
from confide.protocol.plan import Plan
from confide.protocol.watch import MonitorCertificate
from tests.support.cards.campaign_cards import issued
from tests.support.owners.owners import PLAN

TERMS = MonitorTerms(
    variant=E_PROCESS, epsilon=4.0, delta=0.1, threshold=0.6, card=bytes(range(32)), periods=200
)
WATCHING = replace(PLAN, terms=TERMS, minimum_reports=0)


def tally(n: int, ones: int) -> BitTally:
    return BitTally((n,), (ones,))


def rate(coverage: float, terms: MonitorTerms = TERMS) -> float:
    """The share of ones at this coverage."""
    channel = terms.make_channel(labels=0)
    return float(channel.observed(Fraction(coverage)))


def watched(plan: Plan, counts: list[tuple[int, int]]) -> MonitorCertificate:
    """Run the procedure of a plan on these tallies; further rounds are empty."""

    def answer(_: Any, number: int) -> BitTally:
        return tally(*(counts[number] if number < len(counts) else (0, 0)))

    found: MonitorCertificate = run_procedure(plan_procedure(plan, draw_afresh), answer)
    return found


def watched_card(counts: list[tuple[int, int]], plan: Plan = WATCHING) -> Card:
    """The signed card of a monitor with these tallies, of one owner, as of a real campaign."""
    found = replace(watched(plan, counts), randomness=OPERATING_SYSTEM)
    return issued(plan, Outcome(found, {"OK": 1}, min(found.n, 1), found.n))


def alarm_probability(
    *,
    each: int,
    rounds: int,
    honest_rate: float,
    lies: int = 0,
    max_corrupt: int = 0,
    module: ModuleType = monitor,
) -> float:
    """The exact probability of an alarm within rounds of so many bits, by the law of their sum.

    `lies` ones become zeros in the first round. The evidence of the e-process depends on the sums
    only, so the law of the sum of ones, without the paths that ended in an alarm, is all of it.
    """
    terms = module.MonitorTerms(**asdict(TERMS) | {"max_corrupt": max_corrupt})
    law, alarms = np.array([1.0]), 0.0
    step = binom.pmf(np.arange(each + 1), each, honest_rate)
    for number in range(1, rounds + 1):
        law = np.convolve(law, step)
        # Evidence falls with ones, so an alarm is raised below some number of them.
        least = bisect_left(
            range(len(law)),
            True,
            key=lambda ones: (
                not terms.alarm([tally(number * each, max(ones - lies, 0))], alpha=0.1).raised
            ),
        )
        raised = np.arange(len(law)) < least
        alarms += float(law[raised].sum())
        law = np.where(raised, 0.0, law)
    return alarms
