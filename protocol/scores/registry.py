"""The scores by name, and scores as plans and operators write them."""

from collections.abc import Mapping
from typing import Any

from confide.protocol.errors import BadInput
from confide.protocol.scores.base import Score, SetScore, UnlabelledScore
from confide.protocol.scores.classification import BUILT_IN
from confide.protocol.scores.label_score import LabelScore
from confide.protocol.scores.regression import RESIDUALS
from confide.protocol.scores.risk import FalseNegatives, OwnLoss
from confide.protocol.scores.task import Task

# The scores of labels, with their default constants.
SCORES: dict[str, LabelScore] = {score.name: score for score in BUILT_IN}
# The score of several labels a record, and the scores that are made from their constants.
_SEVERAL: dict[str, SetScore] = {FalseNegatives.name: FalseNegatives()}
_UNLABELLED: dict[str, type[UnlabelledScore]] = {**RESIDUALS, OwnLoss.name: OwnLoss}
# For the help of commands.
SCORES_HELP = (
    "hps, aps, ...; of numbers: absolute-residual, normalised-residual or cqr bound=B; of risks: "
    "false-negatives or own-loss values=N"
)


def register(score: LabelScore) -> LabelScore:
    """Make a score known under its name, so that plans may ask for it."""
    if score.name in {*SCORES, *_SEVERAL, *_UNLABELLED}:
        raise BadInput(f"score name {score.name!r} is taken; it must be a new one")
    SCORES[score.name] = score
    return score


def find_score(text: str) -> Score:
    """Return the score that a text names: `hps`, `raps penalty=0.02`, `cqr bound=10`.

    Constants that the text leaves out have their default values; `bound` of a score of numbers has
    none, because no bound suits all.
    """
    name, given = _read(text)
    labelled = {**SCORES, **_SEVERAL}
    if name in labelled:
        return labelled[name].with_constants(given)
    if name in _UNLABELLED:
        return _UNLABELLED[name].of(given)
    accepted = ", ".join((*SCORES, *_UNLABELLED, *_SEVERAL))
    raise BadInput(f"score is {text[:200]!r}; accepted: {accepted}")


def scores_of(task: Task) -> str:
    """Name the scores of a task as they are asked for, in messages."""
    every: list[Score | type[Score]] = [*SCORES.values(), *_SEVERAL.values()]
    every += _UNLABELLED.values()
    return ", ".join(f"{score.name}{score.needs}" for score in every if score.task == task)


def find_label_score(text: str) -> LabelScore:
    """Return the score of labels that a text names; refuse scores of numbers."""
    name, given = _read(text)
    if name not in SCORES:
        raise BadInput(f"score is {text[:200]!r}; accepted: {', '.join(SCORES)}")
    return SCORES[name].with_constants(given)


def check_text(text: str) -> None:
    """Refuse a score that is unknown, or is not written with all its constants in their order."""
    whole = find_score(text).text
    if whole != text:
        raise BadInput(f"score is {text[:200]!r}; accepted is its whole name, {whole!r}")


def _read(text: str) -> tuple[str, Mapping[str, Any]]:
    words = text[:500].split()
    constants: dict[str, float] = {}
    for pair in words[1:]:
        key, equals, value = pair.partition("=")
        try:
            if not equals or key in constants:
                raise ValueError
            constants[key] = float(value)
        except ValueError:
            raise BadInput(
                f"score is {text[:200]!r}; accepted is a name and constants as key=number, each "
                "once, such as: raps penalty=0.01 free_ranks=5"
            ) from None
    return (words[0] if words else ""), constants
