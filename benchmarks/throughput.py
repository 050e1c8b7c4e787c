"""What a campaign costs, stage by stage: users in process, and messages over a Flower simulation.

Run with the project's environment: `python benchmarks/throughput.py [--users 1000000] [--nodes 100]
[--json FILE]`. Every user goes through the owner's whole path (policy, ledger on disk, randomiser,
wire format) and through the intake. The stages in process are given in processor time. The claim is
a ratio within one run: a user in process against a message of Flower, both by the clock.
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
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.console import Console
from rich.table import Table

from confide.aggregator.campaigns.admission import Admission, Sent
from confide.aggregator.procedures.central import draw_afresh
from confide.aggregator.procedures.registry import plan_procedure
from confide.client.ledger.ledger import Ledger
from confide.client.policy import Policy
from confide.client.records.records import Records
from confide.client.respond import Respondent
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.methods.bits import BitTerms
from confide.protocol.plan import Plan, digest, sign_plan, write_query
from confide.protocol.wire import wire_pb2 as wire
from confide.simulation.federation import federation

OWNERS = 20
LABELS = 10
MODEL = bytes(32)


def in_process(users: int, folder: Path) -> tuple[dict[str, float], float]:
    """Processor seconds of each stage of one certified bits campaign of twenty owners.

    Beside them stand the seconds by the clock of all stages after the naming of records.
    """
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
    spent = dict.fromkeys(("reading and naming records", "respond", "intake", "procedure"), 0.0)
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
    spent["reading and naming records"] = time.process_time() - started
    signed, name = sign_plan(plan, key), digest(plan.to_bytes())
    began = time.perf_counter()
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
    return spent, time.perf_counter() - began


def over_flower(nodes: int, folder: Path) -> tuple[float, int]:
    """Seconds and messages of a certified bits campaign over Flower.

    Time is counted from the end of the campaign before it to its own end.
    """
    names = ("labels-certified", "bits-certified")
    config = {
        "campaigns": " ".join(name.replace("-", ":") for name in names),
        "seed": 1,
        "output": str(folder),
    }
    with federation() as flower:
        flower.run(nodes=nodes, config=config | {"minimum-reports": 0}, tick=lambda: None)
    before, after = (folder / f"{name}.json" for name in names)
    return after.stat().st_mtime - before.stat().st_mtime, sum(
        json.loads(after.read_text())["received"].values()
    )


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
        help="Flower nodes (default 100; 1000 takes some minutes)",
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    if arguments.users < 10_000 or any(nodes < 1 for nodes in arguments.nodes):
        parser.error(
            f"users {arguments.users}, nodes {arguments.nodes}; accepted are at least 10,000 users "
            "and 1 node"
        )
    with tempfile.TemporaryDirectory() as folder:
        spent, path = in_process(arguments.users, Path(folder))
        flower = {nodes: over_flower(nodes, Path(folder)) for nodes in arguments.nodes}
    rows = [
        {
            "what": f"{name}, of the processor",
            "seconds": seconds,
            "each (us)": 1e6 * seconds / arguments.users,
        }
        for name, seconds in spent.items()
    ]
    rows.append(
        {
            "what": f"respond to procedure by the clock, {arguments.users:,} users",
            "seconds": path,
            "each (us)": 1e6 * path / arguments.users,
        }
    )
    for nodes, (seconds, messages) in flower.items():
        rows.append(
            {
                "what": f"Flower, {nodes:,} nodes, {messages:,} messages",
                "seconds": seconds,
                "each (us)": 1e6 * seconds / messages,
                "times a user": seconds / messages / (path / arguments.users),
            }
        )
    table = Table(title="cost of a campaign", title_justify="left")
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
