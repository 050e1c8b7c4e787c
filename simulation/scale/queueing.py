"""Phones that visit the processes of an aggregator: a discrete-event simulation.

A process works on one visit at a time, in the order they came, because one interpreter does.
Visits beyond its `places` are refused, as open calls are, which is work too; connections beyond
their number are closed at once. Answers that were taken in wait for the
process's writer, which commits all that wait in one transaction; transactions of one campaign hold
its round one after the other, whichever process they are of. A process that was started again
knows no answer: its first transaction reads all that the campaign has, with the round held. A phone
that finds no process, is refused, or loses its connection tries again as the real client does
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

# The open calls and connections that a server process takes, and the patience of `confide-client`.
PLACES, CONNECTIONS = 1_000, 2_000
PATIENCE, LONGEST_PAUSE = 600.0, 30.0


@dataclass(frozen=True, kw_only=True)
class Region:
    """The processes behind one address, from when to when none of them runs, and their phones.

    A phone that has lost patience is started again by its timer, within `timer` seconds (0: not
    any more). `exponential` draws the time of every visit, with the measured mean, instead of
    taking the mean. Without `jitter` pauses are not shortened at random, as those of the client
    are. `stored` answers are in the campaign when the simulation begins, and known to all processes
    until these end.
    """

    processes: int
    costs: Costs
    places: int = PLACES
    connections: int = CONNECTIONS
    down: tuple[float, float] = (0.0, 0.0)
    patience: float = PATIENCE
    timer: float = 0.0
    exponential: bool = False
    jitter: bool = True
    stored: int = 0

    def runs(self, moment: float) -> bool:
        return not self.down[0] <= moment < self.down[1]


@dataclass
class Visits:
    """When each phone came, when its answer was durable, and after how many tries.

    `phones` is how many came. `working` and `committing` are the seconds in which processes worked
    and the round was held.
    """

    phones: int = 0
    came: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)
    tries: list[int] = field(default_factory=list)
    lost_patience: int = 0
    refused: int = 0
    dropped: int = 0
    working: float = 0.0
    committing: float = 0.0
    transactions: int = 0

    @property
    def waits(self) -> Floats:
        """Seconds from a phone's first try to its receipt."""
        return np.array(self.done) - np.array(self.came)

    @property
    def grow(self) -> bool:
        """Whether a queue grew: more than one in a hundred who came had no receipt in the end."""
        return len(self.done) < 0.99 * self.phones


@dataclass
class _Phone:
    came: float
    tries: int = 0
    pauses: Tries | None = None


@dataclass
class _Process:
    """One server process: who is in line, answers for its writer, and how much it has read.

    Of a phone in line is known whether it found a place, or will be refused.
    """

    line: deque[tuple[_Phone, bool]] = field(default_factory=deque)
    connections: int = 0
    calls: int = 0
    works: bool = False
    taken: list[_Phone] = field(default_factory=list)
    writes: bool = False
    read: int = 0
    # How often it was started: what began before does not end after.
    life: int = 0


class _Simulation:
    """The state of one simulation; times are seconds."""

    def __init__(self, region: Region, rng: np.random.Generator) -> None:
        self.region, self.found, self.now = region, Visits(), 0.0
        self._processes = [_Process(read=region.stored) for _ in range(region.processes)]
        self._random = random.Random(int(rng.integers(2**63)))
        self._patience = Patience(
            region.patience,
            longest_pause=LONGEST_PAUSE,
            tell=lambda _: None,
            now=lambda: self.now,
            pause=self._keep_pause,
            uniform=self._random.uniform if region.jitter else lambda _, most: most,
        )
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers, self._pause = itertools.count(), 0.0
        # Writers that wait for the round, and the answers that it holds.
        self._round: deque[_Process] = deque()
        self._held, self._stored = False, region.stored

    def run(self, moments: Floats, until: float) -> Visits:
        """Let phones come at these moments, until all have ended or the time is over."""
        if self.region.down[1] > self.region.down[0]:
            self._at(self.region.down[0], self._stop)
        self.found.phones = len(moments)
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
        if not self.region.runs(self.now):
            self._again(phone)
            return
        process = self._processes[int(self._random.random() * len(self._processes))]
        if process.connections >= self.region.connections:
            self.found.dropped += 1
            self._again(phone)
            return
        found_place = process.calls < self.region.places
        process.connections += 1
        process.calls += found_place
        process.line.append((phone, found_place))
        self._work(process)

    def _again(self, phone: _Phone) -> None:
        """Let a phone pause, by the code of the real client, until it finds a process to try.

        A phone whose patience is used up stops, and its timer starts it again later.
        """
        began = self.now
        while True:
            phone.pauses = phone.pauses or self._patience.tries()
            try:
                phone.pauses.wait("")
                self.now += self._pause
            except Unreachable:
                self.found.lost_patience += 1
                if not self.region.timer:
                    break
                phone.pauses = None
                self.now += self._random.uniform(0, self.region.timer)
            if self.region.runs(self.now):
                self._at(self.now, self._visit, phone)
                break
            phone.tries += 1
        self.now = began

    def _work(self, process: _Process) -> None:
        if process.works or not process.line:
            return
        phone, found_place = process.line.popleft()
        costs = self.region.costs
        seconds = costs.visit if found_place else costs.refused
        if self.region.exponential:
            seconds = self._random.expovariate(1 / seconds)
        process.works = True
        self.found.working += seconds
        end = self._worked if found_place else self._refused
        self._at(self.now + seconds, end, process, phone, process.life)

    def _worked(self, process: _Process, phone: _Phone, life: int) -> None:
        if life != process.life:
            self._again(phone)
            return
        process.works = False
        process.taken.append(phone)
        self._want_round(process)
        self._work(process)

    def _refused(self, process: _Process, phone: _Phone, life: int) -> None:
        self.found.refused += 1
        self._again(phone)
        if life == process.life:
            process.works = False
            process.connections -= 1
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
        process, costs = self._round.popleft(), self.region.costs
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
            process.connections -= len(phones)
            process.calls -= len(phones)
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
        """All processes end and forget ids; phones that wait in one lose their connection."""
        self._round.clear()
        for process in self._processes:
            lost = [*(phone for phone, _ in process.line), *process.taken]
            process.line.clear()
            process.taken, process.works, process.writes = [], False, False
            process.connections = process.calls = process.read = 0
            process.life += 1
            for phone in lost:
                self._again(phone)


def simulate(
    arrivals: Arrivals, region: Region, *, window: tuple[float, float], seed: int, tail: float = 0.0
) -> Visits:
    """Simulate the phones that come within a window, until `tail` seconds after it."""
    rng = np.random.default_rng(seed)
    moments = arrivals.draw(*window, rng=rng)
    return _Simulation(region, rng).run(moments, window[1] + tail)
