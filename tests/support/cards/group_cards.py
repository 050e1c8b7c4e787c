"""Cards of campaigns by group, and of counts by class, of owners that answer in bytes."""

from dataclasses import replace
from pathlib import Path

from confide.aggregator.campaigns.driver import run_campaign
from confide.aggregator.cards.issue import campaign_card
from confide.protocol.cards.card import Card, parse_card
from confide.protocol.exact.sampling import OPERATING_SYSTEM, SeededEntropy
from confide.protocol.plan import Plan
from confide.protocol.privacy.zcdp import search_variance
from tests.support.cards.cards import KEY
from tests.support.cards.central import BINS, NOISED, OPEN_POLICY, TRUSTED
from tests.support.owners.owners import (
    BY_WARD,
    LABEL_PLAN,
    NOW,
    PLAN,
    K,
    asking,
    changed,
    owner,
    signed,
)

COUNTS = changed(TRUSTED, beta=0.0, epsilon=2.0)
PLANS = {
    "bits:per-group": changed(PLAN, variant="per-group", part_floor=900, **BY_WARD),
    "bits:for-every-group": changed(PLAN, variant="for-every-group", part_floor=900, **BY_WARD),
    "labels:per-group": changed(LABEL_PLAN, variant="per-group", part_floor=900, **BY_WARD),
    "labels:for-every-group": changed(
        LABEL_PLAN, variant="for-every-group", part_floor=900, **BY_WARD
    ),
    "central by group": changed(COUNTS, by="group", parts=3, **BY_WARD),
    "central by class": changed(COUNTS, by="class", parts=K),
    "noised by group": changed(NOISED, by="group", parts=3, **BY_WARD),
    "noised by class": changed(
        NOISED,
        by="class",
        parts=K,
        epsilon=4.0,
        noise_variance=search_variance(bins=BINS, epsilon=4.0, delta=1e-6, moved=2),
    ),
}


def group_card(plan: Plan, folder: Path) -> Card:
    """The card of three owners that answer in bytes, as it is read again from its file."""
    folder.mkdir()
    owners = [
        owner(folder / str(i), seed=i, policy=OPEN_POLICY, entropy=SeededEntropy("owner", i))
        for i in range(3)
    ]
    entropy = SeededEntropy("draw")
    outcome = run_campaign(
        plan,
        asking(signed(plan), owners),
        draw=lambda one, counts, rank: one.release(counts, rank, entropy),
    )
    assert dict(outcome.received).keys() == {"OK"}
    real = replace(outcome.certificate, randomness=OPERATING_SYSTEM)
    card = campaign_card(plan, replace(outcome, certificate=real), diagnostic={}, issued=NOW)
    return parse_card(card.sign(KEY).to_json())
