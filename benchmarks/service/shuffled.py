"""A shuffled campaign through real processes, with kills of both servers, and what its card says.

Run with the project's environment: `python benchmarks/service/shuffled.py [--owners N] [--reports
N] [--no-kills]`. Owners are `confide-client contribute` processes on records of the embedded
letters, drawn again and again. Both servers are killed while owners send, the shuffler again when
its round is mixed, and the aggregator again as soon as it holds a part of it. Every report must be
counted once, the aggregator's database must hold nothing of an owner, and the card must verify and
say the same epsilon of its round and of the plan's crowd, which is the whole round here. A second
campaign has 23,640 reports, the crowd of the example in docs/shuffler.md.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from confide.aggregator.storage.stored_campaign import CALIBRATED
from confide.client.home import Home
from confide.protocol.cards.card import PUBLIC, parse_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.methods.bits import BitTerms
from confide.protocol.plan import Plan
from confide.protocol.simulated.embedded import predictions
from confide.protocol.simulated.settings import EMBEDDED_MODEL
from confide.protocol.wire.encoding import ID_BYTES
from confide.shuffler.storage import MixedRounds
from tests.support.owners.owners import PUBLIC as SIGNER
from tests.support.servers.servers import Place, eventually
from tests.support.servers.shuffled_search import traces
from tests.support.servers.shufflers import ShufflerPlace, everything, named, stored

AT_ONCE, SECONDS = 5, 900.0
# Of the ids that owners gave, so many are looked for byte by byte; all of them among all ids.
SEARCHED = 500


def write_owner(folder: Path, number: int, *, reports: int) -> Path:
    """Write the folder and the records of an owner whose policy allows the campaign."""
    home = Home(folder / f"owner-{number}")
    home.create()
    policy = home.policy_file.read_text()
    for old, new in (
        ("aggregators = []", f'aggregators = ["{SIGNER.hex()}"]'),
        ("\nmodels = []", f'\nmodels = ["{EMBEDDED_MODEL.hex()}"]'),
        ("epsilon_per_campaign = 2.0", "epsilon_per_campaign = 4.0"),
    ):
        policy = policy.replace(old, new)
    home.policy_file.write_text(policy)
    probs, labels = predictions()
    chosen = np.random.default_rng(number).integers(0, len(labels), reports)
    ids = np.array([f"{number}-{i}" for i in range(reports)])
    path = folder / f"records-{number}.npz"
    np.savez(path, id=ids, probs=probs[chosen], labels=labels[chosen])
    return path


class Campaign:
    """One campaign with its three kinds of processes."""

    def __init__(self, folder: Path, *, owners: int, each: int) -> None:
        self.folder, self.owners, self.each = folder, owners, each
        self.place = Place(folder / "aggregator")
        self.shuffler = ShufflerPlace(folder / "shuffler", aggregator=self.place)
        self.plan: Plan = self.shuffler.plan(
            crowd=owners * each,
            terms=BitTerms(variant="one-shot", epsilon=4.0, delta=0.1),
            labels=26,
            model=EMBEDDED_MODEL,
            expected_records=owners * each,
            minimum_owners=owners,
        )
        self.id = self.place.campaign(self.plan)
        self.upstream = self.place.serve()
        self.running = self.shuffler.relay(self.upstream.port, self.id, owners=owners)
        self.kills: Counter[str] = Counter()

    def close(self) -> None:
        self.shuffler.close()
        self.place.close()

    def contribute(self, number: int) -> float:
        """Run an owner's command to its end; return the seconds it took."""
        records, started = write_owner(self.folder, number, reports=self.each), time.monotonic()
        token = self.folder / f"token-{number}"
        token.write_text(self.shuffler.enrol(f"owner-number-{number}", records=self.each))
        options = {
            "aggregator": f"127.0.0.1:{self.running.port}",
            "campaign": self.id,
            "token-file": token,
            "ca": self.shuffler.keys / "ca.pem",
            "records": records,
            "home": self.folder / f"owner-{number}",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        command = [sys.executable, "-m", "confide.client", "contribute", *words, "--once"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or f"{self.each} reports" not in done.stdout:
            raise SystemExit(f"owner {number} failed: {done.stdout}{done.stderr}")
        return time.monotonic() - started

    def answer(self, numbers: range) -> list[float]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(self.contribute, numbers))

    def kill_shuffler(self) -> None:
        self.running.kill()
        self.running = self.shuffler.relay_again(
            self.running, self.upstream.port, self.id, owners=self.owners
        )
        self.kills["shuffler"] += 1

    def kill_aggregator(self) -> None:
        self.upstream.kill()
        self.kills["aggregator"] += 1

    def start_aggregator(self) -> None:
        self.upstream = self.place.serve(port=self.upstream.port)

    def run(self, *, kills: bool) -> list[float]:
        """Let all owners answer, under kills, until the card is there; return their seconds."""
        eventually(lambda: self.shuffler.store.rounds(self.id), what="a query")
        time.sleep(1.0)
        half = self.owners // 2
        seconds = self.answer(range(half))
        if kills:
            self.kill_aggregator()
            self.kill_shuffler()
        seconds += self.answer(range(half, self.owners))
        if kills:
            # The shuffler cannot hand over while its aggregator is dead.
            mixed = MixedRounds(self.shuffler.store.engine)
            eventually(lambda: mixed.mixed(self.id, 0), seconds=SECONDS, what="a mixed round")
            self.kill_shuffler()
            self.start_aggregator()
            eventually(lambda: self.place.store.batches(self.id, 0), seconds=SECONDS)
            self.kill_aggregator()
            self.start_aggregator()
        done = self.place.store
        eventually(lambda: done.campaign(self.id).state == CALIBRATED, seconds=SECONDS)
        held = MixedRounds(self.shuffler.store.engine)
        eventually(lambda: held.held(self.id, 0), seconds=SECONDS, what="a round that is held")
        return seconds


def look(campaign: Campaign) -> dict[str, Any]:
    """Look for owners in the aggregator's database, and verify its card."""
    size = campaign.plan.terms.row_bytes + 48
    handed = stored(campaign.place.url, campaign.id)
    reports, ids = named(handed, "sealed", size), named(handed, "ids", ID_BYTES)
    owned = named(stored(campaign.shuffler.url, campaign.id), "ids", ID_BYTES)
    names = [f"owner-number-{number}".encode() for number in range(campaign.owners)]
    held = everything(campaign.place.url)
    card = parse_card(campaign.place.store.card(campaign.id, PUBLIC) or "")
    return {
        "reports": len(reports),
        "once": len(set(reports)) == len(reports) == campaign.owners * campaign.each,
        "traces": traces(held, [*names, *owned[:SEARCHED]]) + sorted(set(ids) & set(owned)),
        "card": card,
        "broken": [one.clause for one in verify(card, key=SIGNER) if not one.holds],
    }


def report(campaign: Campaign, found: dict[str, Any], seconds: list[float], took: float) -> bool:
    """Print what was found; return whether it is as it must be."""
    shuffle, certificate = found["card"].formal["shuffle"], found["card"].formal["certificate"]
    right = (
        found["once"]
        and not found["traces"]
        and not found["broken"]
        and shuffle["n"] == campaign.owners * campaign.each == certificate["n"]
        and shuffle["crowd_epsilon"] == shuffle["epsilon"]
    )
    print(
        f"{campaign.owners} owners, {found['reports']:,} reports, kills {dict(campaign.kills)}, "
        f"{took:.0f} s (an owner's command {np.mean(seconds):.1f} s): every report once: "
        f"{found['once']}; traces of owners at the aggregator: {len(found['traces'])}; clauses "
        f"that fail: {len(found['broken'])}; local epsilon {certificate['epsilon']:.5f}, on the "
        f"card {shuffle['epsilon']:.4f} at delta {shuffle['delta']:g} in a crowd of "
        f"{shuffle['n']:,}: {'right' if right else 'WRONG'}",
        flush=True,
    )
    return right


def measured(folder: Path, *, owners: int, each: int, kills: bool) -> bool:
    """Run one campaign and judge it."""
    started, campaign = time.monotonic(), Campaign(folder, owners=owners, each=each)
    try:
        seconds = campaign.run(kills=kills)
        return report(campaign, look(campaign), seconds, time.monotonic() - started)
    finally:
        campaign.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--owners", type=int, default=20)
    parser.add_argument("--reports", type=int, default=100_000)
    parser.add_argument("--no-kills", dest="kills", action="store_false")
    given = parser.parse_args()
    fine = True
    with tempfile.TemporaryDirectory() as folder:
        for name, reports, kills in (("a", given.reports, given.kills), ("b", 23_640, False)):
            each = reports // given.owners
            fine &= measured(Path(folder) / name, owners=given.owners, each=each, kills=kills)
    sys.exit(not fine)


if __name__ == "__main__":
    main()
