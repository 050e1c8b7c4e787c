from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.aggregator.campaigns.report_ids import counted_once
from confide.client.ledger.ledger import Ledger
from confide.client.transport.contribution import Contribution
from confide.client.transport.retry import Patience, Unreachable
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.registry import LABEL_CHANNELS
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.base import Batch
from confide.protocol.methods.bits import BitQuery
from confide.protocol.methods.labels.query import LabelQuery
from confide.protocol.plan import digest, write_query
from confide.protocol.wire import service_pb2
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import VERSION, serialise
from confide.protocol.wire.packing import read_batch, write_batch
from confide.protocol.wire.splitting import split_answer
from tests.support.owners.owners import LABEL_PLAN, PLAN, changed, owner, signed

QUERY = BitQuery(Bit(epsilon=4.0), 0.0, 1.0, (0.25, 0.75))


def batch(names: list[int]) -> Batch:
    """A report a name, each with a bit and a part of its own."""
    ids = np.zeros((len(names), 16), dtype=np.uint8)
    ids[:, 15] = names
    bits = np.array([name % 3 == 0 for name in names], dtype=np.bool_)
    parts = np.array([name % 2 for name in names], dtype=np.int64)
    return Batch(ids, {"reports": bits, "parts": parts})


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 20), max_size=8), max_size=6),
    st.lists(st.integers(0, 20), max_size=5),
)
def test_an_id_counts_once_wherever_it_comes_again(
    groups: list[list[int]], before: list[int]
) -> None:
    """In the same batch, in another, or in an earlier round: the tally is that of the set of new
    ids."""
    found = counted_once([batch(names) for names in groups], [batch(before).ids])
    fresh = {name for names in groups for name in names} - set(before)
    tally = QUERY.tally(found, lambda shown, u: shown)
    assert tally.answers == tuple(sum(name % 2 == part for name in fresh) for part in (0, 1))
    assert tally.ones == tuple(
        sum(name % 2 == part and name % 3 == 0 for name in fresh) for part in (0, 1)
    )


@pytest.mark.parametrize("name", [*LABEL_CHANNELS, "bit"])
def test_a_split_answer_says_the_same(name: str) -> None:
    """Pieces of at most the size asked for, each valid on its own, that put together are the
    answer."""
    rng, n = np.random.default_rng(1), 1_003
    plan = PLAN if name == "bit" else LABEL_PLAN
    ids = np.frombuffer(rng.bytes(16 * n), dtype=np.uint8).reshape(n, 16)
    mark = digest(plan.to_bytes())
    if name == "bit":
        query: BitQuery | LabelQuery = QUERY
        whole = Batch(ids, {"reports": rng.random(n) < 0.5, "parts": rng.integers(0, 2, n)})
    else:
        query = LabelQuery(LABEL_CHANNELS[name](k=5, epsilon=4.0))
        plan = changed(plan, channel=name)
        reports = query.channel.randomize(np.arange(n) % 5, SeededEntropy(1))
        probs = np.full((n, 5), 0.2, dtype=np.float32)
        whole = Batch(ids, {"reports": reports, "probabilities": probs})
    packed = write_batch(whole, query=query, plan=mark, round_=0)
    answer = serialise(wire.Answer(version=VERSION, batch=packed))
    pieces = list(split_answer(answer, plan, most=2_000))
    assert len(pieces) > 5
    assert all(
        len(piece) <= most
        for most in range(1_000, 3_000, 50)
        for piece in split_answer(answer, plan, most=most)
    )
    back = [
        read_batch(wire.Answer.FromString(piece).batch, query=query, plan=mark, round_=0)
        for piece in pieces
    ]
    assert np.array_equal(np.concatenate([one.ids for one in back]), whole.ids)
    for column, values in whole.columns.items():
        assert np.array_equal(np.concatenate([one.columns[column] for one in back]), values)
    assert list(split_answer(answer, plan, most=1 << 20)) == [answer]


class Deaf:
    """An aggregator that takes everything, or nothing, or so many messages and then says slow
    down."""

    def __init__(
        self, *codes: str, progress: Iterable[service_pb2.Progress] = (), behind: int = 0
    ) -> None:
        self.codes, self.sent, self.clock = list(codes), list[list[bytes]](), 0.0
        self.progress, self.behind, self.asked = progress, behind, 0
        self.patience = Patience(60, now=lambda: self.clock, pause=self.pause)

    def pause(self, seconds: float) -> None:
        self.clock += seconds

    def query(self) -> bytes | None:
        self.asked += 1
        if self.asked <= self.behind:
            return None
        return write_query(
            BitQuery(Bit(epsilon=4.0), 0.0, 1.0, (0.5,)), plan=digest(PLAN.to_bytes()), round_=0
        )

    def watch(self) -> Iterator[service_pb2.Progress]:
        yield from self.progress

    def submit(self, answers: Iterable[bytes], *, ask: Callable[[], None]) -> wire.Receipt:
        ask()
        answers = list(answers)
        self.sent.append(answers)
        code = self.codes.pop(0)
        if code == "OFFLINE":
            raise ConnectionError
        taken = len(answers) if code == "OK" else len(answers) // 2
        reports = sum(
            len(wire.Answer.FromString(one).batch.ids) // 16 for one in self.sent[-1][:taken]
        )
        return wire.Receipt(version=VERSION, code=code, accepted=reports)


def part(remote: Deaf, folder: Path) -> Contribution:
    one, ledger = owner(folder, n=2_000), Ledger(folder / "ledger.sqlite")
    return Contribution(remote, one, ledger, PLAN, digest(PLAN.to_bytes()), signed())


