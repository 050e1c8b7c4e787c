"""Tables as Markdown, and rows in groups: for all benchmarks that print tables of the documents."""

from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]


def table(headings: list[str], lines: Iterable[list[str]], *, words: int = 0) -> str:
    """A Markdown table; columns are aligned right, except the one with number `words`."""
    rule = ["---" if i == words else "---:" for i in range(len(headings))]
    drawn = [f"| {' | '.join(cells)} |" for cells in (headings, *lines)]
    return "\n".join([drawn[0], f"|{'|'.join(rule)}|", *drawn[1:]])


def grouped(rows: list[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by the values of these columns, in the order in which they come."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found
