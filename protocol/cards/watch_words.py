"""The card of a monitor in words: an alarm, or that none was raised, and what follows from it."""

import math

from confide.protocol.cards.card import Layer

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


def watch_promise(formal: Layer) -> str:
    """State how often an alarm is false."""
    found = formal["certificate"]
    if found["variant"] == "e-process":
        return (
            "While coverage is what the watched card promises, the probability that an alarm is "
            f"ever raised is at most {found['delta']:g}. No coverage is promised."
        )
    return (
        "While coverage is what the watched card promises, an alarm comes after "
        f"{math.floor(1 / found['delta']):,} answered rounds or more on average. No coverage is "
        "promised."
    )


NOT_PROMISED = (
    "Coverage: that there is no alarm does not prove it; the watched card promises it.",
    "That every fall is noticed: a small one takes many answers.",
)
