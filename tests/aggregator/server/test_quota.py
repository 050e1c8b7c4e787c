"""How many bytes an owner may have stored, and how many a second it may send: over the wire, to a
server process."""

from pathlib import Path

import numpy as np
import pytest

from confide.aggregator.campaigns.allowance import most_bytes, most_in_campaign
from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.server.limits import SAVED_SECONDS, RateLimiter, ServerLimits
from confide.aggregator.storage import views
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.registry import LABEL_CHANNELS
from confide.protocol.errors import Refused
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.base import Batch, Columns, Query
from confide.protocol.methods.bits import BitQuery
from confide.protocol.methods.labels.query import LabelQuery
from confide.protocol.plan import Plan
from confide.protocol.wire.splitting import single_bytes, split_answer
from tests.support.owners.answers import answer, reports
from tests.support.owners.hostile import Wire
from tests.support.owners.owners import LABEL_PLAN, PLAN, changed, channel_of
from tests.support.servers.servers import Place, contribution, eventually, plan_now

ONE_SHOT = plan_now(variant="one-shot", expected_records=400)


def stored(place: Place, campaign: str) -> int:
    return sum(len(one) for _, one in place.store.answers(campaign, 0))


def test_ids_that_are_known_do_not_fill_the_disk(place: Place) -> None:
    """Batches of many ids that were counted before, with a new one in each: as many bytes as honest
    reports can take, and then SURPLUS, which is counted. What was stored is taken in again, and
    another owner has bytes of its own."""
    campaign, tokens = place.campaign(ONE_SHOT), [place.enrol(name) for name in ("bad", "good")]
    server = place.serve()
    eventually(lambda: place.store.rounds(campaign))
    bad, good = (Wire(server, campaign, token) for token in tokens)
    attack = [
        reports(ONE_SHOT, [*range(300), 300 + i]) for i in range(most_in_campaign(ONE_SHOT) - 300)
    ]
    most = most_bytes(ONE_SHOT, rounds=1)
    assert sum(map(len, attack)) > 20 * most
    assert bad.receipt(attack[0]) == ("OK", 301, 0)
    codes = [bad.receipt(one)[0] for one in attack[1:]]
    assert codes == sorted(codes)
    assert set(codes) == {"OK", "SURPLUS"}
    assert stored(place, campaign) <= most
    assert bad.receipt(attack[0]) == ("OK", 0, 301)
    surplus = codes.count("SURPLUS")
    eventually(lambda: views.rejected(place.store.engine, campaign) == {"SURPLUS": surplus})
    fresh = reports(ONE_SHOT, list(range(1_000, 1_300)))
    assert good.receipt(fresh) == ("OK", 300, 0)


def test_an_owner_may_send_every_report_on_its_own(place: Place) -> None:
    """The most reports that an owner may have, each in an answer of its own, which takes the most
    bytes; and no report more."""
    campaign, token = place.campaign(ONE_SHOT), place.enrol("owner")
    server = place.serve()
    eventually(lambda: place.store.rounds(campaign))
    hand, most = Wire(server, campaign, token), most_in_campaign(ONE_SHOT)
    answers = [reports(ONE_SHOT, [name]) for name in range(most)]
    assert hand.receipt(*answers, last=False) == ("OK", most, 0)
    assert hand.receipt(reports(ONE_SHOT, [most])) == ("SURPLUS", 0, 0)
    assert stored(place, campaign) == sum(map(len, answers))


