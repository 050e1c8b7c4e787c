"""The results of evaluations as a table on the terminal, one row a result."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from confide.protocol.certificate import BY_GROUP
from confide.protocol.commands.terminal import columns

LEGEND = (
    "promised: guaranteed coverage (PAC: but for the failure probability, over\n"
    "calibration; marginal: on average). trivial: campaigns that could certify no\n"
    "threshold and so predict every label. Smaller sets are better."
)
INTERVAL_LEGEND = (
    "promised: guaranteed coverage (PAC: but for the failure probability, over\n"
    "calibration; marginal: on average). trivial: campaigns that could certify no\n"
    "threshold and so predict the whole line. Widths are in the target's unit."
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
# A longer list of classes or groups is cut.
MOST_PARTS = 60
# Columns of words, which may take two lines; numbers are never cut.
WORDS = ("method", "channel", "promised")
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
        for line in _why_trivial(result) + _conditional(result["arguments"]):
            console.print(line, highlight=False)
        if any("parts" in trial for trial in result["trials"]):
            console.print(_of_parts(result), highlight=False)


def _why_trivial(result: dict[str, Any]) -> list[str]:
    """The most frequent reason why trials could certify no threshold."""
    reasons = Counter(trial["reason"] for trial in result["trials"] if trial.get("reason"))
    if not reasons:
        return []
    name = COLUMNS["method"](result["arguments"], result["mean"], result["std"])
    count = f"{reasons.total()} of {len(result['trials'])} campaigns"
    return [f"{name}: trivial in {count}; {reasons.most_common(1)[0][0]}"]


def _of_parts(result: dict[str, Any]) -> Table:
    """A row for every class or group, over the trials in which test records were of it."""
    by = result["trials"][0]["certificate"].get("by") or BY_GROUP
    found: dict[str, list[dict[str, Any]]] = {}
    for trial in result["trials"]:
        for part in trial.get("parts", ()):
            found.setdefault(part["name"], []).append(part)
    name = COLUMNS["method"](result["arguments"], result["mean"], result["std"])
    made = Table(title=f"{name}, by {by}", title_justify="left", box=box.SIMPLE_HEAD)
    for head in (by, "test records", "threshold", "test coverage", SIZE, "trivial"):
        made.add_column(head, justify="left" if head == by else "right", no_wrap=True)
    for part, rows in list(found.items())[:MOST_PARTS]:
        own = [row["threshold"] for row in rows if "threshold" in row]
        covered = [row["coverage"] for row in rows]
        made.add_row(
            part,
            f"{np.mean([row['records'] for row in rows]):,.0f}",
            f"{np.mean(own):.4f}" if own else "-",
            f"{np.mean(covered):.3f} ± {np.std(covered):.3f}",
            f"{np.mean([row['size'] for row in rows]):.2f}",
            f"{100 * np.mean(np.array(own) >= 1):.0f} %" if own else "-",
        )
    if len(found) > MOST_PARTS:
        made.caption = f"{MOST_PARTS} of {len(found)}; all are in the JSON"
    return made


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
