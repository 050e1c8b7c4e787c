"""Fields of cards as rows of text, under names that readers of another field know."""

from typing import Any

from confide.protocol.cards.card import Layer

Rows = list[tuple[str, str]]

# Names of fields that a reader of another field would not know.
PLAIN = {
    "alpha": "share not covered (alpha)",
    "beta": "part of alpha left to the mechanism (beta)",
    "kind": "kind of guarantee",
    "level": "guaranteed coverage",
    "minimum_reports": "fewest reports that are enough",
    "minimum_owners": "fewest owners that are enough",
    "max_corrupt": "false reports withstood",
    "planned": "records planned for",
    "slack": "slack of the published method",
    "crowd_epsilon": "epsilon in the plan's crowd",
    "unit": "whose privacy",
    "model": "SHA-256 of the model",
    "plan": "SHA-256 of the plan",
    "received": "answers received",
    "bins": "thresholds to choose from",
    "reach": "threshold in the target's unit",
    "mean_width": "mean width of intervals",
    "grid": "how the thresholds are spread",
    "coverage_at_most": "most that is covered, but for the scores in one bin",
    "gamma": "share of scores aimed at (gamma)",
}


def as_rows(layer: Layer, *, but: str | None = None) -> Rows:
    """Return the fields of a layer under plain names, except one."""
    return [(PLAIN.get(name, name), as_text(value)) for name, value in layer.items() if name != but]


def as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {as_text(inner)}" for name, inner in value.items()) or "-"
    if isinstance(value, list):
        return "; ".join(as_text(inner) for inner in value) or "none"
    return str(value)
