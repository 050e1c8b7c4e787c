"""Readable forms of a card: Markdown for reviews, and one self-contained HTML file with plots."""

import html
from typing import Any

from confide.protocol.cards.card import INFORMATIVE, RANDOMNESS, Card, Layer
from confide.protocol.cards.picture import card_picture
from confide.protocol.cards.verify.findings import Finding
from confide.protocol.terminal import printable

Rows = list[tuple[str, str]]

_FAILED = {INFORMATIVE: "informative (the threshold is 1, which predicts every label)"}
_SECTIONS = {
    "training": "Training",
    "calibration": "Calibration on the same records",
    "promise": "What is known of coverage",
}

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: 0 0 1.5rem; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #ccc; text-align: left;
  vertical-align: top; }
.decision { font-size: 1.3rem; font-weight: 600; }
.bad { color: #a00; }
svg { max-width: 100%; height: auto; }
code { overflow-wrap: anywhere; }
"""


def as_markdown(card: Card, findings: list[Finding]) -> str:
    """Render the card as headings and tables."""
    parts = [
        f"# Contract card: {_escape(card.formal['contract']['name'])}",
        "",
        f"**{_escape(verdict(card, findings))}**",
        "",
    ]
    for title, rows in sections(card, findings):
        parts += [
            f"## {title}",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {_escape(value)} |" for name, value in rows),
            "",
        ]
    return "\n".join(parts)


def as_html(card: Card, findings: list[Finding]) -> str:
    """Render the card as one self-contained page."""
    return (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width, initial-scale=1">'
        "<title>Contract card: "
        f"{html.escape(card.formal['contract']['name'])}</title><style>{_STYLE}</style>"
        f"{card_article(card, findings)}</html>\n"
    )


def card_article(card: Card, findings: list[Finding]) -> str:
    """Render the card as part of a page; every value is escaped."""
    name = html.escape(card.formal["contract"]["name"])
    body = "".join(
        f"<h2>{html.escape(title)}</h2><table>"
        + "".join(
            f'<tr><th scope="row">{html.escape(row)}</th><td>{html.escape(value)}</td></tr>'
            for row, value in rows
        )
        + "</table>"
        for title, rows in sections(card, findings)
    )
    state = "" if all(finding.holds for finding in findings) else " bad"
    return (
        f"<h1>Contract card: {name}</h1><p "
        f'class="decision{state}">{html.escape(verdict(card, findings))}</p>'
        f"{card_picture(card.formal)}{body}"
    )


def headline(card: Card) -> str:
    """State the decision in one sentence."""
    formal = card.formal
    contract, margin = formal["contract"], formal["margin"]
    asked = f"coverage {contract['coverage']:g} ({contract['kind']})"
    others = [_FAILED.get(name, name) for name in formal["failed"] if name != RANDOMNESS]
    if formal["decision"] == "simulation":
        rest = (
            f"; besides, failed: {', '.join(others)}"
            if others
            else f"; else {asked} would be guaranteed"
        )
        return (
            "SIMULATION ONLY: randomness was not the operating system's, so nothing is "
            f"private{rest}."
        )
    if formal["decision"] == "feasible":
        counted = card.provenance.get("contributors")
        unless = "" if counted is None else f"; {counted['if_the_largest_lied']}"
        return f"FEASIBLE: {asked} is guaranteed, with a margin of {margin:.4g}{unless}."
    by = "" if margin is None else f" (margin {margin:.4g})"
    if "promise" in formal and "certified" in formal["failed"]:
        by = f" (what is known: {formal['promise']['status']})"
    return f"INFEASIBLE: {asked} is not guaranteed; failed: {', '.join(others)}{by}."


def verdict(card: Card, findings: list[Finding]) -> str:
    """State the decision; if a clause does not verify, only as what the card says."""
    failures = [finding.clause for finding in findings if not finding.holds]
    if not failures:
        return headline(card)
    return f"DOES NOT VERIFY ({', '.join(failures)}). What it says: {headline(card)}"


def sections(card: Card, findings: list[Finding]) -> list[tuple[str, Rows]]:
    """Return everything that a reader is shown, in order."""
    formal = card.formal
    failures = [finding for finding in findings if not finding.holds]
    checked: Rows = [
        ("clauses recomputed", str(len(findings))),
        ("that do not hold", str(len(failures))),
    ]
    checked += [(finding.clause, finding.detail) for finding in failures]
    specific = {"central": _central, "local": _local, "full-data": _full_data}[formal["track"]](
        formal
    )
    described = [(name, _text(value)) for name, value in card.diagnostic.items()] or [
        ("measured", "nothing")
    ]
    origin = [(name, _text(value)) for name, value in card.provenance.items()]
    released = [
        (name, _text(value))
        for name, value in (formal["released"] or {"threshold": "none yet"}).items()
    ]
    return [
        ("Contract", [(name, _text(value)) for name, value in formal["contract"].items()]),
        ("Released", released),
        *specific,
        *_chain(formal),
        ("Diagnostics (no guarantee)", described),
        ("Provenance", [*origin, ("view", card.view), ("signed by", card.key.hex() or "nobody")]),
        ("Verification", checked),
    ]


def _central(formal: Layer) -> list[tuple[str, Rows]]:
    shown = formal["searched"][formal["best"]]
    title = (
        "Selected configuration" if formal["selected"] is not None else "Best configuration tried"
    )
    chosen = [(name, _text(value)) for name, value in shown.items() if name != "flags"]
    feasible = sum(entry["feasible"] for entry in formal["searched"])
    looked = [
        ("configurations searched", str(len(formal["searched"]))),
        ("feasible", str(feasible)),
        ("short list", _text(formal["shortlist"])),
        ("privacy in all", _text(formal["total"])),
    ]
    found = [
        (title, chosen),
        ("Clauses", [(name, _text(holds)) for name, holds in shown["flags"].items()]),
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


def _local(formal: Layer) -> list[tuple[str, Rows]]:
    shown = [
        (name, _text(value)) for name, value in formal["certificate"].items() if name != "rungs"
    ]
    rungs = [
        (
            f"threshold {rung['threshold']:.6f}",
            ", ".join(f"{name} {_text(value)}" for name, value in rung.items()),
        )
        for rung in formal["certificate"]["rungs"]
    ]
    found = [
        ("Certificate", shown),
        ("Clauses", [(name, _text(holds)) for name, holds in formal["flags"].items()]),
        ("Shuffling", [(name, _text(value)) for name, value in formal["shuffle"].items()]),
    ]
    return [*found, ("Thresholds tested", rungs)] if rungs else found


def _full_data(formal: Layer) -> list[tuple[str, Rows]]:
    rows = {
        title: [(name, _text(value)) for name, value in formal[part].items()]
        for part, title in _SECTIONS.items()
        if part in formal
    }
    return [
        *rows.items(),
        (
            "Its privacy profile, one record added",
            [
                (f"epsilon {point['epsilon']:.4g}", _text(point["delta"]))
                for point in formal["profile"]
            ],
        ),
        ("Clauses", [(name, _text(holds)) for name, holds in formal["flags"].items()]),
        ("Privacy in all", [(name, _text(value)) for name, value in formal["total"].items()]),
    ]


def _chain(formal: Layer) -> list[tuple[str, Rows]]:
    if "chain" not in formal:
        return []
    shown = [(name, _text(value)) for name, value in formal["chain"].items() if name != "training"]
    return [("Training and calibration together", shown)]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items()) or "-"
    if isinstance(value, list):
        return "; ".join(_text(inner) for inner in value) or "none"
    return str(value)


def _escape(text: str) -> str:
    """Escape characters with a meaning in Markdown, HTML or terminals."""
    return html.escape(printable(text), quote=False).replace("|", "\\|")
