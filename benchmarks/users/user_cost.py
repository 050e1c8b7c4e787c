"""What one more user costs in process, from 10,000 to 10,000,000 of them, and how much memory.

Run with the project's environment: `python benchmarks/users/user_cost.py [--most 10000000]
[--json FILE] [--plot docs/user-cost.svg]`. Users are records of owners with 50,000 of them at most,
and go through the real client (policy, ledger on disk, randomiser, wire format), intake, tally and
procedure of one certified campaign. Every size runs in a process of its own, which also measures
the yardstick: one keyed hash a user, and one row in a SQLite transaction for each that answered, in
as many transactions. All is processor time a user, asked or not: a large campaign of bits may end
before all were asked. Memory is the most that the process held. The claims: `respond` costs at most
3 times the yardstick, a user costs no more at any size, and all stays within 2 GB.
"""

import argparse
import hashlib
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.console import Console
from rich.table import Table

from confide.aggregator.campaigns.admission import Admission, Sent
from confide.aggregator.procedures.counts.central import draw_afresh
from confide.aggregator.procedures.registry import plan_procedure
from confide.client.ledger.ledger import Ledger
from confide.client.records.records import Records
from confide.client.respond import Respondent
from confide.client.simulated import SIMULATION_POLICY
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.methods.registry import METHODS
from confide.protocol.plan import Plan, digest, sign_plan, write_query
from confide.protocol.wire import wire_pb2 as wire

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
METHODS_RUN = ("bits", "labels")
OF_AN_OWNER, LABELS, MODEL = 50_000, 10, bytes(32)
# The yardstick needs no more users than this.
MOST_MEASURED = 1_000_000
STAGES = ("naming", "respond", "intake", "procedure", "yardstick")


class Named(Sequence[bytes]):
    """Names of an owner's users, made when they are asked for."""

    def __init__(self, owner: int, n: int) -> None:
        self._owner, self._n = owner, n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, i: Any) -> Any:
        return b"%d/%d" % (self._owner, i)

    def __iter__(self) -> Iterator[bytes]:
        return (b"%d/%d" % (self._owner, i) for i in range(self._n))


