"""The rounds of certified bits: which share of the records each one asks.

An owner whose slice of a round holds fewer records than its policy's `minimum_group` is left out of
that round. What a stage certifies is the mixture of those that answer it, and a stage without an
owner says nothing of that owner. So owners do not divide their records differently: where small
ones shall count, everybody's slices are larger and rounds are fewer.
"""

from typing import NamedTuple

from confide.protocol.errors import BadInput


class Rounds(NamedTuple):
    """Shares of the records: of the rounds that search, and of the stages that certify.

    The last stage also takes what the others left.
    """

    search: tuple[float, ...]
    stages: tuple[float, ...]


# The records of the smallest owner that shall count, and the rounds in which each of its slices
# holds 30 of them on average. The first stages are small: they only make sure that something is
# certified.
SCHEDULES = (
    (600, Rounds((0.05, 0.1), (0.08, 0.09, 0.18, 0.14, 0.19, 0.17))),
    (200, Rounds((0.15,), (0.15, 0.2, 0.25, 0.25))),
    (150, Rounds((0.2,), (0.2, 0.25, 0.35))),
    (120, Rounds((0.25,), (0.3, 0.45))),
)
LEAST_OWNER = SCHEDULES[-1][0]
# The halvings of the published search, one a round.
PUBLISHED_ROUNDS = 10


def check_smallest_owner(records: int) -> None:
    """Accept 0, which says nothing of owners, or the size of one that some rounds can ask."""
    if records and records < LEAST_OWNER:
        raise BadInput(
            f"smallest-owner is {records}; accepted is 0, or {LEAST_OWNER} or more records, and "
            "for smaller owners variant one-shot, which asks once"
        )


def rounds_for(smallest_owner: int) -> Rounds:
    """The most rounds that the smallest owner to be counted can answer; 0: the usual number."""
    if not smallest_owner:
        return SCHEDULES[0][1]
    return next(rounds for least, rounds in SCHEDULES if smallest_owner >= least)
