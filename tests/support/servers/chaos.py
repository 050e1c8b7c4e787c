"""Campaigns whose servers and clients are killed with signal 9 repeatedly.

Each one is compared with the same campaign without kills.
"""

import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confide.aggregator.storage import views
from confide.protocol.cards.card import PUBLIC, parse_card
from confide.protocol.plan import Plan
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import ID_BYTES, parse
from tests.support.repository.places import ROOT
from tests.support.servers.servers import Place, Running, contribution, eventually, together

PATIENCE = 600
# One owner as a separate process, restarted until it ends successfully.
CLIENT = """
import sys
from pathlib import Path
from confide.client.transport.grpc_client import Access
from confide.protocol.plan import Plan
from tests.support.servers.servers import contribution
address, token, ca, plan, folder, seed, n = sys.argv[1:]
access = Access(address, token, Path(ca).read_bytes())
plan = Plan.from_bytes(bytes.fromhex(plan))
part = contribution(access, plan, Path(folder), seed=int(seed), n=int(n), patience=600)
part.watch()
"""


@dataclass(frozen=True)
class Came:
    """The result of a campaign.

    It holds the formal layer of the card, and the ids of the reports that are stored and of those
    that were acknowledged.
    """

    formal: dict[str, Any]
    stored: list[bytes]
    acknowledged: list[bytes]


@dataclass(frozen=True)
class Survived:
    """A campaign with kills, and their number."""

    came: Came
    servers_killed: int
    clients_killed: int


def came(place: Place, campaign: str, folder: Path) -> Came:
    """Return the result of a calibrated campaign whose owners' folders are in this folder."""
    eventually(lambda: place.store.campaign(campaign).state == "calibrated", seconds=PATIENCE)
    check_turnout(place, campaign)
    stored = (
        answer
        for one in place.store.rounds(campaign)
        for _, answer in place.store.answers(campaign, one.number)
    )
    acknowledged = []
    for path in folder.glob("*/ledger.sqlite"):
        with sqlite3.connect(path) as ledger:
            rows = ledger.execute(
                "SELECT answer FROM queries WHERE receipt = ?", (int(wire.Code.OK),)
            )
            acknowledged += [row[0] for row in rows]
        ledger.close()
    card = parse_card(place.store.card(campaign, PUBLIC) or "")
    return Came(card.formal, _ids(stored), _ids(acknowledged))


def check_turnout(place: Place, campaign: str) -> None:
    """The counts that every round carries are what the rows of its owners add up to."""
    rows = views.progress(place.store.engine, campaign)
    for one in place.store.rounds(campaign):
        mine = [row for row in rows if row.round == one.number]
        assert place.store.turnout(campaign, one.number) == (
            sum(row.finished for row in mine),
            sum(row.reports > 0 for row in mine),
            sum(row.reports for row in mine),
        )


def _ids(answers: Iterable[bytes]) -> list[bytes]:
    batches = [parse(wire.Answer, answer).batch.ids for answer in answers]
    return sorted(ids[i : i + ID_BYTES] for ids in batches for i in range(0, len(ids), ID_BYTES))


def in_peace(plan: Plan, folder: Path, *, owners: int, n: int) -> Came:
    """Run the campaign with the same seeded owners and a server on SQLite, without failures."""
    place = Place(folder / "aggregator")
    try:
        campaign, server = place.campaign(plan, owners=owners), place.serve()
        access = [server.access(place.enrol(f"owner {i}")) for i in range(owners)]
        together(
            owners, lambda i: contribution(access[i], plan, folder / str(i), seed=i, n=n).watch()
        )
        return came(place, campaign, folder)
    finally:
        place.close()


def under_way(place: Place, campaign: str, owners: int) -> bool:
    """Whether some of the reports of a round have arrived, and some have not."""
    rounds = place.store.rounds(campaign)
    if not rounds or rounds[-1].closed is not None:
        return False
    turnout = place.store.turnout(campaign, rounds[-1].number)
    return turnout.reports > 0 and turnout.finished < owners


def chaos(
    place: Place,
    plan: Plan,
    folder: Path,
    *,
    owners: int,
    processes: int,
    n: int,
    kills: int,
    client_kills: int,
    seed: int,
    longest_pause: float = 0.3,
) -> Survived:
    """Run a campaign of `owners` owners with n records each, under kills.

    The first `processes` owners are killed too. A kill comes at a random instant after the first
    reports of a round: while others arrive, when it closes, or later.
    """
    rng = random.Random(seed)
    campaign = place.campaign(plan, owners=owners)
    server = place.serve()
    tokens = [place.enrol(f"owner {i}") for i in range(owners)]
    access = [server.access(token) for token in tokens]

    def take_part(i: int) -> None:
        contribution(access[i], plan, folder / str(i), seed=i, n=n, patience=PATIENCE).watch()

    def start(i: int) -> subprocess.Popen[bytes]:
        given = [
            access[i].address,
            tokens[i],
            str(place.keys / "ca.pem"),
            plan.to_bytes().hex(),
            str(folder / str(i)),
            str(i),
        ]
        return subprocess.Popen([sys.executable, "-c", CLIENT, *given, str(n)], cwd=ROOT)

    folder.mkdir()
    threads = [
        threading.Thread(target=take_part, args=(i,), daemon=True) for i in range(processes, owners)
    ]
    for thread in threads:
        thread.start()
    running = {i: start(i) for i in range(processes)}
    killed = clients = 0
    try:
        until = time.monotonic() + PATIENCE
        while place.store.campaign(campaign).state == "open":
            assert time.monotonic() < until, (
                "the campaign does not end: something that was acknowledged is lost"
            )
            if killed < kills and not under_way(place, campaign, owners):
                time.sleep(0.01)
                continue
            time.sleep(rng.uniform(0, longest_pause))
            if running and clients < client_kills:
                i = rng.randrange(processes)
                running[i].kill()
                running[i].wait()
                running[i], clients = start(i), clients + 1
            if killed < kills:
                server.kill()
                server, killed = place.serve(port=server.port), killed + 1
        for thread in threads:
            thread.join(timeout=PATIENCE)
        for process in running.values():
            process.wait(timeout=PATIENCE)
    finally:
        for process in running.values():
            process.kill()
    return Survived(came(place, campaign, folder), killed, clients)


def leader(place: Place, campaign: str, servers: list[Running]) -> Running:
    """Return the server that advances a campaign."""
    from sqlalchemy import select

    from confide.aggregator.storage.schema import campaigns

    def found() -> Running | None:
        with place.store.engine.connect() as db:
            name = db.execute(select(campaigns.c.leader).where(campaigns.c.id == campaign)).scalar()
        return next(
            (one for one in servers if name and name.startswith(f"{one.process.pid}-")), None
        )

    running: Running = eventually(found)
    return running
