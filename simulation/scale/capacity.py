"""How many processes, bytes and hours a number of phones takes, from measured costs."""

from dataclasses import dataclass

from confide.simulation.scale.arrivals import Daily
from confide.simulation.scale.costs import Costs

# The share of a processor, and of a round's time, that is planned for: the rest is for what a
# region that fails leaves to the others, and for queues to end.
USED = 0.5
# How often a process reads again who is enrolled, and what the round has so far.
DIRECTORY_SECONDS, REFRESH_SECONDS = 2.5, 0.2


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What a fleet takes at the busiest time, and in a week.

    `processes` is None where no number of processes of one campaign is enough; then the round,
    which one writer holds at a time, is the bottleneck, and `campaigns` is how many campaigns of
    their own the phones must be dealt to.
    """

    visits: float
    processes: int | None
    campaigns: int
    held: float
    disk: float
    enrolled: float
    wire: float
    memory: float
    tally: float


def held(costs: Costs, *, visits: float, processes: int) -> float:
    """The share of the time that a round is held, if every process commits alone what it has.

    Every answer is written once, and read again by every other process. Commits come one after the
    other, so the least share has one transaction for all that waits: it is left out here.
    """
    return visits * (costs.batch + (processes - 1) * costs.foreign)


def capacity(costs: Costs, fleet: Daily) -> Capacity:
    """Plan a fleet: the fewest campaigns, and their processes, with which no more than USED is."""
    campaigns, processes = 1, None
    while processes is None:
        processes = _processes(costs, fleet.most / campaigns)
        campaigns += processes is None
    weekly = fleet.phones
    return Capacity(
        visits=fleet.most,
        processes=processes,
        campaigns=campaigns,
        held=held(costs, visits=fleet.most / campaigns, processes=processes),
        disk=costs.disk * weekly,
        enrolled=costs.enrolled * weekly,
        wire=costs.wire * weekly,
        memory=costs.memory * weekly / campaigns,
        tally=costs.tally * weekly / campaigns,
    )


def _processes(costs: Costs, visits: float) -> int | None:
    """The processes that a campaign needs for so many visits a second; None: none is enough."""
    processes = max(1, -int(-visits * costs.visit // USED))
    return processes if held(costs, visits=visits, processes=processes) <= USED else None
