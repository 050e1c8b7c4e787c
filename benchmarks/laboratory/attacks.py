"""What liars do to certificates, and what is learned of a record: the tables of docs/attacks.md.

Run with the project's environment: `python benchmarks/laboratory/attacks.py [--campaigns 200]
[--runs 20000] [--only lies|wire|inference] [--json FILE]`. Records are drawn from the embedded
letters; everything is seeded but the noise of the audits, which is the operating system's. The
command ends with status 1 if a campaign that allows for its liars covers less than it certified, if
the colluding share does not break the same campaigns without it, or if a lower bound on epsilon is
above the claim of the noise that is stated, or not above it for some planted bug.
"""

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.markdown import table
from confide.protocol.exact.sampling import os_entropy
from confide.simulation.advice.curves import assumed, curve_of
from confide.simulation.attackers.inference import infer
from confide.simulation.attackers.lies import COLLUDING, KINDS
from confide.simulation.attackers.poisoning import Attack, Attacked, Damage, compared
from confide.simulation.attackers.wire import HONEST, INVENTED, OWNERS, Wired
from confide.simulation.data.population import embedded

Row = dict[str, Any]

N, EPSILON, SHARE = 20_000, 4.0, 0.01
# The colluding share of a large campaign, whose certificates are not trivial with `max_corrupt`.
LARGE, SHARES = 200_000, (0.001, 0.003)
# A campaign of four owners, one of whom has so many times its records, within its allowance.
WIRED, TIMES = 12_000, 1.36
# Targets with the claim, the runs as a part of --runs, and the part of the noise of a planted bug.
AUDITS = (
    ("bits", 1.0, 1.0, 0.5),
    ("bits", 4.0, 1.0, 0.5),
    ("labels", 1.0, 1.0, 0.5),
    ("labels", 4.0, 1.0, 0.5),
    ("counts", 1.0, 1.0, 0.5),
    ("noised", 1.0, 1.0, 0.5),
    ("weights", 4.0, 1.0, 0.5),
    ("cards", 1.0, 0.1, 0.5),
)


