"""Labels with features in clear, over the wire, scored by a model that the aggregator keeps."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest

from confide.aggregator.campaigns.admission import read_answer
from confide.aggregator.campaigns.driver import run_campaign
from confide.aggregator.campaigns.report_scores import check_scoring
from confide.aggregator.cards.issue import campaign_card
from confide.aggregator.storage.stored_campaign import Settings
from confide.client.records.records import Records
from confide.client.respond import Respondent
from confide.client.transport.grpc_client import Access, Aggregator
from confide.client.transport.retry import Patience
from confide.protocol.cards.card import PUBLIC, parse_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.errors import BadInput, Refused
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.labels.in_clear import Features
from confide.protocol.methods.labels.terms import LabelTerms
from confide.protocol.models.model_file import Model
from confide.protocol.plan import Plan, digest, sign_plan, write_query
from confide.protocol.simulated.embedded import embedded_model, owned
from confide.protocol.wire import wire_pb2 as wire
from tests.support.owners.owners import KEY, POLICY, asking, changed, owner
from tests.support.owners.owners import PUBLIC as PUBLIC_KEY
from tests.support.servers.recording import Recorder, shows
from tests.support.servers.servers import (
    Place,
    contribution,
    eventually,
    page_port,
    plan_now,
    together,
)

OWNERS, N = 3, 500
TERMS = LabelTerms(variant="certified", channel="subset", epsilon=4.0, delta=0.1, sent_features=16)


def plan(variant: str = "certified") -> Plan:
    channel = "subset" if variant == "certified" else "k-rr"
    return plan_now(
        terms=replace(TERMS, variant=variant, channel=channel),
        labels=26,
        model=Model.of(embedded_model()).digest,
        expected_records=OWNERS * N,
    )


def held(number: int) -> Records:
    """The records of an owner: features and labels, of which one is no label of the plan."""
    features, labels = owned()
    mine = slice(number * N, (number + 1) * N)
    labels = labels[mine].copy()
    labels[0] = 99
    names = tuple(f"{number}/{i}".encode() for i in range(N))
    return Records(names, None, labels, None, features[mine])


def respondent(folder: Path, number: int) -> Respondent:
    """An owner that may send features, and that has and allows no model."""
    allows = replace(
        POLICY, probabilities_may_leave=False, features_may_leave=True, models=frozenset()
    )
    given: dict[str, Any] = {"policy": allows, "now": lambda: datetime.now(UTC)}
    return owner(folder, seed=number, held=held(number), **given)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "aggregator")
    yield made
    made.close()


def in_process(tmp_path: Path, asked: Plan) -> Any:
    owners = [respondent(tmp_path / f"here-{number}", number) for number in range(OWNERS)]
    return run_campaign(asked, asking(sign_plan(asked, KEY), owners), model=embedded_model())


def test_features_over_the_wire_end_in_the_threshold_of_the_same_reports_in_process(
    place: Place, tmp_path: Path
) -> None:
    """Owners without a model contribute through a proxy; the server is killed before it counts. The
    card has the threshold of the same seeded reports in process, and verifies. The model is in
    no byte that left the aggregator: calls, plan, card and page."""
    asked = plan()
    made = place.store.create(
        sign_plan(asked, KEY),
        Settings(round_seconds=3600.0, owners=OWNERS + 1),
        now=time.time(),
        secret=embedded_model(),
    )
    place.store.open(made.id, now=time.time())
    tokens = [place.enrol(str(number)) for number in range(OWNERS)]
    server = place.serve("--http", "0", insecure=True)
    with Recorder(server.port) as recorder:
        access = [Access(f"127.0.0.1:{recorder.port}", token) for token in tokens]

        def contribute(number: int) -> None:
            folder = tmp_path / str(number)
            one = respondent(folder, number)
            made = contribution(access[number], asked, folder, seed=number, n=N, respondent=one)
            # The round is in the store a moment before the server's process answers with its query.
            eventually(lambda: made.once().receipts)

        eventually(lambda: place.store.rounds(made.id))
        together(OWNERS, contribute)
        server.kill()
        place.store.close(made.id, now=time.time())
        again = place.serve("--http", "0", insecure=True, port=server.port)
        # A server that finds its clock in doubt waits for a minute.
        eventually(lambda: place.store.card(made.id, PUBLIC), seconds=120)
        place.store.publish(made.id, now=time.time())
        remote = Aggregator(access[0], made.id, patience=Patience(20.0, longest_pause=0.5))
        assert remote.model() is None
        assert remote.plan() == sign_plan(asked, KEY)
        left = bytes(recorder.to_owners)
        address = f"http://127.0.0.1:{page_port(again)}"
        for path in ("/", f"/campaigns/{made.id}", "/metrics"):
            left += urlopen(address + path).read()
        sent = bytes(recorder.to_server)
    card = parse_card(str(place.store.card(made.id, PUBLIC)))
    left += card.to_json().encode()
    here = in_process(tmp_path, asked)
    assert card.formal["released"]["threshold"] == here.certificate.threshold < 1
    assert card.formal["released"]["model"] == Model.of(embedded_model()).digest.hex()
    assert card.formal["certificate"]["scoring"] == "aggregator"
    assert all(finding.holds for finding in verify(card, key=PUBLIC_KEY))
    # What the search would find: the features, which did leave their owners.
    features = held(0).features
    assert features is not None
    assert all(row.astype("<f4").tobytes() in sent for row in features[:20])
    assert not shows(embedded_model(), left)
    assert not shows(embedded_model(), sent)


@pytest.mark.parametrize("variant", ["published", "published-star"])
def test_published_variants_have_a_card_that_verifies(tmp_path: Path, variant: str) -> None:
    """Their slack is that of one label more than the plan has, and the card says who scores."""
    asked = plan(variant)
    card = campaign_card(
        asked, in_process(tmp_path, asked), diagnostic={}, issued=datetime.now(UTC)
    ).sign(KEY)
    assert all(finding.holds for finding in verify(card, key=PUBLIC_KEY))
    formal = card.formal | {"certificate": card.formal["certificate"] | {"scoring": "owner"}}
    lie = replace(card, formal=formal).sign(KEY)
    broken = [finding.clause for finding in verify(lie, key=PUBLIC_KEY) if not finding.holds]
    assert "certificate/scoring" in broken
    assert "certificate/slack" in broken


def test_a_model_that_owners_can_fetch_is_found_in_the_traffic(
    place: Place, tmp_path: Path
) -> None:
    """The search finds a model that is handed out, and the store refuses to call it a secret."""
    asked = plan()
    place.store.keep_model(embedded_model())
    campaign, token = place.campaign(asked), place.enrol("owner")
    server = place.serve(insecure=True)
    with Recorder(server.port) as recorder:
        access = Access(f"127.0.0.1:{recorder.port}", token)
        remote = Aggregator(access, campaign, patience=Patience(20.0, longest_pause=0.5))
        assert remote.model() == embedded_model()
        assert shows(embedded_model(), bytes(recorder.to_owners))
    with pytest.raises(BadInput, match="owners may fetch the model"):
        place.store.create(
            sign_plan(changed(asked, alpha=0.2), KEY), Settings(), now=1.0, secret=embedded_model()
        )


def test_a_model_that_cannot_score_the_plan_is_refused_before_anybody_is_asked() -> None:
    """Another file, another number of features or of labels, and no file at all."""
    check_scoring(plan(), embedded_model())
    for asked, model, said in (
        (plan(), None, "is not here"),
        (plan(), b"other", "SHA-256"),
        (changed(plan(), sent_features=15), embedded_model(), "features have shape"),
        (changed(plan(), labels=25), embedded_model(), "26 outputs"),
    ):
        with pytest.raises(BadInput, match=said):
            check_scoring(asked, model)


def test_features_of_any_shape_and_size_leave_as_finite_numbers(tmp_path: Path) -> None:
    """Images are sent as rows, and a number that float32 cannot hold as its largest."""
    asked = changed(plan(), sent_features=4, labels=3)
    features = np.zeros((N, 2, 2))
    features[0, 0] = 1e300, -1e300
    given = replace(held(0), features=features)
    allows = replace(POLICY, features_may_leave=True)
    one = owner(tmp_path / "owner", held=given, policy=allows, now=lambda: datetime.now(UTC))
    query, name = LabelTerms.of(asked.terms).query(labels=3), digest(asked.to_bytes())
    (sent,) = asking(sign_plan(asked, KEY), [one])(write_query(query, plan=name, round_=0))
    batch = read_answer(sent, query=query, plan=name, round_=0)
    assert batch.columns["features"].shape == (N, 4)
    assert np.abs(batch.columns["features"]).max() == np.finfo(np.float32).max


@pytest.mark.parametrize("wrong", ["nan", "infinite", "fewer", "probabilities"])
def test_what_no_owner_would_send_is_refused(wrong: str) -> None:
    """Numbers that are not finite, other counts of them, and probabilities instead of features."""
    query = LabelTerms.of(plan().terms).query(labels=26)
    rows = np.zeros((4, 16 - (wrong == "fewer")), dtype="<f4")
    rows[3, 3] = {"nan": np.nan, "infinite": -np.inf}.get(wrong, 0.0)
    name = "probabilities" if wrong == "probabilities" else "features"
    reports = query.channel.pack(
        query.channel.randomize(np.zeros(4, dtype=np.int64), SeededEntropy("x"))
    )
    body = wire.LabelReports(reports=reports, **{name: rows.tobytes()}).SerializeToString()
    with pytest.raises(Refused):
        query.check(body, 4, most=100)
    fine = wire.LabelReports(reports=reports, features=bytes(256)).SerializeToString()
    query.check(fine, 4, most=100)


def test_labels_that_the_plan_does_not_have_are_never_covered() -> None:
    """Their value of the alphabet scores 1, which no threshold below 1 covers; the others keep
    the scores that the model gives them."""
    given = np.full((5, 3), 0.25, dtype=np.float32)
    whole = Features(3, 16).complete(given)
    assert (whole[:, 3] == 1).all()
    np.testing.assert_array_equal(whole[:, :3], given)
    assert Features(3, 16).foreign(given).tolist() == [3] * 5
