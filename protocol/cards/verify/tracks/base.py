"""The rules by which the cards of a track are verified, and their registry."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from confide.protocol.cards.card import Card, Layer
from confide.protocol.cards.verify.findings import Finding
from confide.protocol.errors import BadInput
from confide.protocol.plan import Plan

# Where the findings about contributors are placed.
CONTRIBUTORS = "provenance/contributors"


def nothing(_: Card, __: Plan) -> Iterator[Finding]:
    """Check nothing: the plan says no more of these cards than the fields that it fixes."""
    yield from ()


@dataclass(frozen=True)
class TrackRules:
    """How the cards of a track are verified, and compared with their plans.

    `decide` recomputes the clauses of a formal layer. `stated` are the fields that a plan fixes, by
    part of the layer, and `compared` checks what else a plan decides. `unit` is what owners
    contribute, `counted` compares the contributors with the numbers of the card, and `by_round`
    what each round received, if cards may say so. `without_plan` tells whether a card that released
    a threshold may have no plan.
    """

    unit: str
    decide: Callable[[Layer], Iterator[Finding]]
    stated: Callable[[Plan], dict[str, Layer]]
    counted: Callable[[Layer, Layer], Iterator[Finding]]
    compared: Callable[[Card, Plan], Iterator[Finding]] = nothing
    by_round: Callable[[Layer, Layer, Plan], Iterator[Finding]] | None = None
    without_plan: bool = False


TRACK_RULES: dict[str, TrackRules] = {}


def register(track: str, rules: TrackRules) -> None:
    """Register the rules by which cards of a track are verified."""
    if TRACK_RULES.setdefault(track, rules) is not rules:
        raise BadInput(f"track {track!r} has rules already; accepted is another name")
