"""The order and the names of mixed reports; shufflers that keep either are caught."""

import os
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import chi2

from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.methods.base import Batch
from confide.protocol.shuffling import handover_digest, open_handover
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse
from confide.shuffler.mixing import Fewest, NoCrowd, mixed
from tests.support.cards.shuffled_plans import NAME, SHUFFLER, SHUFFLING
from tests.support.servers.shuffled_search import MOST_NEIGHBOURS, neighbours, traces

SIZE = 51
ANY = Fewest(1, 0)


def batches(owners: int, each: int) -> list[Batch]:
    """Batches of owners, with random bytes in place of sealed reports."""
    made = np.frombuffer(os.urandom(owners * each * (SIZE + 16)), dtype=np.uint8)
    rows = made.reshape(owners, each, SIZE + 16)
    return [
        Batch(one[:, SIZE:], {"sealed": one[:, :SIZE]}, sender=owner.to_bytes(8, "big"))
        for owner, one in enumerate(rows)
    ]


def hand_over(
    given: list[Batch],
    entropy: Callable[[int], bytes] = os_entropy,
    *,
    round_: int = 0,
    fewest: Fewest = ANY,
) -> wire.ReportBatch:
    sizes = [len(batch) for batch in given]
    answer = mixed(
        given,
        fewest=fewest,
        plan=NAME,
        round_=round_,
        sizes=sizes,
        key=SHUFFLER,
        entropy=entropy,
    )
    return parse(wire.Answer, answer).batch


def rows(batch: wire.ReportBatch) -> list[bytes]:
    sealed = parse(wire.SealedReports, batch.body).sealed
    return [sealed[i : i + SIZE] for i in range(0, len(sealed), SIZE)]


def arrived(given: list[Batch]) -> list[bytes]:
    return [row.tobytes() for batch in given for row in batch.columns["sealed"]]


def in_order(size: int) -> bytes:
    """Randomness of a shuffler that is none: ids that ascend."""
    return b"".join(i.to_bytes(16, "big") for i in range(size // 16))


def test_nothing_is_left_of_order_or_names() -> None:
    """Every report is handed over once, under ids that owners never saw, in another order."""
    given = batches(5, 400)
    batch = hand_over(given)
    assert sorted(rows(batch)) == sorted(arrived(given))
    assert neighbours(arrived(given), rows(batch)) <= MOST_NEIGHBOURS
    theirs = [row.tobytes() for one in given for row in one.ids]
    assert traces(batch.SerializeToString(), theirs) == []


def test_a_shuffler_that_keeps_order_or_ids_is_caught() -> None:
    """The planted bugs: ids that ascend keep the order; owners' own ids are found in the batch."""
    given = batches(5, 400)
    kept = hand_over(given, in_order)
    assert neighbours(arrived(given), rows(kept)) > MOST_NEIGHBOURS
    theirs = [row.tobytes() for one in given for row in one.ids]
    named = hand_over(given, lambda _: b"".join(theirs))
    assert len(traces(named.SerializeToString(), theirs)) == 2_000


def test_every_order_is_as_likely_as_any_other() -> None:
    """Of 3 reports all 6 orders come, with a chi-square that fails with probability 1e-6."""
    given, orders = batches(3, 1), Counter[tuple[bytes, ...]]()
    for _ in range(3_000):
        orders[tuple(rows(hand_over(given)))] += 1
    assert len(orders) == 6
    statistic = sum((count - 500) ** 2 / 500 for count in orders.values())
    assert statistic < chi2.isf(1e-6, 5)


def test_the_handover_says_how_many_and_which() -> None:
    """Signed by the shuffler: count, digest of ids and reports in order, owners and the largest."""
    batch = hand_over(batches(2, 3) + batches(1, 5), round_=4)
    found = open_handover(batch.handover, key=SHUFFLING.key)
    assert (found.plan, found.round, found.reports) == (NAME, 4, 11)
    assert (found.owners, found.largest) == (3, 5)
    assert found.digest == handover_digest(batch.ids, b"".join(rows(batch)))
    assert batch.ids == b"".join(sorted(batch.ids[i : i + 16] for i in range(0, 176, 16)))


def test_broken_randomness_hands_nothing_over() -> None:
    """Ids that repeat would make reports count once together, and mix nothing."""
    with pytest.raises(BadInput, match="equal"):
        hand_over(batches(2, 2), lambda size: bytes(size))


@pytest.mark.parametrize(
    ("given", "fewest"),
    [
        (batches(2, 3), Fewest(7, 0)),
        (batches(2, 3), Fewest(6, 3)),
        ([*batches(1, 3), *batches(1, 3)], Fewest(6, 2)),
        ([*batches(1, 6), batches(2, 3)[1].only([])], Fewest(6, 2)),
        ([], Fewest(1, 0)),
    ],
)
def test_too_few_reports_or_owners_are_not_mixed(given: list[Batch], fewest: Fewest) -> None:
    """One report less than the crowd, one owner less than promised, twice the same owner, an owner
    without a report, and nothing at all; so many as promised are mixed."""
    with pytest.raises(NoCrowd, match="nothing of it was handed over"):
        hand_over(given, fewest=fewest)
    assert len(rows(hand_over(batches(2, 3), fewest=Fewest(6, 2)))) == 6
