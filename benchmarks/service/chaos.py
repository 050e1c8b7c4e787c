"""Campaigns under kill -9, and servers under random bytes; the tests run shorter ones.

Run with the project's environment: `python benchmarks/service/chaos.py [--reports N] [--kills N]
[--messages N] [--postgres]`. A campaign of twenty owners runs while its server, and two of the
owners, are killed at random instants; then the same seeded owners run it in peace. Certificates
must be equal, and every acknowledged report stored and counted once. Then random and damaged
messages go to a server that must stay up, take none of them, and count them all.
"""

import argparse
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from confide.aggregator.storage import views
from confide.protocol.plan import digest
from tests.support.owners.answers import answer, bit_batch
from tests.support.owners.hostile import Wire, fuzz
from tests.support.owners.owners import PLAN, changed
from tests.support.servers.chaos import chaos, in_peace
from tests.support.servers.postgres import postgres
from tests.support.servers.servers import Place, eventually, plan_now

OWNERS, PROCESSES = 20, 2


def killed(place: Place, folder: Path, *, reports: int, kills: int, seed: int) -> bool:
    """Whether a campaign came out right after so many kills."""
    # A campaign of this name asks everybody; others may be done before the last stage.
    plan = plan_now(expected_records=reports, campaign="under kills")
    started = time.perf_counter()
    found = chaos(
        place,
        plan,
        folder,
        owners=OWNERS,
        processes=PROCESSES,
        n=reports // OWNERS,
        kills=kills,
        client_kills=kills // 4,
        seed=seed,
    )
    came = found.came
    quiet = in_peace(plan, folder / "in peace", owners=OWNERS, n=reports // OWNERS)
    once = came.stored == came.acknowledged and len(set(came.stored)) == len(came.stored)
    right = (
        once
        and came == quiet
        and (found.servers_killed, found.clients_killed) == (kills, kills // 4)
    )
    shown, expected = came.formal["certificate"], quiet.formal["certificate"]
    print(
        f"{found.servers_killed} servers and {found.clients_killed} clients killed, "
        f"{time.perf_counter() - started:.0f} s; {len(came.acknowledged):,} of {reports:,} reports "
        f"acknowledged, {len(came.stored):,} stored, {shown['n']:,} counted, in peace "
        f"{expected['n']:,}; threshold {shown['threshold']:.6f}, in peace "
        f"{expected['threshold']:.6f}; certificates "
        f"{'equal' if came.formal == quiet.formal else 'DIFFERENT'}: "
        f"{'right' if right else 'WRONG'}",
        flush=True,
    )
    return right


def fuzzed(place: Place, *, messages: int, seed: int) -> bool:
    """Whether a server took none of so many random messages and is still there."""
    plan = plan_now(changed(PLAN, variant="one-shot"))
    campaign, token = place.campaign(plan), place.enrol("nobody's friend")
    server = place.serve("--rate", "1e9")
    eventually(lambda: place.store.rounds(campaign))
    hand, started = Wire(server, campaign, token), time.perf_counter()
    valid = answer(bit_batch(20), plan=digest(plan.to_bytes()))
    rng, held, codes = np.random.default_rng(seed), [], set()
    for _ in range(10):
        codes |= fuzz(hand, valid, messages // 10, rng)
        held.append(round(server.megabytes))
    alive, stopped = server.process.poll() is None, server.stop()
    stored = views.stored_batches(place.store.engine, campaign)
    counted = views.rejected(place.store.engine, campaign)
    right = alive and stopped == 0 and stored == 0 and sum(counted.values()) == messages // 10 * 10
    print(
        f"{messages:,} messages in {time.perf_counter() - started:.0f} s: {stored} stored, "
        f"answered {sorted(codes)}, counted {counted}, server {'up' if alive else 'DOWN'}, MB held "
        f"{held}: {'right' if right else 'WRONG'}"
    )
    return right


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reports", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL instead of SQLite")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    fine = True
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres(Path("/tmp")) if given.postgres else nullcontext("") as url,
    ):
        place = Place(Path(folder) / "aggregator", url)
        try:
            if given.kills:
                fine &= killed(
                    place,
                    Path(folder) / "owners",
                    reports=given.reports,
                    kills=given.kills,
                    seed=given.seed,
                )
            if given.messages:
                fine &= fuzzed(place, messages=given.messages, seed=given.seed)
        finally:
            place.close()
    sys.exit(not fine)


if __name__ == "__main__":
    main()
