"""The track central: a threshold from counts, in one searched configuration."""

from confide.protocol.cards.card import Layer, strata_of
from confide.protocol.cards.fields import as_rows, as_text, part_heading, part_rows
from confide.protocol.cards.scatter import figure, scatter
from confide.protocol.cards.tracks.base import (
    RECORDS,
    Sections,
    Track,
    composed,
    spent_in_all,
)
from confide.protocol.methods.base import CENTRAL

# An inflation by all records is as bad as any: the threshold may be the largest score.
_ALL = 1.0


def _sections(formal: Layer) -> Sections:
    shown = formal["searched"][formal["best"]]
    title = (
        "Selected configuration" if formal["selected"] is not None else "Best configuration tried"
    )
    chosen = as_rows(shown, but="flags")
    feasible = sum(entry["feasible"] for entry in formal["searched"])
    looked = [
        ("configurations searched", str(len(formal["searched"]))),
        ("feasible", str(feasible)),
        ("short list", as_text(formal["shortlist"])),
        ("selected by", formal["selected_by"]),
        ("privacy in all", as_text(formal["total"])),
    ]
    strata = strata_of(formal)
    if strata is not None:
        title = f"Configuration of a {strata['by']}, as if all records were its own"
    found = [
        *([] if strata is None else [(part_heading(strata), part_rows(strata))]),
        (title, chosen),
        ("Clauses", as_rows(shown["flags"])),
        ("Search", looked),
    ]
    if formal["suggestions"]:
        found.append(
            (
                "What would make it feasible",
                [(s["change"], _change(s, formal)) for s in formal["suggestions"]],
            )
        )
    return found


def _change(suggestion: Layer, formal: Layer) -> str:
    contract, entry = suggestion["contract"], suggestion["configuration"]
    with_ = f"with {entry['mechanism']}, gamma {entry['gamma']:g}"
    if suggestion["change"] == "more records":
        return f"{entry['n']:,} records, {with_}, epsilon {entry['epsilon_calibration']:g}"
    if suggestion["change"] == "higher gamma":
        return f"gamma {entry['gamma']:g}, with {entry['mechanism']}, n {entry['n']:,}"
    if suggestion["change"] == "lower target":
        return (
            f"coverage {contract['coverage']:g} instead of {formal['contract']['coverage']:g}, "
            f"{with_}, n {entry['n']:,}"
        )
    return (
        f"epsilon {entry['epsilon_calibration']:g} for calibration and a contract of "
        f"{contract['epsilon_train']:g} + {contract['epsilon_calibration']:g}, {with_}, n "
        f"{entry['n']:,}"
    )


def _searched(formal: Layer) -> str:
    points = [
        (min(_ALL, entry["inflation_ranks"] / entry["n"]), entry["level"], entry["feasible"])
        for entry in formal["searched"]
        if entry["inflation_ranks"] is not None and entry["level"] is not None
    ]
    return figure(
        scatter(
            points,
            line=formal["contract"]["coverage"],
            x="certified inflation (share of records)",
            y="guaranteed coverage",
        ),
        "The configurations judged: filled ones keep the contract, whose coverage is the line. "
        "Further left is better: less is lost to noise.",
    )


def _measured(formal: Layer, diagnostic: Layer) -> str:
    rows = [row for row in diagnostic.get("evaluated", []) if row["mean_size"] is not None]
    chosen = [row for row in rows if row["configuration"] == formal["selected"]]
    if not chosen:
        return ""
    points = [
        (
            formal["searched"][row["configuration"]]["epsilon_calibration"],
            row["mean_size"],
            row in chosen,
        )
        for row in rows
    ]
    return figure(
        scatter(points, line=chosen[0]["mean_size"], x="epsilon of the calibration", y="mean size"),
        "The configurations that were run: the filled one, on the line, is selected. Further down "
        "is better: smaller sets.",
    )


def _picture(formal: Layer, diagnostic: Layer) -> str:
    return _measured(formal, diagnostic) or _searched(formal)


def _noised_by_owners(formal: Layer) -> bool:
    return bool(formal["searched"][0]["noised_by"] == "owners")


def _mechanism(formal: Layer) -> str:
    training = "; DP-SGD" if "chain" in formal else ""
    return f"{formal['searched'][0]['mechanism']} on counts of scores{training}"


CENTRAL_TRACK = Track(
    CENTRAL,
    counted=RECORDS,
    sections=_sections,
    picture=_picture,
    spent=spent_in_all,
    level=lambda formal: formal["searched"][formal["best"]]["level"],
    noised_by_owners=_noised_by_owners,
    mechanism=_mechanism,
    composition=composed,
)
