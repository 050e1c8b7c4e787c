import sqlite3
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.limits import Limits, Turnstile
from aggregator.tally import counted_once, tally_batches
from aggregator.vitals import Vitals
from client.contribute import Contribution
from client.ledger import Ledger
from protocol import wire_pb2 as wire
from protocol.campaign import digest
from protocol.channels import LABEL_CHANNELS, Bit
from protocol.errors import Refused
from protocol.messages import Batch, read_batch, write_batch, write_query
from protocol.queries import BitQuery, BitTally, LabelQuery
from protocol.sampling import SeededEntropy
from protocol.scores import SCORES
from protocol.splitting import split_answer
from tests.owners import LABEL_PLAN, PLAN, owner, signed

QUERY = BitQuery(Bit(epsilon=4.0), 0.0, 1.0, (0.25, 0.75))


def batch(names: list[int]) -> Batch:
    """A report a name, each with a bit and a part of its own."""
    ids = np.zeros((len(names), 16), dtype=np.uint8)
    ids[:, 15] = names
    bits = np.array([name % 3 == 0 for name in names], dtype=np.bool_)
    return Batch(ids, bits, parts=np.array([name % 2 for name in names], dtype=np.int64))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.integers(0, 20), max_size=8), max_size=6), st.lists(st.integers(0, 20), max_size=5))
def test_an_id_counts_once_wherever_it_comes_again(groups: list[list[int]], before: list[int]) -> None:
    """In the same batch, in another, or in an earlier round: the tally is that of the set of new ids."""
    found = counted_once([batch(names) for names in groups], [batch(before).ids])
    fresh = {name for names in groups for name in names} - set(before)
    tally = tally_batches(QUERY, found, SCORES["hps"])
    assert isinstance(tally, BitTally)
    assert tally.answers == tuple(sum(name % 2 == part for name in fresh) for part in (0, 1))
    assert tally.ones == tuple(sum(name % 2 == part and name % 3 == 0 for name in fresh) for part in (0, 1))


@pytest.mark.parametrize("name", [*LABEL_CHANNELS, "bit"])
def test_a_split_answer_says_the_same(name: str) -> None:
    """Pieces of about the size asked for, each valid on its own, that put together are the answer."""
    rng, n = np.random.default_rng(1), 1_003
    plan = PLAN if name == "bit" else LABEL_PLAN
    ids = np.frombuffer(rng.bytes(16 * n), dtype=np.uint8).reshape(n, 16)
    mark = digest(plan.to_bytes())
    if name == "bit":
        query: BitQuery | LabelQuery = QUERY
        whole = Batch(ids, rng.random(n) < 0.5, parts=rng.integers(0, 2, n))
    else:
        query = LabelQuery(LABEL_CHANNELS[name](k=5, epsilon=4.0))
        plan = type(plan)(**{**plan.__dict__, "channel": name})
        reports = query.channel.randomize(np.arange(n) % 5, SeededEntropy(1))
        whole = Batch(ids, reports, probabilities=np.full((n, 5), 0.2, dtype=np.float32))
    packed = write_batch(whole, channel=query.channel, plan=mark, round_=0)
    answer = wire.Answer(version=1, batch=packed).SerializeToString(deterministic=True)
    pieces = list(split_answer(answer, plan, most=2_000))
    assert len(pieces) > 5
    assert max(map(len, pieces)) < 3_000
    back = [read_batch(wire.Answer.FromString(piece).batch, query=query, plan=mark, round_=0) for piece in pieces]
    assert np.array_equal(np.concatenate([one.ids for one in back]), whole.ids)
    assert np.array_equal(np.concatenate([one.reports for one in back]), whole.reports)
    assert list(split_answer(answer, plan, most=1 << 20)) == [answer]


