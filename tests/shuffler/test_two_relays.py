"""Two shuffler processes on one database, and rounds that were closed without a crowd."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from confide.aggregator.storage.stored_campaign import CALIBRATED, ENOUGH, OPERATOR
from confide.protocol.exact.sampling import os_entropy
from confide.shuffler.storage import MixedRounds
from tests.support.owners.owners import POLICY
from tests.support.servers.servers import Place, eventually
from tests.support.servers.shufflers import ShufflerPlace, collected, sealed_contribution

FEW = replace(POLICY, minimum_group=1)


def nothing_left(shuffler: ShufflerPlace, place: Place, campaign: str) -> bool:
    """Whether no report of the campaign is at the aggregator, or ready to be handed over."""
    rounds = MixedRounds(shuffler.store.engine)
    return (
        place.store.batches(campaign, 0) == 0
        and rounds.mixed(campaign, 0) is None
        and rounds.held(campaign, 0) is None
    )


def test_an_aggregator_that_tells_two_relays_two_things_gets_no_small_round(
    place: Place, on_either: ShufflerPlace, tmp_path: Path
) -> None:
    """One relay asks its query and gets three reports; to the other, which had seen no round, it
    says that the campaign has ended. The round is closed, and nothing of it leaves."""
    plan = on_either.plan(crowd=1_000, variant="one-shot")
    other = Place(tmp_path / "other")
    campaign = place.campaign(plan, owners=1)
    assert other.campaign(plan, owners=1) == campaign
    other.store.close(campaign, now=time.time())
    first = place.serve()
    told_otherwise = on_either.remote(other.serve(), campaign)
    assert on_either.join(on_either.remote(first, campaign)) == campaign

    def meanwhile() -> None:
        running = on_either.relay(first.port, campaign)
        folder = tmp_path / "owner"
        made = sealed_contribution(on_either, running, plan, folder, seed=1, n=3, policy=FEW)
        assert made.once().well
        assert on_either.store.turnout(campaign, 0).reports == 3

    told_otherwise.happens = meanwhile
    try:
        on_either.relay_here({campaign: told_otherwise}).step()
    finally:
        other.close()
    assert on_either.store.rounds(campaign)[0].because == OPERATOR
    eventually(
        lambda: on_either.store.campaign(campaign).reason or place.store.batches(campaign, 0)
    )
    assert nothing_left(on_either, place, campaign)
    assert on_either.store.campaign(campaign).reason


def test_a_round_that_one_relay_gives_up_is_not_handed_over_by_another(
    place: Place, on_either: ShufflerPlace, tmp_path: Path
) -> None:
    """The plan expires one report below the crowd, while another relay has read that the campaign
    is open: it hands nothing over."""
    before = place.campaign(on_either.plan(crowd=10, variant="one-shot", campaign="before"))
    plan = on_either.plan(crowd=301, variant="one-shot")
    upstream = place.serve()
    assert on_either.join(on_either.remote(upstream, before)) == before
    campaign = collected(on_either, place, plan, tmp_path / "owner", reports=300)
    late = plan.expires.timestamp() + 1.0
    gives_up = on_either.relay_here(
        {campaign: on_either.remote(upstream, campaign)}, now=lambda: late
    )
    remotes = {one: on_either.remote(upstream, one) for one in (before, campaign)}
    remotes[before].happens = gives_up.step
    on_either.relay_here(remotes, now=lambda: late).step()
    assert on_either.store.campaign(campaign).reason
    assert nothing_left(on_either, place, campaign)


def test_a_round_is_not_mixed_again_after_it_was_handed_over(
    place: Place, on_either: ShufflerPlace, tmp_path: Path
) -> None:
    """While one relay mixes, the other hands over and forgets: the first mixes nothing of its own,
    and the aggregator gets every report once."""
    plan = on_either.plan(crowd=300, variant="one-shot")
    campaign = collected(on_either, place, plan, tmp_path / "owner", reports=300)
    remotes = {campaign: on_either.remote(place.servers[0], campaign)}
    on_either.store.close_round(campaign, 0, ENOUGH, now=time.time())
    quick = on_either.relay_here(remotes)

    def entropy(size: int) -> bytes:
        quick.step()
        return os_entropy(size)

    assert on_either.relay_here(remotes, entropy=entropy).step() == set()
    rounds = MixedRounds(on_either.store.engine)
    assert rounds.mixed(campaign, 0) is None
    assert rounds.held(campaign, 0) == {"reports": 300, "owners": 1, "largest": 300}
    eventually(lambda: place.store.campaign(campaign).state == CALIBRATED, what="calibrated")
    assert on_either.store.campaign(campaign).reason is None


@pytest.mark.parametrize(
    ("crowd", "owners", "because"), [(301, 0, ENOUGH), (300, 2, ENOUGH), (300, 0, OPERATOR)]
)
def test_no_way_of_closing_a_round_replaces_its_crowd(
    crowd: int, owners: int, because: str, place: Place, shuffler: ShufflerPlace, tmp_path: Path
) -> None:
    """A database in which a round is closed too early, or by hand: the campaign fails, nothing is
    mixed, and what owners sent is gone."""
    plan = shuffler.plan(crowd=crowd, variant="one-shot", minimum_owners=owners)
    campaign = collected(shuffler, place, plan, tmp_path / "owner", reports=300)
    shuffler.store.close_round(campaign, 0, because, now=time.time())
    relay = shuffler.relay_here({campaign: shuffler.remote(place.servers[0], campaign)})
    assert relay.step() == set()
    assert shuffler.store.campaign(campaign).reason
    assert nothing_left(shuffler, place, campaign)
    assert shuffler.store.batches(campaign, 0) == 0
