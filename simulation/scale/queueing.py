"""Phones that visit the processes of an aggregator: a discrete-event simulation.

A process works on one visit at a time, in the order they came, because one interpreter does.
Visits beyond its `places` are refused, as open calls are. Answers that were taken in wait for the
process's writer, which commits all that wait in one transaction; transactions of one campaign hold
its round one after the other, whichever process they are of. A phone that finds no process, is
refused, or loses its connection tries again as the real client does
(`confide.client.transport.retry`).
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from confide.client.transport.retry import Patience, Tries, Unreachable
from confide.simulation.scale.arrivals import Arrivals, Floats
from confide.simulation.scale.costs import Costs

# The open calls that a server process takes, and the patience of `confide-client`.
PLACES, PATIENCE, LONGEST_PAUSE = 1_000, 600.0, 30.0


@dataclass(frozen=True, kw_only=True)
class Site:
    """The processes behind one address, from when to when none of them runs, and their phones.

    A phone that has lost patience is started again by its timer, within `timer` seconds (0: not
    any more). `exponential` draws the time of every visit, with the measured mean, instead of
    taking the mean. Without `jitter` pauses are not shortened at random, as those of the client
    are.
    """

    processes: int
    costs: Costs
    places: int = PLACES
    down: tuple[float, float] = (0.0, 0.0)
    patience: float = PATIENCE
    timer: float = 0.0
    exponential: bool = False
    jitter: bool = True

    def runs(self, moment: float) -> bool:
        return not self.down[0] <= moment < self.down[1]


@dataclass
class Visits:
    """When each phone came, when its answer was durable, and after how many tries.

    `working` and `committing` are the seconds in which processes worked and the round was held.
    """

    came: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)
    tries: list[int] = field(default_factory=list)
    lost_patience: int = 0
    refused: int = 0
    working: float = 0.0
    committing: float = 0.0
    transactions: int = 0

    @property
    def waits(self) -> Floats:
        """Seconds from a phone's first try to its receipt."""
        return np.array(self.done) - np.array(self.came)


@dataclass
class _Phone:
    came: float
    tries: int = 0
    pauses: Tries | None = None


@dataclass
class _Process:
    """One server process: visits in line, answers for its writer, and how much it has read.

    `owed` is the time of refusals, which comes before the next visit.
    """

    line: deque[_Phone] = field(default_factory=deque)
    works: bool = False
    taken: list[_Phone] = field(default_factory=list)
    writes: bool = False
    read: int = 0
    owed: float = 0.0
    # How often it was started: what began before does not end after.
    life: int = 0

    @property
    def held(self) -> int:
        """The calls that are open."""
        return len(self.line) + len(self.taken) + self.works