def test_an_answer_that_was_not_acknowledged_is_sent_again(tmp_path: Path) -> None:
    """Offline once: the next process sends the very bytes from the ledger, and after the receipt
    nobody sends them again."""
    offline = Deaf("OFFLINE")
    with pytest.raises(ConnectionError):
        part(offline, tmp_path).once()
    online = Deaf("OK")
    left = part(online, tmp_path).once()
    assert online.sent[0] == offline.sent[0]
    assert left.reports == 2_000
    assert Ledger(tmp_path / "ledger.sqlite").unacknowledged(digest(PLAN.to_bytes())) == []


def test_told_to_slow_down_an_owner_sends_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the receipt says is held is not sent again."""
    # Smaller pieces, so that two thousand reports take several of them.
    monkeypatch.setattr("confide.client.transport.contribution.PIECE_BYTES", 5_000)
    remote = Deaf("RATE_LIMITED", "OK")
    left = part(remote, tmp_path).once()
    assert left.reports == 2_000
    half = len(remote.sent[0]) // 2
    assert remote.sent[1] == remote.sent[0][half:]
    assert left.bytes == sum(map(len, remote.sent[0]))


@pytest.mark.parametrize(
    "code", ["TOO_LARGE", "WRONG_ROUND", "TIMED_OUT", "UNAVAILABLE", "INTERNAL"]
)
def test_what_may_be_taken_another_time_stays_in_the_queue(code: str, tmp_path: Path) -> None:
    """Refused for the aggregator's limits or for what it knows: tried once, not well, and sent
    again by the next run."""
    refusing = Deaf(code)
    left = part(refusing, tmp_path).once()
    assert (left.reports, dict(left.rounds), left.well, len(refusing.sent)) == (
        0,
        {code: 1},
        False,
        1,
    )
    assert len(Ledger(tmp_path / "ledger.sqlite").unacknowledged(digest(PLAN.to_bytes()))) == 1
    online = Deaf("OK")
    assert part(online, tmp_path).once().reports == 2_000
    assert online.sent == refusing.sent


@pytest.mark.parametrize(
    "code", ["OK", "LATE", "SURPLUS", "CLOSED", "MALFORMED", "OUT_OF_ALPHABET"]
)
def test_what_will_never_be_taken_leaves_the_queue(code: str, tmp_path: Path) -> None:
    """Held, too late, or refused for what it is: nobody sends it again."""
    part(Deaf(code), tmp_path).once()
    assert Ledger(tmp_path / "ledger.sqlite").unacknowledged(digest(PLAN.to_bytes())) == []


def test_an_aggregator_that_never_takes_a_message_is_given_up(tmp_path: Path) -> None:
    """Slow down, said without end: less and less often, for as long as patience lasts, and the
    answer stays queued."""
    remote = Deaf(*["RATE_LIMITED"] * 100)
    with pytest.raises(Unreachable, match="RATE_LIMITED"):
        part(remote, tmp_path).once()
    assert 60 <= remote.clock < 100
    assert len(remote.sent) < 20
    assert len(Ledger(tmp_path / "ledger.sqlite").unacknowledged(digest(PLAN.to_bytes()))) == 1


def test_a_watcher_asks_once_a_round(tmp_path: Path) -> None:
    """Reports of others and heartbeats are no reason to ask; a server process that is a moment
    behind is asked again."""
    news = [service_pb2.Progress(state="open", rounds=1, taking=True, reports=i) for i in range(20)]
    for behind in (0, 2):
        remote = Deaf("OK", progress=news, behind=behind)
        assert part(remote, tmp_path / str(behind)).watch().reports == 2_000
        assert (remote.asked, len(remote.sent)) == (1 + behind, 1)


def test_a_watcher_sends_again_with_the_next_round(tmp_path: Path) -> None:
    """What was not taken is tried once a round and once at the end; the last receipt says how it
    ended."""
    news = [service_pb2.Progress(state="open", rounds=1, taking=True)] * 9 + [
        service_pb2.Progress(state="closed", rounds=1)
    ]
    remote = Deaf("WRONG_ROUND", "OK", progress=news)
    left = part(remote, tmp_path).watch()
    assert (left.reports, dict(left.rounds), left.well, len(remote.sent)) == (
        2_000,
        {"OK": 1},
        True,
        2,
    )


def test_patience_tells_of_the_first_try_and_then_rarely() -> None:
    """An owner who looks on learns at once that there is no answer, and is told again a minute
    later at the earliest."""
    remote, told = Deaf(), list[tuple[float, str]]()
    patience = replace(
        remote.patience, seconds=600, tell=lambda text: told.append((remote.clock, text))
    )

    def forever() -> None:
        # Another call that waits at the same time tells nothing more.
        tries, others = patience.tries(), patience.tries()
        while True:
            tries.wait("no answer")
            others.wait("no answer")

    with pytest.raises(Unreachable, match="no answer, for 600 s"):
        forever()
    assert told[0] == (0.0, "no answer; trying again for 600 s")
    assert 5 < len(told) <= 10
    assert all(after - before >= 60 for (before, _), (after, _) in pairwise(told))


def test_a_ledger_is_for_its_owners_eyes(tmp_path: Path) -> None:
    """Made so that nobody else can read it; only the mark by which an older copy is noticed stands
    beside it when an answer is there."""
    one = owner(tmp_path)
    one.answer(signed(), Deaf().query() or b"")
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("ledger*")} == {
        "ledger.sqlite": 0o600,
        "ledger.sqlite.mark": 0o600,
    }
