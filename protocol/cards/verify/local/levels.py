"""Verify a certificate that holds at several levels of coverage, from the same reports.

Every level is a certificate of its own, decided by the rules of its method. What they promise
together follows from their alphas and deltas alone:

- a band: they all hold but for the sum of the deltas, so that sum is at most delta;
- an average: the threshold is the largest of all. If it misses more than alpha_i, then so does the
  threshold of level i, which has probability delta_i at most. So the mean of what it misses is at
  most alpha_1 + delta_1 (alpha_2 - alpha_1) + ... + delta_m (1 - alpha_m), which is at most alpha.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.findings import Finding, number, same
from confide.protocol.cards.verify.local.stages import in_common, numbered
from confide.protocol.certificate import BAND, MARGINAL, PAC

Evidence = Callable[[Layer, int], Iterator[Finding]]


def leveled(
    formal: Layer, kinds: tuple[str, ...], *, evidence: Evidence, max_corrupt: int
) -> Iterator[Finding]:
    """Check a certificate of one of these kinds; PAC ones have no levels."""
    found, released = formal["certificate"], formal["released"]
    kind, levels = found["kind"], found.get("levels", [])
    yield Finding("certificate/kind", kind in (PAC, *kinds), f"one of {', '.join((PAC, *kinds))}")
    held = bool(levels) == (kind != PAC)
    yield Finding("certificate/levels", held, "given for bands and averages, and only there")
    yield same("certificate/delta", found["delta"] == 0, kind == MARGINAL)
    shown = [
        {"coverage": float(1 - number(one["alpha"])), "threshold": one["threshold"]}
        for one in levels
    ]
    yield same("released/band", released.get("band"), shown if kind == BAND else None)
    if not levels:
        yield from evidence(found, max_corrupt)
        return
    yield same("certificate/rungs", found["rungs"], [])
    yield same("certificate/level", found["level"], 1 - found["alpha"])
    alphas = [one["alpha"] for one in levels]
    yield Finding("certificate/levels/alpha", alphas == sorted({*alphas}), "each above the last")
    yield from _band(found) if kind == BAND else _average(found)
    for i, one in enumerate(levels):
        where = f"certificate/levels/{i}"
        counted = [rung["n"] for rung in one["rungs"] if "n" in rung]
        answers = sum(counted) if found["variant"] == "certified" else max(counted, default=0)
        yield Finding(f"{where}/rungs", answers <= found["n"], f"{answers} of {found['n']}")
        for finding in evidence(found | one | {"level": 1 - one["alpha"]}, max_corrupt):
            clause = finding.clause.replace("certificate", where, 1)
            yield Finding(clause, finding.holds, finding.detail)
    yield from _same_stages(found)


def _band(found: Layer) -> Iterator[Finding]:
    """Check that delta is enough for all levels, and that the threshold is that of alpha."""
    levels = found["levels"]
    spent = sum(Fraction(one["delta"]) for one in levels)
    enough = spent <= number(found["delta"])
    yield Finding("certificate/levels/delta", enough, f"{float(spent):.9g} in all")
    own = [one["threshold"] for one in levels if one["alpha"] == found["alpha"]]
    yield same("certificate/threshold", [found["threshold"]], own)


def _average(found: Layer) -> Iterator[Finding]:
    """Check that alpha bounds what is missed on average, and that the largest threshold is out."""
    levels = found["levels"]
    missed, reached = Fraction(0), Fraction(1)
    for one in reversed(levels):
        alpha = Fraction(one["alpha"])
        missed += Fraction(one["delta"]) * (reached - alpha)
        reached = alpha
    missed += reached
    bounded = missed <= number(found["alpha"])
    yield Finding("certificate/levels/delta", bounded, f"misses {float(missed):.9g} on average")
    yield same("certificate/threshold", found["threshold"], max(o["threshold"] for o in levels))


def _same_stages(found: Layer) -> Iterator[Finding]:
    """Check that each stage had one tally for all levels, and that no level hides a failure."""
    if found["variant"] != "certified":
        return
    place = "certificate/levels"
    tests = {f"{place}/{i}": numbered(found | one) for i, one in enumerate(found["levels"])}
    stages: dict[int, set[tuple[int, int]]] = {}
    for own in tests.values():
        for stage, rung in own.items():
            stages.setdefault(stage, set()).add((rung["n"], rung["ones"]))
    for stage, tallies in stages.items():
        detail = f"{len(tallies)} tallies in stage {stage}"
        yield Finding(f"{place}/stages", len(tallies) == 1, detail)
    yield from in_common(place, tests)
