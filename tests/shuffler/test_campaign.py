"""A shuffled campaign through real processes over TLS, with a kill of every server on the way."""

import re
from pathlib import Path

from confide.aggregator.storage.stored_campaign import CALIBRATED
from confide.protocol.cards.card import PUBLIC, parse_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.privacy.amplification import shuffled_epsilon
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import ID_BYTES, parse
from confide.shuffler.storage import MixedRounds
from tests.support.owners.owners import PUBLIC as SIGNER
from tests.support.servers.servers import Place, eventually, together
from tests.support.servers.shuffled_search import MOST_NEIGHBOURS, neighbours, traces
from tests.support.servers.shufflers import (
    ShufflerPlace,
    everything,
    named,
    sealed_contribution,
    stored,
)

OWNERS, EACH, CROWD = 4, 400, 1_000


def test_every_report_arrives_once_and_nobody_can_tell_whose_it_is(
    place: Place, shuffler: ShufflerPlace, tmp_path: Path
) -> None:
    """Both servers are killed, before and during the hand-over; owners send again. The aggregator's
    database holds every report once, in an order that has nothing to do with arrival, and no name,
    token or id of an owner; the shuffler's holds no report any more. The card verifies."""
    plan = shuffler.plan(crowd=CROWD, variant="one-shot", minimum_owners=OWNERS)
    campaign = place.campaign(plan, owners=1)
    upstream = place.serve()
    port = upstream.port
    first = shuffler.relay(port, campaign, owners=OWNERS)

    def answers(i: int) -> bool:
        folder = tmp_path / f"owner-{i}"
        made = sealed_contribution(shuffler, first, plan, folder, seed=i + 1, n=EACH)
        return made.once().well

    eventually(lambda: shuffler.store.rounds(campaign), what="the query at the shuffler")
    upstream.kill()
    assert together(OWNERS - 1, answers) == [True] * (OWNERS - 1)
    arrived = stored(shuffler.url, campaign)
    size = plan.terms.row_bytes + 48
    sent, their = named(arrived, "sealed", size), named(arrived, "ids", ID_BYTES)
    first.kill()
    second = shuffler.relay_again(first, port, campaign, owners=OWNERS)
    assert answers(OWNERS - 1)
    assert answers(0)
    mixed = eventually(lambda: MixedRounds(shuffler.store.engine).mixed(campaign, 0))
    second.kill()
    upstream = place.serve(port=port)
    shuffler.relay_again(first, port, campaign, owners=OWNERS)
    eventually(lambda: place.store.campaign(campaign).state == CALIBRATED, what="calibrated")

    assert MixedRounds(shuffler.store.engine).held(campaign, 0) is not None
    handed = stored(place.url, campaign)
    theirs = named(handed, "sealed", size)
    batch = parse(wire.Answer, mixed).batch
    assert {*named([batch], "sealed", size)} == {*theirs}
    assert sorted(theirs) == sorted(set(theirs))
    assert set(sent) < set(theirs)
    assert len(theirs) == OWNERS * EACH
    assert neighbours(sent, theirs) <= MOST_NEIGHBOURS
    names = [f"owner {i + 1}".encode() for i in range(OWNERS)]
    assert traces(everything(shuffler.url), names) == names
    assert traces(everything(place.url), [*names, *their]) == []
    assert traces(everything(shuffler.url), theirs) == []

    card = parse_card(place.store.card(campaign, PUBLIC) or "")
    findings = verify(card, key=SIGNER)
    assert [finding.clause for finding in findings if not finding.holds] == []
    shuffle = card.formal["shuffle"]
    assert shuffle["amplification"] == "by a shuffler"
    assert shuffle["n"] == OWNERS * EACH
    local = card.formal["certificate"]["epsilon"]
    assert shuffle["epsilon"] == shuffled_epsilon(local_epsilon=local, n=OWNERS * EACH, delta=1e-6)
    assert shuffle["epsilon"] < 0.5 * local
    assert card.provenance["contributors"]["owners"] == OWNERS
    assert card.provenance["contributors"]["largest"] == EACH
    assert re.fullmatch("[0-9a-f]{64}", shuffle["shuffler"])
