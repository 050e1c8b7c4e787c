"""The table of owners on cards: reports by round, lower bounds, and owners that left."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

from confide.aggregator.campaigns.admission import Sent
from confide.aggregator.campaigns.driver import run_campaign
from confide.aggregator.campaigns.owner_record import OwnerRecord, absent
from confide.aggregator.procedures.bits import procedure as bits
from confide.protocol.cards.page import card_article
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.words.in_words import in_words
from confide.protocol.certificate import EQUAL_OWNERS, IID, PLANNED_MIXTURE, LocalCertificate
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.randomized_response import KaryRR
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.base import Batch
from confide.protocol.methods.bits import BitQuery
from confide.protocol.methods.labels.pairs import PairTerms
from confide.protocol.methods.labels.query import LabelQuery, LabelTally
from confide.protocol.methods.partition import Groups
from confide.protocol.methods.parts import MOST_PARTS
from confide.protocol.plan import Plan, round_of
from confide.simulation.driver import BitUsers, drive
from tests.support.cards.cards import broken, campaign
from tests.support.owners.leaving import Leaving
from tests.support.owners.owners import BY_WARD, LABEL_PLAN, PLAN, changed, owner, signed

BIT, DELTA = Bit(epsilon=4.0), 0.1


def recorded(rounds: int, n: int = 8_000) -> tuple[OwnerRecord, LocalCertificate]:
    record, users = OwnerRecord(), Leaving(n, rounds=rounds, seed=1)

    def answer(query: Any) -> Any:
        tally = users(query)
        record.add(query, tally)
        return tally

    made = bits.procedure(variant="certified", channel=BIT, alpha=0.1, delta=DELTA, n=n)
    return record, drive(made, answer)


def test_the_bound_of_an_owner_is_clopper_and_pearsons_through_the_channel() -> None:
    """The beta quantile of its ones, turned back from the rate of reports into coverage."""
    query = BitQuery(BIT, 0.0, 1.0, (0.8,))
    tally = BitUsers(np.linspace(0, 1, 500), SeededEntropy(3))(query)
    low = float(beta.ppf(DELTA, tally.ones[0], 500 - tally.ones[0] + 1))
    expected = (low - float(BIT.spill)) / float(BIT.hit - BIT.spill)
    assert tally.lower_bound(query, 0.8, delta=DELTA) == pytest.approx(expected, abs=1e-9)
    assert tally.lower_bound(query, 0.7, delta=DELTA) is None


def test_the_bound_of_labels_is_below_coverage_and_comes_near_it() -> None:
    """Of 40 draws with known coverage at most what delta allows are above it."""
    rng, channel, q = np.random.default_rng(2), KaryRR(k=4, epsilon=4.0), 0.8
    bounds: list[float] = []
    above = 0
    for i in range(40):
        scores, truth = rng.random((2_000, 4)), rng.integers(0, 4, 2_000)
        reports = channel.randomize(truth, SeededEntropy(i))
        found = LabelTally(scores, reports).lower_bound(LabelQuery(channel), q, delta=DELTA)
        assert found is not None
        above += found > q
        bounds.append(found)
    # Binomial(40, 0.1) is above 14 once in 10^6.
    assert above <= 14
    assert np.mean(bounds) > q - 0.08


def test_owners_that_left_are_counted_and_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is said while all answer; once the owner of 40 % is gone, everybody is told."""
    with caplog.at_level(logging.WARNING):
        staying, certificate = recorded(99)
        assert (staying.departure.share, staying.remark(certificate), caplog.text) == (
            0.0,
            None,
            "",
        )
        gone, certificate = recorded(2)
    assert gone.departure.share == pytest.approx(0.4, abs=0.05)
    assert "did not answer the latest" in str(gone.remark(certificate))
    # A mixture that was planned has the owner all the same.
    for words in (PLANNED_MIXTURE, EQUAL_OWNERS):
        assert gone.remark(replace(certificate, assumptions=(IID, words))) is None
    assert "round 3: owners of" in caplog.text
    rows = gone.rows(certificate)
    assert [row["owner"] for row in rows] == ["1", "2"]
    # By name, b"leaves" is the first.
    assert rows[0]["reports"][2:] == [0] * (len(gone.rounds) - 2)
    assert sum(map(sum, (row["reports"] for row in rows))) == certificate.n
    assert "lower_bound" in rows[1]
    assert "lower_bound" not in rows[0]


PAIRS = PairTerms(variant="class-conditional", epsilon=4.0, delta=0.1, channel="k-rr")
PLANS = {
    "pairs": changed(PLAN, terms=PAIRS),
    "bits:per-group": changed(PLAN, variant="per-group", part_floor=900, **BY_WARD),
    "bits:for-every-group": changed(PLAN, variant="for-every-group", part_floor=900, **BY_WARD),
}


