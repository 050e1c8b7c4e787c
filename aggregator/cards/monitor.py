"""The formal layer of a monitor: what was watched, what answered, and whether there is an alarm."""

from dataclasses import asdict

from confide.aggregator.campaigns.driver import Outcome
from confide.aggregator.cards.contracts.contract import decimal
from confide.aggregator.cards.released import campaign_released, decision
from confide.protocol.cards.card import Layer
from confide.protocol.certificate import WATCH
from confide.protocol.methods.monitor import MonitorTerms
from confide.protocol.plan import Plan
from confide.protocol.watch import MonitorCertificate


def monitor_formal(plan: Plan, outcome: Outcome) -> Layer:
    """Make the formal layer; `released` repeats the threshold of the watched card."""
    terms, found = MonitorTerms.of(plan.terms), MonitorCertificate.of(outcome.certificate)
    released = campaign_released(plan, found)
    flags = {
        "quiet": not found.alarm,
        "epsilon": found.epsilon is not None and found.epsilon <= plan.epsilon,
        "reports": found.n >= plan.minimum_reports,
        **released.flags(),
    }
    failed = [name for name, holds in flags.items() if not holds]
    return {
        "track": terms.track,
        "contract": {
            "name": plan.campaign,
            "coverage": float(1 - decimal(plan.alpha)),
            "kind": WATCH,
            "delta": terms.delta,
            "epsilon": plan.epsilon,
            "minimum_reports": plan.minimum_reports,
            "max_corrupt": terms.max_corrupt,
            "adjacency": found.adjacency,
            "unit": found.unit,
        },
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
        "released": released.layer(),
        "flags": flags,
        "failed": failed,
        "decision": decision(failed),
        "margin": None,
        "plan": plan.to_bytes().hex(),
    }
