"""Advice as a picture: mean set size against epsilon, a line for each method that is allowed."""

import io
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt

from confide.protocol.errors import BadInput
from confide.protocol.files import check_writable, write_whole
from confide.simulation.advice.advise import Advice, ScoreCurves
from confide.simulation.advice.candidates import CANDIDATES, Case
from confide.simulation.data.population import Predictions

FORMATS = (".svg", ".png", ".pdf")
EPSILONS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.7, 8.0)
# Told apart by who is colour-blind, and on paper.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
_MARKS = ("o", "s", "^", "D")


def check_picture(file: Path) -> None:
    """Refuse a file that no picture can be written to, before anything is computed."""
    if file.suffix not in FORMATS:
        raise BadInput(f"picture {file} ends in {file.suffix!r}; accepted: {', '.join(FORMATS)}")
    check_writable(file)


def write_picture(advice: Advice, population: Predictions, file: Path) -> None:
    """Draw the sizes of the allowed methods over a range of epsilons, and write the file."""
    check_picture(file)
    scored, asked = ScoreCurves(population), advice.asked
    named = {one.name: one for one in CANDIDATES}
    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    allowed = [option for option in advice.options if option.refusal is None]
    for option, colour, mark in zip(allowed, _COLOURS, _MARKS, strict=False):
        curve, one = scored.curve(option.score), named[option.method]
        sizes = [
            curve.size(one.law(Case(curve, asked, asked.records, epsilon), one.few)).mean()
            for epsilon in EPSILONS
        ]
        axes.plot(EPSILONS, sizes, color=colour, marker=mark, markersize=4, label=option.method)
    axes.axhline(advice.plain, color="black", linewidth=1, label="without privacy")
    axes.axvline(advice.epsilon, color="0.6", linestyle="--", linewidth=1)
    axes.set(
        xscale="log",
        xticks=EPSILONS[::2],
        xticklabels=[f"{epsilon:g}" for epsilon in EPSILONS[::2]],
        xlabel="epsilon of a record",
        ylabel="expected labels in a set",
        ylim=(0, None),
        title=f"{asked.records:,} records, coverage {1 - asked.alpha:g}, {advice.data}",
    )
    axes.minorticks_off()
    axes.legend()
    drawn = io.BytesIO()
    figure.savefig(drawn, format=file.suffix[1:], metadata=_undated(file.suffix))
    plt.close(figure)
    write_whole(file, drawn.getvalue())


def _undated(suffix: str) -> dict[str, Any]:
    """What keeps the date out of a file, so that the same advice draws the same bytes."""
    return {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix, {})
