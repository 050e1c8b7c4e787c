"""When a round of a shuffler closes: with its crowd, in time for the handover, or for good.

Only the shuffler decides; nothing that the aggregator says has an influence.
"""

from confide.aggregator.storage.stored_campaign import (
    DEADLINE,
    ENOUGH,
    Round,
    Settings,
    Turnout,
)
from confide.protocol.plan import Plan
from confide.protocol.shuffling import MOST_CROWD
from confide.shuffler.storage import EXPIRED

# Before its plan expires a round is closed, mixed and handed over in the larger of so many seconds
# and this share of the plan's life, but in no more than half of the time that the round had left.
LEAST_MARGIN, MARGIN = 60.0, 0.02


def last_moment(plan: Plan, *, opened: float) -> float:
    """When a round that has its crowd is closed at the latest: after it, the plan may expire first.

    The aggregator takes nothing once the plan has expired, and owners have paid by then.
    """
    issued, expires = plan.issued.timestamp(), plan.expires.timestamp()
    return expires - min(max(LEAST_MARGIN, MARGIN * (expires - issued)), (expires - opened) / 2)


def due(plan: Plan, settings: Settings, last: Round, *, came: Turnout, now: float) -> str | None:
    """Why the open round is closed now, or None: before its plan expires, only with its crowd."""
    assert plan.shuffling is not None
    if came.reports < plan.shuffling.crowd or came.contributed < plan.minimum_owners:
        return EXPIRED if now >= plan.expires.timestamp() else None
    finished = settings.owners and came.finished >= settings.owners
    if finished or came.reports >= min(settings.enough or MOST_CROWD, MOST_CROWD):
        return ENOUGH
    return DEADLINE if now >= min(last.deadline, last_moment(plan, opened=last.opened)) else None


def seconds_short(plan: Plan, settings: Settings, *, now: float) -> float:
    """How much longer the rounds of a plan may take than it is valid from now; 0 if it suffices."""
    left = plan.expires.timestamp() - now
    return max(0.0, plan.terms.most_rounds * settings.round_seconds - left)
