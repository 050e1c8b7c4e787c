"""A calibration on the records of a training over a real server, killed before its card."""

import os
from typing import Any

import numpy as np

from confide.aggregator.campaigns.planning.plans import make_plan
from confide.protocol.cards.card import PUBLIC, parse_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.methods.base import Batch
from confide.protocol.methods.counts.queries import HistogramQuery
from confide.protocol.plan import Plan, digest
from tests.support.owners.answers import answer
from tests.support.owners.hostile import Wire
from tests.support.servers.servers import Place, eventually, plan_now
from tests.support.training.trained_chain import TRAINS

EACH, BINS = 1_000, 512
SETTINGS: dict[str, Any] = {
    "score": "hps",
    "labels": 3,
    "alpha": 0.1,
    "records": 4_000,
    "minimum-reports": 50,
    "minimum-owners": 1,
    "model": bytes(32).hex(),
    "mechanism": "rank-exponential",
    "epsilon": 1.0,
    "bins": BINS,
    "grid": "mixed",
    "beta": 0.002,
    "privacy-delta": 1e-6,
}


def histogram(plan: Plan, seed: int) -> bytes:
    """An owner's exact counts of scores that are spread over the grid."""
    places = np.random.default_rng(seed).integers(BINS, size=EACH)
    counts = np.bincount(places, minlength=BINS).astype(np.int64)
    batch = Batch(np.frombuffer(os.urandom(16), dtype=np.uint8)[None, :], {"counts": counts})
    return answer(batch, query=HistogramQuery(BINS), plan=digest(plan.to_bytes()), round_=0)


def test_a_release_outlives_a_killed_server(place: Place) -> None:
    """Killed after the draw and before the card: the next server writes the card of the same draw,
    with the training's plan and both costs."""
    training = plan_now(TRAINS)
    made = make_plan(
        "full-data:certified",
        SETTINGS,
        title="same records",
        valid=(training.issued, training.expires),
        training=training,
    )
    place.campaign(training)
    campaign, server = place.campaign(made, owners=2), place.serve()
    eventually(lambda: place.store.rounds(campaign))
    for seed in range(2):
        sent = Wire(server, campaign, place.enrol(f"owner {seed}")).announced(histogram(made, seed))
        assert sent == "OK"
    eventually(lambda: place.store.card(campaign, PUBLIC))
    kept, first = place.store.release(campaign), place.store.card(campaign, PUBLIC)
    server.kill()
    with place.store.engine.begin() as db:
        db.exec_driver_sql("DELETE FROM cards")
        db.exec_driver_sql(
            "UPDATE campaigns SET state = 'open', calibrated = NULL WHERE id = ?", (campaign,)
        )
    place.serve()
    eventually(lambda: place.store.card(campaign, PUBLIC))
    assert place.store.release(campaign) == kept
    cards = [parse_card(text or "") for text in (first, place.store.card(campaign, PUBLIC))]
    assert cards[0].formal == cards[1].formal
    assert [found.clause for found in verify(cards[1]) if not found.holds] == []
    assert cards[1].formal["calibration"]["n"] == 2 * EACH
    assert cards[1].formal["chain"]["training"] == training.to_bytes().hex()
