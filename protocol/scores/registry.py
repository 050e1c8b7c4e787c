"""The classification scores by name."""

from confide.protocol.errors import BadInput
from confide.protocol.scores.base import Score
from confide.protocol.scores.classification import BUILT_IN

SCORES: dict[str, Score] = {score.name: score for score in BUILT_IN}


def register(score: Score) -> Score:
    """Make a score known under its name, so that plans may ask for it."""
    if score.name in SCORES:
        raise BadInput(f"score name {score.name!r} is taken; it must be a new one")
    SCORES[score.name] = score
    return score
