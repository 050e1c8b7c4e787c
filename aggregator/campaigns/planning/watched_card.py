"""A card that a new campaign starts from: a monitor watches it, a recalibration repeats it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from confide.aggregator.campaigns.planning.plans import Validity
from confide.protocol.cards.card import RANDOMNESS, Card, read_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.certificate import WATCH
from confide.protocol.errors import BadInput
from confide.protocol.methods.monitor import E_PROCESS, MonitorTerms
from confide.protocol.plan import Plan

# A monitor whose first rounds raise an alarm must not fail for want of reports.
DEFAULTS = {"campaign": f"{MonitorTerms.method}:{E_PROCESS}", "periods": 365, "minimum-reports": 0}
NAMED = ("score", "labels", "model", "model-file", "alpha")


def with_watched_card(own: dict[str, Any], *, key: bytes) -> dict[str, Any]:
    """Return the settings with those that follow from the card they monitor, if they name one."""
    if not own.get("monitors"):
        return own
    path = Path(str(own["monitors"]))
    card = calibration_card(path, key=key)
    given = [name for name in NAMED if name in own]
    if given:
        raise BadInput(
            f"{', '.join(given)} is given beside monitors; accepted is monitors alone: {path} "
            "names these"
        )
    released, contract = card.formal["released"], card.formal["contract"]
    if strata := released.get("strata"):
        raise BadInput(
            f"{path} has a threshold for each of {len(strata['parts'])} parts (by {strata['by']}), "
            "and a monitor asks every record about one; accepted is a card with one threshold for "
            "all, which for-every-owner has, too"
        )
    if released["threshold"] >= 1:
        raise BadInput(f"{path} has the threshold 1, which covers everything; watching is useless")
    if failed := [name for name in card.formal["failed"] if name != RANDOMNESS]:
        raise BadInput(
            f"{path} guarantees no coverage of {contract['coverage']:g} ({', '.join(failed)} does "
            "not hold); accepted is the card of a campaign that does, since less would be an alarm"
        )
    found = {name: released[name] for name in ("score", "labels", "model", "threshold")}
    # As decimal numbers: 1 - 0.9 would be 0.09999999999999998.
    alpha = round(1 - contract["coverage"], 12)
    return DEFAULTS | own | found | {"alpha": alpha, "watched": card.digest}


def calibration_card(path: Path, *, key: bytes) -> Card:
    """Read the card of a campaign that calibrated a threshold, signed by this key."""
    card = read_card(path)
    broken = [finding.clause for finding in verify(card, key=key) if not finding.holds]
    if broken:
        raise BadInput(
            f"{path} does not verify ({', '.join(broken)}); accepted is a card signed by "
            f"{key.hex()}"
        )
    if card.formal["contract"]["kind"] == WATCH:
        raise BadInput(
            f"{path} is the card of a monitor; accepted is the card that it watched, "
            f"{card.formal['watched']['card']}"
        )
    plan = card.formal.get("plan")
    if plan is None:
        raise BadInput(f"{path} is not of a calibration by owners; accepted is the card of one")
    return card


def repeated_plan(card: Card, *, title: str, valid: Validity) -> Plan:
    """The plan of a card once more, under another title and for another time."""
    plan = Plan.from_bytes(bytes.fromhex(card.formal["plan"]))
    return replace(plan, campaign=title, issued=valid[0], expires=valid[1])
