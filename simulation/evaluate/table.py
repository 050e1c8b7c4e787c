"""The results of evaluations as a table on the terminal, one row a result."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from confide.protocol.certificate import BY_CLASS
from confide.protocol.commands.terminal import columns

LEGEND = (
    "promised: guaranteed coverage (PAC: but for the failure probability, over\n"
    "calibration; band: so at many levels; marginal: on average). trivial: campaigns\n"
    "that could certify no threshold and so predict every label. Smaller is better."
)
INTERVAL_LEGEND = (
    "promised: guaranteed coverage (PAC: but for the failure probability, over\n"
    "calibration; band: so at many levels; marginal: on average). trivial: campaigns\n"
    "that could certify no threshold: the whole line. Widths: the target's unit."
)
SIZE, WIDTH = "mean set size", "mean width"
COLUMNS: dict[str, Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], str]] = {
    "method": lambda given, mean, std: (
        "non-private" if given["channel"] is None else f"{given['method']} {given['variant']}"
    ),
    "channel": lambda given, mean, std: given["channel"] or "-",
    "exact epsilon": lambda given, mean, std: (
        "-" if given["exact_epsilon"] is None else f"{given['exact_epsilon']:.4f}"
    ),
    "promised": lambda given, mean, std: (
        str(given["certificate"])
        if mean["certified_level"] is None
        else f"{mean['certified_level']:.3f} {given['kind']}"
    ),
    "test coverage": lambda given, mean, std: f"{mean['coverage']:.3f} ± {std['coverage']:.3f}",
    SIZE: lambda given, mean, std: (
        "unbounded"
        if mean["mean_size"] is None
        else f"{mean['mean_size']:.2f} ± {std['mean_size']:.2f}"
    ),
    "trivial": lambda given, mean, std: f"{100 * mean['trivial']:.0f} %",
}
# Columns of words, which may take two lines; numbers are never cut.
WORDS = ("method", "channel", "promised")
# The most rows of the table of owners or labels.
MOST_PARTS = 30
# Columns that a narrow terminal leaves out first.
LEAVE_OUT = ("channel", "exact epsilon")


def show(results: list[dict[str, Any]]) -> None:
    """Print one row a result; a narrow terminal leaves columns out, which JSON has."""
    width = columns()
    of_numbers = not results[0]["arguments"]["labels"]
    shown = {
        name: [
            WIDTH if name == SIZE and of_numbers else name,
            *(cell(result["arguments"], result["mean"], result["std"]) for result in results),
        ]
        for name, cell in COLUMNS.items()
    }
    out = []
    for name in LEAVE_OUT:
        if (
            width is not None
            and sum(max(map(len, column)) + 3 for column in shown.values()) + 1 > width
        ):
            del shown[name]
            out.append(name)
    made = Table(title=_title(results[0]["arguments"]), title_justify="left", box=box.SIMPLE_HEAD)
    for name in shown:
        made.add_column(
            shown[name][0],
            justify="left" if name in WORDS else "right",
            no_wrap=name not in WORDS,
            overflow="fold",
        )
    for row in zip(*(column[1:] for column in shown.values()), strict=True):
        made.add_row(*row)
    console = Console(width=width or 140)
    console.print(made)
    if out:
        console.print(f"left out at {width} columns: {', '.join(out)}", highlight=False)
    for result in results:
        if (parts := _parts(result)) is not None:
            console.print(parts)
        lines = _why_trivial(result) + _why_parts(result) + _least_class(result)
        lines += _conditional(result["arguments"])
        for line in lines:
            console.print(line, highlight=False)


def _why_trivial(result: dict[str, Any]) -> list[str]:
    """The most frequent reason why trials could certify no threshold."""
    reasons = Counter(trial["reason"] for trial in result["trials"] if trial.get("reason"))
    if not reasons:
        return []
    name = COLUMNS["method"](result["arguments"], result["mean"], result["std"])
    count = f"{reasons.total()} of {len(result['trials'])} campaigns"
    return [f"{name}: trivial in {count}; {reasons.most_common(1)[0][0]}"]


def _parts(result: dict[str, Any]) -> Table | None:
    """Every owner, group or label that is known, over the trials; None if none is."""
    means = _by_part(result)
    if not means:
        return None
    of_labels = next(iter(means.values()))[0]["size"] is None
    ordered = sorted(means, key=lambda name: np.mean([one["coverage"] for one in means[name]]))
    grouped = result["arguments"]["settings"].get("group_column")
    what = "label" if of_labels else "group" if grouped else "owner"
    title = f"{COLUMNS['method'](result['arguments'], result['mean'], result['std'])}: each {what}"
    if len(ordered) > MOST_PARTS:
        title += f", the {MOST_PARTS} of {len(ordered)} that are covered least"
    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in (what, "test records", "threshold", "coverage", "size", "trivial"):
        if heading != "size" or not of_labels:
            made.add_column(heading, justify="left" if heading == what else "right")
    for name in ordered[:MOST_PARTS]:
        records, threshold, coverage = (
            np.array([one[key] for one in means[name]])
            for key in ("records", "threshold", "coverage")
        )
        sizes = [] if of_labels else [f"{np.mean([one['size'] for one in means[name]]):.2f}"]
        cells = [f"{records.mean():.0f}", f"{threshold.mean():.4f}"]
        cells += [f"{coverage.mean():.3f} ± {coverage.std():.3f}", *sizes]
        made.add_row(name, *cells, f"{100 * np.mean(threshold >= 1):.0f} %")
    return made


def _by_part(result: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """What trials measured of every owner or label."""
    found: dict[str, list[dict[str, Any]]] = {}
    for trial in result["trials"]:
        for one in trial.get("parts", ()):
            found.setdefault(one["name"], []).append(one)
    return found


def _why_parts(result: dict[str, Any]) -> list[str]:
    """The most frequent reason why nothing was certified of an owner, group or label."""
    lines = []
    for name, rows in _by_part(result).items():
        reasons = Counter(one["reason"] for one in rows if one["reason"])
        if reasons:
            count = f"{reasons.total()} of {len(rows)} campaigns"
            lines.append(f"{name}: certified nothing in {count}; {reasons.most_common(1)[0][0]}")
    more = len(lines) - MOST_PARTS
    return lines[:MOST_PARTS] + ([f"and {more} more"] if more > 0 else [])


def _least_class(result: dict[str, Any]) -> list[str]:
    """The coverage of the label that is covered least, where the promise is for every label."""
    trials = result["trials"]
    if trials[0].get("certificate", {}).get("by") != BY_CLASS:
        return []
    found = [trial["least_class_coverage"] for trial in trials]
    name = COLUMNS["method"](result["arguments"], result["mean"], result["std"])
    return [
        f"{name}: coverage of the label that is covered least {np.mean(found):.3f} ± "
        f"{np.std(found):.3f}, on its test records"
    ]


def _conditional(given: dict[str, Any]) -> list[str]:
    """Bounds that hold under assumptions nobody can check, each with what it assumes."""
    lines = []
    for bound in given.get("conditional", ()):
        upper = "" if bound["upper"] is None else f" and at most {bound['upper']:.3f}"
        failure = "" if bound["failure"] is None else f", except in {bound['failure']:g} of cases"
        lines.append(
            f"conditional ({bound['source']}): coverage at least {bound['lower']:.3f}{upper}"
            f"{failure}, if {bound['assumes']}"
        )
    if given.get("stability_bound") is not None:
        source = "Theorem 4 and 3" if given["expected_distance"] else "Theorem 3"
        lines.append(
            f"conditional (SCP {source}): coverage at least {given['stability_bound']:.3f}, if the "
            "constants given are true"
        )
    return lines


def _title(given: dict[str, Any]) -> str:
    what = (
        f"residuals up to {given['bound']:g}"
        if given.get("bound")
        else f"{given['labels']} labels, score {given['score']}"
        if given["labels"]
        else f"score {given['score']}"
    )
    named = ("failure_probability", "beta", "privacy_delta")
    deltas = [f"{name.replace('_', ' ')} = {given[name]:g}" for name in named if given.get(name)]
    numbers = [f"n = {given['n']}", f"alpha = {given['alpha']}", *deltas]
    return (
        f"{given['data']}, {what}: {', '.join(numbers)}, {given['trials']} trials, randomness: "
        f"{given['randomness']}"
    )
