"""Verify a certificate whose records are divided into parts with a threshold each."""

from collections.abc import Callable, Iterator

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.findings import Finding, same
from confide.protocol.cards.verify.local.stages import STAGED, alone, in_common, numbered

Evidence = Callable[[Layer, int], Iterator[Finding]]


def stratified(
    formal: Layer, by: str, *, together: bool, evidence: Evidence, max_corrupt: int
) -> Iterator[Finding]:
    """Check every part as a separate certificate, and what the card says about all parts.

    A joint delta is divided evenly between the parts. Classes are the labels of the card, and all
    reports test each; owners and groups have reports of their own. Where parts are taken together,
    each is tested at the whole delta, and the largest of their thresholds is everybody's: if it
    fails one, it fails the part that needs the highest, whose own test then failed.
    """
    found, released = formal["certificate"], formal["released"]
    strata, place = found["strata"], "certificate/strata"
    parts = strata["parts"]
    yield same(f"{place}/by", strata["by"], by)
    yield same(f"{place}/together", strata.get("together", False), together)
    names = [part["name"] for part in parts]
    yield Finding(f"{place}/names", 0 < len(names) == len(set(names)), "each part is named once")
    if by == "class":
        yield same(f"{place}/names", names, [str(label) for label in range(found["labels"])])
        counts = {part["n"] for part in parts} == {found["n"]}
        yield Finding(f"{place}/n", counts, f"{found['n']} reports test every class")
    else:
        count = sum(part["n"] for part in parts)
        yield Finding(f"{place}/n", count <= found["n"], f"{count} of {found['n']} reports")
    yield from _thresholds(found, released, together=together)
    if found["variant"] in STAGED:
        yield from _stages(found, place, together=together)
    yield same("certificate/rungs", found["rungs"], [])
    alone = together or not strata["joint"]
    share = found["delta"] / (1 if alone else len(parts))
    for i, part in enumerate(parts):
        where = f"{place}/parts/{i}"
        yield same(f"{where}/delta", part["delta"], share)
        yield Finding(
            f"{where}/reason",
            (part["reason"] is not None) == (part["threshold"] >= 1),
            "given where the threshold is 1, and only there",
        )
        yield _counted(f"{where}/n", part, staged=found["variant"] in STAGED)
        if not part.get("covered", True):
            yield same(f"{where}/covered", (part["threshold"], part["rungs"]), (1.0, []))
        for finding in evidence(found | part, max_corrupt):
            clause = finding.clause.replace("certificate", where, 1)
            yield Finding(clause, finding.holds, finding.detail)


def _stages(found: Layer, place: str, *, together: bool) -> Iterator[Finding]:
    """Check that no part leaves out a stage that it failed.

    What only a part that left was asked is not on the card.
    """
    parts = found["strata"]["parts"]
    tests = {
        f"{place}/parts/{i}": numbered(found | part)
        for i, part in enumerate(parts)
        if part.get("covered", True)
    }
    if together:
        left = any((part["reason"] or "").startswith("left") for part in parts)
        yield from in_common(place, tests, whole=not left)
    else:
        yield from (alone(name, own) for name, own in tests.items())


def _counted(where: str, part: Layer, *, staged: bool) -> Finding:
    """Check that the rungs of a part count no more answers than it gave.

    A record answers one stage. In one round, runs of thresholds share their answers.
    """
    counts = [rung["n"] for rung in part["rungs"] if "n" in rung]
    least = sum(counts) if staged else max(counts, default=0)
    return Finding(where, least <= part["n"], f"its rungs alone count {least} reports")


def _thresholds(found: Layer, released: Layer, *, together: bool) -> Iterator[Finding]:
    """Check what is released: the largest threshold, and those of parts if each has its own."""
    strata, parts = found["strata"], found["strata"]["parts"]
    held = [part["threshold"] for part in parts if part.get("covered", True) or not together]
    yield same("certificate/threshold", found["threshold"], max(held, default=1.0))
    shown = [{"name": part["name"], "threshold": part["threshold"]} for part in parts]
    own = None if together else {"by": strata["by"], "parts": shown}
    yield same("released/strata", released.get("strata"), own)
    if together:
        yield same("certificate/strata/joint", strata["joint"], False)
