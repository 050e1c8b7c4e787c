"""Two sides that are timed in turns, and the table of their ratios: for `speed.py`."""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from rich import box
from rich.table import Table

Side = Callable[[], float]

TURN = 0.02


@dataclass(frozen=True)
class Row:
    """One line of the table.

    The seconds of both sides are minima; where the sides differ in size they are those of a label.
    """

    what: str
    against: str
    ours: float | None = None
    peer: float | None = None
    ratio: float | None = None
    median: float | None = None
    bytes: int | None = None
    goal: str | None = None
    met: bool | None = None


def timed(work: Callable[[], object]) -> Side:
    """Seconds of the work; where one run takes less than TURN, the least of several.

    `peers.py` does the same.
    """

    def run() -> float:
        first, least = time.perf_counter(), math.inf
        while (started := time.perf_counter()) - first < TURN:
            work()
            least = min(least, time.perf_counter() - started)
        return least

    return run


def take_turns(turns: int, sides: dict[str, Side]) -> dict[str, list[float]]:
    """The seconds of every side in every turn, after a turn that warms up.

    A side that fails (infinity) is left out.
    """
    seconds: dict[str, list[float]] = {
        name: [] for name, side in sides.items() if side() < math.inf
    }
    for _ in range(turns):
        for name in seconds:
            seconds[name].append(sides[name]())
    return {name: values for name, values in seconds.items() if max(values) < math.inf}


def times_faster(
    what: str,
    against: str,
    *,
    ours: list[float],
    peer: list[float],
    at_least: float | None = None,
) -> Row:
    """A row with the seconds of the other side over ours."""
    ratio = min(peer) / min(ours)
    median = statistics.median(b / a for a, b in zip(ours, peer, strict=True))
    goal, met = (
        (None, None) if at_least is None else (f">= {at_least:g} times faster", ratio >= at_least)
    )
    return Row(what, against, min(ours), min(peer), ratio, median, goal=goal, met=met)


def times_as_long(
    what: str, against: str, *, ours: list[float], peer: list[float], at_most: float
) -> Row:
    """A row with our seconds over those of the other side."""
    ratio = min(ours) / min(peer)
    median = statistics.median(a / b for a, b in zip(ours, peer, strict=True))
    goal, met = f"<= {at_most:g} times as long", ratio <= at_most
    return Row(what, against, min(ours), min(peer), ratio, median, goal=goal, met=met)


def shown(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def table(rows: list[Row]) -> Table:
    made = Table(box=box.SIMPLE_HEAD)
    for heading in ("what", "ours", "peer", "against", "ratio", "median", "goal", "met"):
        right = heading in ("ours", "peer", "ratio", "median")
        made.add_column(heading, justify="right" if right else "left", no_wrap=heading != "against")
    for row in rows:
        peak = "" if row.bytes is None else f", {row.bytes / 1e9:.2f} GB"
        ratios = ("-" if value is None else f"{value:.2f}" for value in (row.ratio, row.median))
        met = "-" if row.met is None else "yes" if row.met else "no"
        made.add_row(
            row.what,
            shown(row.ours) + peak,
            shown(row.peer),
            row.against,
            *ratios,
            row.goal or "-",
            met,
        )
    return made
