"""Spends of ten records, for tests of the ledger."""

from typing import Any

from confide.client.ledger.charges import Cost, LedgerQuery, SpendingLimits
from confide.client.ledger.ledger import Ledger
from tests.support.owners.owners import NOW

ASKED = LedgerQuery(plan=b"p", campaign="c", aggregator=b"k" * 32, query=b"q", round_=0)
LIMITS = SpendingLimits(record=Cost(4.0, 1e-5), campaign=Cost(2.0, 1e-5), fewest=2)
RECORDS = [bytes([i]) for i in range(10)]


def spend(
    ledger: Ledger,
    asked: LedgerQuery = ASKED,
    epsilon: float = 2.0,
    records: Any = RECORDS,
    draw: Any = None,
) -> Any:
    draw = draw or (lambda places: repr(places).encode())
    payers = [(record,) for record in records]
    return ledger.answer(
        asked, cost=Cost(epsilon), limits=LIMITS, payers=payers, draw=draw, now=NOW
    )
