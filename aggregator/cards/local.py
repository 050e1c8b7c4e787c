"""The formal layer of a local-DP campaign: the promise of its certificate under its plan."""

from dataclasses import asdict

from confide.aggregator.campaigns.driver import Outcome, ShuffledRound
from confide.aggregator.cards.contracts.contract import decimal
from confide.aggregator.cards.reports import report_formal
from confide.protocol.cards.card import Layer
from confide.protocol.certificate import LocalCertificate, Stratum
from confide.protocol.methods.local import LocalTerms
from confide.protocol.plan import Plan
from confide.protocol.privacy.amplification import NO_AMPLIFICATION, SHUFFLE_DELTA, shuffled_epsilon
from confide.protocol.shuffling import MOST_CROWD

NO_SHUFFLER = "none: reports did not go through a shuffler"
BY_SHUFFLER = "by a shuffler"
ASSUMPTION = (
    "the shuffler tells nobody who sent what, and hands over what owners sent and nothing else; n "
    "counts the reports of the smallest round, less those that may be false; crowd_epsilon is that "
    "of a round of the crowd alone, less those that may be false or as many as did not open in a "
    "round, which holds for rounds that the card does not show, too"
)
UNOPENED = (
    "more reports of a round did not open than max_corrupt allows to be false; in a round that the "
    "card does not show even more of the crowd may be false, and crowd_epsilon then too small"
)


def local_formal(plan: Plan, outcome: Outcome) -> Layer:
    """Make the formal layer: contract, certificate, and the clauses that follow from them."""
    terms, certificate = LocalTerms.of(plan.terms), LocalCertificate.of(outcome.certificate)
    flags = {
        "coverage": decimal(certificate.level) >= 1 - decimal(plan.alpha),
        "kind": certificate.kind == terms.guarantee,
        "delta": certificate.delta <= terms.delta,
    }
    return report_formal(plan, certificate, kind=terms.guarantee, flags=flags) | {
        "certificate": _certificate(plan, certificate)
        | {"scoring": terms.scoring}
        | ({"smallest_owner": terms.smallest_owner} if terms.smallest_owner else {})
        | _strata(certificate)
        | _levels(certificate),
        "shuffle": _shuffle(plan, outcome),
        "margin": float(decimal(certificate.level) - (1 - decimal(plan.alpha))),
    }


def _certificate(plan: Plan, certificate: LocalCertificate) -> Layer:
    return {
        "method": plan.method,
        "variant": plan.variant,
        "score": plan.score,
        "channel": certificate.channel,
        "labels": plan.labels,
        "kind": certificate.kind,
        "level": certificate.level,
        "alpha": certificate.alpha,
        "delta": certificate.delta,
        "epsilon": certificate.epsilon,
        "n": certificate.n,
        "planned": certificate.planned,
        "slack": certificate.slack,
        "threshold": certificate.threshold,
        "rungs": [asdict(rung) for rung in certificate.rungs],
        "reason": certificate.reason,
        "assumptions": list(certificate.assumptions),
    }


def _strata(certificate: LocalCertificate) -> Layer:
    """The parts of the records that have a threshold each, if there are any."""
    if not certificate.strata:
        return {}
    strata: Layer = {
        "by": certificate.by,
        "joint": certificate.joint,
        "parts": [_part(one) for one in certificate.strata],
    }
    return {"strata": strata | ({"together": True} if certificate.together else {})}


def _levels(certificate: LocalCertificate) -> Layer:
    """The levels that are certified together; nothing if there is one."""
    each = [asdict(one) | {"rungs": list(map(asdict, one.rungs))} for one in certificate.levels]
    return {"levels": each} if each else {}


def _part(one: Stratum) -> Layer:
    """A part of the records; what only some variants have is left out of the others' cards."""
    shown = asdict(one) | {"rungs": list(map(asdict, one.rungs))}
    if one.covered:
        del shown["covered"]
    del shown["reports"]
    if one.reports is not None:
        shown["reports"] = list(one.reports)
    return shown


def _shuffle(plan: Plan, outcome: Outcome) -> Layer:
    """The privacy that a shuffler has added; none where reports did not go through one.

    A record answers in one round, and the crowd that hides it is that whole round. Of a round that
    is not here only the plan's crowd is known, which the shuffler kept to in every round.
    """
    certificate, rounds, shuffling = outcome.certificate, outcome.shuffled, plan.shuffling
    if not plan.terms.row_bytes:
        return {"amplification": NO_AMPLIFICATION}
    local = certificate.epsilon
    if shuffling is None or not rounds or local is None:
        return {"amplification": NO_SHUFFLER}
    n = max(1, min(MOST_CROWD, *(one.opened for one in rounds)) - plan.max_corrupt)
    unopened = max(one.handover.reports - one.opened for one in rounds)
    least = max(1, shuffling.crowd - max(plan.max_corrupt, unopened))

    def amplified(count: int) -> float:
        return shuffled_epsilon(local_epsilon=local, n=count, delta=SHUFFLE_DELTA)

    return {
        "amplification": BY_SHUFFLER,
        "shuffler": shuffling.key.hex(),
        "crowd": shuffling.crowd,
        "n": n,
        "epsilon": amplified(n),
        "crowd_epsilon": amplified(least),
        "delta": SHUFFLE_DELTA,
        "assumption": ASSUMPTION,
        **({"warning": UNOPENED} if unopened > plan.max_corrupt else {}),
        "rounds": [_handed_over(one) for one in rounds],
    }


def _handed_over(one: ShuffledRound) -> Layer:
    """What a shuffler signed of a round, without what its place and its plan say."""
    return {
        "reports": one.handover.reports,
        "opened": one.opened,
        "digest": one.handover.digest.hex(),
        "owners": one.handover.owners,
        "largest": one.handover.largest,
        "signature": one.signature.hex(),
    }
