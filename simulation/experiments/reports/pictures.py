"""Small multiples of an experiment: a page a population, a row a measure, a column a size."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confide.simulation.experiments.reports.summary import CellSummary, Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours that readers with any colour vision can tell apart (Okabe and Ito 2008); lines also differ
# in marks and dashes, for print without colours.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKS, DASHES = "osD^vPX", ("-", "--", "-.", ":")
# The most inches that a letter of the legend takes, and the mark before a name with its margins.
LETTER, LEGEND_MARK = 0.075, 0.9
SHARE = "share of trivial"
Measure = Callable[[CellSummary], Interval | float | None]
MEASURES: dict[str, Measure] = {
    "coverage": lambda one: one.coverage,
    "mean set size": lambda one: one.size,
    "certified level": lambda one: one.level,
    "exact epsilon": lambda one: one.epsilon,
    "epsilon, with\na shuffler only": lambda one: one.shuffled,
    SHARE: lambda one: None if one.trivial is None else one.trivial.middle,
}


@dataclass(frozen=True)
class _Grid:
    """What the columns and the horizontal axis of a figure are."""

    lines: list[str]
    budgets: list[float]
    sizes: list[int]

    @property
    def by_size(self) -> bool:
        """Whether the horizontal axis is the size, because there is one budget at most."""
        return len(self.budgets) < 2 and len(self.sizes) > 1

    @property
    def columns(self) -> list[int | None]:
        return [None] if self.by_size else [*self.sizes]

    @property
    def along(self) -> str:
        return "n" if self.by_size else "epsilon"

    @property
    def places(self) -> Sequence[float]:
        return self.sizes if self.by_size else self.budgets


def figures(cells: list[CellSummary]) -> dict[str, "Figure"]:
    """A figure for every population."""
    names = dict.fromkeys(one.row["population"] for one in cells)
    return {
        name: _figure([one for one in cells if one.row["population"] == name]) for name in names
    }


def _figure(cells: list[CellSummary]) -> "Figure":
    # Drawn without pyplot, which would keep every figure in memory and look for a screen.
    from matplotlib.figure import Figure

    grid = _Grid(
        list(dict.fromkeys(one.line for one in cells)),
        sorted({one.row["epsilon"] for one in cells if one.row["epsilon"] is not None}),
        sorted({one.row["n"] for one in cells}),
    )
    measures = {
        name: measure
        for name, measure in MEASURES.items()
        if any(measure(one) is not None for one in cells)
    }
    width, height = 1.6 + 2.7 * len(grid.columns), 1.2 + 1.9 * len(measures)
    figure = Figure(figsize=(max(width, 5.0), height), layout="constrained")
    drawn = figure.subplots(
        len(measures), len(grid.columns), squeeze=False, sharex=True, sharey="row"
    )
    for column, n in enumerate(grid.columns):
        here = [one for one in cells if n is None or one.row["n"] == n]
        for axes, (name, measure) in zip(drawn[:, column], measures.items(), strict=True):
            _panel(axes, here, measure, grid=grid)
            if name == "coverage":
                axes.axhline(1 - cells[0].row["alpha"], color="black", linewidth=1)
            if name == SHARE:
                axes.set_ylim(-0.03, 1.03)
            if column == 0:
                axes.set_ylabel(name)
        if n is not None:
            drawn[0, column].set_title(f"n = {n:,}")
        drawn[-1, column].set_xlabel("n" if grid.by_size else "epsilon asked for")
    handles, labels = drawn[0, 0].get_legend_handles_labels()
    beside = max(1, int(figure.get_figwidth() / (LEGEND_MARK + LETTER * max(map(len, labels)))))
    figure.legend(handles, labels, loc="outside lower center", ncols=min(beside, len(labels)))
    trials = max(one.trials for one in cells)
    figure.suptitle(
        f"{cells[0].row['population']}: means of {trials} trials with 95 % confidence bands; "
        "line: promised",
        fontsize=10,
    )
    return figure


def _panel(axes: "Axes", cells: list[CellSummary], measure: Measure, *, grid: _Grid) -> None:
    """Draw a line for every method and score, with its band."""
    for number, name in enumerate(grid.lines):
        look: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)], "label": name}
        look["linestyle"] = DASHES[number % len(DASHES)]
        points = [
            (one.row[grid.along], _interval(value))
            for one in cells
            if one.line == name and (value := measure(one)) is not None
        ]
        for place, value in points:
            if place is None:
                # Without privacy: it lies across all budgets.
                axes.axhline(value.middle, **look)
        placed = sorted((point for point in points if point[0] is not None), key=lambda p: p[0])
        if placed:
            places = [place for place, _ in placed]
            mark = MARKS[number % len(MARKS)]
            axes.plot(places, [v.middle for _, v in placed], marker=mark, markersize=4, **look)
            low, high = ([getattr(v, end) for _, v in placed] for end in ("low", "high"))
            axes.fill_between(places, low, high, color=look["color"], alpha=0.2, linewidth=0)
    if len(grid.places) > 1:
        axes.set_xscale("log")
        axes.set_xticks(grid.places, [f"{place:g}" for place in grid.places])
        axes.minorticks_off()


def _interval(value: Interval | float) -> Interval:
    return value if isinstance(value, Interval) else Interval(value, value, value)


def rendered(figure: "Figure", kind: str) -> bytes:
    """The figure in a format, without the time of drawing: the same figure is the same bytes."""
    import matplotlib

    buffer = io.BytesIO()
    date = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    with matplotlib.rc_context({"svg.hashsalt": "confide"}):
        figure.savefig(buffer, format=kind, dpi=150, metadata=date)
    return buffer.getvalue()
