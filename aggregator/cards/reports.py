"""The part of a formal layer that all campaigns of private reports share."""

from confide.aggregator.cards.contracts.contract import decimal
from confide.aggregator.cards.released import campaign_released, decision
from confide.protocol.cards.card import Layer
from confide.protocol.certificate import Certificate
from confide.protocol.methods.local import LocalTerms
from confide.protocol.plan import Plan


def report_formal(
    plan: Plan, certificate: Certificate, *, kind: str, flags: dict[str, bool]
) -> Layer:
    """Make the layer of a plan whose contract is of this kind, without what its track adds.

    `flags` are the clauses of the track; those of the cost, the reports and the release follow.
    """
    terms, released = LocalTerms.of(plan.terms), campaign_released(plan, certificate)
    held = {
        **flags,
        "epsilon": certificate.epsilon is not None and certificate.epsilon <= plan.epsilon,
        "reports": certificate.n >= plan.minimum_reports,
        **released.flags(),
    }
    failed = [name for name, holds in held.items() if not holds]
    return {
        "track": terms.track,
        "contract": {
            "name": plan.campaign,
            "coverage": float(1 - decimal(plan.alpha)),
            "kind": kind,
            "delta": terms.delta,
            "epsilon": plan.epsilon,
            "minimum_reports": plan.minimum_reports,
            "max_corrupt": terms.max_corrupt,
            "adjacency": certificate.adjacency,
            "unit": certificate.unit,
        },
        "plan": plan.to_bytes().hex(),
        "released": released.layer(),
        "flags": held,
        "decision": decision(failed),
        "failed": failed,
    }
