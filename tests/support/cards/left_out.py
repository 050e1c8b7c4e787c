"""Cards of bits that hide a stage: the search is played again on what is left, and signed."""

from dataclasses import asdict
from typing import Any

from confide.aggregator.procedures.certify import Search, null_rate
from confide.protocol.channels.bit import Bit


def without_stage(found: dict[str, Any], number: int, max_corrupt: int = 0) -> dict[str, Any]:
    """What a search says of its rungs but one: its rungs and what they certify.

    `found` has the alpha, delta, epsilon and rungs of a level or of a part.
    """
    null = null_rate(Bit(epsilon=found["epsilon"]), found["alpha"])
    search = Search(delta=found["delta"], m0=null, max_corrupt=max_corrupt)
    rungs = []
    for i, rung in enumerate(found["rungs"]):
        if i != number and rung["threshold"] < search.certified and not search.finished:
            asked = {name: rung[name] for name in ("threshold", "n", "ones", "rest")}
            rungs.append(asdict(search.test(**asked)))
    return {"rungs": rungs, "threshold": search.certified}
