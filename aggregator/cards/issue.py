"""The cards of campaigns: a certificate put under the contract that its plan is."""

from dataclasses import asdict
from datetime import datetime

from confide.aggregator.campaigns.driver import Outcome
from confide.aggregator.cards.contract import Configuration, Contract, decimal
from confide.aggregator.cards.released import Released, decision
from confide.aggregator.cards.search import search
from confide.aggregator.procedures.shuffle import NO_AMPLIFICATION, shuffled_epsilon
from confide.protocol.cards.card import CODE_VERSION, PUBLIC, Card, Layer
from confide.protocol.certificate import PAC, Certificate
from confide.protocol.plan import NOISED_COUNTS, Plan, digest

SHUFFLE_DELTA = 1e-6


def campaign_formal(plan: Plan, certificate: Certificate, *, crowd: int | None) -> Layer:
    """The formal layer of a local-DP campaign; `crowd` is the fewest reports that answered one
    question together."""
    flags = {
        "coverage": decimal(certificate.level) >= 1 - decimal(plan.alpha),
        "kind": certificate.kind == PAC,
        "delta": certificate.delta is not None and certificate.delta <= plan.delta,
        "epsilon": certificate.epsilon is not None and certificate.epsilon <= plan.epsilon,
        "reports": certificate.n >= plan.minimum_reports,
        **campaign_released(plan, certificate).flags(),
    }
    failed = [name for name, holds in flags.items() if not holds]
    shuffle: Layer = {"amplification": NO_AMPLIFICATION}
    if plan.method == "bits" and crowd and certificate.epsilon is not None:
        amplified = shuffled_epsilon(
            local_epsilon=certificate.epsilon, n=crowd, delta=SHUFFLE_DELTA
        )
        shuffle = {
            "amplification": "if reports are shuffled",
            "n": crowd,
            "epsilon": amplified,
            "delta": SHUFFLE_DELTA,
        }
    return {
        "track": "local",
        "contract": {
            "name": plan.campaign,
            "coverage": float(1 - decimal(plan.alpha)),
            "kind": PAC,
            "delta": plan.delta,
            "epsilon": plan.epsilon,
            "minimum_reports": plan.minimum_reports,
            "max_corrupt": plan.max_corrupt,
            "adjacency": certificate.adjacency,
            "unit": certificate.unit,
        },
        "certificate": {
            "method": plan.method,
            "variant": plan.variant,
            "score": plan.score,
            "channel": plan.channel,
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
        },
        "shuffle": shuffle,
        "plan": plan.to_bytes().hex(),
        "released": campaign_released(plan, certificate).layer(),
        "flags": flags,
        "decision": decision(failed),
        "margin": float(decimal(certificate.level) - (1 - decimal(plan.alpha))),
        "failed": failed,
    }


def campaign_released(plan: Plan, certificate: Certificate) -> Released:
    return Released(plan.model, plan.score, certificate.threshold, certificate.randomness)


def campaign_card(plan: Plan, outcome: Outcome, *, diagnostic: Layer, issued: datetime) -> Card:
    """The card of a local-DP campaign, not yet signed. Its diagnostics are measured on records that
    took no part."""
    origin = provenance(
        plan=digest(plan.to_bytes()),
        issued=issued.replace(microsecond=0).isoformat(),
        received=outcome.received,
    ) | {"contributors": contributors(plan, outcome)}
    formal = campaign_formal(plan, outcome.certificate, crowd=outcome.crowd)
    if plan.central:
        formal = central_formal(plan, outcome.certificate)
    return Card(formal, diagnostic, origin, view=PUBLIC)


def contributors(plan: Plan, outcome: Outcome) -> Layer:
    """How many owners were counted, the least that the plan asks for, and what the largest of them
    could do by lying."""
    largest, n = outcome.largest, outcome.certificate.n
    unit = "records" if plan.central else "reports"
    lies = f"if the largest contributor ({largest} of {n} {unit}) lied, "
    lies += (
        f"the certificate holds: max_corrupt is {plan.max_corrupt}"
        if largest <= plan.max_corrupt
        else "nothing is guaranteed"
    )
    return {
        "owners": outcome.contributors,
        "minimum_owners": plan.minimum_owners,
        "largest": largest,
        "of": n,
        "if_the_largest_lied": lies,
    }


def central_formal(plan: Plan, certificate: Certificate) -> Layer:
    """The formal layer of a central campaign: its one configuration, and the threshold released
    under it.

    `complete` tells whether every owner answered every round; if not, coverage still holds and the
    inflation bound does not.
    """
    contract = Contract(
        plan.campaign,
        coverage=float(1 - decimal(plan.alpha)),
        beta=plan.beta,
        epsilon_train=0.0,
        epsilon_calibration=plan.epsilon,
        delta=plan.privacy_delta,
        adjacency=certificate.adjacency,
        unit=certificate.unit,
    )
    noised = plan.channel == NOISED_COUNTS
    configuration = Configuration(
        plan.mechanism,
        float(1 - decimal(plan.alpha) + decimal(plan.beta)),
        max(certificate.n, 1),
        plan.bins,
        0.0,
        0.0,
        plan.epsilon,
        plan.privacy_delta,
        "owners" if noised else "aggregator",
        max(certificate.owners or 0, 1),
        plan.noise_variance,
    )
    formal = search(contract, [configuration])
    released = campaign_released(plan, certificate)
    flags = formal["flags"] | released.flags()
    failed = [*formal["failed"], *(name for name, holds in released.flags().items() if not holds)]
    about = {
        "bin": round(certificate.threshold * plan.bins) - 1,
        "complete": certificate.inflation is not None,
    }
    return formal | {
        "plan": plan.to_bytes().hex(),
        "released": released.layer() | about,
        "flags": flags,
        "failed": failed,
        "decision": decision(failed),
    }


def provenance(
    *,
    plan: bytes | None,
    issued: str,
    received: dict[str, int] | None = None,
    training_noise: str | None = None,
) -> Layer:
    """Where a card comes from."""
    return {
        "code": CODE_VERSION,
        "plan": None if plan is None else plan.hex(),
        "issued": issued,
        "received": received or {},
        "training_noise": training_noise,
    }