def test_what_chance_leaves_out_of_a_slice_is_no_absence() -> None:
    """Of a slice of 300 expected, 250 may come although everybody is there; of all records not."""
    plan = changed(PLAN, expected_records=6_000)
    assert absent(250, plan=plan, share=0.05) == 0
    assert absent(200, plan=plan, share=0.05) == pytest.approx(1 / 3)
    assert absent(5_000, plan=plan, share=1.0) == pytest.approx(1 / 6)
    assert absent(7_000, plan=plan, share=1.0) == 0
    # Of a chain 2,700 of 6,000 records are expected to calibrate, give or take 39.
    chained = changed(PLAN, expected_records=2_700, share=(0.0, 0.45))
    assert absent(2_560, plan=chained, share=1.0) == 0
    assert absent(2_500, plan=chained, share=1.0) == pytest.approx(2 / 27)


@pytest.mark.parametrize(("expected", "warned"), [(6_000, False), (10_000, True)])
@pytest.mark.parametrize("plan", [LABEL_PLAN, changed(PLAN, planned_mixture=True)])
def test_owners_that_never_come_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, plan: Plan, expected: int, warned: bool
) -> None:
    """One round has no later one to tell of them, and a planned mixture lacks them; the records
    that the plan expects do tell. The log says it once."""
    with caplog.at_level(logging.WARNING):
        card = campaign(tmp_path, method=plan.method, terms=plan.terms, expected_records=expected)
    said = "of the reports that the plan expects of the first round did not come"
    assert (said in card.diagnostic.get("departure", "")) == warned
    assert caplog.text.count(said) == warned
    (told,) = [one for one in in_words(card, []).not_promised if "owners that were" in one] or [""]
    assert (said in told) == warned
    assert "of those that do" not in card.diagnostic.get("departure", "")


@pytest.mark.parametrize("kind", PLANS)
def test_owners_that_leave_are_seen_where_tallies_keep_something_else_apart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """Groups, or nothing: the log, the card and its rows of owners all tell who left."""
    plan, leaving = PLANS[kind], [2, 99, 99]
    owners = [owner(tmp_path / str(i), seed=i) for i in range(3)]
    name = signed(plan)

    def ask(query: bytes) -> list[Sent]:
        number = round_of(query)
        there = [i for i, rounds in enumerate(leaving) if number < rounds]
        return [Sent(bytes([i]), owners[i].answer(name, query)) for i in there]

    with caplog.at_level(logging.WARNING):
        outcome = run_campaign(plan, ask)
    assert outcome.departure is not None
    assert "owners of 3" in outcome.departure
    assert "round 3: owners of 3" in caplog.text
    assert [row["owner"] for row in outcome.owners] == ["1", "2", "3"]
    rows = [row["reports"] for row in outcome.owners]
    assert sum(map(sum, rows)) == outcome.certificate.n
    assert all(rows[0][:2])
    assert not any(rows[0][2:])
    assert len(rows[0]) > 2


def test_the_senders_of_a_tally_by_group_are_kept_with_it() -> None:
    """A server that starts again reads them from the tally, and they are dropped if too many."""
    query = BitQuery(BIT, 0.0, 1.0, (0.8,), Groups("ward", ("north", "south")))

    def batch(sender: int) -> Batch:
        columns = {"parts": np.zeros(3, dtype=np.int64), "reports": np.ones(3, dtype=np.bool_)}
        columns["groups"] = np.array([0, 1, 1])
        return Batch(np.zeros(3), columns, sender=sender.to_bytes(2, "big"))

    few = query.tally([batch(1), batch(2), batch(1)], lambda *_: np.empty(0))
    assert few.senders == {b"\0\1": 6, b"\0\2": 3}
    assert query.tally_from_json(json.loads(json.dumps(few.to_json()))) == few
    many = query.tally([*map(batch, range(MOST_PARTS + 1))], lambda *_: np.empty(0))
    assert (many.senders, many.size) == ({}, 3 * (MOST_PARTS + 1))


def test_the_card_of_a_pooled_campaign_has_a_row_for_every_owner(tmp_path: Path) -> None:
    """Three owners that answered in bytes; their bounds lie below 1, and the page shows them."""
    card = campaign(tmp_path)
    rows = card.diagnostic["owners"]
    assert [row["owner"] for row in rows] == ["1", "2", "3"]
    assert sum(map(sum, (row["reports"] for row in rows))) == card.formal["certificate"]["n"]
    assert all(0.5 < row["lower_bound"] < 1 for row in rows)
    assert broken(card) == []
    assert "Owners one by one (no guarantee)" in card_article(card, verify(card))
