"""What changed between two cards, field by field."""

from typing import Any

from confide.protocol.cards.card import Card


def differences(first: Card, second: Card) -> list[str]:
    """One line for each field that differs, with the direction of numbers.

    A change is called stronger or weaker where its direction has that meaning.
    """
    before, after = _flat(first.content()), _flat(second.content())
    lines = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old != new:
            lines.append(f"{name}: {_word(old)} -> {_word(new)}{_direction(name, old, new)}")
    return lines


_BETTER_UP = ("coverage", "level", "margin", "minimum_reports")
_BETTER_DOWN = ("epsilon", "delta", "beta", "inflation", "width", "mean_size", "threshold")


def _direction(name: str, old: Any, new: Any) -> str:
    if (
        isinstance(old, bool)
        or isinstance(new, bool)
        or not (isinstance(old, int | float) and isinstance(new, int | float))
    ):
        return ""
    last = name.rsplit("/", 1)[-1]
    up = any(last.startswith(word) for word in _BETTER_UP)
    down = any(last.startswith(word) for word in _BETTER_DOWN)
    meaning = "" if not (up or down) else ", stronger" if (new > old) == up else ", weaker"
    return f" ({'up' if new > old else 'down'} by {abs(new - old):.6g}{meaning})"


def _flat(value: Any, place: str = "") -> dict[str, Any]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else None
    )
    if inner is None:
        return {place: value}
    found: dict[str, Any] = {}
    for name, part in inner:
        found |= _flat(part, f"{place}/{name}" if place else str(name))
    return found


def _word(value: Any) -> str:
    return "absent" if value is None else str(value)
