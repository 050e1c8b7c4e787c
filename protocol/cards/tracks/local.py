"""The track local: thresholds tested on reports that are private one by one."""

from confide.protocol.cards.card import Layer
from confide.protocol.cards.fields import as_rows, as_text, numbered, part_heading, part_rows
from confide.protocol.cards.scatter import figure, scatter
from confide.protocol.cards.tracks.base import REPORTS, Sections, Track
from confide.protocol.methods.base import LOCAL


def _sections(formal: Layer) -> Sections:
    shown = as_rows({k: v for k, v in formal["certificate"].items() if k != "strata"}, but="rungs")
    strata = formal["certificate"].get("strata")
    if strata is not None:
        return [
            ("Certificate", shown),
            (part_heading(strata), part_rows(strata)),
            ("Clauses", as_rows(formal["flags"])),
            *_shuffling(formal["shuffle"]),
        ]
    rungs = [
        (f"threshold {rung['threshold']:.6f}", as_text(rung))
        for rung in formal["certificate"]["rungs"]
    ]
    found = [
        ("Certificate", shown),
        ("Clauses", as_rows(formal["flags"])),
        *_shuffling(formal["shuffle"]),
    ]
    return [*found, ("Thresholds tested", rungs)] if rungs else found


def _shuffling(shuffle: Layer) -> Sections:
    rounds = numbered("round", shuffle.get("rounds", []))
    shown = ("Shuffling", as_rows(shuffle, but="rounds"))
    return [shown, ("Rounds that the shuffler signed", rounds)] if rounds else [shown]


def _passed(rung: Layer) -> bool:
    return bool(
        rung["level_after"] == 1.0
        if "level_after" in rung
        else rung["log_capital"] >= rung["needed"]
    )


def _picture(formal: Layer, _: Layer) -> str:
    rungs = formal["certificate"]["rungs"]
    points = [(float(i + 1), rung["threshold"], _passed(rung)) for i, rung in enumerate(rungs)]
    return figure(
        scatter(
            points,
            line=formal["certificate"]["threshold"],
            x="threshold tested, in order",
            y="threshold",
        ),
        "How the threshold was found: filled are those that passed; the line is the one released.",
    )


def through_a_channel(formal: Layer) -> str:
    """Return the mechanism of reports that are private one by one."""
    certificate = formal["certificate"]
    return f"Channel {certificate['channel']} at every record ({certificate['method']})"


def answered_once(_: Layer) -> str:
    """Return how the losses of such reports add up."""
    return "Every record answers once."


LOCAL_TRACK = Track(
    LOCAL,
    counted=REPORTS,
    sections=_sections,
    picture=_picture,
    spent=lambda formal: (formal["certificate"]["epsilon"], 0.0),
    level=lambda formal: formal["certificate"]["level"],
    noised_by_owners=lambda _: True,
    mechanism=through_a_channel,
    composition=answered_once,
)
