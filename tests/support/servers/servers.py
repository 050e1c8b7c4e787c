"""Real aggregator processes for tests.

They have a database, keys, owners with tokens, a server that can be killed, and command lines.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from confide.aggregator.cli.server import app as aggregator_app
from confide.aggregator.cli.stored import open_store
from confide.aggregator.keys import SIGNING_KEY, create_keys
from confide.aggregator.storage.enrolment import Enrolment
from confide.aggregator.storage.store import Store
from confide.aggregator.storage.stored_campaign import Settings
from confide.client.cli.app import app as client_app
from confide.client.ledger.ledger import Ledger
from confide.client.policy import Policy
from confide.client.respond import Respondent
from confide.client.transport.contribution import Contribution
from confide.client.transport.grpc_client import Access, Aggregator
from confide.client.transport.retry import Patience
from confide.protocol.plan import Plan, digest, sign_plan
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.service import campaign_id
from tests.support.owners.owners import KEY, PLAN, POLICY, changed, owner
from tests.support.repository.places import ROOT

START_SECONDS = 60.0


def plan_now(plan: Plan = PLAN, **changes: Any) -> Plan:
    """Return a plan of the tests that is valid today.

    It is the same on every day, so that seeded owners draw the same.
    """
    return changed(
        plan,
        issued=datetime(2026, 1, 1, tzinfo=UTC),
        expires=datetime(2126, 1, 1, tzinfo=UTC),
        **changes,
    )


def eventually(holds: Callable[[], Any], *, seconds: float = 60.0, what: str = "") -> Any:
    """Wait until `holds` returns a true value."""
    until = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < until, f"not within {seconds} s: {what or holds}"
        time.sleep(0.02)
    return found


def holding(data: bytes) -> bytes:
    """Return an answer with these bytes in it, and no report."""
    return wire.Answer(batch=wire.ReportBatch(body=data)).SerializeToString()


@dataclass
class Running:
    """One server process."""

    place: "Place"
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)

    def access(self, token: str, **given: Any) -> Access:
        return Access(
            f"127.0.0.1:{self.port}", token, (self.place.keys / "ca.pem").read_bytes(), **given
        )

    @property
    def megabytes(self) -> float:
        """The memory of the process."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def events(self) -> list[dict[str, Any]]:
        return [
            json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")
        ]


@dataclass
class Place:
    """An aggregator's folder and database, with the servers on it."""

    folder: Path
    url: str = ""
    servers: list[Running] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keys = self.folder / "keys"
        self.keys.mkdir(parents=True, exist_ok=True)
        (self.keys / SIGNING_KEY).write_bytes(KEY.private_bytes_raw())
        create_keys(self.keys, address="127.0.0.1", now=datetime.now(UTC))
        self.url = self.url or f"sqlite:///{self.folder / 'confide.sqlite'}"

    @cached_property
    def store(self) -> Store:
        return open_store(self.url)

    def enrol(self, name: str, *, records: int | None = None) -> str:
        return Enrolment(self.store.engine).add(name, records=records)

    def campaign(self, plan: Plan, **settings: Any) -> str:
        """Open a campaign."""
        made = self.store.create(sign_plan(plan, KEY), Settings(**settings), now=time.time())
        self.store.open(made.id, now=time.time())
        return made.id

    def serve(
        self, *options: str, port: int = 0, insecure: bool = False, through: tuple[str, ...] = ()
    ) -> Running:
        """Start a server process and wait until it is ready."""
        command = [
            *through,
            sys.executable,
            "-m",
            "confide.aggregator.cli.server",
            "serve",
            "--listen",
            f"127.0.0.1:{port}",
            "--db",
            self.url,
        ]
        tls = [
            "--tls-cert",
            str(self.keys / "server.pem"),
            "--tls-key",
            str(self.keys / "server.key"),
        ]
        command += [
            "--key",
            str(self.keys / SIGNING_KEY),
            *(["--insecure-loopback"] if insecure else tls),
            *options,
        ]
        return self.started(command, port=port)

    def started(self, command: list[str], *, port: int) -> Running:
        """Start the process of a server, and wait until it listens."""
        log = self.folder / f"server-{len(self.servers)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, cwd=ROOT, stderr=file, env=os.environ | {"GRPC_VERBOSITY": "NONE"}
            )
        running = Running(self, port, process, log)
        self.servers.append(running)

        def listening() -> Any:
            assert process.poll() is None, log.read_text()
            return next(
                (event["port"] for event in running.events() if event["event"] == "listening"), None
            )

        running.port = eventually(listening, seconds=START_SECONDS, what="listening")
        return running

    def close(self) -> None:
        for running in self.servers:
            if running.process.poll() is None:
                running.kill()
        self.store.engine.dispose()


def contribution(
    access: Access,
    plan: Plan,
    folder: Path,
    *,
    seed: int,
    n: int,
    patience: float = 60.0,
    policy: Policy = POLICY,
    respondent: Respondent | None = None,
) -> Contribution:
    """Make a seeded owner of the tests behind the native client."""
    signed = sign_plan(plan, KEY)
    name = digest(plan.to_bytes())
    if respondent is None:
        respondent = owner(folder, seed=seed, n=n, policy=policy, now=lambda: datetime.now(UTC))
    remote = Aggregator(access, campaign_id(name), patience=Patience(patience, longest_pause=0.5))
    assert remote.plan() == signed
    return Contribution(remote, respondent, Ledger(folder / "ledger.sqlite"), plan, name, signed)


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Run `work` once for each owner, all at the same time."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def aggregator(*arguments: Any) -> tuple[int, str]:
    """Run the aggregator's command line in this process; starting another takes seconds."""
    result = CliRunner().invoke(aggregator_app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout


def client(*arguments: Any) -> tuple[int, str]:
    """Run the owner's command line in this process."""
    result = CliRunner().invoke(client_app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout


def page_port(server: Running) -> int:
    return int(
        next(event["address"] for event in server.events() if event["event"] == "page")
        .split(":")[2]
        .strip("/")
    )


def searched(place: Place, campaign: str) -> list[Any]:
    """Return what the page shows of the search of a campaign."""
    # It loads scipy, which the processes of owners do not need.
    from confide.aggregator.web.search_progress import points

    store = place.store
    return points(store.campaign(campaign), store.rounds(campaign), store.queries(campaign))
