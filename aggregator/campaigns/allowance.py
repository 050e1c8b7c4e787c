"""Bounds on the reports and bytes that a campaign takes from one owner."""

import math
import sys

from confide.protocol.methods.base import Query
from confide.protocol.plan import Plan
from confide.protocol.wire.splitting import single_bytes

# Allowed above the expected number: the operator does not know the number of records exactly, and
# slices are drawn at random.
SLACK, FEW = 1.25, 1_000


def most_in_campaign(plan: Plan, records: int | None = None) -> int:
    """The most records an owner may have in a campaign, each of which answers once.

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
