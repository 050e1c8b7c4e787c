import urllib.request
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from confide.aggregator.campaigns.driver import run_campaign
from confide.aggregator.campaigns.releases import read_release
from confide.aggregator.procedures.counts.central import Draw
from confide.aggregator.quantiles.base import Mechanism, Release
from confide.aggregator.quantiles.histogram import Histogram
from confide.aggregator.storage import views
from confide.protocol.cards.card import AUDITOR, PUBLIC, parse_card, strata_of
from confide.protocol.cards.verify.card import verify
from confide.protocol.levels import band_levels, marginal_levels
from confide.protocol.methods.labels.pairs import PairTerms
from confide.protocol.plan import Plan, digest
from confide.protocol.privacy.zcdp import search_variance
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import VERSION
from confide.protocol.wire.service import MESSAGES, PIECE_BYTES
from confide.protocol.wire.splitting import split_answer
from tests.support.cards.central import NOISED, OPEN_POLICY, TRUSTED
from tests.support.owners.answers import answer as packed
from tests.support.owners.answers import bit_batch, one_part, owner_counts
from tests.support.owners.hostile import Wire
from tests.support.owners.owners import (
    BY_WARD,
    LABEL_PLAN,
    PLAN,
    K,
    asking,
    changed,
    level_fields,
    owner,
    signed,
)
from tests.support.servers.servers import (
    Place,
    aggregator,
    contribution,
    eventually,
    plan_now,
    searched,
    together,
)


def undisturbed(plan: Plan, folder: Path, *, owners: int, n: int, **given: Any) -> Any:
    """The same seeded owners, asked in process."""
    folder.mkdir()
    made = [
        owner(folder / str(i), seed=i, n=n, policy=OPEN_POLICY, now=lambda: datetime.now(UTC))
        for i in range(owners)
    ]
    return run_campaign(plan, asking(signed(plan), made), **given)


def repeated(kept: str | None) -> Draw:
    """A draw that was made before."""

    def draw(mechanism: Mechanism, histogram: Histogram, rank: int) -> Release:
        assert kept is not None
        return read_release(kept, mechanism, rank, where="the store")

    return draw


NOISED_CLASSES = changed(
    NOISED,
    bins=16,
    by="class",
    parts=K,
    epsilon=4.0,
    noise_variance=search_variance(bins=16, epsilon=4.0, delta=1e-6, moved=2),
)
PAIRS = PairTerms(variant="class-conditional", epsilon=4.0, delta=0.1, channel="k-rr")
# Every variant that has a threshold for each part of the records, or one for all of them.
PARTS = {
    f"{plan.method} {variant}": changed(plan, variant=variant, part_floor=400, **more)
    for plan in (PLAN, LABEL_PLAN)
    for variant, more in {
        "for-every-owner": {},
        "per-owner": {},
        "for-every-group": BY_WARD,
        "per-group": BY_WARD,
    }.items()
} | {"labels class-conditional": changed(LABEL_PLAN, variant="class-conditional")}
EDGES = (0.5, 0.8, 0.9, 0.95, 1.0)
AVERAGE = level_fields(marginal_levels(0.1, error=0.01, count=8))
BAND_OF_BITS = level_fields(band_levels(0.1, 0.1))


