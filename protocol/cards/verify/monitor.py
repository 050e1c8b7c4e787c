"""Verify the card of a monitor: the evidence of its rounds, and whether it is an alarm."""

import math
from collections.abc import Iterator

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.findings import CLOSE, Finding, number, same
from confide.protocol.cards.verify.released import decided, released_flags, released_score
from confide.protocol.certificate import DROPOUTS, FRESH, IID, MIXTURE

VARIANTS = ("e-process", "e-detector")
BETS = 24


def monitor(formal: Layer) -> Iterator[Finding]:
    contract, found = formal["contract"], formal["certificate"]
    yield same("contract/coverage", contract["coverage"], float(1 - number(found["alpha"])))
    flags = {
        "quiet": not found["alarm"],
        "epsilon": found["epsilon"] <= contract["epsilon"],
        "reports": found["n"] >= contract["minimum_reports"],
        **released_flags(formal["released"]),
    }
    yield from decided(formal, flags, [name for name, holds in flags.items() if not holds])
    yield from released_score(formal)
    yield same(
        "released/threshold", formal["released"]["threshold"], formal["watched"]["threshold"]
    )
    yield same("margin", formal["margin"], None)
    yield same("contract/kind", contract["kind"], "watch")
    yield same("contract/adjacency", contract["adjacency"], "replace-one")
    yield same("contract/unit", contract["unit"], "record")
    known = found["variant"] in VARIANTS
    yield Finding("certificate/variant", known, f"one of {', '.join(VARIANTS)}")
    yield same("certificate/channel", found["channel"], "bit")
    yield same("certificate/assumptions", found["assumptions"], [IID, MIXTURE, DROPOUTS, FRESH])
    yield same("certificate/n", found["n"], sum(one["n"] for one in found["rounds"]))
    if known:
        yield from _rounds(formal)


def _rounds(formal: Layer) -> Iterator[Finding]:
    """Bet again on the tallies of the rounds; only the last of them can have raised an alarm."""
    found, lies = formal["certificate"], formal["contract"]["max_corrupt"]
    raised, seen = False, []
    for i, one in enumerate(found["rounds"]):
        name = f"certificate/rounds/{i}"
        counted = one["n"] > 0 and 0 <= one["ones"] <= one["n"]
        yield Finding(f"{name}/ones", counted and not raised, "ones among answers before an alarm")
        seen.append((one["n"], one["ones"]))
        evidence = _evidence(seen, lies, found)
        needed = -math.log(found["delta"])
        answers = sum(n for n, _ in seen)
        near = CLOSE * max(1.0, abs(evidence))
        yield Finding(
            f"{name}/log_evidence",
            abs(one["log_evidence"] - evidence) <= near,
            f"the card says {one['log_evidence']}, recomputed {evidence}",
        )
        held = needed <= one["needed"] <= needed + 1e-9 + 1e-11 * answers
        yield Finding(f"{name}/needed", held, f"the card says {one['needed']}, at least {needed}")
        raised = one["log_evidence"] >= one["needed"]
    yield same("certificate/alarm", found["alarm"], raised)
    periods = formal["watched"]["periods"]
    yield Finding("certificate/rounds", len(seen) <= periods, f"at most {periods}")


def _evidence(seen: list[tuple[int, int]], lies: int, found: Layer) -> float:
    """Return the log of what was won by betting that coverage fell, by either variant.

    A bettor that expects a share r of ones, where m would come at coverage 1 - alpha, multiplies
    its capital by r/m at a one and by (1 - r)/(1 - m) at a zero.
    """
    begun = [0] if found["variant"] == "e-process" else range(len(seen))
    flipped = 1 / (1 + math.exp(found["epsilon"]))
    logs = []
    for first in begun:
        n = sum(row[0] for row in seen[first:])
        ones = min(n, sum(row[1] for row in seen[first:]) + lies)
        for bet in range(BETS):
            fall = 200.0 ** (bet / (BETS - 1) - 1)
            m, r = (
                flipped + (1 - 2 * flipped) * (1 - found["alpha"]) * (1 - lost)
                for lost in (0.0, fall)
            )
            logs.append(ones * math.log(r / m) + (n - ones) * math.log((1 - r) / (1 - m)))
    top = max(logs)
    return top + math.log(math.fsum(math.exp(one - top) for one in logs) / BETS)
