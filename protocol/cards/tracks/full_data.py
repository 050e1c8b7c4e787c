"""The track full-data: a calibration on the records that trained the model."""

from confide.protocol.cards.card import Layer
from confide.protocol.cards.fields import as_rows, as_text
from confide.protocol.cards.scatter import figure, scatter
from confide.protocol.cards.tracks.base import (
    RECORDS,
    Sections,
    Track,
    composed,
    spent_in_all,
)
from confide.protocol.methods.base import FULL_DATA

# The parts of a full-data card, in the order in which they are shown.
_FULL_DATA = {
    "training": "Training",
    "calibration": "Calibration on the same records",
    "promise": "What is known of coverage",
}


def _sections(formal: Layer) -> Sections:
    parts = [(title, as_rows(formal[part])) for part, title in _FULL_DATA.items() if part in formal]
    profile = [
        (f"epsilon {point['epsilon']:.4g}", as_text(point["delta"])) for point in formal["profile"]
    ]
    return [
        *parts,
        ("Its privacy profile, one record added", profile),
        ("Clauses", as_rows(formal["flags"])),
        ("Privacy in all", as_rows(formal["total"])),
    ]


def _picture(formal: Layer, _: Layer) -> str:
    kept = [(point["epsilon"], point["delta"], True) for point in formal["profile"]]
    total = formal["total"]["delta"]
    return figure(
        scatter(kept, line=total, x="epsilon of the training", y="delta"),
        "The privacy of the training: at each epsilon, the delta that remains.",
    )


def _mechanism(formal: Layer) -> str:
    return f"{formal['calibration']['mechanism']} on counts of scores; DP-SGD"


FULL_DATA_TRACK = Track(
    FULL_DATA,
    counted=RECORDS,
    sections=_sections,
    picture=_picture,
    spent=spent_in_all,
    level=lambda formal: formal["promise"]["level"],
    noised_by_owners=lambda _: False,
    mechanism=_mechanism,
    composition=composed,
)
