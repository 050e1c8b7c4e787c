"""What a server knows of campaigns that were created while it runs."""

import time
from typing import Any

import grpc
import pytest

from confide.aggregator.server.service import HEARTBEAT_SECONDS
from confide.aggregator.server.shared_reading import PAUSE_SECONDS
from confide.protocol.plan import digest
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.service import AUTHORIZATION
from tests.support.owners.answers import answer, bit_batch
from tests.support.servers.guarded import Caller, Guarded, outcome
from tests.support.servers.servers import plan_now, together


@pytest.mark.parametrize("name", ["FetchPlan", "PollQuery", "Watch", "Submit"])
def test_a_campaign_is_known_as_soon_as_it_is_created(guarded: Guarded, name: str) -> None:
    """Whatever is asked of it first finds it; here nothing else has the server look."""
    token = guarded.place.enrol("owner")
    plan = plan_now(campaign="just created")
    owner = Caller(guarded, token, campaign=guarded.opened(plan))
    sent = answer(bit_batch(3), plan=digest(plan.to_bytes()))
    found = {
        "FetchPlan": lambda: owner.plan() == plan.to_bytes(),
        "PollQuery": lambda: owner.ask() == wire.Code.OK,
        "Watch": lambda: next(owner.watch()).taking,
        "Submit": lambda: owner.submit(iter([sent])).result().accepted == 3,
    }[name]
    assert outcome(found) is True


def test_those_who_watch_are_told_whoever_looks(guarded: Guarded) -> None:
    """The end of a campaign that a stranger's question brings to light reaches its watchers."""
    owner, other = (guarded.owner(f"owner {i}") for i in range(2))
    watching = owner.watch()
    assert next(watching).taking
    guarded.place.store.close(guarded.campaign, now=1.0)
    asking = Caller(guarded, dict(other.metadata)[AUTHORIZATION].split()[1], campaign="f" * 16)
    began = time.monotonic()
    assert asking.ask() == grpc.StatusCode.NOT_FOUND
    assert not next(watching).taking
    assert time.monotonic() - began < HEARTBEAT_SECONDS / 2


def test_unknown_campaigns_cost_few_looks(guarded: Guarded) -> None:
    """Owners who ask for campaigns that are not there wait together, and are all told so."""
    owners = [guarded.place.enrol(f"owner {i}") for i in range(2)]
    callers = [Caller(guarded, token, campaign="f" * 16) for token in owners]
    before, began = guarded.looks, time.monotonic()

    def ask(i: int) -> list[Any]:
        return [callers[i].ask() for _ in range(8)]

    assert {code for codes in together(2, ask) for code in codes} == {grpc.StatusCode.NOT_FOUND}
    most = 1 + (time.monotonic() - began) / PAUSE_SECONDS
    assert 0 < guarded.looks - before <= most
