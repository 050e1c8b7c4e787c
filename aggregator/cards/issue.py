"""Issues the card of a campaign: its certificate, under its plan as the contract."""

from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime

from confide.aggregator.campaigns.driver import Outcome
from confide.aggregator.cards.central import central_formal
from confide.aggregator.cards.chain import chain_layer
from confide.aggregator.cards.full_data_campaign import full_data_campaign_formal
from confide.aggregator.cards.local import local_formal
from confide.aggregator.cards.monitor import monitor_formal
from confide.protocol.cards.card import PUBLIC, Card, Layer
from confide.protocol.cards.tracks.registry import TRACKS
from confide.protocol.methods.base import CENTRAL, FULL_DATA, LOCAL, MONITOR
from confide.protocol.plan import Plan, digest
from confide.protocol.version import CODE_VERSION

# The formal layer of a campaign, by the track of its method.
FORMAL: dict[str, Callable[[Plan, Outcome], Layer]] = {
    LOCAL: local_formal,
    CENTRAL: central_formal,
    FULL_DATA: full_data_campaign_formal,
    MONITOR: monitor_formal,
}


def campaign_card(
    plan: Plan,
    outcome: Outcome,
    *,
    diagnostic: Layer,
    issued: datetime,
    training: Plan | None = None,
) -> Card:
    """Make the card of a campaign, not yet signed.

    `diagnostic` is measured on records that took no part in the campaign; `training` is the plan of
    the campaign that trained its model, if the plan names one.
    """
    origin = provenance(
        plan=digest(plan.to_bytes()),
        issued=issued.replace(microsecond=0).isoformat(),
        received=outcome.received,
    ) | {"contributors": contributors(plan, outcome)}
    formal = FORMAL[plan.terms.track](plan, outcome) | chain_layer(plan, training)
    return Card(formal, diagnostic | described(outcome), origin, view=PUBLIC)


def described(outcome: Outcome) -> Layer:
    """What is known about each owner, if the campaign kept owners apart."""
    found: Layer = {"owners": list(outcome.owners)} if outcome.owners else {}
    return found | ({"departure": outcome.departure} if outcome.departure else {})


def contributors(plan: Plan, outcome: Outcome) -> Layer:
    """The owners counted, by round where they are known, and the effect if the largest lied."""
    largest, n = outcome.largest, outcome.certificate.n
    if outcome.shuffled:
        # What a shuffler signed of owners counts reports that did not open, too.
        n = sum(one.handover.reports for one in outcome.shuffled)
    unit = TRACKS[plan.terms.track].counted
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
    } | ({"rounds": list(map(asdict, outcome.rounds))} if outcome.rounds else {})


def provenance(
    *,
    plan: bytes | None,
    issued: str,
    received: dict[str, int] | None = None,
    training_noise: str | None = None,
) -> Layer:
    """The origin of a card: code version, plan, time of issue, received answers, training noise."""
    return {
        "code": CODE_VERSION,
        "plan": None if plan is None else plan.hex(),
        "issued": issued,
        "received": received or {},
        "training_noise": training_noise,
    }
