"""The card of a monitor in words: an alarm, or that none was raised, and what follows from it."""

import math
from collections.abc import Callable

from confide.protocol.cards.card import Layer
from confide.protocol.methods.monitor import E_DETECTOR, E_PROCESS

ALARM, QUIET = "ALARM", "NO ALARM"


def watch_status(formal: Layer) -> str:
    return ALARM if formal["certificate"]["alarm"] else QUIET


def watch_title(formal: Layer) -> str:
    return f"Monitor of coverage {formal['contract']['coverage']:.4g}"


def watch_sentence(formal: Layer) -> str:
    """State what the answers showed; no alarm is no proof of coverage."""
    found, watched = formal["certificate"], formal["watched"]
    level = f"{formal['contract']['coverage']:.4g}"
    where = f"at the threshold {watched['threshold']:.6g} of card {watched['card'][:16]}"
    said = f"{found['n']:,} bits in {len(found['rounds']):,} rounds"
    if found["alarm"]:
        return f"coverage {where} is below {level}, by {said}; calibrate again."
    return f"{said} gave no alarm that coverage {where} is below {level}."


# How often an alarm is false, by variant of the monitor.
_FALSE_ALARMS: dict[str, Callable[[float], str]] = {
    E_PROCESS: lambda delta: f"the probability that an alarm is ever raised is at most {delta:g}",
    E_DETECTOR: lambda delta: (
        f"an alarm comes after {math.floor(1 / delta):,} answered rounds or more on average"
    ),
}


def watch_promise(formal: Layer) -> str:
    """State how often an alarm is false."""
    found, level = formal["certificate"], formal["contract"]["coverage"]
    return (
        f"While coverage at the watched threshold is at least {level:.4g}, "
        f"{_FALSE_ALARMS[found['variant']](found['delta'])}. No coverage is promised."
    )


NOT_PROMISED = (
    "Coverage: that there is no alarm does not prove it; the watched card promises it.",
    "That every fall is noticed: a small one takes many answers, and all of them count together, "
    "so that one at a single owner, or of one class or group, may hide in the others.",
)
