"""A campaign during which servers and clients are killed with signal 9, again and again."""

import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aggregator.campaigns import run_campaign
from protocol.campaign import Plan
from protocol.card import PUBLIC, parse_card
from protocol.certificate import Certificate
from tests.owners import asking, owner, signed
from tests.servers import ROOT, Place, Running, contribution, eventually

# One owner as a process of its own, started again and again until it ends well.
CLIENT = """
import sys
from pathlib import Path
from client.grpc_client import Access
from protocol.campaign import Plan
from tests.servers import contribution
address, token, ca, plan, folder, seed, n = sys.argv[1:]
access = Access(address, token, Path(ca).read_bytes())
part = contribution(access, Plan.from_bytes(bytes.fromhex(plan)), Path(folder), seed=int(seed), n=int(n), patience=300)
part.watch()
"""


@dataclass(frozen=True)
class Survived:
    """What came of it, what the owners' ledgers say should have come of it, and how often something was killed."""

    card: dict[str, Any]
    expected: Certificate
    servers_killed: int
    clients_killed: int
    acknowledged: int


def chaos(
    place: Place, plan: Plan, folder: Path, *, owners: int, processes: int, n: int, kills: int, client_kills: int, seed: int,
    pause: tuple[float, float] = (0.1, 1.5),
) -> Survived:  # fmt: skip
    """Run a campaign of so many owners with n records each, of whom the first `processes` are killed too."""
    rng = random.Random(seed)
    campaign = place.campaign(plan, owners=owners)
    server = place.serve()
    tokens = [place.enrol(f"owner {i}") for i in range(owners)]
    access = [server.access(token) for token in tokens]
    left: dict[int, int] = {}

    def take_part(i: int) -> None:
        left[i] = contribution(access[i], plan, folder / str(i), seed=i, n=n, patience=300).watch().reports

    def start(i: int) -> subprocess.Popen[bytes]:
        given = [access[i].address, tokens[i], str(place.keys / "ca.pem"), plan.to_bytes().hex(), str(folder / str(i)), str(i)]
        return subprocess.Popen([sys.executable, "-c", CLIENT, *given, str(n)], cwd=ROOT)

    folder.mkdir()
    threads = [threading.Thread(target=take_part, args=(i,), daemon=True) for i in range(processes, owners)]
    for thread in threads:
        thread.start()
    running = {i: start(i) for i in range(processes)}
    killed = clients = 0
    while place.store.campaign(campaign).state == "open":
        time.sleep(rng.uniform(*pause))
        if running and clients < client_kills:
            i = rng.randrange(processes)
            running[i].kill()
            running[i].wait()
            running[i], clients = start(i), clients + 1
        if killed < kills:
            server.kill()
            server, killed = place.serve(port=server.port), killed + 1
    for thread in threads:
        thread.join(timeout=120)
    for process in running.values():
        process.wait(timeout=120)
    eventually(lambda: place.store.campaign(campaign).state == "calibrated")
    # Owners on the same ledgers repeat what they said; what a killed client had spent and not yet drawn is lost to both.
    again = [owner(folder / str(i), seed=i, n=n, now=lambda: datetime.now(UTC)) for i in range(owners)]
    expected = run_campaign(plan, asking(signed(plan), again)).certificate
    card = parse_card(place.store.card(campaign, PUBLIC) or "").formal["certificate"]
    return Survived(card, expected, killed, clients, sum(left.values()))


def leader(place: Place, campaign: str, servers: list[Running]) -> Running:
    """The server that advances a campaign."""
    from sqlalchemy import select

    from aggregator.schema import campaigns

    def found() -> Running | None:
        with place.store.engine.connect() as db:
            name = db.execute(select(campaigns.c.leader).where(campaigns.c.id == campaign)).scalar()
        return next((one for one in servers if name and name.startswith(f"{one.process.pid}-")), None)

    running: Running = eventually(found)
    return running
