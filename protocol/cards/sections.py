"""All fields of a card as tables of text, for readers of its technical layer."""

from confide.protocol.cards.card import Card, Layer
from confide.protocol.cards.fields import Rows, as_rows
from confide.protocol.cards.tracks.registry import track_of
from confide.protocol.cards.verify.findings import Finding


def sections(card: Card, findings: list[Finding]) -> list[tuple[str, Rows]]:
    """Return everything that a reader is shown, in order."""
    formal = card.formal
    failures = [finding for finding in findings if not finding.holds]
    checked: Rows = [
        ("clauses recomputed", str(len(findings))),
        ("that do not hold", str(len(failures))),
    ]
    checked += [(finding.clause, finding.detail) for finding in failures]
    described = [
        *as_rows({k: v for k, v in card.diagnostic.items() if k != "owners"}, but="evaluated"),
        *_evaluated(formal, card.diagnostic),
    ] or [("measured", "nothing")]
    counted = card.provenance.get("contributors", {})
    shown = {name: value for name, value in counted.items() if name != "rounds"}
    origin = as_rows(card.provenance | ({"contributors": shown} if counted else {}))
    shown_release = {k: v for k, v in (formal["released"] or {}).items() if k != "band"}
    released = as_rows(shown_release or {"threshold": "none yet"}, but="strata")
    return [
        ("Contract", as_rows(formal["contract"])),
        ("Released", released),
        *track_of(formal).sections(formal),
        *_chain(formal),
        ("Diagnostics (no guarantee)", described),
        *_rounds(card.provenance),
        *_owners(card.diagnostic),
        ("Provenance", [*origin, ("view", card.view), ("signed by", card.key.hex() or "nobody")]),
        ("Verification", checked),
    ]


def evaluated_lines(formal: Layer, diagnostic: Layer) -> list[str]:
    """Return a line for each configuration that was run, and one for the model's accuracy."""
    rows = _evaluated(formal, diagnostic)
    if rows and "accuracy" in diagnostic:
        about = f"accuracy {diagnostic['accuracy']:.3f} on {diagnostic['records']:,} records"
        rows = [("the model", about), *rows]
    return [f"{name}: {text}" for name, text in rows]


def _rounds(provenance: Layer) -> list[tuple[str, Rows]]:
    """A row for every round: what it received, and how many owners it left out."""
    rows = []
    for number, one in enumerate(provenance.get("contributors", {}).get("rounds", []), start=1):
        text = f"{one['reports']:,} of {one['expected']:,} expected reports"
        text += f", from {one['owners']:,} owners"
        if one["too_few"]:
            text += f"; {one['too_few']:,} left out, with too few records in the slice"
        rows.append((f"round {number}", text))
    return [("Rounds", rows)] if rows else []


def _owners(diagnostic: Layer) -> list[tuple[str, Rows]]:
    """A row for every owner: what it reported in each round, and what that says of coverage."""
    rows = []
    for one in diagnostic.get("owners", []):
        counts = ", ".join(f"{n:,}" for n in one["reports"])
        bound = f"; coverage at least {one['lower_bound']:.3f}" if "lower_bound" in one else ""
        rows.append((f"owner {one['owner']}", f"{counts} reports by round{bound}"))
    return [("Owners one by one (no guarantee)", rows)] if rows else []


def _evaluated(formal: Layer, diagnostic: Layer) -> Rows:
    """What was measured of every configuration on the short list."""
    rows = []
    for row in diagnostic.get("evaluated", []):
        entry = formal["searched"][row["configuration"]]
        chosen = ", selected" if row["configuration"] == formal["selected"] else ""
        name = (
            f"epsilon {entry['epsilon_calibration']:g}, {entry['mechanism']}, {entry['bins']:,} "
            f"{entry['grid']} bins, gamma {entry['gamma']:g}, n {entry['n']:,}{chosen}"
        )
        size = (
            "unbounded"
            if row["mean_size"] is None
            else f"{row['mean_size']:.2f} +- {row['size_deviation']:.2f}"
        )
        text = (
            f"mean size {size}, coverage {row['coverage']:.3f} +- {row['coverage_deviation']:.3f}, "
            f"inflation {row['observed_inflation']:.2g}"
        )
        if row["threshold"] == 1:
            text += " (TRIVIAL: the threshold is 1)"
        rows.append((name, text))
    return rows


def _chain(formal: Layer) -> list[tuple[str, Rows]]:
    if "chain" not in formal:
        return []
    shown = as_rows(formal["chain"], but="training")
    return [("Training and calibration together", shown)]
