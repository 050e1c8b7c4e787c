"""A track, the kind of a card: everything that readers are shown of it and other kinds are not."""

from collections.abc import Callable
from dataclasses import dataclass

from confide.protocol.cards.card import Layer
from confide.protocol.cards.fields import Rows

REPORTS, RECORDS = "reports", "records"
Sections = list[tuple[str, Rows]]


@dataclass(frozen=True)
class Track:
    """How the cards of a track are shown; all but the first two fields read the formal layer.

    `counted` is what owners contribute: reports, or records. `sections` are the tables that only
    this track has. `picture` draws how the threshold was found, also from the diagnostic layer.
    `spent` are epsilon and delta of a record, `level` the guaranteed coverage; both are None where
    there is none. The others describe a deployment: whether noise is added by owners, the
    mechanism, and how losses add up.
    """

    name: str
    counted: str
    sections: Callable[[Layer], Sections]
    picture: Callable[[Layer, Layer], str]
    spent: Callable[[Layer], tuple[float | None, float]]
    level: Callable[[Layer], float | None]
    noised_by_owners: Callable[[Layer], bool]
    mechanism: Callable[[Layer], str]
    composition: Callable[[Layer], str]


def spent_in_all(formal: Layer) -> tuple[float | None, float]:
    """Return the epsilon and delta of a card that adds up what a record paid."""
    total = formal["total"]
    return (None, 0.0) if total is None else (total["epsilon"], total["delta"])


def composed(formal: Layer) -> str:
    """Return how the losses of such a card add up."""
    return str(formal["total"]["composition"])
