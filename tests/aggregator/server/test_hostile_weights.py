"""Answers of a training that no honest owner sends, and answers of the largest size."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.aggregator.server.rounds.stored_rounds import StoredRounds
from confide.aggregator.storage import views
from confide.client.transport.grpc_client import Aggregator
from confide.client.transport.retry import Patience, Unreachable
from confide.protocol.exact.lattice import MOST_WEIGHTS
from confide.protocol.methods.training.mean_weights import WEIGHT_BOUND, TrainingTally
from confide.protocol.methods.training.query import TrainingQuery
from confide.protocol.plan import read_query
from confide.protocol.sealing import sealing_key
from confide.protocol.wire.service import MESSAGES, PIECE_BYTES
from confide.protocol.wire.splitting import split_answer
from tests.support.networks.stacks import first_weights
from tests.support.owners.hostile import Wire
from tests.support.owners.owners import KEY
from tests.support.servers.servers import Place, eventually
from tests.support.training.federated_trainings import LONG, terms_of, training_plan, weights_answer

PLAN = training_plan(**LONG)
SIZE = terms_of(PLAN).size


def zeros(**changes: float) -> NDArray[np.float32]:
    """Return weights that are 0 but at these places."""
    made = np.zeros(SIZE, dtype=np.float32)
    for place, value in changes.items():
        made[int(place[1:])] = value
    return made


def test_hostile_weights_are_refused_before_anything_counts(place: Place) -> None:
    """Of another shape, not finite, out of range, or with a piece missing: each has its code, is
    counted under it, and leaves nothing behind. The honest answer counts after all of them."""
    campaign, token, server = place.campaign(PLAN), place.enrol("owner"), place.serve()
    eventually(lambda: place.store.rounds(campaign))
    time.sleep(0.5)
    hand = Wire(server, campaign, token)

    def sent(weights: NDArray[Any], some: Callable[[list[bytes]], list[bytes]] = list) -> str:
        answer = weights_answer(PLAN, weights)
        messages = some(list(split_answer(answer, PLAN, most=PIECE_BYTES)))
        return hand.receipt(*messages)[0]

    refused = {
        "short": (sent(zeros()[:-1]), "MALFORMED"),
        "long": (sent(np.append(zeros(), np.float32(0))), "MALFORMED"),
        "much longer": (sent(np.zeros(SIZE + 100, dtype=np.float32)), "TOO_LARGE"),
        "nan": (sent(zeros(_7=np.nan)), "OUT_OF_ALPHABET"),
        "infinite": (sent(zeros(_300000=np.inf)), "OUT_OF_ALPHABET"),
        "out of range": (sent(zeros(_8=-2 * WEIGHT_BOUND)), "OUT_OF_ALPHABET"),
        "no first piece": (sent(zeros(), lambda all_: all_[1:]), "MALFORMED"),
        "no last piece": (sent(zeros(), lambda all_: all_[:-1]), "MALFORMED"),
        "a piece twice": (sent(zeros(), lambda all_: [all_[0], *all_]), "MALFORMED"),
        "another between": (
            sent(zeros(), lambda all_: [all_[0], weights_answer(PLAN, zeros()[:5]), all_[1]]),
            "MALFORMED",
        ),
        "two owners": (
            hand.receipt(
                *split_answer(weights_answer(PLAN, zeros(), ids=bytes(32)), PLAN, most=PIECE_BYTES)
            )[0],
            "MALFORMED",
        ),
        "wrong round": (
            hand.receipt(
                *split_answer(weights_answer(PLAN, zeros(), round_=1), PLAN, most=PIECE_BYTES)
            )[0],
            "WRONG_ROUND",
        ),
    }
    assert {name: found for name, (found, _) in refused.items()} == {
        name: code for name, (_, code) in refused.items()
    }
    assert views.stored_batches(place.store.engine, campaign) == 0
    assert place.store.turnout(campaign, 0) == (0, 0, 0)
    eventually(
        lambda: sum(views.rejected(place.store.engine, campaign).values()) == len(refused),
        what="refusals are counted",
    )
    # A stream that was cut off, not a missing piece: the owner is to send it again.
    pieces = list(split_answer(weights_answer(PLAN, zeros()), PLAN, most=PIECE_BYTES))
    assert hand.stream(iter(pieces[:1]), (MESSAGES, "2")) == "UNAVAILABLE"
    assert sent(zeros(_7=1.0)) == "OK"
    assert place.store.turnout(campaign, 0) == (1, 1, 1)
    # An owner answers a round once.
    assert hand.receipt(*pieces) == ("OK", 0, 1)
    assert place.store.turnout(campaign, 0) == (1, 1, 1)


def test_slow_pieces_of_one_owner_hold_little_memory(place: Place) -> None:
    """An owner puts one answer together at a time; a second one is to come later, and another
    owner is not kept waiting."""
    campaign, server = place.campaign(PLAN), place.serve()
    hands = [Wire(server, campaign, place.enrol(name)) for name in ("slow", "other")]
    eventually(lambda: place.store.rounds(campaign))
    time.sleep(0.5)
    pieces = list(split_answer(weights_answer(PLAN, zeros()), PLAN, most=PIECE_BYTES))
    codes = []

    def slowly() -> Any:
        yield pieces[0]
        time.sleep(1)
        codes.append(hands[0].receipt(*pieces)[0])
        codes.append(hands[1].receipt(*pieces)[0])
        yield pieces[1]

    assert hands[0].stream(slowly(), (MESSAGES, "2")) == "OK"
    assert codes == ["RATE_LIMITED", "OK"]
    assert place.store.turnout(campaign, 0).reports == 2


def test_the_largest_weights_pass_and_are_averaged(place: Place) -> None:
    """Four million weights go out and come back in pieces, at a low rate too; the server's memory
    stays bounded, the mean is exact, and the answers are gone once it is stored."""
    plan = training_plan(**LONG | {"features": 1999, "labels": 2000})
    terms = terms_of(plan)
    assert terms.size == MOST_WEIGHTS
    campaign = place.campaign(plan, owners=4)
    server = place.serve("--rate", "1", "--byte-rate", "200000")
    tokens = [place.enrol(f"owner {i}") for i in range(4)]
    eventually(lambda: place.store.rounds(campaign))
    time.sleep(2)
    asked = Aggregator(server.access(tokens[0]), campaign, patience=Patience(30)).query()
    # Its rate for queries is used up by one of this length.
    again = Aggregator(server.access(tokens[0]), campaign, patience=Patience(0))
    with pytest.raises(Unreachable, match="RATE_LIMITED"):
        again.query()
    stored = place.store.campaign(campaign)
    query, _ = read_query(asked or b"", plan=plan, plan_digest=stored.digest)
    assert isinstance(query, TrainingQuery)
    assert np.array_equal(query.weights, first_weights(terms))
    rng = np.random.default_rng(1)
    answers = [rng.uniform(-1, 1, terms.size).astype(np.float32) for _ in range(4)]
    before = server.megabytes
    for token, weights in zip(tokens, answers, strict=True):
        pieces = list(split_answer(weights_answer(plan, weights), plan, most=PIECE_BYTES))
        assert len(pieces) == 16
        assert Wire(server, campaign, token).receipt(*pieces) == ("OK", 1, 0)
    assert server.megabytes - before < 400
    eventually(lambda: len(place.store.rounds(campaign)) == 2)
    first, key = place.store.rounds(campaign)[:1], sealing_key(KEY)
    rounds = StoredRounds(place.store, stored, first, now=time.time(), key=key)
    tally = rounds(query, 0)
    assert isinstance(tally, TrainingTally)
    assert tally.owners == 4
    assert np.abs(_mean(tally) - np.mean(answers, axis=0, dtype=np.float64)).max() < 1e-7
    assert [answer for _, answer in place.store.answers(campaign, 0)] == [b""] * 4
    # One that is sent again after that is known by its digest.
    server.kill()
    pieces = list(split_answer(weights_answer(plan, answers[0]), plan, most=PIECE_BYTES))
    assert Wire(place.serve(), campaign, tokens[0]).receipt(*pieces) == ("OK", 0, 1)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_a_mean_does_not_depend_on_the_order(order: tuple[int, ...]) -> None:
    """Also of numbers whose sum in floating point does."""
    rng = np.random.default_rng(2)
    found = [(rng.normal(size=1000) * 10.0**power).astype(np.float32) for power in (1, -3, -6)]
    mean, expected = (
        _mean(TrainingTally.of(found[i] for i in some)) for some in (order, (0, 1, 2))
    )
    assert np.array_equal(mean, expected)
    assert TrainingTally.of([]).mean is None
    kept = TrainingTally.from_bytes(TrainingTally.of(found).to_bytes())
    assert kept.owners == 3
    assert np.array_equal(_mean(kept), expected)


def _mean(tally: TrainingTally) -> NDArray[np.float32]:
    assert tally.mean is not None
    return tally.mean
