"""The plot of a federation: coverage with its error, and sizes, a line for each campaign."""

import io
from typing import Any

from matplotlib import pyplot as plt

from confide.simulation.federation.findings import (
    CONFIDENCE,
    Findings,
    informative,
    interval,
    size,
    tested,
    unit,
)

PLAIN, PRIVATE, TRIVIAL = "tab:gray", "tab:blue", "tab:red"


def draw(found: Findings, *, target: float) -> str:
    """Draw the campaigns as SVG.

    Coverage is drawn as points with intervals, whose axis need not begin at 0. Sizes are drawn on
    an axis for the campaigns that leave something out; the others are named, not measured on it.
    """
    rows = found.calibrations
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9, 0.45 * len(rows) + 1.4), sharey=True, layout="constrained"
    )
    places = range(len(rows))
    for place, row in zip(places, rows, strict=True):
        low, high = interval(row["coverage"], tested(row))
        left.plot([low, high], [place, place], color=_color(row), linewidth=2)
        left.plot(row["coverage"], place, "o", color=_color(row))
    left.axvline(target, color="black", linewidth=1)
    left.set(
        yticks=list(places),
        yticklabels=[row["campaign"] for row in rows],
        xlabel=f"test coverage, {CONFIDENCE:.0%} intervals (line: target)",
    )
    left.invert_yaxis()
    sizes = [float(size(row) or 0) for row in rows if informative(row)]
    most = 1.2 * max(sizes, default=1.0)
    for place, row in zip(places, rows, strict=True):
        if informative(row):
            right.barh(place, float(size(row) or 0), color=_color(row))
        words = f" {size(row):.2f}" if informative(row) else " predicts everything"
        right.text(float(size(row) or 0) if informative(row) else 0, place, words, va="center")
    right.set(xlim=(0, most), xlabel=f"mean {unit(rows[0])}")
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    plt.close(figure)
    return drawn.getvalue()


def _color(row: dict[str, Any]) -> str:
    if row["channel"] is None:
        return PLAIN
    return PRIVATE if informative(row) else TRIVIAL