@pytest.mark.parametrize(
    "plan", [PLAN, *(changed(LABEL_PLAN, channel=name, labels=40) for name in LABEL_CHANNELS)]
)
@pytest.mark.parametrize("count", [1, 2, 9, 1_250])
def test_reports_take_no_more_bytes_together_than_alone(plan: Plan, count: int) -> None:
    """So an honest owner stays within its bytes however its answers are cut, and by not much more
    than the columns need."""
    channel, rng = channel_of(plan), np.random.default_rng(1)
    ids = rng.integers(0, 256, (count, 16)).astype(np.uint8)
    query: Query
    columns: Columns
    if isinstance(channel, Bit):
        query = BitQuery(channel, 0.0, 1.0, (0.5,))
        columns = {"reports": rng.random(count) < 0.5, "parts": np.zeros(count, dtype=np.int64)}
    else:
        query = LabelQuery(channel)
        labels = np.zeros(count, dtype=np.int64)
        columns = {
            "reports": channel.randomize(labels, SeededEntropy("labels", 1)),
            "probabilities": np.ones((count, plan.labels)),
        }
    sent = answer(Batch(ids, columns, seeded=True), round_=2**32 - 1, query=query)
    single = single_bytes(plan)
    assert single is not None
    assert len(sent) <= count * single
    assert len(sent) == single or count > 1
    assert sum(len(piece) for piece in split_answer(sent, plan, most=1_000)) <= count * single


def test_bytes_of_an_owner_are_bounded_and_saved_up() -> None:
    """What it saved may come at once, the last of it in a message of any size; then nothing until
    the debt is paid, while another owner is free."""
    now = 0.0
    rate_limiter = RateLimiter(ServerLimits(bytes_a_second=100), ProcessStatus(), now=lambda: now)
    saved = round(SAVED_SECONDS * 100)
    rate_limiter.read(1, saved - 1)
    rate_limiter.read(1, 201)
    with pytest.raises(Refused):
        rate_limiter.read(1)
    rate_limiter.read(2, saved)
    now = 2.0
    with pytest.raises(Refused):
        rate_limiter.read(1)
    now = 2.1
    rate_limiter.read(1, 20)
    with pytest.raises(Refused):
        # Read all the same, and so counted.
        rate_limiter.read(1, 90)
    now = 3.0
    with pytest.raises(Refused):
        rate_limiter.read(1)


def test_an_owner_that_sends_too_much_is_not_read(place: Place) -> None:
    """The same answer again and again, which adds nothing: refused, and counted, after what may be
    sent at once. Others are served."""
    plan = plan_now(variant="one-shot", expected_records=20_000)
    campaign, tokens = place.campaign(plan), [place.enrol(name) for name in ("bad", "good")]
    server = place.serve("--byte-rate", "100_000")
    eventually(lambda: place.store.rounds(campaign))
    bad, good = (Wire(server, campaign, token) for token in tokens)
    flood = reports(plan, list(range(10_000)))
    code, accepted, duplicates = bad.receipt(*[flood] * 100)
    at_once = SAVED_SECONDS * 100_000 / len(flood)
    assert (code, accepted) == ("RATE_LIMITED", 10_000)
    # However slow this machine is: what it saves up meanwhile takes two seconds a message.
    assert duplicates <= 10_000 * (at_once + 10)
    assert bad.receipt(flood) == ("RATE_LIMITED", 0, 0)
    assert good.receipt(reports(plan, [10_000])) == ("OK", 1, 0)
    eventually(lambda: views.rejected(place.store.engine, campaign) == {"RATE_LIMITED": 2})


def test_an_honest_owner_above_the_rate_sends_all_of_it(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client waits and goes on where it was: nothing is lost or counted twice."""
    monkeypatch.setattr("confide.client.transport.contribution.PIECE_BYTES", 4_096)
    plan = plan_now(variant="one-shot", expected_records=2_000)
    campaign, token = place.campaign(plan, owners=1), place.enrol("owner")
    server = place.serve("--byte-rate", "2000")
    eventually(lambda: place.store.rounds(campaign))
    left = contribution(server.access(token), plan, tmp_path / "owner", seed=1, n=2_000).watch()
    assert (left.well, left.reports) == (True, 2_000)
    eventually(lambda: "RATE_LIMITED" in views.rejected(place.store.engine, campaign))
    (part,) = views.progress(place.store.engine, campaign)
    assert part.reports == 2_000
