"""The drawing of a card."""

from confide.protocol.cards.card import Layer, strata_of
from confide.protocol.cards.scatter import figure, scatter
from confide.protocol.cards.tracks.registry import track_of


def card_picture(formal: Layer, diagnostic: Layer) -> str:
    """Draw the thresholds of parts, or what the card's track shows."""
    strata = strata_of(formal)
    if strata is not None:
        return _divided(formal, strata)
    return track_of(formal).picture(formal, diagnostic)


def _divided(formal: Layer, strata: Layer) -> str:
    each = enumerate(part["threshold"] for part in strata["parts"])
    return figure(
        scatter(
            [(float(i), q, q < 1) for i, q in each],
            line=formal["released"]["threshold"],
            x=f"{strata['by']}, in the order of the card",
            y="threshold",
        ),
        f"The threshold of each {strata['by']}; the line is the largest.",
    )
