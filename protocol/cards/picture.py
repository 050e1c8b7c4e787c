"""A drawing of a card: SVG that needs nothing outside its page."""

from confide.protocol.cards.card import Layer, strata_of

# An inflation by all records is as bad as any: the threshold may be the largest score.
_ALL = 1.0


def card_picture(formal: Layer, diagnostic: Layer) -> str:
    """Draw what was measured, the searched configurations, or the tested thresholds."""
    strata = strata_of(formal)
    if strata is not None:
        return _divided(formal, strata)
    if formal["track"] == "central":
        return _measured(formal, diagnostic) or _searched(formal)
    if formal["track"] == "full-data":
        kept = [(point["epsilon"], point["delta"], True) for point in formal["profile"]]
        total = formal["total"]["delta"]
        return _figure(
            scatter(kept, line=total, x="epsilon of the training", y="delta"),
            "The privacy of the training: at each epsilon, the delta that remains.",
        )
    if formal["track"] == "monitor":
        return _watched(formal["certificate"]["rounds"])
    rungs = formal["certificate"]["rungs"]
    points = [(float(i + 1), rung["threshold"], _passed(rung)) for i, rung in enumerate(rungs)]
    return _figure(
        scatter(
            points,
            line=formal["certificate"]["threshold"],
            x="threshold tested, in order",
            y="threshold",
        ),
        "How the threshold was found: filled are those that passed; the line is the one released.",
    )


def _searched(formal: Layer) -> str:
    points = [
        (min(_ALL, entry["inflation_ranks"] / entry["n"]), entry["level"], entry["feasible"])
        for entry in formal["searched"]
        if entry["inflation_ranks"] is not None and entry["level"] is not None
    ]
    return _figure(
        scatter(
            points,
            line=formal["contract"]["coverage"],
            x="certified inflation (share of records)",
            y="guaranteed coverage",
        ),
        "The configurations judged: filled ones keep the contract, whose coverage is the line. "
        "Further left is better: less is lost to noise.",
    )


def _divided(formal: Layer, strata: Layer) -> str:
    each = enumerate(part["threshold"] for part in strata["parts"])
    return _figure(
        scatter(
            [(float(i), q, q < 1) for i, q in each],
            line=formal["released"]["threshold"],
            x=f"{strata['by']}, in the order of the card",
            y="threshold",
        ),
        f"The threshold of each {strata['by']}; the line is the largest.",
    )


def _watched(rounds: list[Layer]) -> str:
    points = [
        (float(i + 1), one["log_evidence"], one["log_evidence"] < one["needed"])
        for i, one in enumerate(rounds)
    ]
    line = rounds[-1]["needed"] if rounds else 0.0
    return _figure(
        scatter(points, line=line, x="round", y="log-evidence that coverage fell"),
        "The evidence after every round: from the line on it is an alarm.",
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
    return _figure(
        scatter(points, line=chosen[0]["mean_size"], x="epsilon of the calibration", y="mean size"),
        "The configurations that were run: the filled one, on the line, is selected. Further down "
        "is better: smaller sets.",
    )


def _figure(drawing: str, caption: str) -> str:
    """A drawing with a sentence about it; nothing if there is no drawing."""
    if not drawing:
        return ""
    return f"<figure>{drawing}<figcaption>{caption}</figcaption></figure>"


def _passed(rung: Layer) -> bool:
    return bool(
        rung["level_after"] == 1.0
        if "level_after" in rung
        else rung["log_capital"] >= rung["needed"]
    )


def scatter(points: list[tuple[float, float, bool]], *, line: float, x: str, y: str) -> str:
    """Draw points (filled if they hold) and a level, without any style."""
    if not points:
        return ""
    # Points keep off the labels of the axis by more than their radius.
    width, height, pad, inset = 560, 260, 46, 12
    xs, ys = [point[0] for point in points], [point[1] for point in points] + [line]
    low_x, high_x, low_y, high_y = min(xs), max(xs), min(ys), max(ys)
    span_x, span_y = (high_x - low_x) or 1.0, (high_y - low_y) or 1.0

    def place(u: float, v: float) -> tuple[float, float]:
        return (
            pad + inset + (width - 2 * (pad + inset)) * (u - low_x) / span_x,
            height - pad - (height - 2 * pad) * (v - low_y) / span_y,
        )

    dots = "".join(
        f'<circle cx="{place(u, v)[0]:.1f}" cy="{place(u, v)[1]:.1f}" r="5" '
        f'fill="{"#28c" if good else "none"}" stroke="#28c" stroke-width="2"/>'
        for u, v, good in points
    )
    level = place(low_x, line)[1]
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{y} against {x}" '
        f'font-size="12" fill="currentColor"><line x1="{pad}" x2="{width - pad}" y1="{level:.1f}" '
        f'y2="{level:.1f}" stroke="#a00"/><text x="{width - pad}" y="{level - 4:.1f}" '
        f'text-anchor="end" fill="#a00">{line:.4g}</text>{dots}<text x="{width / 2}" '
        f'y="{height - 8}" text-anchor="middle">{x}: {low_x:.3g} to '
        f"{high_x:.3g}</text>"
        f'<text x="12" y="{height / 2}" text-anchor="middle" transform="rotate(-90 12 '
        f'{height / 2})">{y}</text><text x="{pad - 4}" y="{pad}" '
        f'text-anchor="end">{high_y:.3g}</text><text x="{pad - 4}" y="{height - pad}" '
        f'text-anchor="end">{low_y:.3g}</text></svg>'
    )
