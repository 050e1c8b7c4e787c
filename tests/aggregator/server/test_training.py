import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from confide.aggregator.storage.training_progress import error_rates
from confide.protocol.methods.training.mean_weights import packed
from confide.protocol.methods.training.query import TrainingQuery
from confide.protocol.plan import digest, read_query
from confide.protocol.wire.service import PIECE_BYTES
from tests.support.owners.owners import changed
from tests.support.servers.servers import Place, eventually, together
from tests.support.training.federated_trainings import (
    LONG,
    LONG_CNN,
    RECORDS,
    in_process,
    learning,
    separate,
    spent,
    terms_of,
    training_plan,
)

OWNERS = 3
# Processes that import torch, on a machine that does other work.
LONGEST = 300.0


@pytest.mark.parametrize("settings", [{}, LONG, {"loss-share": 0.25}])
def test_a_training_over_grpc_ends_in_the_weights_of_one_in_process(
    settings: dict[str, Any], place: Place, tmp_path: Path
) -> None:
    """Three owners over TLS, also where weights are longer than a message: the weights are bit for
    bit those of the same owners in process, and a record is charged once for all rounds."""
    plan = training_plan(**settings)
    terms = terms_of(plan)
    campaign, server = place.campaign(plan, owners=OWNERS), place.serve()
    access = [server.access(place.enrol(f"owner {i}")) for i in range(OWNERS)]
    left = together(OWNERS, lambda i: learning(access[i], plan, tmp_path / str(i), seed=i).watch())
    eventually(lambda: place.store.campaign(campaign).state == "trained")
    expected, received = in_process(plan, tmp_path / "in process", owners=OWNERS)
    assert place.store.weights(campaign) == packed(expected.weights)
    about = json.loads(place.store.about_training(campaign) or "")
    assert about["owners"] == [OWNERS] * terms.rounds == list(expected.owners)
    assert about["received"] == received == {"OK": OWNERS * terms.rounds}
    rates = list(error_rates(place.store, campaign, plan).values())
    assert rates == list(expected.errors)
    assert about.get("error_rates", []) == [asdict(one) for one in rates]
    assert len(rates) == (terms.rounds if terms.loss_share else 0)
    assert (about["adjacency"], about["delta"]) == ("replace-one", 1e-5)
    assert about["epsilon"] == terms.spent(1e-5) <= 4.0
    assert [spent(tmp_path / str(i)) for i in range(OWNERS)] == [(RECORDS, 4.0)] * OWNERS
    assert all(one.well and one.reports == terms.rounds for one in left)
    if settings is LONG:
        assert left[0].bytes > 2 * PIECE_BYTES
    assert server.stop() == 0
    assert not [event for event in server.events() if event["level"] != "info"]


def test_a_training_goes_on_after_kills(place: Place, tmp_path: Path) -> None:
    """The server is killed in the middle of a round and an owner after it was asked: the weights
    of a convolutional network are those of an undisturbed training, bit for bit, and nobody is
    charged twice."""
    plan = training_plan(**LONG_CNN | {"rounds": 3})
    assert terms_of(plan).answer_bytes > PIECE_BYTES
    campaign, server = place.campaign(plan, owners=OWNERS), place.serve()
    access = [server.access(place.enrol(f"owner {i}")) for i in range(OWNERS)]
    given: dict[str, Any] = {"plan": plan, "ca": place.keys / "ca.pem"}

    def finished(number: int) -> int:
        return place.store.turnout(campaign, number).finished

    with (
        separate(access[0], folder=tmp_path / "0", seed=0, **given),
        separate(access[1], folder=tmp_path / "1", seed=1, **given),
    ):
        # The third owner is killed as soon as its ledger has paid for the first round.
        with separate(access[2], folder=tmp_path / "2", seed=2, **given):
            ledger = tmp_path / "2/ledger.sqlite"
            eventually(lambda: ledger.exists() and spent(ledger.parent)[0], seconds=LONGEST)
        eventually(lambda: finished(0) >= 2, seconds=LONGEST)
        server.kill()
        server = place.serve(port=server.port)
        with separate(access[2], folder=tmp_path / "2", seed=2, **given):
            eventually(lambda: finished(1) >= 1, seconds=LONGEST)
            server.kill()
            place.serve(port=server.port)
            eventually(lambda: place.store.campaign(campaign).state == "trained", seconds=LONGEST)
    expected, _ = in_process(plan, tmp_path / "in process", owners=OWNERS)
    assert place.store.weights(campaign) == packed(expected.weights)
    assert [spent(tmp_path / str(i)) for i in range(OWNERS)] == [(RECORDS, 4.0)] * OWNERS


def test_a_training_that_is_closed_early_keeps_what_it_has(place: Place, tmp_path: Path) -> None:
    """Rounds that nobody was asked count nobody, and change nothing: the weights are the mean of
    the last round that was. With fewer owners than the plan asks for there is none."""
    plan = training_plan(rounds=2_000)
    campaign, few = place.campaign(plan, owners=2), place.campaign(changed(plan, minimum_owners=3))
    server, tokens = place.serve(), [place.enrol(f"owner {i}") for i in range(2)]
    for name, asked in ((campaign, plan), (few, changed(plan, minimum_owners=3))):
        for i, token in enumerate(tokens):
            part = learning(server.access(token), asked, tmp_path / name / str(i), seed=i)
            eventually(part.remote.query)
            assert part.once().well
        assert place.store.turnout(name, 0).finished == 2
    eventually(lambda: len(place.store.rounds(campaign)) == 2)
    for name in (campaign, few):
        place.store.close(name, now=time.time())
    eventually(lambda: place.store.campaign(campaign).state == "trained")
    about = json.loads(place.store.about_training(campaign) or "")
    assert about["owners"] == [2, *[0] * 1_999]
    first, _ = read_query(
        place.store.query(campaign, 1), plan=plan, plan_digest=digest(plan.to_bytes())
    )
    assert isinstance(first, TrainingQuery)
    assert place.store.weights(campaign) == packed(first.weights)
    reason = eventually(lambda: place.store.campaign(few).reason)
    assert "answers of 2 owners were counted, the plan asks for at least 3" in reason
    assert place.store.weights(few) is None
