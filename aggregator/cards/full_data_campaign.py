"""The formal layer of a campaign that calibrated on the records that trained its model.

It says what is used for what: privacy is what owners charged, replace-one, training and calibration
added up; coverage is carried by the training's profile when one record is added.
"""

from dataclasses import asdict

from confide.aggregator.campaigns.driver import Outcome
from confide.aggregator.cards.contracts.contract import decimal
from confide.aggregator.cards.released import campaign_released, decision
from confide.aggregator.procedures.full_data.rules import Rule, rule_of
from confide.aggregator.quantiles.base import ADD_REMOVE, CERTIFIED, REPLACE_ONE
from confide.protocol.cards.card import Layer
from confide.protocol.certificate import MARGINAL, CentralCertificate
from confide.protocol.methods.counts.full_data import FullDataTerms
from confide.protocol.plan import Plan


def full_data_campaign_formal(plan: Plan, outcome: Outcome) -> Layer:
    """Make the formal layer of a campaign; what its plan's variant does not prove is not promised.

    `complete` tells whether every owner answered every round; if not, coverage still holds and the
    inflation bound does not.
    """
    terms, certificate = FullDataTerms.of(plan.terms), CentralCertificate.of(outcome.certificate)
    rule, n = rule_of(terms, alpha=plan.alpha), max(certificate.n, 1)
    promise, released = rule.promise(n), campaign_released(plan, certificate)
    spent = terms.training_epsilon + terms.epsilon
    delta = terms.training_delta + terms.privacy_delta
    flags = {
        "certified": promise.status == CERTIFIED,
        "rank": certificate.rank is not None,
        **released.flags(),
    }
    failed = [name for name, holds in flags.items() if not holds]
    return {
        "track": terms.track,
        "plan": plan.to_bytes().hex(),
        "contract": {
            "kind": MARGINAL,
            "adjacency": REPLACE_ONE,
            "unit": certificate.unit,
            "name": plan.campaign,
            "coverage": float(1 - decimal(plan.alpha)),
            "beta": terms.beta,
            "epsilon": spent,
            "delta": delta,
        },
        "training": asdict(rule.training),
        "profile": [{"epsilon": epsilon, "delta": delta} for epsilon, delta in rule.points],
        "calibration": _calibration(rule, certificate, n),
        "promise": {
            **asdict(promise),
            "assumptions": list(promise.assumptions),
            "transfer": ADD_REMOVE,
        },
        "total": {
            "epsilon": spent,
            "delta": delta,
            "composition": "sum, as owners charge it",
        },
        "released": released.layer()
        | {"bin": certificate.bin, "complete": certificate.inflation is not None},
        "flags": flags,
        "decision": decision(failed),
        "failed": failed,
        "margin": 0.0 if flags["certified"] else None,
    }


def _calibration(rule: Rule, certificate: CentralCertificate, n: int) -> Layer:
    terms, trusted = rule.terms, rule.terms.shows_exact_counts
    return {
        "variant": terms.variant,
        "mechanism": terms.mechanism,
        "noised_by": "aggregator" if trusted else "owners",
        "noise_variance": terms.noise_variance,
        "owners": max(certificate.owners, 1),
        "n": n,
        "bins": terms.bins,
        "grid": terms.grid,
        "epsilon": terms.epsilon,
        "delta": terms.privacy_delta,
        "miss": rule.miss,
        "level": rule.level(n),
        "rank": certificate.rank,
        "buffer": rule.buffer,
        "inflation_ranks": certificate.inflation,
    }
