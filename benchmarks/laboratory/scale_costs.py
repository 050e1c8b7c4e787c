"""What an aggregator spends on a phone, measured: the costs that `scale.py` plans with.

`python benchmarks/laboratory/scale.py measure` runs this on SQLite and on PostgreSQL. Phones are
owners of one record each, who visit a real server over TLS with the real client, each over a
connection of its own. Times of visits are processor seconds of the server process; times of
transactions are by the clock, because they hold a round, and the least of several turns.
"""

import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import psutil
from sqlalchemy import func, insert, select, text

from benchmarks.service.ingest import answers
from confide.aggregator.campaigns.report_scores import report_scores
from confide.aggregator.server.rounds.stored_batches import StoredBatches
from confide.aggregator.storage.database import writing
from confide.aggregator.storage.enrolment import Enrolment
from confide.aggregator.storage.reports.deposit import store_all
from confide.aggregator.storage.reports.ids import StoredIds
from confide.aggregator.storage.reports.submissions import Packed, Submission
from confide.aggregator.storage.schema import owners, parts
from confide.client.transport.grpc_client import Access, Aggregator
from confide.client.transport.retry import Patience
from confide.protocol.methods.bits import BitQuery
from confide.protocol.plan import digest, read_query
from confide.protocol.wire import wire_pb2 as wire
from tests.support.owners.owners import PLAN, changed
from tests.support.servers.servers import Place, eventually, plan_now

# One commit holds so many answers in turn; the line through the least times has two costs.
GROUPS, TURNS = (1, 16, 64, 256), 15
# So many more owners are enrolled in turn, all in the round, to see what grows with them.
MORE = 10_000, 20_000, 40_000
PHONES = changed(PLAN, variant="one-shot", expected_records=1_000_000_000)


class Aggregating:
    """A server with an open campaign of one round, and phones that are enrolled."""

    def __init__(self, place: Place, *, phones: int, processes: int = 1) -> None:
        self.place, self.plan = place, plan_now(PHONES)
        self.campaign = place.campaign(self.plan)
        self.tokens = [place.enrol(f"phone {i}") for i in range(phones)]
        self.servers = [place.serve() for _ in range(processes)]
        self.server = self.servers[0]
        (asked,) = eventually(lambda: place.store.queries(self.campaign))
        self.digest = digest(self.plan.to_bytes())
        found, _ = read_query(asked, plan=self.plan, plan_digest=self.digest)
        assert isinstance(found, BitQuery)
        self.query = found
        self.processes = [psutil.Process(one.process.pid) for one in self.servers]

    def messages(self, count: int, rng: np.random.Generator) -> list[bytes]:
        """Answers of phones, with one report each."""
        return list(answers(self.digest, count, 1, rng, self.query))

    def visit(self, token: str, answer: bytes, *, access: Access | None = None) -> None:
        """What a phone does once a week, as `confide-client` does it."""
        there = access or random.choice(self.servers).access(token)
        remote = Aggregator(there, self.campaign, patience=_ONCE)
        try:
            remote.plan()
            remote.query()
            receipt = remote.submit([answer], ask=lambda: None)
            assert receipt.code == wire.Code.OK, receipt
        finally:
            remote.close()

    def processor(self) -> float:
        """The processor seconds of the servers so far."""
        spent = [one.cpu_times() for one in self.processes]
        return float(sum(one.user + one.system for one in spent))


_ONCE = Patience(0.0)


def costs(place: Place, *, phones: int) -> dict[str, float]:
    """All costs of one database, measured one after the other."""
    rng = np.random.default_rng(1)
    server = Aggregating(place, phones=phones)
    visits = dict(zip(server.tokens, server.messages(phones, rng), strict=True))

    def come() -> None:
        for token, answer in visits.items():
            server.visit(token, answer)

    def refused() -> None:
        # A connection with one call, which is answered from memory: at least what a refusal takes.
        # Naming a campaign that does not exist would make the server look for it in the database.
        for token in server.tokens:
            remote = Aggregator(server.server.access(token), server.campaign, patience=_ONCE)
            remote.plan()
            remote.close()

    found = {
        "visit": _spent(server, come),
        "refused": _spent(server, refused),
    }
    found = {name: seconds / phones for name, seconds in found.items()}
    found["wire"] = wire_bytes(server, rng)
    server.server.stop()
    return found | stored(server, rng) | growing(place)


def _spent(server: Aggregating, work: Callable[[], Any]) -> float:
    """The processor seconds that work takes a server, without what it takes in as much idle time.

    Idle time comes right after the work, because other load and what a server keeps change both.
    """
    before, began = server.processor(), time.monotonic()
    work()
    spent, seconds = server.processor() - before, time.monotonic() - began
    before = server.processor()
    time.sleep(seconds)
    return max(0.0, spent - (server.processor() - before))


def wire_bytes(server: Aggregating, rng: np.random.Generator) -> float:
    """The bytes of a visit in both directions, TLS with them, as a relay counts them."""
    token = server.place.enrol("phone behind a relay")
    (answer,) = server.messages(1, rng)
    with relay(server.server.port) as (port, passed):
        access = server.server.access(token)
        there = Access(f"127.0.0.1:{port}", token, access.authority)
        server.visit(token, answer, access=there)
    return float(sum(passed))


