"""`confide scale`: what an aggregator takes for a number of phones, from measured costs."""

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from confide.protocol.commands.terminal import clear_errors, columns
from confide.simulation.scale.arrivals import DAY, Daily
from confide.simulation.scale.capacity import USED, Capacity, capacity
from confide.simulation.scale.costs import MEASURED, read_costs

GB, HOUR = 1e9, 3_600.0


def scale_command(
    phones: Annotated[int, typer.Argument(help="owners of one record each")] = 1_000_000,
    *,
    days: Annotated[float, typer.Option(help="each phone answers once in so many days")] = 7.0,
    database: Annotated[str, typer.Option(help="postgres or sqlite")] = "postgres",
    swing: Annotated[
        float, typer.Option(help="how far the busiest hour is above the average: 0.8 is 1.8 times")
    ] = 0.8,
    costs: Annotated[
        Path | None,
        typer.Option(help="measured on your machine; default: those of docs/scale.md"),
    ] = None,
) -> None:
    """What an aggregator takes for so many phones: processes, bytes, hours.

    A phone visits with one report over a connection of its own, and a processor is planned half
    full at the busiest time. Costs were measured on two cores; `python
    benchmarks/laboratory/scale.py --file FILE measure` measures those of your machine. What breaks
    first is said below the table.
    """
    with clear_errors():
        fleet = Daily(phones=phones, period=days * DAY, swing=swing)
        plan = capacity(read_costs(costs or MEASURED, database), fleet)
        table = Table(box=box.SIMPLE_HEAD, show_header=False)
        for name, value in _lines(plan):
            table.add_row(name, value)
        Console(width=columns() or 140).print(table)
        print(_first(plan))


def _lines(plan: Capacity) -> list[tuple[str, str]]:
    return [
        ("visits a second at the busiest time", f"{plan.visits:,.1f}"),
        ("campaigns to which phones are dealt", f"{plan.campaigns}"),
        (f"server processes of each, {USED:.0%} used", f"{plan.processes}"),
        ("share of the time that a round is held", f"{plan.held:.0%}"),
        ("who is enrolled, processors of each process", f"{plan.directory:.2g}"),
        ("answers on disk, GB", f"{plan.disk / GB:.3g}"),
        ("enrolled owners on disk, GB", f"{plan.enrolled / GB:.3g}"),
        ("network, GB", f"{plan.wire / GB:.3g}"),
        ("ids of a campaign in memory of each process, GB", f"{plan.memory / GB:.2g}"),
        ("tally of a campaign, hours", f"{plan.tally / HOUR:.2g}"),
        ("reading of a campaign after a restart, hours", f"{plan.restart / HOUR:.2g}"),
    ]


def _first(plan: Capacity) -> str:
    """What to change first, in a sentence."""
    if plan.directory > USED:
        return (
            f"Enrolment breaks first: each process would spend {plan.directory:.1f} processors on "
            f"who is enrolled. One aggregator holds {plan.most_enrolled:,.0f} owners at "
            f"{USED:.0%}; beyond, phones need a gateway in front or owners that collect "
            "(docs/scale.md)."
        )
    if plan.restart > HOUR / 6:
        return (
            f"A restart stands still for {plan.restart / HOUR:.1f} hours: deal the phones to "
            "several campaigns (docs/scale.md)."
        )
    return "Nothing here is near its limit."