def test_an_owner_sends_so_many_messages_a_second_and_no_more() -> None:
    """The messages of a second may come at once; then one for each share of a second that passes; another owner is free."""
    now = 0.0
    turnstile = Turnstile(Limits(messages_a_second=10, open_calls=2), Vitals(), now=lambda: now)
    for _ in range(10):
        turnstile.message(1)
    with pytest.raises(Refused):
        turnstile.message(1)
    turnstile.message(2)
    now = 0.1
    turnstile.message(1)
    with pytest.raises(Refused):
        turnstile.message(1)
    now = 10.0
    with turnstile.call(1), turnstile.call(1), pytest.raises(Refused), turnstile.call(1):
        pass
    with turnstile.call(1):
        pass


class Deaf:
    """An aggregator that takes everything, or nothing, or so many messages and then says slow down."""

    def __init__(self, *codes: str) -> None:
        self.codes, self.sent = list(codes), list[list[bytes]]()

    def query(self) -> bytes | None:
        return write_query(BitQuery(Bit(epsilon=4.0), 0.0, 1.0, (0.5,)), plan=digest(PLAN.to_bytes()), round_=0)

    def watch(self) -> list[wire.Receipt]:
        return []

    def submit(self, answers: list[bytes]) -> wire.Receipt:
        self.sent.append(list(answers))
        code = self.codes.pop(0)
        if code == "OFFLINE":
            raise ConnectionError
        taken = len(answers) if code == "OK" else len(answers) // 2
        reports = sum(len(wire.Answer.FromString(one).batch.ids) // 16 for one in self.sent[-1][:taken])
        return wire.Receipt(version=1, code=code, accepted=reports)


def part(remote: Deaf, folder: Path) -> Contribution:
    one, ledger = owner(folder, n=2_000), Ledger(folder / "ledger.sqlite")
    return Contribution(remote, one, ledger, PLAN, digest(PLAN.to_bytes()), signed(), pause=lambda _: None)  # type: ignore[arg-type]


def test_an_answer_that_was_not_acknowledged_is_sent_again(tmp_path: Path) -> None:
    """Offline once: the next process sends the very bytes from the ledger, and after the receipt nobody sends them again."""
    offline = Deaf("OFFLINE")
    with pytest.raises(ConnectionError):
        part(offline, tmp_path).once()
    online = Deaf("OK")
    left = part(online, tmp_path).once()
    assert online.sent[0] == offline.sent[0]
    assert left.reports == 2_000
    assert Ledger(tmp_path / "ledger.sqlite").unacknowledged(digest(PLAN.to_bytes())) == []


def test_told_to_slow_down_an_owner_sends_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the receipt says is held is not sent again."""
    # Smaller pieces, so that two thousand reports take several of them.
    monkeypatch.setattr("client.contribute.PIECE_BYTES", 5_000)
    remote = Deaf("RATE_LIMITED", "OK")
    left = part(remote, tmp_path).once()
    assert left.reports == 2_000
    half = len(remote.sent[0]) // 2
    assert remote.sent[1] == remote.sent[0][half:]
    assert left.bytes == sum(map(len, remote.sent[0]))


def test_a_ledger_of_the_first_format_is_read(tmp_path: Path) -> None:
    """It gets the columns for receipts and delta and keeps what was spent."""
    owner(tmp_path).answer(signed(), Deaf().query() or b"")
    with sqlite3.connect(tmp_path / "ledger.sqlite") as old:
        old.execute("ALTER TABLE queries DROP COLUMN receipt")
        old.execute("ALTER TABLE spends DROP COLUMN delta")
        old.execute("PRAGMA user_version = 1")
    ledger = Ledger(tmp_path / "ledger.sqlite")
    assert ledger.spent_by_record() == (2_000, 4.0)
    ((query, _),) = ledger.unacknowledged(digest(PLAN.to_bytes()))
    ledger.acknowledge(plan=digest(PLAN.to_bytes()), query=query, code=0)
    assert ledger.unacknowledged(digest(PLAN.to_bytes())) == []