class Stopwatch:
    """Processor seconds by stage."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys(STAGES, 0.0)

    def time(self, stage: str, work: Any) -> Any:
        began = time.process_time()
        try:
            return work()
        finally:
            self.spent[stage] += time.process_time() - began


def campaign(method: str, users: int, folder: Path) -> dict[str, Any]:
    """One certified campaign of so many users; seconds of each stage."""
    watch, key, now = Stopwatch(), Ed25519PrivateKey.generate(), datetime.now(UTC)
    terms = METHODS[method].from_settings(
        "certified",
        {
            "epsilon": 2.0,
            "failure-probability": 0.1,
            "max-corrupt": 0,
            "channel": "auto",
            "labels": LABELS,
            "scoring": "owner",
            "provider-data": "",
            "largest-set": 0,
            "records": users,
        },
    )
    plan = Plan(
        campaign="user cost",
        terms=terms,
        score="hps",
        labels=LABELS,
        alpha=0.1,
        expected_records=users,
        minimum_reports=1,
        model=MODEL,
        issued=now - timedelta(minutes=1),
        expires=now + timedelta(days=1),
    )
    sizes = [min(OF_AN_OWNER, users - at) for at in range(0, users, OF_AN_OWNER)]
    policy = replace(
        SIMULATION_POLICY,
        aggregators=frozenset({key.public_key().public_bytes_raw()}),
        models=frozenset({MODEL}),
    )

    def opened(owner: int) -> tuple[Respondent, Ledger]:
        rng = np.random.default_rng(owner)
        probs = rng.dirichlet(np.full(LABELS, 0.3), sizes[owner]).astype(np.float32)
        labels = (probs.cumsum(axis=1) < rng.random((len(probs), 1))).sum(axis=1)
        truth = np.minimum(labels, LABELS - 1).astype(np.int16)
        names, ledger = Named(owner, sizes[owner]), Ledger(folder / f"{owner}.sqlite")

        def made() -> Respondent:
            return Respondent(
                records=Records(names, probs, truth, MODEL),
                policy=lambda: policy,
                ledger=ledger,
                secret=owner.to_bytes(32, "little"),
                entropy=os_entropy,
                now=lambda: now,
            )

        found: Respondent = watch.time("naming", made)
        return found, ledger

    # Bits come back to every owner in several rounds; labels ask once, so an owner need not stay.
    kept = [opened(owner) for owner in range(len(sizes))] if method == "bits" else None
    signed, name = sign_plan(plan, key), digest(plan.to_bytes())
    procedure: Any = plan_procedure(plan, draw_afresh)
    intake: Any = Admission(plan)
    tally: Any = None
    rounds = 0
    while True:
        try:
            query = watch.time("procedure", lambda: procedure.send(tally))  # noqa: B023
        except StopIteration as ended:
            certificate = ended.value
            break
        data = write_query(query, plan=name, round_=rounds)
        intake.open(query, rounds)
        for owner in range(len(sizes)):
            one, ledger = opened(owner) if kept is None else kept[owner]
            answer = watch.time("respond", lambda: one.answer(signed, data))  # noqa: B023
            if kept is None:
                ledger.close()
            sent = Sent(owner.to_bytes(4, "big"), answer)
            del answer
            receipt = watch.time("intake", lambda: intake.admit(sent))  # noqa: B023
            assert receipt.code == wire.Code.OK, wire.Code.Name(receipt.code)
        tally = watch.time("intake", intake.tally)
        rounds += 1
    # The yardstick does not count for the memory of a campaign. Linux counts in units of 1,024.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    intake = tally = kept = None
    watch.time("yardstick", lambda: yardstick(sizes, rounds, folder, share=certificate.n / users))
    measured = min(users, MOST_MEASURED)
    each = {s: 1e6 * t / (measured if s == "yardstick" else users) for s, t in watch.spent.items()}
    return {
        "method": method,
        "users": users,
        "rounds": rounds,
        "threshold": certificate.threshold,
        "answered": certificate.n,
        **each,
        "times": each["respond"] / each["yardstick"],
        "user": each["respond"] + each["intake"] + each["procedure"],
        "peak (GB)": peak,
    }


def yardstick(sizes: list[int], rounds: int, folder: Path, *, share: float) -> None:
    """One keyed hash a user and one row for this share, a transaction for every owner and round."""
    left = MOST_MEASURED
    for owner, whole in enumerate(sizes):
        n = min(whole, left)
        left -= n
        if not n:
            return
        path = folder / f"yardstick-{owner}.sqlite"
        database = sqlite3.connect(path, isolation_level=None)
        database.execute("PRAGMA synchronous = EXTRA")
        database.execute(
            "CREATE TABLE spends (record BLOB, plan INTEGER, query INTEGER, epsilon REAL, delta "
            "REAL, PRIMARY KEY (record, plan)) WITHOUT ROWID"
        )
        names = list(Named(owner, n))
        for round_ in range(rounds):
            part = [
                hashlib.blake2b(one, key=b"k" * 32, digest_size=16).digest()
                for one in names[n * round_ // rounds : n * (round_ + 1) // rounds]
            ]
            database.execute("BEGIN IMMEDIATE")
            database.executemany(
                "INSERT INTO spends VALUES (?, ?, ?, ?, ?)",
                ((one, 1, round_, 2.0, 0.0) for one in part[: round(share * len(part))]),
            )
            database.execute("COMMIT")
        database.close()
        path.unlink()


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw what a user costs at every size."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for method, colour, mark in zip(METHODS_RUN, ("#0072B2", "#D55E00"), "os", strict=True):
        own = [row for row in rows if row["method"] == method]
        users = [row["users"] for row in own]
        look = {"color": colour, "marker": mark}
        left.plot(users, [row["user"] for row in own], label=f"{method}, whole campaign", **look)
        left.plot(users, [row["respond"] for row in own], "--", label=f"{method}, respond", **look)
        right.plot(users, [row["peak (GB)"] for row in own], label=method, **look)
    left.set(xscale="log", xlabel="users", ylabel="processor microseconds a user", ylim=(0, None))
    right.set(xscale="log", xlabel="users", ylabel="most memory (GB)", ylim=(0, 2.1))
    right.axhline(2.0, color="black", linewidth=1)
    left.legend(fontsize=7)
    right.legend(fontsize=7)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--most", type=int, default=SIZES[-1], help="the largest number of users")
    parser.add_argument("--methods", nargs="*", choices=METHODS_RUN, default=METHODS_RUN)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--plot", type=Path, help="draw the costs into this file (SVG)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        method, users = given.one.split(":")
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(campaign(method, int(users), Path(folder))))
        return
    rows = []
    for method in given.methods:
        for users in (size for size in SIZES if size <= given.most):
            command = [sys.executable, __file__, "--one", f"{method}:{users}"]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            if ran.returncode:
                sys.exit(ran.stderr)
            rows.append(json.loads(ran.stdout))
            print(json.dumps(rows[-1]), file=sys.stderr)
    table = Table(title="cost of a user, processor microseconds", title_justify="left")
    shown = ["method", "users", "answered", "rounds", *STAGES, "times", "user", "peak (GB)"]
    for name in shown:
        table.add_column(name, no_wrap=True)
    for row in rows:
        table.add_row(*(f"{v:,.2f}" if isinstance(v := row[k], float) else str(v) for k in shown))
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")
    if given.plot is not None:
        plot(rows, given.plot)


if __name__ == "__main__":
    main()
