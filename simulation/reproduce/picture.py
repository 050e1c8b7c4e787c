"""The picture of a target: a panel for each measure, our lines, and the paper's numbers."""

import io
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from confide.simulation.reproduce.target import Plot, Row, Target

# Okabe and Ito's colours, told apart by people who see few; markers repeat the difference.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = "osD^vP*X"


def draw(target: Target, rows: Sequence[Row]) -> bytes:
    """Draw the rows as PNG; what the paper prints is a cross in the colour of its line."""
    plot = target.plot
    panels = [None] if plot.panels is None else list(dict.fromkeys(row[plot.panels] for row in rows))
    across, down = (len(panels), len(plot.y)) if len(panels) > 1 else (len(plot.y), 1)
    figure = Figure(figsize=(4.2 * across + 1.6, 3.2 * down + 0.6), layout="constrained")
    places = figure.subplots(down, across, squeeze=False)
    order = list(dict.fromkeys(row[plot.lines] for row in rows))
    for number, (measure, panel) in enumerate((y, panel) for y in plot.y for panel in panels):
        axes = places[number // across][number % across]
        own = [row for row in rows if plot.panels is None or row[plot.panels] == panel]
        _panel(axes, own, plot=plot, measure=measure, order=order)
        axes.set_title("" if panel is None else f"{plot.panels} {panel}", fontsize=9)
    handles = {
        text: handle
        for axes in figure.axes
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(), handles.keys(), loc="outside right upper", fontsize=8, title=plot.lines
    )
    kind = "stand-in for " if target.stands_in else ""
    figure.suptitle(f"{kind}{target.of}", fontsize=10)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=110, metadata={"Software": None})
    return drawn.getvalue()


def _panel(
    axes: Any, rows: Sequence[Row], *, plot: Plot, measure: str, order: Sequence[Any]
) -> None:
    words = any(isinstance(row[plot.x], str) for row in rows)
    ticks = list(dict.fromkeys(row[plot.x] for row in rows))
    for place, line in enumerate(order):
        own = [row for row in rows if row[plot.lines] == line and row.get(measure) is not None]
        style = {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)]}
        if own:
            across = [ticks.index(row[plot.x]) if words else row[plot.x] for row in own]
            drawn = {"linestyle": "" if words else "-", "markersize": 4, "label": str(line)}
            axes.plot(across, [row[measure] for row in own], **style, **drawn)
            printed = [
                (x, row[f"paper {measure}"])
                for x, row in zip(across, own, strict=True)
                if row.get(f"paper {measure}") is not None
            ]
            if printed:
                axes.scatter(
                    *zip(*printed, strict=True), color=style["color"], marker="x", s=60,
                    label="x: printed in the paper" if place == 0 else None,
                )  # fmt: skip
    if words:
        axes.set_xticks(range(len(ticks)), ticks, rotation=45, ha="right", fontsize=7)
    if plot.log_x:
        axes.set_xscale("log")
    if plot.log_y:
        axes.set_yscale("log")
    axes.set(xlabel=plot.x, ylabel=measure)
    axes.grid(alpha=0.3)
