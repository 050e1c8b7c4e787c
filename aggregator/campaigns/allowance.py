"""Bounds on the reports and bytes that a campaign takes from one owner."""

import math
import sys
from typing import NamedTuple

from confide.protocol.methods.base import Query
from confide.protocol.plan import Plan
from confide.protocol.wire.splitting import single_bytes

# Allowed above the expected number: the operator does not know the number of records exactly, and
# slices are drawn at random.
SLACK, FEW = 1.25, 1_000


class Counted(NamedTuple):
    """An owner's counted batches and reports in a round; its reports and bytes in the campaign."""

    batches: int = 0
    reports: int = 0
    in_campaign: int = 0
    bytes: int = 0

    def plus(self, *, reports: int, size: int) -> "Counted":
        """The counts after one more batch, with so many new reports and so many bytes."""
        return Counted(
            self.batches + 1, self.reports + reports, self.in_campaign + reports, self.bytes + size
        )

    def next_round(self) -> "Counted":
        """The counts at the start of another round."""
        return self._replace(batches=0, reports=0)


class Allowance(NamedTuple):
    """The most that is counted of one owner.

    `in_round` is how many reports, and how many batches, a round takes from it; `in_campaign` is
    how many reports the campaign takes, and `bytes` how many bytes of answers.
    """

    in_round: int = sys.maxsize
    in_campaign: int = sys.maxsize
    bytes: int = sys.maxsize

    def covers(self, counted: Counted) -> bool:
        """Whether these counts are within the bounds."""
        return (
            max(counted.batches, counted.reports) <= self.in_round
            and counted.in_campaign <= self.in_campaign
            and counted.bytes <= self.bytes
        )


UNLIMITED = Allowance()


def allowance(plan: Plan, query: Query, *, rounds: int, records: int | None = None) -> Allowance:
    """Return how much one owner may send to the query of the last of `rounds` rounds.

    An owner that answers as a whole sends one answer a round, however many records it has.
    """
    in_round = most_in_round(plan, query, records)
    if query.whole:
        return Allowance(in_round)
    size = most_bytes(plan, rounds=rounds, records=records)
    return Allowance(in_round, most_in_campaign(plan, records), size)


def most_in_campaign(plan: Plan, records: int | None = None) -> int:
    """The most records that an owner may have in a campaign; each answers once.

    The bound is the number it was enrolled with, or else 1.25 times the number that the plan
    expects of all owners.
    """
    return math.ceil(SLACK * plan.expected_records) if records is None else records


def most_in_round(plan: Plan, query: Query, records: int | None = None) -> int:
    """The most reports an owner may send to a round.

    The bound is 1.25 times the number of its records expected in the slice, and 1,000 more for
    chance, but no more than it has records. An owner asked as a whole answers once.
    """
    if query.whole:
        return 1
    expected = (plan.expected_records if records is None else records) * (query.stop - query.start)
    return min(most_in_campaign(plan, records), FEW + math.ceil(SLACK * expected))


def most_bytes(plan: Plan, *, rounds: int, records: int | None = None) -> int:
    """The most bytes of an owner's answers that are stored.

    The bound is the size of all its reports if each comes in an answer of its own, which is the
    most that they can take, and of one answer without reports in each of the rounds so far.

    Without this bound, a batch of many ids that were counted before and one that was not would take
    a megabyte for one report. The answer of an owner asked as a whole is stored once a round, at
    the length that the plan says, so it needs no further bound.
    """
    single = single_bytes(plan)
    return sys.maxsize if single is None else (most_in_campaign(plan, records) + rounds) * single
