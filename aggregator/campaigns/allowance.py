"""How much of a campaign may come from one owner."""

import math
import sys

from confide.protocol.methods.base import Query
from confide.protocol.plan import Plan
from confide.protocol.wire.splitting import single_bytes

# Above what is expected: who plans a campaign does not know the number of records exactly, and
# slices are drawn at random.
SLACK, FEW = 1.25, 1_000


def most_in_campaign(plan: Plan, records: int | None = None) -> int:
    """How many records an owner may have, each of which answers once: as many as it was enrolled
    with, or else 1.25 times those that the plan expects of all owners."""
    return math.ceil(SLACK * plan.expected_records) if records is None else records


def most_in_round(plan: Plan, query: Query, records: int | None = None) -> int:
    """How many reports an owner may send to a round: 1.25 times those of its records that the slice
    lets expect, and 1,000 more for chance, but no more than it has records. Asked as a whole it
    answers once."""
    if query.whole:
        return 1
    expected = (plan.expected_records if records is None else records) * (query.stop - query.start)
    return min(most_in_campaign(plan, records), FEW + math.ceil(SLACK * expected))


def most_bytes(plan: Plan, *, rounds: int, records: int | None = None) -> int:
    """How many bytes of an owner's answers are stored: what all its reports take if each comes in
    an answer of its own, which is the most that they can take, and an answer without reports in
    each of the rounds so far.

    Else a batch of many ids that were counted before, and one that was not, would take a megabyte
    for a report. Asked as a whole an owner is stored once a round, in the length that the plan
    says, so that nothing more needs a bound.
    """
    single = single_bytes(plan)
    return sys.maxsize if single is None else (most_in_campaign(plan, records) + rounds) * single
