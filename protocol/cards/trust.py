"""Decides whether the threshold of a card may be used, before anything is predicted with it."""

from pathlib import Path

from confide.protocol.cards.card import (
    INFORMATIVE,
    RANDOMNESS,
    Card,
    Layer,
    named,
    read_card,
    strata_of,
    uncovered,
)
from confide.protocol.certificate import BY_CLASS, BY_GROUP, WATCH
from confide.protocol.errors import BadInput

Key = bytes | str

SIMULATION = (
    "SIMULATION ONLY: the randomness behind this card was not the operating system's, so nothing "
    "about it is private"
)
TRIVIAL = (
    "the threshold is TRIVIAL: sets hold every label and intervals are the whole line, whatever "
    "the model says"
)


def trusted_release(
    card: Card | Path | str, *, key: Key, simulation: bool
) -> tuple[Layer, tuple[str, ...]]:
    """Return what a card released and its limits, or refuse the card.

    It must be signed by the key, and every clause must verify. A simulation must be accepted
    explicitly.
    """
    # The verifier loads scipy, which predicting does not need.
    from confide.protocol.cards.verify.card import verify

    found = card if isinstance(card, Card) else read_card(Path(card))
    where = "the card" if isinstance(card, Card) else str(card)
    wanted = public_key(key)
    if not found.signature:
        raise BadInput(
            f"{where} is not signed, so nobody vouches for it; accepted is a card signed by "
            f"{wanted.hex()}"
        )
    broken = [finding for finding in verify(found, key=wanted) if not finding.holds]
    if broken:
        first = f"{broken[0].clause}: {broken[0].detail}"
        others = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        raise BadInput(
            f"{where} does not verify ({first[:200]}{others}); accepted is a card whose every "
            f"clause holds, signed by {wanted.hex()}"
        )
    released: Layer | None = found.formal["released"]
    if released is None:
        raise BadInput(
            f"{where} is about a search for a contract and has no threshold; accepted is the card "
            "of a calibration"
        )
    if found.formal["contract"]["kind"] == WATCH:
        raise BadInput(
            f"{where} is of a monitor, which watches the threshold of card "
            f"{found.formal['watched']['card']}; accepted is the card of a calibration"
        )
    if found.formal["decision"] == "simulation" and not simulation:
        raise BadInput(
            f"{where} is of a simulation. {SIMULATION}; accepted is a card of a real calibration, "
            "or say that this is what you want (simulation=True, --simulation)"
        )
    return released, _limits(found.formal)


def thresholds_of(released: Layer, part: str | None) -> tuple[float, tuple[float, ...]]:
    """Return the threshold to predict with, and those of the labels if each has its own.

    `part` names the owner or group whose threshold is wanted; without it the largest is taken.
    """
    strata = released.get("strata", {"by": None, "parts": []})
    each = {one["name"]: one["threshold"] for one in strata["parts"]}
    by_class = strata["by"] == BY_CLASS
    if part is not None and (by_class or part not in each):
        known = ", ".join(each) if each and not by_class else "none: the card has no such parts"
        raise BadInput(f"part is {part!r}; accepted: {known[:500]}")
    threshold = float(released["threshold"] if part is None else each[part])
    return threshold, tuple(each.values()) if by_class else ()


def threshold_of_band(
    released: Layer, *, coverage: float | None, threshold: float | None
) -> tuple[float, float]:
    """Return the threshold chosen in a band and the coverage that is certified at it.

    Chosen is a coverage, or the threshold itself. The band certifies a coverage at every threshold
    from that of its own on.
    """
    band = [(one["coverage"], one["threshold"]) for one in released.get("band", [])]
    held = [(at, q) for at, q in band if q < 1]
    if not held:
        what = "no band" if not band else "a band without a threshold below 1"
        raise BadInput(
            f"the card has {what}, and coverage or threshold is given; accepted is a campaign with "
            "guarantee band, or neither"
        )
    highest, lowest = max(at for at, _ in held), min(q for _, q in held)
    if coverage is not None and threshold is not None:
        raise BadInput("coverage and threshold are given; accepted is one of them")
    if coverage is not None:
        if not 0 < coverage <= highest:
            raise BadInput(
                f"coverage is {coverage:g}, which the band does not certify below threshold 1; "
                f"accepted is above 0 and at most {highest:g}"
            )
        threshold = min(q for at, q in held if at >= coverage)
    if threshold is None or not lowest <= threshold <= 1:
        raise BadInput(
            f"threshold is {threshold}, at which the band certifies nothing; accepted is "
            f"{lowest:.6g} to 1"
        )
    return threshold, max(at for at, q in band if q <= threshold)


def group_thresholds_of(released: Layer) -> dict[str, float]:
    """Return the threshold of every group by its name, if each has its own."""
    strata = released.get("strata", {"by": None, "parts": []})
    each = {one["name"]: float(one["threshold"]) for one in strata["parts"]}
    return each if strata["by"] == BY_GROUP else {}


def public_key(key: Key) -> bytes:
    """Read a public key, given as 32 bytes or in hexadecimal."""
    try:
        found = bytes.fromhex(key) if isinstance(key, str) else bytes(key)
    except (TypeError, ValueError):
        found = b""
    if len(found) != 32:
        shown = repr(key) if len(repr(key)) <= 80 else f"{repr(key)[:80]}..."
        raise BadInput(f"key is {shown}; accepted is a public key: 64 hexadecimal digits")
    return found


def _limits(formal: Layer) -> tuple[str, ...]:
    """What the card does not promise, in words; nothing if the contract is kept."""
    failed = [name for name in formal["failed"] if name not in (RANDOMNESS, INFORMATIVE)]
    remarks = [SIMULATION] if formal["decision"] == "simulation" else []
    if INFORMATIVE in formal["failed"]:
        remarks.append(TRIVIAL)
    strata = strata_of(formal)
    if strata is not None and strata.get("together") and (out := uncovered(strata)):
        remarks.append(
            f"NOT COVERED: the card claims nothing for records of {strata['by']} {named(out)}, of "
            "which too few reports came"
        )
    if failed:
        remarks.append(f"the contract of this card is NOT KEPT: {', '.join(failed)} failed")
    return tuple(remarks)
