"""What each round of a calibration received, which its card says as that of a campaign does."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from confide.aggregator.campaigns.admission import RoundCounts
from confide.aggregator.campaigns.driver import RecordedTallies
from confide.protocol.certificate import BY_OWNER, Certificate
from confide.protocol.methods.parts import kept_apart


class CountedRounds:
    """Users in arrays, whose answers are counted by round; `records` are expected in all."""

    def __init__(self, users: Callable[[Any], Any], records: int) -> None:
        self._users, self._records = users, records
        self._rounds: list[RoundCounts] = []

    def __call__(self, query: Any, round_: int) -> Any:
        tally = self._users(query)
        found = kept_apart(tally) if query.kept_apart == BY_OWNER else None
        expected = round(self._records * (query.stop - query.start))
        owners = 0 if found is None else len(found.keys)
        # Tallies of records that owners count as a whole have no reports, and no rounds on cards.
        self._rounds.append(RoundCounts(expected, getattr(tally, "size", 0), owners))
        return tally

    def told(
        self, recorded: RecordedTallies, certificate: Certificate
    ) -> tuple[list[int], list[RoundCounts]]:
        """The reports or records of every owner, and what the rounds received.

        Where a round does not tell whose its reports are, all reports count as those of one owner.
        """
        sizes = recorded.sizes or recorded.owners.sizes
        if recorded.sizes or sum(sizes) == certificate.n:
            return sizes, self._rounds
        one = [replace(row, owners=min(1, row.reports)) for row in self._rounds]
        return [certificate.n], one
