"""Pictures of calibrations and predictions, with matplotlib, which is loaded when one is drawn.

Every function draws into the axes that it is given, or makes a figure, and returns what it drew
into.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from confide.metrics import class_coverage, coverage, group_coverage, mean_size
from confide.protocol.errors import BadInput
from confide.protocol.tensors import as_array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from confide.simulation.arrays.calibrate import Calibration
    from confide.simulation.arrays.evaluate import Evaluation

__all__ = [
    "against_epsilon",
    "band",
    "by_class",
    "by_group",
    "by_owner",
    "intervals",
    "set_sizes",
    "trail",
]


def set_sizes(sets: Any, labels: Any = None, *, axes: "Axes | None" = None) -> "Axes":
    """Draw how many records have a set of each size; with labels, also those that are covered."""
    drawn, found = _axes(axes), as_array(sets)
    sizes = found.sum(axis=1)
    places = np.arange(found.shape[1] + 1)
    drawn.bar(places, np.bincount(sizes, minlength=len(places)), color="tab:orange", label="all")
    title = f"mean size {mean_size(found):.2f}"
    if labels is not None:
        covered = found[np.arange(len(found)), as_array(labels)]
        hits = np.bincount(sizes[covered], minlength=len(places))
        drawn.bar(places, hits, color="tab:blue", label="covered")
        drawn.legend()
        title += f", coverage {coverage(found, labels):.3f}"
    drawn.set(xlabel="labels in the set", ylabel="records", title=title)
    return drawn


def by_class(sets: Any, labels: Any, *, alpha: float, axes: "Axes | None" = None) -> "Axes":
    """Draw the coverage of every class, with a line at 1 - alpha."""
    found = class_coverage(sets, labels)
    return _bars({str(i): value for i, value in enumerate(found)}, "class", alpha=alpha, axes=axes)


def band(calibration: "Calibration", *, axes: "Axes | None" = None) -> "Axes":
    """Draw the coverage that a band certifies at every threshold, a rising step."""
    levels = sorted((q, covered) for covered, q in calibration.certificate.band)
    if not levels:
        raise BadInput("the calibration has no band; accepted is one with guarantee band")
    drawn = _axes(axes)
    thresholds, coverages = zip(*levels, strict=True)
    drawn.step(thresholds, np.maximum.accumulate(coverages), where="post", marker="o")
    drawn.axvline(calibration.threshold, color="tab:red", linestyle=":")
    drawn.set(xlabel="threshold", ylabel="certified coverage", title="band")
    return drawn


def by_owner(
    predicted: Any, truth: Any, owners: Any, *, alpha: float, axes: "Axes | None" = None
) -> "Axes":
    """Draw the coverage of the records of every owner, with a line at 1 - alpha."""
    found = group_coverage(predicted, truth, owners)
    return _bars(found, "owner", alpha=alpha, axes=axes)


def by_group(
    predicted: Any, truth: Any, groups: Any, *, alpha: float, axes: "Axes | None" = None
) -> "Axes":
    """Draw the coverage of the records of every group, with a line at 1 - alpha."""
    found = group_coverage(predicted, truth, groups)
    return _bars(found, "group", alpha=alpha, axes=axes)


def intervals(
    predicted: Any, truth: Any = None, *, axes: "Axes | None" = None, most: int = 100
) -> "Axes":
    """Draw the first `most` intervals, in the order of their middles, and the truth in them."""
    drawn, found = _axes(axes), as_array(predicted)[:most].astype(np.float64)
    if not np.isfinite(found).all():
        raise BadInput("intervals are the whole line; accepted are those of a threshold below 1")
    order = np.argsort(found.mean(axis=1))
    places, (low, high) = np.arange(len(order)), found[order].T
    drawn.vlines(places, low, high, color="tab:orange", label="interval")
    if truth is not None:
        observed = as_array(truth)[:most][order]
        inside = (low <= observed) & (observed <= high)
        drawn.plot(places[inside], observed[inside], ".", color="tab:blue", label="covered")
        drawn.plot(places[~inside], observed[~inside], "x", color="tab:red", label="missed")
        drawn.legend()
    drawn.set(xlabel="record", ylabel="predicted and observed")
    return drawn


def against_epsilon(evaluations: "Sequence[Evaluation]") -> "tuple[Axes, Axes]":
    """Draw coverage and size against epsilon, a line a method; returns both axes.

    Evaluations are those of `confide.compare`; one without privacy is a dashed line.
    """
    if not evaluations:
        raise BadInput("no evaluations are given; accepted are those of confide.compare")
    plt = _pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for method in dict.fromkeys(one.method for one in evaluations):
        rows = [one for one in evaluations if one.method == method]
        budgets = [one.epsilon for one in rows if one.epsilon is not None]
        for axes, values in ((left, [r.coverage for r in rows]), (right, [r.size for r in rows])):
            if budgets:
                axes.plot(budgets, values, "o-", label=method)
            else:
                axes.axhline(values[0], linestyle="--", color="grey", label=method)
    left.axhline(1 - evaluations[0].alpha, color="black", linewidth=1)
    left.set(xlabel="epsilon", ylabel="coverage (line: promised)", xscale="log")
    right.set(xlabel="epsilon", ylabel="mean size", xscale="log")
    right.legend()
    figure.suptitle(f"score {evaluations[0].score}, n = {evaluations[0].n:,}")
    return left, right


def trail(calibration: "Calibration", *, axes: "Axes | None" = None) -> "Axes":
    """Draw the thresholds that a search tried, stage by stage, and the one it certified.

    Where classes, owners or groups are tested one by one, each has its line, and the threshold is
    the largest.
    """
    certificate = calibration.certificate
    tested = (getattr(one, "rungs", ()) for one in (certificate, *certificate.strata))
    searches = [rungs for rungs in tested if rungs]
    if not searches:
        raise BadInput(
            f"{certificate.method} {certificate.variant} tried no thresholds one by one; accepted "
            "are calibrations by bits, labels or pairs that tested one"
        )
    drawn = _axes(axes)
    for rungs in searches:
        tried = [rung.threshold for rung in rungs]
        drawn.plot(range(1, len(tried) + 1), tried, "-", color="lightgrey", zorder=1)
    rows = [(i, rung.threshold, rung.passed) for one in searches for i, rung in enumerate(one, 1)]
    stages, thresholds, passed = (np.array(column) for column in zip(*rows, strict=True))
    for flags, mark, colour, name in (
        (passed, "o", "tab:blue", "certified"),
        (~passed, "x", "tab:red", "not certified"),
    ):
        if flags.any():
            drawn.plot(stages[flags], thresholds[flags], mark, color=colour, label=name)
    drawn.axhline(certificate.threshold, color="black", linewidth=1, label="threshold")
    drawn.set(xlabel="stage", ylabel="threshold tried")
    drawn.legend()
    return drawn


def _bars(shares: dict[Any, float], what: str, *, alpha: float, axes: "Axes | None") -> "Axes":
    drawn = _axes(axes)
    drawn.bar([str(name) for name in shares], list(shares.values()), color="tab:blue")
    drawn.axhline(1 - alpha, color="black", linewidth=1)
    low = np.nanmin(list(shares.values()))
    drawn.set(xlabel=what, ylabel="coverage (line: promised)")
    drawn.set_ylim(max(0.0, min(float(low), 1 - 2 * alpha) - 0.02), 1.0)
    return drawn


def _axes(given: "Axes | None") -> "Axes":
    if given is not None:
        return given
    return _pyplot().subplots(figsize=(6, 3.6), layout="constrained")[1]


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise BadInput(
            "the package matplotlib is not installed; accepted: pip install 'confide[plots]'"
        ) from None
    return pyplot
