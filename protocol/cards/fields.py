"""Fields of a card as rows of text, under names that readers of another field know."""

from typing import Any

from confide.protocol.cards.card import Layer
from confide.protocol.cards.words.plain_names import heading_of, in_text

Rows = list[tuple[str, str]]


def as_rows(layer: Layer, *, but: str | None = None) -> Rows:
    """Return the fields of a layer under plain names, except one."""
    return [(heading_of(name), as_text(value)) for name, value in layer.items() if name != but]


def as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return (
            ", ".join(f"{in_text(name)} {as_text(inner)}" for name, inner in value.items()) or "-"
        )
    if isinstance(value, list):
        return "; ".join(as_text(inner) for inner in value) or "none"
    return str(value)


def part_heading(strata: Layer) -> str:
    own = f"what its own reports certify, of every {strata['by']}"
    return own.capitalize() if "together" in strata else f"Threshold of every {strata['by']}"


def part_rows(strata: Layer) -> Rows:
    """A row for every part of the records: its threshold, or why it has none below 1."""
    return [
        (
            f"{strata['by']} {part['name']}",
            f"{part['threshold']:.6f}{_of_records(part)}"
            + (f" ({part['reason']})" if part["reason"] else ""),
        )
        for part in strata["parts"]
    ]


def _of_records(part: Layer) -> str:
    """The records or reports that a part has, where their number is public."""
    if part["n"] is None:
        return ""
    return f" from {part['n']:,} {'records' if 'bin' in part else 'reports'}"


def numbered(name: str, entries: list[Layer]) -> Rows:
    """A row for every entry, under its number from 1."""
    return [(f"{name} {i + 1}", as_text(one)) for i, one in enumerate(entries)]
