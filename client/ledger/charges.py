"""What a query asks of the ledger: the query, its price, and the limits of the owner's policy.

All privacy losses of an owner's records are in replace-one adjacency, so that charges add up.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class LedgerQuery:
    """One query, and the campaign it belongs to: a name and the key that signed its plan.

    A plan that asks the owner as a whole has a number of `rounds`; one that asks record by record
    has 0. `training` is the plan itself if it trains a network, whose model a later plan may name.
    `together` says whether the model saw many records at once; `later` whether the aggregator asks
    this round only when it needs no answer to an earlier one any more.
    """

    plan: bytes
    campaign: str
    aggregator: bytes
    query: bytes
    round_: int
    rounds: int = 0
    training: bytes | None = None
    together: bool = False
    later: bool = False


@dataclass(frozen=True)
class Cost:
    """A privacy loss (epsilon, delta): the price of a plan for a record, or an upper limit."""

    epsilon: float
    delta: float = 0.0

    def within(self, limit: "Cost") -> bool:
        return self.epsilon <= limit.epsilon and self.delta <= limit.delta


@dataclass(frozen=True)
class SpendingLimits:
    """The most a record may lose in all campaigns and in one, and the smallest group.

    `fewest` is the number of records below which nobody answers.
    """

    record: Cost
    campaign: Cost
    fewest: int
