"""What differs between two results: in the experiment, in trials, and in what they measured."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from confide.simulation.evaluate.repeated import Row
from confide.simulation.experiments.reports.summary import mean_interval, text
from confide.simulation.experiments.results import Results

# What names a cell to a reader; two results may hold the same cells under other numbers, and from
# elsewhere: what differs in settings is told before.
PLACE = ("population", "n", "method", "score", "epsilon", "alpha", "failure_probability")
# What only says who ran it, where, and by which seeds.
OF_RUNS = ("experiment", "cell", "cell_name", "version", "commit", "where", "split_seed", "seed")
COMPARED = ("coverage", "mean_size", "certified_level", "exact_epsilon")


class Difference(NamedTuple):
    """Whether results are the same, and what to print about it."""

    same: bool
    lines: list[str]


def compared(first: Results, second: Results) -> Difference:
    """Compare two results trial by trial; trials with the same seeds are compared in pairs."""
    lines = list(_settings(first.about["experiment"], second.about["experiment"]))
    lines += _runs(first, second)
    one, other = _by_cell(first.rows), _by_cell(second.rows)
    lines += [f"only in A: {_named(place)}" for place in one if place not in other]
    lines += [f"only in B: {_named(place)}" for place in other if place not in one]
    same = not lines
    equal = 0
    for place in (place for place in one if place in other):
        found = _cell(one[place], other[place])
        equal += not found
        lines += [f"{_named(place)}: {line}" for line in found]
        same = same and not found
    lines.append(f"{equal} of {len(one.keys() | other.keys())} cells have the same trials")
    return Difference(same, lines)


def _settings(one: Any, other: Any, name: str = "") -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            yield from _settings(one.get(key), other.get(key), f"{name}.{key}".lstrip("."))
    elif one != other:
        yield f"setting {name}: {one!r} in A, {other!r} in B"


def _runs(first: Results, second: Results) -> list[str]:
    found = []
    for name in ("version", "commit"):
        one, other = ({str(row[name]) for row in of.rows} for of in (first, second))
        if one != other:
            found.append(f"{name}: {', '.join(sorted(one))} in A, {', '.join(sorted(other))} in B")
    return found


def _by_cell(rows: list[Row]) -> dict[tuple[Any, ...], dict[int, Row]]:
    found: dict[tuple[Any, ...], dict[int, Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in PLACE), {})[row["trial"]] = row
    return found


def _named(place: tuple[Any, ...]) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(PLACE, place, strict=True))


def _cell(one: dict[int, Row], other: dict[int, Row]) -> list[str]:
    common = sorted({*one} & {*other})
    differing = [trial for trial in common if _measured(one[trial]) != _measured(other[trial])]
    lines = []
    if len(one) != len(common) or len(other) != len(common):
        lines.append(f"{len(one)} trials in A, {len(other)} in B")
    if differing:
        lines.append(f"{len(differing)} of {len(common)} trials differ")
        for name in COMPARED:
            gaps = [
                float(other[trial][name]) - float(one[trial][name])
                for trial in common
                if None not in (one[trial][name], other[trial][name])
            ]
            if any(gaps):
                lines.append(f"{name} B - A: {text(mean_interval(gaps, least=-math.inf), 4)}")
    return lines


def _measured(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in OF_RUNS}
