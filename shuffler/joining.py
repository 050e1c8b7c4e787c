"""Takes part in a campaign of an aggregator: its plan, its model, and when rounds end here."""

import logging
from datetime import UTC, datetime

from confide.aggregator.storage.store import Store
from confide.aggregator.storage.stored_campaign import DRAFT, Settings
from confide.client.transport.grpc_client import Aggregator
from confide.protocol.errors import BadInput, Refused
from confide.protocol.plan import open_plan, signer
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.service import CAMPAIGN_DIGITS
from confide.shuffler.closing import seconds_short

log = logging.getLogger(__name__)


def join(store: Store, remote: Aggregator, *, settings: Settings, key: bytes, now: float) -> str:
    """Store a campaign, so that owners may answer it here, and return its id.

    The plan must name this shuffler's key. One that is stored already is left as it is.
    """
    name = remote.campaign[:CAMPAIGN_DIGITS]
    known = {one.id: one.state for one in store.campaigns()}
    if name not in known:
        _create(store, remote, settings=settings, key=key, now=now)
    if known.get(name, DRAFT) == DRAFT:
        store.open(name, now=now)
    return name


def _create(
    store: Store, remote: Aggregator, *, settings: Settings, key: bytes, now: float
) -> None:
    name = remote.campaign[:CAMPAIGN_DIGITS]
    signed = remote.plan()
    try:
        plan, _ = open_plan(signed, trusted={signer(signed)}, now=datetime.fromtimestamp(now, UTC))
    except Refused as refused:
        raise BadInput(
            f"the plan of campaign {name} is refused ({wire.Code.Name(refused.code)}); accepted is "
            "one that its aggregator signed and that is valid now"
        ) from None
    if plan.shuffling is None or plan.shuffling.key != key:
        named = "no shuffler" if plan.shuffling is None else plan.shuffling.key.hex()
        raise BadInput(
            f"the plan of campaign {name} names {named}; accepted is this one's key, {key.hex()}"
        )
    if plan.terms.uses_model and (model := remote.model()) is not None:
        store.keep_model(model)
    store.create(signed, settings, now=now)
    short = seconds_short(plan, settings, now=now)
    if short:
        log.warning(
            "the plan may expire before its last round; give fewer round-seconds",
            extra={
                "campaign": name,
                "rounds": plan.terms.most_rounds,
                "round_seconds": settings.round_seconds,
                "seconds_short": round(short),
            },
        )
