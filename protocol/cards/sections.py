"""All fields of a card as tables of text, for readers of its technical layer."""

from collections.abc import Callable

from confide.protocol.cards.card import Card, Layer, strata_of
from confide.protocol.cards.fields import Rows, as_rows, as_text
from confide.protocol.cards.verify.findings import Finding
from confide.protocol.certificate import BAND


def sections(card: Card, findings: list[Finding]) -> list[tuple[str, Rows]]:
    """Return everything that a reader is shown, in order."""
    formal = card.formal
    failures = [finding for finding in findings if not finding.holds]
    checked: Rows = [
        ("clauses recomputed", str(len(findings))),
        ("that do not hold", str(len(failures))),
    ]
    checked += [(finding.clause, finding.detail) for finding in failures]
    specific = _SPECIFIC[formal["track"]](formal)
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
        *specific,
        *_chain(formal),
        ("Diagnostics (no guarantee)", described),
        *_rounds(card.provenance),
        *_owners(card.diagnostic),
        ("Provenance", [*origin, ("view", card.view), ("signed by", card.key.hex() or "nobody")]),
        ("Verification", checked),
    ]


def _central(formal: Layer) -> list[tuple[str, Rows]]:
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
        *([] if strata is None else [(_head(strata), _parts(strata))]),
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


def _local(formal: Layer) -> list[tuple[str, Rows]]:
    nested = ("strata", "levels")
    flat = {name: value for name, value in formal["certificate"].items() if name not in nested}
    shown = as_rows(flat, but="rungs")
    strata = formal["certificate"].get("strata")
    if strata is not None:
        return [
            ("Certificate", shown),
            (_head(strata), _parts(strata)),
            ("Clauses", as_rows(formal["flags"])),
            *_shuffling(formal["shuffle"]),
        ]
    rungs = [
        (
            f"threshold {rung['threshold']:.6f}",
            ", ".join(f"{name} {as_text(value)}" for name, value in rung.items()),
        )
        for rung in formal["certificate"]["rungs"]
    ]
    found = [
        ("Certificate", shown),
        *_levels(formal),
        ("Clauses", as_rows(formal["flags"])),
        *_shuffling(formal["shuffle"]),
    ]
    return [*found, ("Thresholds tested", rungs)] if rungs else found


def _levels(formal: Layer) -> list[tuple[str, Rows]]:
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


def _shuffling(shuffle: Layer) -> list[tuple[str, Rows]]:
    rounds = [
        (f"round {i + 1}", ", ".join(f"{name} {as_text(value)}" for name, value in one.items()))
        for i, one in enumerate(shuffle.get("rounds", []))
    ]
    shown = ("Shuffling", as_rows(shuffle, but="rounds"))
    return [shown, ("Rounds that the shuffler signed", rounds)] if rounds else [shown]


def _head(strata: Layer) -> str:
    own = f"what its own reports certify, of every {strata['by']}"
    return own.capitalize() if "together" in strata else f"Threshold of every {strata['by']}"


def _parts(strata: Layer) -> Rows:
    """A row for every part of the records: its threshold, or why it has none below 1."""
    return [
        (
            f"{strata['by']} {part['name']}",
            f"{part['threshold']:.6f}{_of_records(part)}"
            + (f" ({part['reason']})" if part["reason"] else ""),
        )
        for part in strata["parts"]
    ]


def _of_records(part: Layer) -> str:
    """The records or reports that a part has, where their number is public."""
    if part["n"] is None:
        return ""
    return f" from {part['n']:,} {'records' if 'bin' in part else 'reports'}"


# The parts of a full-data card, in the order in which they are shown.
_FULL_DATA = {
    "training": "Training",
    "calibration": "Calibration on the same records",
    "promise": "What is known of coverage",
}


def _full_data(formal: Layer) -> list[tuple[str, Rows]]:
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


def _monitor(formal: Layer) -> list[tuple[str, Rows]]:
    rounds = [
        (f"round {i + 1}", ", ".join(f"{name} {as_text(value)}" for name, value in one.items()))
        for i, one in enumerate(formal["certificate"]["rounds"])
    ]
    return [
        ("Watched", as_rows(formal["watched"])),
        ("Evidence", as_rows(formal["certificate"], but="rounds")),
        ("Clauses", as_rows(formal["flags"])),
        *([("Rounds", rounds)] if rounds else []),
    ]


# What the card of each track shows besides what all show.
_SPECIFIC: dict[str, Callable[[Layer], list[tuple[str, Rows]]]] = {
    "central": _central,
    "local": _local,
    "full-data": _full_data,
    "monitor": _monitor,
}


def _chain(formal: Layer) -> list[tuple[str, Rows]]:
    if "chain" not in formal:
        return []
    shown = as_rows(formal["chain"], but="training")
    return [("Training and calibration together", shown)]
