"""Decide again a certificate whose records are divided into parts with a threshold each."""

from collections.abc import Callable, Iterator

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.findings import Finding, same

Evidence = Callable[[Layer, int], Iterator[Finding]]


def stratified(
    formal: Layer, by: str, *, evidence: Evidence, max_corrupt: int
) -> Iterator[Finding]:
    """Check every part as a certificate of its own, and what the whole says of its parts.

    A joint delta is divided evenly between the parts. Classes are the labels of the card, and all
    reports test each; owners and groups have reports of their own.
    """
    found, released = formal["certificate"], formal["released"]
    strata, place = found["strata"], "certificate/strata"
    parts = strata["parts"]
    yield same(f"{place}/by", strata["by"], by)
    names = [part["name"] for part in parts]
    yield Finding(f"{place}/names", 0 < len(names) == len(set(names)), "each part is named once")
    if by == "class":
        yield same(f"{place}/names", names, [str(label) for label in range(found["labels"])])
        counts = {part["n"] for part in parts} == {found["n"]}
        yield Finding(f"{place}/n", counts, f"{found['n']} reports test every class")
    else:
        together = sum(part["n"] for part in parts)
        yield Finding(f"{place}/n", together <= found["n"], f"{together} of {found['n']} reports")
    yield same("certificate/threshold", found["threshold"], max(p["threshold"] for p in parts))
    yield same("certificate/rungs", found["rungs"], [])
    shown = [{"name": part["name"], "threshold": part["threshold"]} for part in parts]
    yield same("released/strata", released.get("strata"), {"by": strata["by"], "parts": shown})
    share = found["delta"] / (len(parts) if strata["joint"] else 1)
    for i, part in enumerate(parts):
        where = f"{place}/parts/{i}"
        yield same(f"{where}/delta", part["delta"], share)
        yield Finding(
            f"{where}/reason",
            (part["reason"] is not None) == (part["threshold"] >= 1),
            "given where the threshold is 1, and only there",
        )
        for finding in evidence(found | part, max_corrupt):
            clause = finding.clause.replace("certificate", where, 1)
            yield Finding(clause, finding.holds, finding.detail)
