"""What a campaign costs, stage by stage: users in process, and messages over a Flower simulation.

Run with the project's environment: `python benchmarks/users/throughput.py [--users 1000000]
[--nodes 100] [--json FILE]`. Every user goes through the owner's whole path (policy, ledger on
disk, randomiser, wire format) and through the intake. All is given in processor time, which hardly
depends on what else the machine does. The claim is a ratio within one run: a user in process, whose
record is named, against a message of Flower.
"""

import argparse
import json
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.console import Console
from rich.table import Table

from confide.aggregator.campaigns.admission import Admission, Sent
from confide.aggregator.procedures.counts.central import draw_afresh
from confide.aggregator.procedures.registry import plan_procedure
from confide.client.ledger.ledger import Ledger
from confide.client.policy import Policy
from confide.client.records.records import Records
from confide.client.respond import Respondent
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.methods.bits import BitTerms
from confide.protocol.plan import Plan, digest, sign_plan, write_query
from confide.protocol.wire import wire_pb2 as wire
from confide.simulation.federation.harness import HOME, federation

OWNERS = 20
LABELS = 10
MODEL = bytes(32)


# The stage before a campaign: records are named once, whoever asks them.
NAMING = "reading and naming records"


def in_process(users: int, folder: Path) -> dict[str, float]:
    """Processor seconds of each stage of one certified bits campaign of twenty owners."""
    key, now = Ed25519PrivateKey.generate(), datetime.now(UTC)
    plan = Plan(
        campaign="throughput",
        terms=BitTerms(variant="certified", epsilon=2.0, delta=0.1),
        score="hps",
        labels=LABELS,
        alpha=0.1,
        expected_records=users,
        minimum_reports=1,
        model=MODEL,
        issued=now - timedelta(minutes=1),
        expires=now + timedelta(days=1),
    )
    policy = Policy(
        epsilon_per_record=2.0,
        epsilon_per_campaign=2.0,
        methods=frozenset({"bits"}),
        features_may_leave=False,
        minimum_group=1,
        aggregators=frozenset({key.public_key().public_bytes_raw()}),
        models=frozenset({MODEL}),
    )
    rng = np.random.default_rng(0)
    spent = dict.fromkeys((NAMING, "respond", "intake", "procedure"), 0.0)
    started = time.process_time()
    owners = []
    for owner in range(OWNERS):
        n = users // OWNERS
        probs = rng.dirichlet(np.full(LABELS, 0.3), n).astype(np.float32)
        labels = probs.argmax(axis=1)
        records = Records(tuple(f"{owner}/{i}".encode() for i in range(n)), probs, labels, MODEL)
        owners.append(
            Respondent(
                records=records,
                policy=lambda: policy,
                ledger=Ledger(folder / f"{owner}.sqlite"),
                secret=bytes([owner]) * 32,
                entropy=os_entropy,
                now=lambda: now,
            )
        )
    spent[NAMING] = time.process_time() - started
    signed, name = sign_plan(plan, key), digest(plan.to_bytes())
    procedure: Any = plan_procedure(plan, draw_afresh)
    intake, tally = Admission(plan), None
    for round_ in range(100):
        started = time.process_time()
        try:
            query = procedure.send(tally)
        except StopIteration:
            spent["procedure"] += time.process_time() - started
            break
        spent["procedure"] += time.process_time() - started
        started = time.process_time()
        data = write_query(query, plan=name, round_=round_)
        answers = [owner.answer(signed, data) for owner in owners]
        spent["respond"] += time.process_time() - started
        started = time.process_time()
        intake.open(query, round_)
        for number, answer in enumerate(answers):
            receipt = intake.admit(Sent(bytes([number]), answer))
            # Refusals would be quick.
            assert receipt.code == wire.Code.OK, wire.Code.Name(receipt.code)
        tally = intake.tally()
        spent["intake"] += time.process_time() - started
    return spent


class ProcessorTime:
    """The processor seconds of a federation's processes while one campaign runs.

    It begins with the file of the campaign before it and ends with its own. All processes that work
    for it have started by then.
    """

    def __init__(self, home: Path, before: Path, after: Path) -> None:
        self._home, self._before, self._after = home, before, after
        self._members: list[psutil.Process] = []
        self._first = self._last = 0.0

    def look(self) -> None:
        """Take the time, often enough while the federation runs."""
        if self._before.exists() and not self._members:
            self._members = [one for one in psutil.process_iter() if self._works_here(one)]
            self._first = self._now()
        if self._members and not self._after.exists():
            self._last = self._now()

    @property
    def seconds(self) -> float:
        return self._last - self._first

    def _now(self) -> float:
        taken = [one.cpu_times() for one in self._members]
        return sum(one.user + one.system for one in taken)

    def _works_here(self, process: psutil.Process) -> bool:
        try:
            return bool(process.environ().get(HOME) == str(self._home))
        except psutil.Error:
            return False


def over_flower(nodes: int, folder: Path) -> tuple[float, int]:
    """Processor seconds and messages of a certified bits campaign over Flower."""
    names = ("labels-certified", "bits-certified")
    config = {
        "campaigns": " ".join(name.replace("-", ":") for name in names),
        "seed": 1,
        "output": str(folder),
    }
    before, after = (folder / f"{name}.json" for name in names)
    with federation() as flower:
        time_ = ProcessorTime(flower.log_file.parent, before, after)
        flower.run(nodes=nodes, config=config | {"minimum-reports": 0}, tick=time_.look)
    return time_.seconds, sum(json.loads(after.read_text())["received"].values())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--users", type=int, default=1_000_000, help="users in process (default 1,000,000)"
    )
    parser.add_argument(
        "--nodes",
        type=int,
        nargs="*",
        default=[100],
        help="Flower nodes (default 100; 400 take some minutes)",
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    if arguments.users < 10_000 or any(nodes < 1 for nodes in arguments.nodes):
        parser.error(
            f"users {arguments.users}, nodes {arguments.nodes}; accepted are at least 10,000 users "
            "and 1 node"
        )
    flower = {}
    with tempfile.TemporaryDirectory() as folder:
        spent = in_process(arguments.users, Path(folder))
        for nodes in arguments.nodes:
            (Path(folder) / str(nodes)).mkdir()
            flower[nodes] = over_flower(nodes, Path(folder) / str(nodes))
    user = sum(seconds for stage, seconds in spent.items() if stage != NAMING) / arguments.users
    rows = [
        {
            "what": name,
            "seconds": seconds,
            "each (us)": 1e6 * seconds / arguments.users,
        }
        for name, seconds in spent.items()
    ]
    for nodes, (seconds, messages) in flower.items():
        rows.append(
            {
                "what": f"Flower, {nodes:,} nodes, {messages:,} messages",
                "seconds": seconds,
                "each (us)": 1e6 * seconds / messages,
                "times a user": seconds / messages / user,
            }
        )
    table = Table(title="cost of a campaign, processor time", title_justify="left")
    for heading in ("what", "seconds", "each (us)", "times a user"):
        table.add_column(heading, no_wrap=True)
    for row in rows:
        table.add_row(
            *(
                f"{row[key]:,.1f}" if isinstance(row.get(key), float) else str(row.get(key, ""))
                for key in ("what", "seconds", "each (us)", "times a user")
            )
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
