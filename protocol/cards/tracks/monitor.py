"""The track monitor: evidence, round by round, that a card's coverage has fallen."""

from confide.protocol.cards.card import Layer
from confide.protocol.cards.fields import as_rows, numbered
from confide.protocol.cards.scatter import figure, scatter
from confide.protocol.cards.tracks.base import REPORTS, Sections, Track
from confide.protocol.cards.tracks.local import answered_once, through_a_channel
from confide.protocol.methods.base import MONITOR


def _sections(formal: Layer) -> Sections:
    rounds = numbered("round", formal["certificate"]["rounds"])
    return [
        ("Watched", as_rows(formal["watched"])),
        ("Evidence", as_rows(formal["certificate"], but="rounds")),
        ("Clauses", as_rows(formal["flags"])),
        *([("Rounds", rounds)] if rounds else []),
    ]


def _picture(formal: Layer, _: Layer) -> str:
    rounds = formal["certificate"]["rounds"]
    points = [
        (float(i + 1), one["log_evidence"], one["log_evidence"] < one["needed"])
        for i, one in enumerate(rounds)
    ]
    line = rounds[-1]["needed"] if rounds else 0.0
    return figure(
        scatter(points, line=line, x="round", y="log-evidence that coverage fell"),
        "The evidence after every round: from the line on it is an alarm.",
    )


MONITOR_TRACK = Track(
    MONITOR,
    counted=REPORTS,
    sections=_sections,
    picture=_picture,
    spent=lambda formal: (formal["certificate"]["epsilon"], 0.0),
    # It watches the coverage that another card guarantees.
    level=lambda _: None,
    noised_by_owners=lambda _: True,
    mechanism=through_a_channel,
    composition=answered_once,
)
