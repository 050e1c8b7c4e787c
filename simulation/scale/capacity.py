"""How many processes, bytes and hours a number of phones takes, from measured costs."""

import math
from dataclasses import dataclass

from confide.simulation.scale.arrivals import Daily
from confide.simulation.scale.costs import Costs

# The share of a processor, and of a round's time, that is planned for: the rest is for what a
# region that fails leaves to the others, and for queues to end.
USED = 0.5
# How often a process reads again who is enrolled.
DIRECTORY_SECONDS = 2.5


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What a fleet takes at the busiest time, and in a period.

    `campaigns` is more than 1 where no number of processes of one is enough, because one writer at
    a time holds its round; `processes` is that of each, and `memory`, `tally` and `restart` are of
    each. `restart` is how long a process that starts late in the period reads ids, with the round
    held. `directory` is the share of a processor that each process spends on who is enrolled, and
    `most_enrolled` how many owners take as much of it as is planned for.
    """

    visits: float
    processes: int
    campaigns: int
    held: float
    disk: float
    enrolled: float
    wire: float
    memory: float
    tally: float
    restart: float
    directory: float
    most_enrolled: float


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
    phones, each = fleet.phones, costs.directory / DIRECTORY_SECONDS
    return Capacity(
        visits=fleet.most,
        processes=processes,
        campaigns=campaigns,
        held=held(costs, visits=fleet.most / campaigns, processes=processes),
        disk=costs.disk * phones,
        enrolled=costs.enrolled * phones,
        wire=costs.wire * phones,
        memory=costs.memory * phones / campaigns,
        tally=costs.tally * phones / campaigns,
        restart=costs.foreign * phones / campaigns,
        directory=phones * each,
        most_enrolled=USED / each if each else math.inf,
    )


def _processes(costs: Costs, visits: float) -> int | None:
    """The processes that a campaign needs for so many visits a second; None: none is enough."""
    processes = max(1, -int(-visits * costs.visit // USED))
    return processes if held(costs, visits=visits, processes=processes) <= USED else None
