"""Tables and picture of docs/scale.md: a fleet of phones, planned and simulated at its worst hours.

`python benchmarks/laboratory/scale.py plan` runs this on the costs that were measured.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.markdown import table
from confide.simulation.scale.arrivals import DAY, Arrivals, AtOnce, Daily
from confide.simulation.scale.capacity import USED, capacity, held
from confide.simulation.scale.costs import Costs, read_costs
from confide.simulation.scale.queueing import Region, Visits, simulate

GB, HOUR, MINUTE = 1e9, 3_600.0, 60.0
ENGINES = ("sqlite", "postgres")
# Okabe and Ito's colours; dashes and marks repeat the difference.
COLOURS, DASHES, MARKS = (
    ("#0072B2", "#D55E00", "#009E73", "#CC79A7"),
    ("-", "--", "-.", ":"),
    "osD^",
)
# A third of the phones has one address, whose processes fail for half an hour at the busiest time.
REGIONS, FAILED = 3, 0.5 * HOUR
# The phones of a campaign where a region is dealt into several.
CAMPAIGN = 1_000_000
NOON = DAY / 2
# Arrivals, where they go, the window in which they come, a seed, and seconds after the window.
Case = tuple[Arrivals, Region, tuple[float, float], int, float]


def plan_rows(costs: Costs, engine: str, phones: float) -> Iterator[list[str]]:
    """A line for each size of fleet: what it takes."""
    for count in (phones / 100, phones / 10, phones):
        found = capacity(costs, Daily(phones=count))
        yield [
            f"{count:,.0f}",
            engine,
            f"{found.visits:.0f}",
            f"{found.campaigns}",
            f"{found.processes}",
            f"{found.held:.0%}",
            f"{found.disk / GB:.3g}",
            f"{found.enrolled / GB:.3g}",
            f"{found.wire / GB:.3g}",
            f"{found.memory / GB:.2g}",
            f"{found.tally / HOUR:.2g}",
            f"{found.restart / HOUR:.2g}",
        ]


HEADINGS = ["phones", "database", "visits a second at noon", "campaigns", "processes of each"]
HEADINGS += ["round held", "answers on disk, GB a week", "enrolment, GB", "wire, GB a week"]
HEADINGS += ["ids in each process, GB", "tally, hours", "restart, hours"]


def busy_rows(costs: Costs, phones: float) -> tuple[list[list[str]], dict[int, Visits]]:
    """The busiest ten minutes, by the number of processes of one campaign."""
    fleet, window = Daily(phones=phones), (NOON, NOON + 10 * MINUTE)
    rows, counts = [], (1, 2, 3, 4, 6, 8)
    # Without a tail, so that work, receipts and waits are those of the same ten minutes.
    cases = [
        (fleet, Region(processes=count, costs=costs, timer=DAY), window, 1, 0.0) for count in counts
    ]
    found = dict(zip(counts, _simulated(cases), strict=True))
    for processes, visits in found.items():
        # Waits of those who were done say nothing where the others wait for ever longer.
        waits = ["grows"] * 2
        if not visits.grow:
            waits = [f"{value:.3g}" for value in np.quantile(visits.waits, (0.5, 0.99))]
        seconds = window[1] - window[0]
        rows.append(
            [
                f"{processes}",
                f"{len(visits.done) / seconds:.0f}",
                f"{visits.working / seconds / processes:.0%}",
                f"{visits.committing / seconds:.0%}",
                *waits,
                f"{visits.refused:,}",
            ]
        )
    return rows, found


BUSY = ["processes", "receipts a second", "processor", "round held", "median wait, s", "99 %, s"]
BUSY += ["refused tries"]


def failures(costs: Costs, phones: float, processes: int) -> dict[str, Visits]:
    """The same failure late in the week, with what phones may do when they find nobody.

    One campaign has the answers of nearly all phones of the region then; or each of its processes
    has campaigns of its own, and reads only theirs.
    """
    fleet = Daily(phones=phones / REGIONS)
    base = Region(
        processes=processes,
        costs=costs,
        down=(NOON, NOON + FAILED),
        timer=HOUR,
        stored=round(fleet.phones),
    )
    window = (NOON - 5 * MINUTE, NOON + FAILED + 25 * MINUTE)
    herd = AtOnce(phones=round(phones / 1_000), moment=NOON, spread=MINUTE)
    whole, dealt = (
        replace(base, down=(0.0, 0.0), stored=0),
        replace(base, processes=1, stored=CAMPAIGN),
    )
    cases: dict[str, Case] = {
        "as the client does": (fleet, base, window, 2, HOUR),
        "pauses without jitter": (fleet, replace(base, jitter=False), window, 2, HOUR),
        "patience of a minute": (fleet, replace(base, patience=MINUTE), window, 2, HOUR),
        "one in 1,000, all at noon": (herd, whole, window, 3, HOUR),
        f"one campaign of {CAMPAIGN:,}": (Daily(phones=CAMPAIGN), dealt, window, 2, HOUR),
    }
    return dict(zip(cases, _simulated(list(cases.values())), strict=True))


def _simulated(cases: list[Case]) -> list[Visits]:
    """Simulate every case, in a process each."""
    with ProcessPoolExecutor(len(cases)) as pool:
        return list(pool.map(_simulate, cases))


def _simulate(case: Case) -> Visits:
    arrivals, region, window, seed, tail = case
    return simulate(arrivals, region, window=window, seed=seed, tail=tail)


def failure_row(name: str, found: Visits) -> list[str]:
    done = np.array(found.done)
    rates = np.histogram(done, bins=np.arange(NOON - 300, NOON + 3 * HOUR, 10))[0] / 10
    return [
        name,
        f"{len(done):,}",
        f"{found.lost_patience:,}",
        f"{found.refused:,}",
        f"{found.dropped:,}",
        f"{rates.max():.0f}",
        f"{np.quantile(found.waits, 0.99) / MINUTE:.0f}",
        f"{back(found) / MINUTE:.1f}",
        f"{last(found) / MINUTE:.0f}",
        f"{max(found.tries)}",
    ]


FAILURE = ["phones", "receipts", "out of patience", "refused tries", "closed connections"]
FAILURE += ["most receipts a second"]
FAILURE += ["99 % wait, minutes", "minutes until newcomers are served"]
FAILURE += ["minutes from noon to the last", "most tries"]


def back(found: Visits) -> float:
    """Seconds from the end of the failure to the last phone that comes and waits over a minute."""
    came = np.array(found.came)
    late = came[(came >= NOON + FAILED) & (found.waits > MINUTE)]
    return float(late.max() - NOON - FAILED) if len(late) else 0.0


def last(found: Visits) -> float:
    """Seconds from noon until all who came before the failure was over have a receipt."""
    came, done = np.array(found.came), np.array(found.done)
    return float(done[came < NOON + FAILED].max() - NOON)


def draw(busy: dict[int, Visits], failed: dict[str, Visits], given: dict[str, Any]) -> Figure:
    """Waits by processes; receipts around the failure; how long a round is held, by processes."""
    figure = Figure(figsize=(12.5, 3.9), layout="constrained")
    waits, receipts, rounds = figure.subplots(1, 3)
    counts = [count for count, visits in busy.items() if not visits.grow]
    for share, colour, dash, mark in zip((0.5, 0.99), COLOURS, DASHES, MARKS, strict=False):
        seconds = [np.quantile(busy[count].waits, share) for count in counts]
        waits.plot(counts, seconds, dash, color=colour, marker=mark, label=f"{share:.0%} of phones")
    waits.set(xlabel="processes of one campaign", ylabel="seconds to a receipt", yscale="log")
    waits.set_title("the busiest ten minutes", fontsize=10)
    # The last case has fewer phones.
    for (name, found), colour, dash in zip(failed.items(), COLOURS, DASHES, strict=False):
        edges = np.arange(NOON - 300, NOON + FAILED + 25 * MINUTE, 20)
        rates = np.histogram(found.done, bins=edges)[0] / 20
        receipts.plot((edges[:-1] - NOON) / MINUTE, rates, dash, color=colour, label=name, lw=1.3)
    receipts.axvspan(0, FAILED / MINUTE, color="0.92", label="no process runs")
    receipts.set(xlabel="minutes after noon", ylabel="receipts a second")
    # Room for the legend above the lines.
    receipts.set_ylim(0, 1.6 * receipts.get_ylim()[1])
    receipts.set_title("a region fails for half an hour", fontsize=10)
    processes = np.arange(1, 33)
    for engine, colour, dash in zip(ENGINES, COLOURS, DASHES, strict=False):
        if engine in given:
            costs = given[engine]
            most = [min(n / costs.visit, 1 / held(costs, visits=1, processes=n)) for n in processes]
            rounds.plot(processes, most, dash, color=colour, label=f"one campaign, {engine}")
    rounds.set(xlabel="processes", ylabel="visits a second at most", xscale="log")
    rounds.set_title("more processes, one round", fontsize=10)
    for axes in (waits, receipts, rounds):
        axes.legend(fontsize=7.5)
    return figure


def main(file: Path, phones: float, plot: Path | None) -> None:
    measured = json.loads(file.read_text())
    given = {name: read_costs(file, name) for name in ENGINES if name in measured["costs"]}
    names = [*next(iter(measured["costs"].values()))]
    shown = [
        [name, *(f"{each[name]:.3g}" for each in measured["costs"].values())] for name in names
    ]
    print(table(["cost", *measured["costs"]], shown), end="\n\n")
    rows = [row for name, costs in given.items() for row in plan_rows(costs, name, phones)]
    print(table(HEADINGS, rows, words=1), end="\n\n")
    for name, each in given.items():
        owners = capacity(each, Daily(phones=phones)).most_enrolled / USED
        print(f"{name}: one process is busy with enrolled owners at {owners:,.0f} of them.")
    costs = given.get("postgres", next(iter(given.values())))
    rows, busy = busy_rows(costs, phones)
    print("\n" + table(BUSY, rows), end="\n\n")
    processes = capacity(costs, Daily(phones=phones / REGIONS)).processes or 1
    failed = failures(costs, phones, processes)
    print(f"{processes} processes in a region:\n")
    print(table(FAILURE, [failure_row(*one) for one in failed.items()]))
    if plot is not None:
        draw(busy, failed, given).savefig(plot, metadata={"Date": None})
