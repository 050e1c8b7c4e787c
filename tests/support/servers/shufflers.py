"""Real shuffler processes for tests, between owners and an aggregator."""

import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confide.aggregator.keys import create_keys, read_key
from confide.aggregator.storage.store import Store
from confide.aggregator.storage.stored_campaign import Settings
from confide.client.policy import Policy
from confide.client.transport.contribution import Contribution
from confide.client.transport.grpc_client import Aggregator
from confide.client.transport.retry import Patience
from confide.protocol.exact.sampling import Entropy, os_entropy
from confide.protocol.plan import Plan
from confide.protocol.sealing import sealing_key
from confide.protocol.shuffling import Shuffling, authority_digest
from confide.protocol.wire import service_pb2
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse
from confide.shuffler.cli import SIGNING_KEY
from confide.shuffler.joining import join
from confide.shuffler.relay import Relay
from tests.support.owners.owners import KEY, POLICY, owner
from tests.support.servers.servers import Place, Running, contribution, eventually, plan_now


class Meanwhile(Aggregator):
    """A connection to an aggregator on which something else happens before it says how it stands.

    So a test decides what another process does between what one process reads and what it does.
    """

    happens: Callable[[], object] = staticmethod(lambda: None)

    def watch(self) -> Iterator[service_pb2.Progress]:
        self.happens()
        yield from super().watch()


@dataclass
class ShufflerPlace(Place):
    """A shuffler's folder and database, with the servers on it."""

    aggregator: Place | None = None
    token: Path = field(init=False)

    def __post_init__(self) -> None:
        self.keys = self.folder / "keys"
        create_keys(self.keys, address="127.0.0.1", now=datetime.now(UTC), signing=SIGNING_KEY)
        self.url = self.url or f"sqlite:///{self.folder / 'shuffler.sqlite'}"
        assert self.aggregator is not None
        self.token = self.folder / "token"
        self.token.write_text(self.aggregator.enrol("shuffler"))

    @property
    def authority(self) -> bytes:
        return authority_digest((self.keys / "ca.pem").read_bytes())

    def shuffling(self, crowd: int) -> Shuffling:
        """What plans say of this shuffler and the aggregator of the tests."""
        public = read_key(self.keys / SIGNING_KEY).public_key().public_bytes_raw()
        recipient = sealing_key(KEY).public_key().public_bytes_raw()
        return Shuffling(public, self.authority, recipient, crowd)

    def plan(self, *, crowd: int, **changes: Any) -> Plan:
        return plan_now(shuffling=self.shuffling(crowd), **changes)

    def relay(self, upstream: int, *campaigns: str, port: int = 0, **rounds: Any) -> Running:
        """Start a shuffler of the aggregator that listens on this port."""
        assert self.aggregator is not None
        given = {
            "listen": f"127.0.0.1:{port}",
            "db": self.url,
            "key": self.keys / SIGNING_KEY,
            "tls-cert": self.keys / "server.pem",
            "tls-key": self.keys / "server.key",
            "aggregator": f"127.0.0.1:{upstream}",
            "token-file": self.token,
            "ca": self.aggregator.keys / "ca.pem",
        }
        options = [*given.items(), *(("campaign", one) for one in campaigns), *rounds.items()]
        words = [word for name, value in options for word in (f"--{name}".replace("_", "-"), value)]
        command = [sys.executable, "-m", "confide.shuffler.cli", "serve", *map(str, words)]
        return self.started(command, port=port)

    def remote(self, upstream: Running, campaign: str) -> Meanwhile:
        """Return a connection of this shuffler to a server of an aggregator."""
        token = self.token.read_text()
        if upstream.place is not self.aggregator:
            token = upstream.place.enrol("shuffler")
        return Meanwhile(
            upstream.access(token), campaign, patience=Patience(5.0, longest_pause=0.5)
        )

    def join(self, remote: Aggregator, **settings: Any) -> str:
        """Take part in the campaign of a connection."""
        given, public = Settings(**settings), self.shuffling(1).key
        return join(self.store, remote, settings=given, key=public, now=time.time())

    def relay_here(
        self,
        remotes: Mapping[str, Aggregator],
        *,
        now: Callable[[], float] = time.time,
        entropy: Entropy = os_entropy,
        store: Store | None = None,
    ) -> Relay:
        """Make a relay on this shuffler's database, or another, in the process of the test."""
        signing = read_key(self.keys / SIGNING_KEY)
        return Relay(store or self.store, remotes, key=signing, entropy=entropy, now=now)

    def relay_again(
        self, before: Running, upstream: int, *campaigns: str, **rounds: Any
    ) -> Running:
        """Start a shuffler in the place of one that was killed."""
        return self.relay(upstream, *campaigns, port=before.port, **rounds)


def sealed_contribution(
    shuffler: ShufflerPlace,
    running: Running,
    plan: Plan,
    folder: Path,
    *,
    seed: int,
    n: int,
    policy: Policy = POLICY,
) -> Contribution:
    """Make an owner of the tests that answers through a shuffler."""
    held = owner(
        folder,
        seed=seed,
        n=n,
        policy=policy,
        now=lambda: datetime.now(UTC),
        route=shuffler.authority,
    )
    access = running.access(shuffler.enrol(f"owner {seed}"))
    made = contribution(access, plan, folder, seed=seed, n=n, respondent=held)
    # A server process learns of a new query a moment after it is stored.
    eventually(made.remote.query, what="the query at the shuffler")
    return made


def collected(
    shuffler: ShufflerPlace, place: Place, plan: Plan, folder: Path, *, reports: int
) -> str:
    """Let an owner send so many reports to a shuffler that then dies; return the campaign."""
    campaign = place.campaign(plan, owners=1)
    running = shuffler.relay(place.serve().port, campaign)
    made = sealed_contribution(shuffler, running, plan, folder, seed=1, n=reports)
    assert made.once().well
    running.kill()
    assert shuffler.store.rounds(campaign)[0].closed is None
    return campaign


def everything(url: str) -> bytes:
    """All bytes that a database holds, in its file and beside it."""
    file = Path(url.removeprefix("sqlite:///"))
    return b"".join(path.read_bytes() for path in sorted(file.parent.glob(f"{file.name}*")))


def stored(url: str, campaign: str) -> list[wire.ReportBatch]:
    """The batches of a campaign in the order in which they were stored."""
    with sqlite3.connect(url.removeprefix("sqlite:///")) as db:
        found = db.execute(
            "SELECT answer FROM batches WHERE campaign = ? ORDER BY id", (campaign,)
        ).fetchall()
    return [parse(wire.Answer, answer).batch for (answer,) in found]


def named(batches: list[wire.ReportBatch], column: str, width: int) -> list[bytes]:
    """A column of batches, cut into its values."""
    data = b"".join(
        batch.ids if column == "ids" else parse(wire.SealedReports, batch.body).sealed
        for batch in batches
    )
    return [data[i : i + width] for i in range(0, len(data), width)]