def test_campaigns_over_the_network_are_those_in_process(place: Place, tmp_path: Path) -> None:
    """Bits, labels, averages and bands of them, pairs, owners and groups one by one, trusted counts
    (also without a beta, PAC on a given grid, by class and by group) and noised ones, all at once
    on one server: the certificates of the same reports in process."""
    randomised = changed(LABEL_PLAN, score="aps-randomized")
    plans = {
        name: plan_now(base, campaign=name)
        for name, base in {
            "bits": PLAN,
            "labels": LABEL_PLAN,
            **PARTS,
            "pairs": replace(PLAN, terms=PAIRS),
            "planned mixture": changed(PLAN, planned_mixture=True),
            "equal owners": changed(PLAN, planned_mixture=True, equal_owners=True),
            "average of labels": changed(LABEL_PLAN, delta=0.0, **AVERAGE),
            "average of bits": changed(PLAN, delta=0.0, **AVERAGE),
            "band": changed(PLAN, variant="one-shot", **BAND_OF_BITS),
            "randomised": randomised,
            "trusted": TRUSTED,
            "averaged": changed(TRUSTED, beta=0.0),
            "PAC": changed(TRUSTED, beta=0.0, delta=0.1, bins=5, grid="given", given_edges=EDGES),
            "classes": changed(TRUSTED, beta=0.0, bins=64, epsilon=1.5, by="class", parts=K),
            "groups": changed(TRUSTED, beta=0.0, bins=64, by="group", parts=3, **BY_WARD),
            "noised": NOISED,
            "noised classes": NOISED_CLASSES,
            "noised groups": changed(NOISED, by="group", parts=3, **BY_WARD),
        }.items()
    }
    ids = {name: place.campaign(plan, owners=3) for name, plan in plans.items()}
    # Every owner is in all campaigns at once, each with a call that watches and one that sends.
    server = place.serve("--open-calls", str(8 * len(plans)))
    tokens = [place.enrol(f"owner {i}") for i in range(3)]

    def take_part(job: int) -> int:
        name, i = list(plans)[job // 3], job % 3
        folder = tmp_path / f"{name}{i}"
        part = contribution(
            server.access(tokens[i]), plans[name], folder, seed=i, n=2_000, policy=OPEN_POLICY
        )
        return part.watch().reports

    together(3 * len(plans), take_part)
    eventually(lambda: {one.state for one in place.store.campaigns()} == {"calibrated"})
    for name, plan in plans.items():
        kept = place.store.release(ids[name])
        outcome = undisturbed(
            plan, tmp_path / f"in-process {name}", owners=3, n=2_000, draw=repeated(kept)
        )
        card = parse_card(place.store.card(ids[name], PUBLIC) or "")
        assert all(finding.holds for finding in verify(card)), name
        assert card.provenance["received"] == outcome.received, name
        assert card.formal["released"]["threshold"] == outcome.certificate.threshold, name
        found = [(one.name, one.threshold) for one in outcome.certificate.strata]
        shown = (strata_of(card.formal) or {"parts": []})["parts"]
        assert [(one["name"], one["threshold"]) for one in shown] == found, name
        assert outcome.certificate.n == 6_000
    assert place.store.card(ids["trusted"], AUDITOR) is not None
    asked = searched(place, ids["noised"])
    assert [point.round for point in asked] == list(range(8))
    assert server.stop() == 0
    assert not [event for event in server.events() if event["level"] != "info"]


def test_histograms_longer_than_a_message_come_in_pieces(place: Place) -> None:
    """In one message they are refused, unless the server takes larger ones; in pieces they pass,
    and count once."""
    plan = plan_now(TRUSTED, bins=140_000)
    campaign, token = place.campaign(plan), place.enrol("owner")
    server, larger = place.serve(), place.serve("--message-bytes", str(4 << 20))
    answer = owner_counts(plan, 3)
    eventually(lambda: Wire(server, campaign, token).submit(answer) == "TOO_LARGE")
    pieces = list(split_answer(answer, plan, most=PIECE_BYTES))
    assert len(pieces) == 2
    assert Wire(server, campaign, token).receipt(*pieces) == ("OK", 1, 0)
    assert Wire(server, campaign, token).receipt(*pieces) == ("OK", 0, 1)
    eventually(lambda: Wire(larger, campaign, token).receipt(answer) == ("OK", 0, 1))


@pytest.mark.parametrize(
    ("code", "settings"), [("LATE", {"round_seconds": 0.5}), ("SURPLUS", {"enough": 5})]
)
def test_late_and_surplus_reports_are_counted_and_not_used(
    code: str, settings: dict[str, Any], place: Place
) -> None:
    """A round that ended by its deadline answers LATE, one that had enough SURPLUS; neither is
    stored. What was stays OK."""
    server, token = place.serve(), place.enrol("owner")
    plan = plan_now(variant="published", minimum_reports=0)
    campaign = place.campaign(plan, **settings)

    def answer(first: int) -> bytes:
        return packed(one_part(bit_batch(6, first=first)), plan=digest(plan.to_bytes()))

    hand = Wire(server, campaign, token)
    eventually(lambda: hand.announced(answer(0)) == "OK")
    eventually(lambda: len(place.store.rounds(campaign)) > 1)
    eventually(lambda: hand.announced(answer(6)) == code)
    assert hand.announced(answer(0)) == "OK"
    assert views.stored_batches(place.store.engine, campaign) == 1
    eventually(lambda: views.rejected(place.store.engine, campaign).get(code) == 1)


def test_an_owner_with_nothing_to_say_is_heard_and_is_no_evidence(place: Place) -> None:
    """One sends reports, one nothing, one declines: `owners` lets the round end, `minimum_owners`
    waits for more reports."""
    server, tokens = place.serve(), [place.enrol(f"owner {i}") for i in range(3)]
    declined = wire.Answer(version=VERSION, code=wire.Code.METHOD_NOT_ALLOWED).SerializeToString()

    def answered(minimum_owners: int = 1, **settings: Any) -> tuple[str, Wire, bytes]:
        """A campaign that the three have answered; the one that declined, and what it could have
        sent."""
        plan = plan_now(
            campaign=str(settings),
            variant="published",
            minimum_reports=0,
            minimum_owners=minimum_owners,
        )
        campaign = place.campaign(plan, **settings)
        hands = [Wire(server, campaign, token) for token in tokens]

        def report(first: int) -> bytes:
            return packed(one_part(bit_batch(6, first=first)), plan=digest(plan.to_bytes()))

        eventually(lambda: hands[0].announced(report(0)) == "OK")
        assert hands[1].stream(iter([]), (MESSAGES, "0")) == "OK"
        assert hands[2].announced(declined) == "METHOD_NOT_ALLOWED"
        assert place.store.turnout(campaign, 0) == (3, 1, 6)
        return campaign, hands[2], report(6)

    evidence, hand, other = answered(round_seconds=0.1, minimum_owners=2)
    everybody, _, _ = answered(owners=3)
    eventually(lambda: place.store.rounds(everybody)[0].because == "enough")
    assert place.store.rounds(evidence)[0].closed is None
    assert hand.announced(other) == "OK"
    eventually(lambda: place.store.rounds(evidence)[0].because == "deadline")


def test_a_campaign_that_cannot_go_on_holds_up_no_other(place: Place) -> None:
    """More records than any procedure takes, of one owner or of all together, and a plan or
    settings of another version: each stops its own campaign, later ones run, and no count of
    anybody is in the log."""
    poisoned, later = plan_now(TRUSTED), plan_now(variant="one-shot", campaign="later")
    campaign, tokens = (
        place.campaign(poisoned, owners=2),
        [place.enrol(name, records=10**9) for name in ("one", "other")],
    )
    foreign = [
        place.campaign(plan_now(campaign=f"of another version {number}")) for number in range(3)
    ]
    other_version = wire.SignedPlan(
        plan=wire.Plan(version=99).SerializeToString()
    ).SerializeToString()
    with place.store.engine.begin() as db:
        db.exec_driver_sql(
            "UPDATE campaigns SET signed_plan = ? WHERE id = ?", (other_version, foreign[0])
        )
        for name, settings in zip(
            foreign[1:], ('{"round_seconds": 0}', '{"unheard": 1}'), strict=True
        ):
            db.exec_driver_sql("UPDATE campaigns SET settings = ? WHERE id = ?", (settings, name))
    server = place.serve("--http", "0")
    eventually(lambda: place.store.rounds(campaign))
    hands = [Wire(server, campaign, token) for token in tokens]
    eventually(lambda: hands[0].announced(owner_counts(poisoned, 2**33)) == "OUT_OF_ALPHABET")
    each = 876_543_219
    assert [hand.announced(owner_counts(poisoned, each)) for hand in hands] == ["OK", "OK"]
    eventually(lambda: place.store.campaign(campaign).reason)
    assert place.store.campaign(campaign).state == "closed"
    assert place.store.release(campaign) is None
    # They are not this version's to end, to lead or to take answers for.
    assert {place.store.campaign(name).state for name in foreign} == {"open"}
    with place.store.engine.connect() as db:
        leaders = {
            row.id: row.leader for row in db.exec_driver_sql("SELECT id, leader FROM campaigns")
        }
    assert [leaders[name] for name in foreign] == [None] * 3
    assert {Wire(server, name, tokens[0]).submit(b"") for name in foreign} == {"UNKNOWN_CAMPAIGN"}
    after = place.campaign(later)
    eventually(lambda: place.store.rounds(after))
    assert [event["event"] for event in server.events()].count("a campaign stands still") == 3
    assert not [
        number for number in (each, 2 * each, 2**33) if str(number) in server.log.read_text()
    ]
    code, text = aggregator("campaign", "status", "--db", place.url)
    assert (code, [name for name in foreign if f"{name}  of another version" not in text]) == (
        0,
        [],
    )
    for name in foreign:
        assert aggregator("campaign", "status", name, "--json", "--db", place.url) == (2, "")
        assert (
            aggregator("campaign", "export", name, place.folder / "out", "--db", place.url)[0] == 2
        )
    port = next(event["address"] for event in server.events() if event["event"] == "page")
    pages = {
        path: urllib.request.urlopen(f"{port}{path}", timeout=30).read().decode()
        for path in ("", "metrics")
    }
    assert all(name in pages[""] for name in foreign)
    assert "confide_campaigns_stuck 3.0" in pages["metrics"]
