"""Verify cards of the track monitor with their plan."""

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.monitor import monitor
from confide.protocol.cards.verify.tracks.base import TrackRules, register
from confide.protocol.cards.verify.tracks.local import (
    counted_reports,
    stated_contract,
    stated_reports,
)
from confide.protocol.methods.base import MONITOR
from confide.protocol.methods.monitor import MonitorTerms
from confide.protocol.plan import Plan


def _stated(plan: Plan) -> dict[str, Layer]:
    """Return the fields of the plan of a monitor, which releases no threshold."""
    terms = MonitorTerms.of(plan.terms)
    return {
        "contract": stated_contract(plan),
        "certificate": stated_reports(plan),
        "watched": {
            "card": terms.card.hex(),
            "threshold": terms.threshold,
            "periods": terms.periods,
        },
    }


register(
    MONITOR,
    TrackRules(unit="reports", decide=monitor, stated=_stated, counted=counted_reports),
)
