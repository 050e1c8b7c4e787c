"""Verify a certificate whose records are divided into parts with a threshold each."""

from collections.abc import Callable, Iterator

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.findings import Finding, same
from confide.protocol.cards.verify.local.stages import (
    STAGED,
    alone,
    as_answered,
    in_common,
    in_search,
    in_stages,
    numbered,
)
from confide.protocol.certificate import BY_OWNER

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
        yield same(f"{place}/n", sum(part["n"] for part in parts), found["n"])
    yield from _thresholds(found, released, together=together)
    # What is planned has stages. Owners that are not kept apart stand together under one name.
    staged = found["variant"] in STAGED and found["planned"] is not None
    unknown = by == BY_OWNER and names == ["all"]
    told = all(("reports" in part) == (staged and not unknown) for part in parts)
    yield Finding(f"{place}/reports", told, "those by round of parts that have stages")
    if staged and told and not unknown:
        # What stages were planned for follows from what a part answered before them.
        parts = [part | {"planned": in_search(part)} for part in parts]
        yield from _stages(found, parts, together=together)
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
        if not staged:
            yield _counted(f"{where}/n", part)
        if not part.get("covered", True):
            yield same(f"{where}/covered", (part["threshold"], part["rungs"]), (1.0, []))
        for finding in evidence(found | part, max_corrupt):
            clause = finding.clause.replace("certificate", where, 1)
            yield Finding(clause, finding.holds, finding.detail)


def _stages(found: Layer, parts: list[Layer], *, together: bool) -> Iterator[Finding]:
    """Check that no part leaves out a stage that it failed.

    What only a part that left was asked, up to the stage that it did not answer, is not on the
    card.
    """
    place, rounds = "certificate/strata", {len(part["reports"]) for part in parts}
    yield Finding(f"{place}/reports", len(rounds) <= 1, "as many rounds of each part")
    tests: dict[str, dict[int, Layer]] = {}
    for i, part in enumerate(parts):
        name, own = f"{place}/parts/{i}", numbered(found | part)
        yield from as_answered(name, part, own)
        if part.get("covered", True):
            tests[name] = own
    if together:
        left = [in_stages(one) for one in parts if (one["reason"] or "").startswith("left")]
        unknown = max((came.index(0) + 1 for came in left if 0 in came), default=0)
        needed = range(unknown, len(in_stages(parts[0])))
        yield from in_common(place, tests, needed=needed)
    else:
        yield from (alone(name, own) for name, own in tests.items())


def _counted(where: str, part: Layer) -> Finding:
    """Check that no rung of a part counts more answers than it gave; runs of rungs share them."""
    least = max((rung["n"] for rung in part["rungs"] if "n" in rung), default=0)
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