def lies(campaigns: int) -> list[Row]:
    """All kinds of lies, to both methods: honest, not allowed for, and allowed for."""
    curve, rows = curve_of(assumed(None), "hps"), []
    for method in ("bits", "labels"):
        setting = Attacked(method=method, epsilon=EPSILON, n=N)
        for kind in KINDS:
            # The other kinds are weaker, so fewer campaigns tell.
            count = campaigns if kind == COLLUDING else max(1, campaigns // 10)
            attack = Attack(kind, SHARE, setting, campaigns=count)
            for found in compared(attack, curve):
                rows.append(_row(setting, kind, asdict(found)))
        large = replace(setting, n=LARGE)
        for share in SHARES:
            attack = Attack(COLLUDING, share, large, campaigns=campaigns)
            rows += [_row(large, COLLUDING, asdict(found)) for found in compared(attack, curve)]
    return rows


def _row(setting: Attacked, attack: str, found: Row) -> Row:
    row = {"method": setting.method, "n": setting.n, "attack": attack} | found
    print(row, file=sys.stderr, flush=True)
    return row


def invented(campaigns: int) -> list[Row]:
    """One of four owners invents records, through client, wire format and admission."""
    people, rows = embedded(), []
    curve = curve_of(people, "hps")
    for method in ("bits", "labels"):
        base = Wired(people, f"{method}:certified", EPSILON, WIRED, times=TIMES)
        lies = round((TIMES - 1) * WIRED / OWNERS)
        for kind, allowed in ((HONEST, 0), (INVENTED, 0), (INVENTED, lies)):
            covered, sizes, below = [], [], 0
            for seed in range(campaigns):
                wired = replace(base, seed=seed, max_corrupt=allowed)
                made = wired.run(kind).certificate
                covered.append(wired.coverage(made.threshold))
                sizes.append(float(curve.size(np.array(made.threshold))))
                below += covered[-1] < made.level - 1e-12
            found = Damage(
                lies if kind == INVENTED else 0,
                allowed,
                campaigns,
                below,
                float(np.mean(covered)),
                float(np.mean(sizes)),
                float(np.mean(np.array(covered) >= 1)),
            )
            rows.append(_row(Attacked(method=method, n=WIRED), INVENTED, asdict(found)))
    return rows


def lies_table(rows: list[Row]) -> str:
    headings = ["method", "attack", "n", "liars", "max_corrupt", "below certified"]
    lines = [
        [
            row["method"],
            row["attack"] if row["liars"] else "none",
            f"{row['n']:,}",
            f"{row['liars']:,}",
            f"{row['max_corrupt']:,}",
            f"{row['below']} of {row['campaigns']}",
            f"{row['coverage']:.4f}",
            f"{row['size']:.2f}",
            f"{row['trivial']:.0%}",
        ]
        for row in rows
        if row["liars"] or row["attack"] in (COLLUDING, INVENTED)
    ]
    return table([*headings, "true coverage", "size", "trivial"], lines)


def inference(runs: int, false_alarm: float) -> list[Row]:
    """Lower bounds on epsilon of what is released, with its noise and with half of it."""
    rows = []
    for target, claim, part, planted in AUDITS:
        for noise in (1.0, planted):
            found = infer(
                target,
                epsilon=claim,
                runs=max(100, round(runs * part)),
                entropy=os_entropy,
                noise=noise,
                false_alarm=false_alarm,
            )
            rows.append(asdict(found) | {"exceeds": found.exceeds})
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def inference_table(rows: list[Row]) -> str:
    headings = ["released", "claim", "delta", "noise drawn", "runs", "lower bound"]
    lines = [
        [
            row["target"],
            f"{row['claim']:g}",
            f"{row['delta']:g}",
            "as stated" if row["noise"] == 1 else f"{row['noise']:g} of it",
            f"{row['runs']:,}",
            f"{row['lower']:.2f}",
            "-" if row["assumed"] is None else f"{row['assumed']:.2f}",
        ]
        for row in rows
    ]
    return table([*headings, "if Gaussian"], lines)


def failures(found: dict[str, list[Row]]) -> list[Row]:
    """What contradicts the claims."""
    bad = []
    for row in [*found.get("lies", []), *found.get("wire", [])]:
        allowed = row["liars"] and row["max_corrupt"] >= row["liars"]
        broken = row["below"] > row["campaigns"] / 2
        bare = row["liars"] and not row["max_corrupt"]
        # A tenth of a percent, and owners who invent records, break some campaigns only.
        sure = row["attack"] == COLLUDING and row["liars"] > SHARES[0] * row["n"]
        if (allowed and row["below"]) or (bare and sure and not broken):
            bad.append(row)
    return bad + [
        row for row in found.get("inference", []) if row["exceeds"] == (row["noise"] == 1)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--campaigns", type=int, default=200, help="of the colluding share")
    parser.add_argument("--runs", type=int, default=20_000, help="of an audit (cards: a tenth)")
    parser.add_argument("--false-alarm", type=float, default=1e-4, help="of a bound")
    parser.add_argument("--only", choices=["lies", "wire", "inference"], help="one table")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    given = parser.parse_args()
    if min(given.campaigns, given.runs) < 1 or not 0 < given.false_alarm < 1:
        parser.error("accepted are at least 1 campaign and run, and a false alarm below 1")
    found: dict[str, list[Row]] = {}
    if given.only in (None, "lies"):
        found["lies"] = lies(given.campaigns)
        print(lies_table(found["lies"]) + "\n")
    if given.only in (None, "wire"):
        found["wire"] = invented(max(1, given.campaigns // 10))
        print(lies_table(found["wire"]) + "\n")
    if given.only in (None, "inference"):
        found["inference"] = inference(given.runs, given.false_alarm)
        print(inference_table(found["inference"]))
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")
    bad = failures(found)
    for row in bad:
        print(f"contradicts: {row}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