class _Run:
    """The state of one simulation; times are seconds."""

    def __init__(self, site: Site, rng: np.random.Generator) -> None:
        self.site, self.found, self.now = site, Visits(), 0.0
        self._processes = [_Process() for _ in range(site.processes)]
        self._random = random.Random(int(rng.integers(2**63)))
        self._patience = Patience(
            site.patience,
            longest_pause=LONGEST_PAUSE,
            tell=lambda _: None,
            now=lambda: self.now,
            pause=self._keep_pause,
            uniform=self._random.uniform if site.jitter else lambda _, most: most,
        )
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers, self._pause = itertools.count(), 0.0
        # Writers that wait for the round, and the answers that it holds.
        self._round: deque[_Process] = deque()
        self._held, self._stored = False, 0

    def run(self, moments: Floats, until: float) -> Visits:
        """Let phones come at these moments, and go on until all have ended or the time is over."""
        if self.site.down[1] > self.site.down[0]:
            self._at(self.site.down[0], self._stop)
        coming = iter(moments.tolist())
        following = next(coming, None)
        while self._events or following is not None:
            if following is not None and not (self._events and self._events[0][0] < following):
                self.now, phone = following, _Phone(following)
                following = next(coming, None)
                self._visit(phone)
                continue
            moment, _, act, given = heapq.heappop(self._events)
            if moment > until:
                break
            self.now = moment
            act(*given)
        return self.found

    def _at(self, moment: float, act: Callable[..., None], *given: Any) -> None:
        heapq.heappush(self._events, (moment, next(self._numbers), act, given))

    def _keep_pause(self, seconds: float) -> None:
        self._pause = seconds

    def _visit(self, phone: _Phone) -> None:
        """A phone tries: a process that is drawn takes it, or it tries again later."""
        phone.tries += 1
        if not self.site.runs(self.now):
            self._again(phone)
            return
        process = self._processes[int(self._random.random() * len(self._processes))]
        if process.held >= self.site.places:
            self.found.refused += 1
            process.owed += self.site.costs.refused
            self._again(phone)
            return
        process.line.append(phone)
        self._work(process)

    def _again(self, phone: _Phone) -> None:
        """Pause as the client does, by its own code, until there is a process to try.

        A phone out of patience ends, until its timer starts it again.
        """
        began = self.now
        while True:
            phone.pauses = phone.pauses or self._patience.tries()
            try:
                phone.pauses.wait("")
                self.now += self._pause
            except Unreachable:
                self.found.lost_patience += 1
                if not self.site.timer:
                    break
                phone.pauses = None
                self.now += self._random.uniform(0, self.site.timer)
            if self.site.runs(self.now):
                self._at(self.now, self._visit, phone)
                break
            phone.tries += 1
        self.now = began

    def _work(self, process: _Process) -> None:
        if process.works or not process.line:
            return
        process.works, seconds = True, self.site.costs.visit
        if self.site.exponential:
            seconds = self._random.expovariate(1 / seconds)
        seconds, process.owed = seconds + process.owed, 0.0
        self.found.working += seconds
        phone = process.line.popleft()
        self._at(self.now + seconds, self._worked, process, phone, process.life)

    def _worked(self, process: _Process, phone: _Phone, life: int) -> None:
        if life != process.life:
            self._again(phone)
            return
        process.works = False
        process.taken.append(phone)
        self._want_round(process)
        self._work(process)

    def _want_round(self, process: _Process) -> None:
        if process.taken and not process.writes:
            process.writes = True
            self._round.append(process)
            self._begin()

    def _begin(self) -> None:
        """The next writer holds the round: it reads what others stored, and stores its own."""
        if self._held or not self._round:
            return
        process, costs = self._round.popleft(), self.site.costs
        self._held, phones, process.taken = True, process.taken, []
        foreign = self._stored - process.read
        seconds = costs.transaction + costs.batch * len(phones) + costs.foreign * foreign
        self._stored += len(phones)
        process.read = self._stored
        self.found.committing += seconds
        self.found.transactions += 1
        self._at(self.now + seconds, self._committed, process, phones, process.life)

    def _committed(self, process: _Process, phones: list[_Phone], life: int) -> None:
        self._held = False
        if life == process.life:
            process.writes = False
            for phone in phones:
                self.found.came.append(phone.came)
                self.found.done.append(self.now)
                self.found.tries.append(phone.tries)
            self._want_round(process)
        else:
            # Their receipts are lost; sent again, the answers count once.
            for phone in phones:
                self._again(phone)
        self._begin()

    def _stop(self) -> None:
        """All processes end: whoever waits in one loses the connection."""
        self._round.clear()
        for process in self._processes:
            lost = [*process.line, *process.taken]
            process.line.clear()
            process.taken, process.works, process.writes = [], False, False
            process.life += 1
            for phone in lost:
                self._again(phone)


def simulate(
    arrivals: Arrivals, site: Site, *, window: tuple[float, float], seed: int, tail: float = 0.0
) -> Visits:
    """Simulate the phones that come within a window, until `tail` seconds after it."""
    rng = np.random.default_rng(seed)
    moments = arrivals.draw(*window, rng=rng)
    return _Run(site, rng).run(moments, window[1] + tail)
