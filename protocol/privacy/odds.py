"""What an epsilon means, in odds that a person understands."""

import math


def worst_odds(epsilon: float) -> str:
    """Return the worst posterior odds from even odds, rounded up: 73.2 : 26.8 at epsilon 1.

    More digits are shown if one digit would read as certainty.
    """
    sure = 100 / (1 + math.exp(-epsilon))
    digits = next(d for d in range(1, 15) if math.ceil(sure * 10**d) < 100 * 10**d or d == 14)
    shown = math.ceil(sure * 10**digits) / 10**digits
    return f"{shown:.{digits}f} : {100 - shown:.{digits}f}"


def guessing(epsilon: float) -> str:
    """Say how much the answers of a record can help someone who guesses about it."""
    return (
        "If someone guessed 50 : 50 about a record, your answers can move them to at most "
        f"{worst_odds(epsilon)}."
    )
