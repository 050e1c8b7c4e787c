"""Small multiples of an experiment: a page a population, a row a measure, a column a size."""

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confide.simulation.experiments.summary import CellSummary, Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours that readers with any colour vision can tell apart (Okabe and Ito 2008); lines also differ
# in marks and dashes, for print without colours.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKS, DASHES = "osD^vPX", ("-", "--", "-.", ":")
Measure = Callable[[CellSummary], Interval | float | None]
MEASURES: dict[str, Measure] = {
    "coverage": lambda one: one.coverage,
    "mean set size": lambda one: one.size,
    "certified level": lambda one: one.level,
    "exact epsilon": lambda one: one.epsilon,
    "share of trivial": lambda one: one.trivial,
}


def figures(cells: list[CellSummary]) -> dict[str, "Figure"]:
    """A figure for every population."""
    names = dict.fromkeys(one.row["population"] for one in cells)
    return {
        name: _figure([one for one in cells if one.row["population"] == name]) for name in names
    }


def _figure(cells: list[CellSummary]) -> "Figure":
    # Drawn without pyplot, which would keep every figure in memory and look for a screen.
    from matplotlib.figure import Figure

    budgets = sorted({one.row["epsilon"] for one in cells if one.row["epsilon"] is not None})
    sizes = sorted({one.row["n"] for one in cells})
    by_size = len(budgets) < 2 and len(sizes) > 1
    columns: list[Any] = [None] if by_size else sizes
    width, height = 1.6 + 2.7 * len(columns), 1.2 + 1.9 * len(MEASURES)
    figure = Figure(figsize=(max(width, 5.0), height), layout="constrained")
    grid = figure.subplots(len(MEASURES), len(columns), squeeze=False, sharex=True, sharey="row")
    lines = list(dict.fromkeys(one.line for one in cells))
    for column, n in enumerate(columns):
        here = [one for one in cells if n is None or one.row["n"] == n]
        for axes, (name, measure) in zip(grid[:, column], MEASURES.items(), strict=True):
            for number, line in enumerate(lines):
                own = [one for one in here if one.line == line]
                _line(axes, own, measure, style=(number, line, "n" if by_size else "epsilon"))
            if name == "coverage":
                axes.axhline(1 - cells[0].row["alpha"], color="black", linewidth=1)
            if column == 0:
                axes.set_ylabel(name)
            if len(budgets) > 1 or by_size:
                axes.set_xscale("log")
        if n is not None:
            grid[0, column].set_title(f"n = {n:,}")
        grid[-1, column].set_xlabel("n" if by_size else "epsilon asked for")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(3, len(labels)))
    trials = max(one.trials for one in cells)
    figure.suptitle(
        f"{cells[0].row['population']}: means of {trials} trials with 95 % confidence bands; "
        "line: promised",
        fontsize=10,
    )
    return figure


def _line(
    axes: "Axes", cells: list[CellSummary], measure: Measure, *, style: tuple[int, str, str]
) -> None:
    """Draw the cells of one line with a band; those without privacy lie across all budgets."""
    number, name, along = style
    colour = COLOURS[number % len(COLOURS)]
    look: dict[str, Any] = {"color": colour, "linestyle": DASHES[number % len(DASHES)]}
    found = [(one.row[along], measure(one)) for one in cells]
    for place, value in found:
        if place is None and value is not None:
            middle = value.middle if isinstance(value, Interval) else value
            axes.axhline(middle, label=name, **look)
    points = [(place, value) for place, value in found if None not in (place, value)]
    if not points:
        return
    points.sort(key=lambda pair: pair[0])
    places = [place for place, _ in points]
    bands = [
        v if isinstance(v, Interval) else Interval(v, v, v) for _, v in points if v is not None
    ]
    axes.plot(
        places,
        [band.middle for band in bands],
        marker=MARKS[number % len(MARKS)],
        markersize=4,
        label=name,
        **look,
    )
    axes.fill_between(
        places,
        [band.low for band in bands],
        [band.high for band in bands],
        color=colour,
        alpha=0.2,
        linewidth=0,
    )


def rendered(figure: "Figure", kind: str) -> bytes:
    """The figure in a format, without the time of drawing: the same figure is the same bytes."""
    import matplotlib

    buffer = io.BytesIO()
    date = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    with matplotlib.rc_context({"svg.hashsalt": "confide"}):
        figure.savefig(buffer, format=kind, dpi=150, metadata=date)
    return buffer.getvalue()
