"""The track local: thresholds tested on reports that are private one by one."""

from confide.protocol.cards.card import Layer
from confide.protocol.cards.fields import as_rows, as_text, numbered, part_heading, part_rows
from confide.protocol.cards.scatter import figure, scatter
from confide.protocol.cards.tracks.base import REPORTS, Sections, Track
from confide.protocol.certificate import BAND
from confide.protocol.methods.base import LOCAL


def _sections(formal: Layer) -> Sections:
    nested = ("strata", "levels")
    found = {name: value for name, value in formal["certificate"].items() if name not in nested}
    shown = as_rows(found, but="rungs")
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
    tables = [
        ("Certificate", shown),
        *_levels(formal),
        ("Clauses", as_rows(formal["flags"])),
        *_shuffling(formal["shuffle"]),
    ]
    return [*tables, ("Thresholds tested", rungs)] if rungs else tables


def _levels(formal: Layer) -> Sections:
    """A row for every level of a band or of an average: its threshold, and where it fails."""
    levels = formal["certificate"].get("levels")
    if levels is None:
        return []
    rows = [
        (
            f"coverage {1 - one['alpha']:.4g}",
            f"threshold {one['threshold']:.6f}, but for probability {one['delta']:.3g}",
        )
        for one in levels
    ]
    band = formal["contract"]["kind"] == BAND
    title = "Band: coverage that holds at every threshold" if band else "Levels of the average"
    return [(title, rows)]


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
    certificate = formal["certificate"]
    if "levels" in certificate:
        covered = [(1 - one["alpha"], one["threshold"], True) for one in certificate["levels"]]
        return figure(
            scatter(covered, line=certificate["threshold"], x="coverage of a level", y="threshold"),
            "The threshold of every level of coverage; the line is the one released.",
        )
    rungs = certificate["rungs"]
    points = [(float(i + 1), rung["threshold"], _passed(rung)) for i, rung in enumerate(rungs)]
    return figure(
        scatter(
            points,
            line=certificate["threshold"],
            x="threshold tested, in order",
            y="threshold",
        ),
        "How the threshold was found: filled are those that passed; the line is the one released.",
    )


def through_a_channel(formal: Layer) -> str:
    """Return the mechanism that makes every single report private."""
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
