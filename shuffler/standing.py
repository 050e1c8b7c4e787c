"""How the campaigns of a shuffler stand, for its operator."""

from typing import Any

from confide.aggregator.storage.store import Store
from confide.aggregator.storage.stored_campaign import Campaign, Round
from confide.shuffler.storage import MixedRounds


def standing(store: Store) -> list[dict[str, Any]]:
    """Return every campaign with its rounds, as what JSON can hold."""
    return [
        {
            "id": one.id,
            "state": one.state,
            "title": one.plan.campaign,
            "reason": one.reason,
            "rounds": [_round(store, one, row) for row in store.rounds(one.id)],
        }
        for one in store.campaigns()
        if one.readable
    ]


def _round(store: Store, one: Campaign, row: Round) -> dict[str, Any]:
    assert one.plan.shuffling is not None
    held = MixedRounds(store.engine).held(one.id, row.number)
    came, crowd = store.turnout(one.id, row.number), one.plan.shuffling.crowd
    handed = held["reports"] if held is not None and held.get("receipts", 1) else None
    if handed is not None:
        words = f"{handed} reports handed over, and held by the aggregator"
    elif held is not None:
        words = f"{held['reports']} reports handed over; the aggregator went on without a receipt"
    elif one.reason is not None:
        words = f"{came.reports} reports, deleted and not handed over"
    elif row.closed is not None:
        words = f"{came.reports} reports, being handed over"
    else:
        words = (
            f"{came.reports} reports of {came.contributed} owners; it is handed over with "
            f"{crowd} or more, of {one.plan.minimum_owners} owners or more"
        )
    return {
        "number": row.number,
        "reports": came.reports,
        "owners": came.contributed,
        "crowd": crowd,
        "handed_over": handed,
        "words": words,
    }
