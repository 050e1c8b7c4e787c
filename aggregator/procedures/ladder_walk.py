"""The walk down a ladder of tested thresholds, to the last that passed (fixed-sequence testing)."""

from confide.aggregator.procedures.labels.betting import Floats
from confide.protocol.certificate import LabelRung
from confide.protocol.errors import BadInput, check_probability


def walk_down(
    thresholds: list[float], capital: Floats, needed: Floats
) -> tuple[float, tuple[LabelRung, ...]]:
    """The lowest threshold that all above it passed with, and the rungs down to the first failure.

    1 where the highest fails.
    """
    threshold, rungs = 1.0, []
    for q, evidence, least in zip(thresholds, capital.tolist(), needed.tolist(), strict=True):
        rungs.append(LabelRung(q, evidence, least))
        if not rungs[-1].passed:
            break
        threshold = q
    return threshold, tuple(rungs)


def check_promise(alpha: float, delta: float, max_corrupt: int) -> None:
    """Refuse what no certificate can promise."""
    check_probability("alpha", alpha)
    check_probability("delta", delta)
    if max_corrupt < 0:
        raise BadInput(f"max_corrupt is {max_corrupt}; it must be 0 or more")
