"""The formal layer of a monitor: what was watched, what answered, and whether there is an alarm."""

from dataclasses import asdict

from confide.aggregator.campaigns.driver import Outcome
from confide.aggregator.cards.reports import report_formal
from confide.protocol.cards.card import Layer
from confide.protocol.certificate import WATCH
from confide.protocol.methods.monitor import MonitorTerms
from confide.protocol.plan import Plan
from confide.protocol.watch import MonitorCertificate


def monitor_formal(plan: Plan, outcome: Outcome) -> Layer:
    """Make the formal layer; `released` repeats the threshold of the watched card."""
    terms, found = MonitorTerms.of(plan.terms), MonitorCertificate.of(outcome.certificate)
    return report_formal(plan, found, kind=WATCH, flags={"quiet": not found.alarm}) | {
        "watched": {
            "card": terms.card.hex(),
            "threshold": terms.threshold,
            "periods": terms.periods,
        },
        "certificate": {
            "method": found.method,
            "variant": found.variant,
            "channel": found.channel,
            "alpha": found.alpha,
            "delta": found.delta,
            "epsilon": found.epsilon,
            "n": found.n,
            "alarm": found.alarm,
            "rounds": [asdict(one) for one in found.rounds],
            "assumptions": list(found.assumptions),
        },
        "margin": None,
    }
