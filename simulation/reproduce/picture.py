"""The picture of a target: a panel for each measure, our lines, and the paper's numbers."""

import io
import math
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from confide.simulation.reproduce.target import Plot, Row, Target

# Okabe and Ito's colours, which the colour-blind tell apart too, with grey for their yellow, faint
# on white; markers repeat the difference.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
MARKERS = "osD^vP*X"


def draw(target: Target, rows: Sequence[Row]) -> bytes:
    """Draw the rows as PNG; what the paper prints is a cross in the colour of its line."""
    plot = target.plot
    panels = (
        [None] if plot.panels is None else list(dict.fromkeys(row[plot.panels] for row in rows))
    )
    across, down = (len(panels), len(plot.y)) if len(panels) > 1 else (len(plot.y), 1)
    figure = Figure(figsize=(4.2 * across + 1.6, 3.2 * down + 0.6), layout="constrained")
    shared: Any = "row" if len(panels) > 1 else "none"
    places = figure.subplots(down, across, squeeze=False, sharey=shared)
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
    ticks = [x for x in dict.fromkeys(row[plot.x] for row in rows) if x is not None]
    words = any(isinstance(x, str) for x in ticks)
    for place, line in enumerate(order):
        own = [row for row in rows if row[plot.lines] == line and row.get(measure) is not None]
        colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        style: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4}
        style |= {"label": str(line), "linestyle": "" if words else "-"}
        for row in own:
            if row[plot.x] is None:
                axes.axhline(row[measure], color=colour, linestyle="--", label=str(line))
        own = [row for row in own if row[plot.x] is not None]
        aside = 0.09 * (place - len(order) / 2)
        across = [ticks.index(row[plot.x]) + aside if words else row[plot.x] for row in own]
        if own:
            axes.plot(across, [row[measure] for row in own], **style)
        printed = [row.get(f"paper {measure}") for row in own]
        if any(value is not None for value in printed):
            label = "x: printed in the paper" if place == 0 else None
            shown = [math.nan if value is None else value for value in printed]
            axes.scatter(across, shown, color=colour, marker="x", s=60, label=label)
    if words:
        axes.set_xticks(range(len(ticks)), ticks, rotation=45, ha="right", fontsize=7)
    if plot.log_x:
        axes.set_xscale("log")
    if plot.log_y:
        axes.set_yscale("log")
    axes.set(xlabel=plot.x, ylabel=measure)
    axes.grid(alpha=0.3)