@contextmanager
def relay(port: int) -> Iterator[tuple[int, list[int]]]:
    """A port that passes one connection on to another port, and the sizes of what passed."""
    passed: list[int] = []

    def pump(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                passed.append(len(data))
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def serve() -> None:
        near, _ = listener.accept()
        far = socket.create_connection(("127.0.0.1", port))
        back = threading.Thread(target=pump, args=(far, near), daemon=True)
        back.start()
        pump(near, far)
        back.join()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1], passed
        thread.join(timeout=10)


def stored(server: Aggregating, rng: np.random.Generator) -> dict[str, float]:
    """Seconds and bytes of answers in the database: written, read by others, and tallied."""
    engine, place = writing(server.place.store.engine), server.place
    count = sum(GROUPS) * TURNS
    own = StoredIds()
    before = _bytes(engine)
    phones = _enrolled(place, count)
    enrolled = (_bytes(engine) - before) / count
    waiting = iter(zip(phones, server.messages(count, rng), strict=True))
    before, times = _bytes(engine), dict[int, list[float]]()
    for _ in range(TURNS):
        for size in GROUPS:
            items = [submission(server.campaign, *next(waiting)) for _ in range(size)]
            began = time.perf_counter()
            with engine.begin() as db:
                results = store_all(db, items, own)
            times.setdefault(size, []).append(time.perf_counter() - began)
            assert all(one.accepted == 1 for one in results)
    slope, start = np.polyfit(GROUPS, [min(times[size]) for size in GROUPS], 1)
    campaign = place.store.campaign(server.campaign)

    def read() -> None:
        with engine.begin() as db:
            StoredIds().of(db, server.campaign)

    def tally() -> None:
        held = list(StoredBatches(place.store, campaign, server.query, number=0))
        server.query.tally(held, report_scores(server.plan, None))

    stored = place.store.batches(server.campaign, 0)
    return {
        "transaction": max(float(start), 0.0),
        "batch": float(slope),
        "foreign": _least(read) / stored,
        "tally": _least(tally) / stored,
        "disk": (_bytes(engine) - before) / count,
        "enrolled": enrolled,
    }


def submission(campaign: str, owner: int, answer: bytes) -> Submission:
    batch = wire.Answer.FromString(answer).batch
    name = batch.ids + batch.ids
    return Submission(campaign, 0, owner, [Packed(name, 1, answer, batch.ids)], finished=True)


def _enrolled(place: Place, count: int) -> list[int]:
    """Enrol so many owners in one transaction; `owner add` commits each by itself."""
    rng = np.random.default_rng(2)
    rows = [{"name": f"stored {i}", "token": rng.bytes(32)} for i in range(count)]
    with place.store.engine.begin() as db:
        db.execute(insert(owners), rows)
        return list(db.execute(select(owners.c.id).where(owners.c.name.like("stored %"))).scalars())


def _bytes(engine: Any) -> float:
    """The bytes of the database on disk, indexes with them."""
    with engine.connect() as db:
        if db.dialect.name == "sqlite":
            (pages,), (size,) = (db.execute(text(f"PRAGMA {name}")).one() for name in _PAGES)
            return float(pages * size)
        return float(db.execute(text("SELECT pg_database_size(current_database())")).scalar_one())


_PAGES = ("page_count", "page_size")


def growing(place: Place) -> dict[str, float]:
    """Seconds of what a server reads again and again, for every owner more that is enrolled, and
    that has answered in the round: slopes over tables of several sizes."""
    enrolment, store = Enrolment(place.store.engine), place.store
    (campaign,) = (one.id for one in store.campaigns())
    counts, times = [], dict[str, list[float]]()
    for more in MORE:
        _joined(place, campaign, more)
        counts.append(len(enrolment.everybody()))
        for name, work in (
            ("directory", enrolment.everybody),
            ("turnout", lambda: store.turnout(campaign, 0)),
        ):
            times.setdefault(name, []).append(_least(work))
    return {name: max(float(np.polyfit(counts, each, 1)[0]), 0.0) for name, each in times.items()}


def _least(work: Callable[[], Any]) -> float:
    """The least seconds of several turns: whatever else the machine does only adds to them."""
    times = []
    for _ in range(9):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def _joined(place: Place, campaign: str, count: int) -> None:
    """Enrol owners who have finished the round, as rows."""
    with place.store.engine.begin() as db:
        last = db.execute(select(func.max(owners.c.id))).scalar_one()
        db.execute(
            insert(owners),
            [{"name": f"j{last + i}", "token": os.urandom(32)} for i in range(count)],
        )
        joined = db.execute(select(owners.c.id).where(owners.c.id > last)).scalars().all()
        row = {"campaign": campaign, "round": 0, "batches": 1, "reports": 1, "bytes": 67}
        row |= {"seeded": False, "finished": True}
        db.execute(insert(parts), [row | {"owner": owner} for owner in joined])
