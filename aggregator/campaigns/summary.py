"""Shows campaigns as a table of text.

In a simulation the table also has measurements, next to calibration without privacy.
"""

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]

MEAN_SIZE = "mean set size"
COLUMNS: dict[str, Callable[[Row], str]] = {
    "campaign": lambda row: str(row["campaign"]),
    "channel": lambda row: row["channel"] or "-",
    "exact epsilon": lambda row: "-" if row["epsilon"] is None else f"{row['epsilon']:.4f}",
    "reports": lambda row: f"{row['n']:,}",
    "threshold": lambda row: f"{row['threshold']:.6f}",
    "promised": lambda row: f"{row['level']:.3f} {row['kind']}",
    "test coverage": lambda row: f"{row['coverage']:.4f}" if "coverage" in row else "-",
    MEAN_SIZE: lambda row: _size(row) if "coverage" in row else "-",
    "trivial": lambda row: "yes" if _least(row) >= 1 else "no",
}


def _least(row: Row) -> float:
    """The threshold; where each part has its own, the smallest of these."""
    parts = [] if row.get("together") else row.get("strata", ())
    return min([one["threshold"] for one in parts] or [row["threshold"]])


def _size(row: Row) -> str:
    """Return the mean size of sets; of intervals, the mean width in the target's unit."""
    if "mean_size" in row:
        return f"{row['mean_size']:.2f}"
    return "unbounded" if row["mean_width"] is None else f"{row['mean_width']:.4g}"


# The columns that a narrow terminal leaves out first: how a result was obtained, not the result.
LEAVE_OUT = ("channel", "exact epsilon", "reports", "threshold")


def heads(rows: list[Row]) -> list[str]:
    """The names of the columns; the size of intervals is a width, in the target's unit."""
    width = any("mean_width" in row for row in rows)
    return ["mean width" if width and name == MEAN_SIZE else name for name in COLUMNS]


def cells(row: Row) -> list[str]:
    """The cells of a campaign as text, one for each column."""
    return [show(row) for show in COLUMNS.values()]


def notes(rows: list[Row]) -> list[str]:
    """The reasons of the campaigns that ended with the trivial threshold."""
    return [f"{row['campaign']} is trivial: {row['reason']}" for row in rows if row["reason"]]


def as_text(rows: list[Row], *, width: int | None = None) -> str:
    """A table of campaigns with aligned columns, and the notes below it.

    Columns are left out so that lines have at most `width` characters, if possible.
    """
    shown = {
        name: [head, *(show(row) for row in rows)]
        for head, (name, show) in zip(heads(rows), COLUMNS.items(), strict=True)
    }
    out = []
    for name in LEAVE_OUT:
        if (
            width is not None
            and sum(max(map(len, column)) + 2 for column in shown.values()) - 2 > width
        ):
            del shown[name]
            out.append(name)
    padded = [[cell.ljust(max(map(len, column))) for cell in column] for column in shown.values()]
    head, *body = ["  ".join(line).rstrip() for line in zip(*padded, strict=True)]
    left_out = [f"left out at {width} columns: {', '.join(out)}"] if out else []
    return "\n".join(
        [head, "-" * len("  ".join(column[0] for column in padded)), *body, *notes(rows), *left_out]
    )


def owner_cells(rows: list[Row]) -> list[list[str]]:
    """The lines of a table of owners, with its head: records, and the findings of each campaign.

    Coverage and mean size are those of the owner's test records at the published threshold.
    """
    lines = [["owner", "records", "test", *(str(row["campaign"]) for row in rows)]]
    for place, one in enumerate(rows[0]["owners"] if rows else []):
        found = [_owner_cell(row["owners"][place]) for row in rows]
        lines.append([str(one["owner"]), f"{one['records']:,}", f"{one['test_records']:,}", *found])
    return lines


def owners_text(rows: list[Row], *, width: int | None = None, most: int | None = None) -> str:
    """The table of owners with aligned columns.

    Campaigns are left out from the left, so that lines have at most `width` characters, and owners
    after the first `most`.
    """
    lines, out = owner_cells(rows), []
    hidden = 0 if most is None else max(0, len(lines) - 1 - most)
    lines = lines[: len(lines) - hidden]
    while width is not None and len(lines[0]) > 4 and _breadth(lines) > width:
        out.append(lines[0][3])
        lines = [[*line[:3], *line[4:]] for line in lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = [
        "  ".join(cell.ljust(width_) for cell, width_ in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    notes_ = [f"and {hidden} more owners, in the report"] if hidden else []
    notes_ += [f"left out at {width} columns: {', '.join(out)}"] if out else []
    return "\n".join([shown[0], "-" * max(map(len, shown)), *shown[1:], *notes_])


def _owner_cell(one: Row) -> str:
    return f"{one['coverage']:.3f} / {_size(one)}" if "coverage" in one else "-"


def _breadth(lines: list[list[str]]) -> int:
    return sum(max(map(len, column)) + 2 for column in zip(*lines, strict=True)) - 2
