"""Check how a configuration was selected by what was measured of the short list.

The measurements themselves cannot be verified without their records; that the selection
follows from them can.
"""

from collections.abc import Iterator

from confide.protocol.cards.card import BY_SIZE, Card
from confide.protocol.cards.verify.findings import Finding, same


def evaluated(card: Card) -> Iterator[Finding]:
    """Check that the whole short list was measured, and that the rule selects what was selected.

    The rule: of the configurations whose mean size is at most `tolerance` above the smallest, as a
    share of it, the one of least epsilon; then of smallest size; then the first.
    """
    formal, rows = card.formal, card.diagnostic.get("evaluated")
    by_size = formal.get("selected_by") == BY_SIZE
    if rows is None and not by_size:
        return
    yield Finding(
        "diagnostic/evaluated",
        rows is not None and by_size,
        "where the selection is by measured size, and nowhere else",
    )
    if rows is None or not by_size:
        return
    listed = [row["configuration"] for row in rows]
    yield same("diagnostic/evaluated/configurations", sorted(listed), formal["shortlist"])
    sizes = {row["configuration"]: row["mean_size"] for row in rows}
    known = [size for size in sizes.values() if size is not None]
    limit = min(known) * (1 + card.diagnostic["tolerance"]) if known else None
    near = [i for i, size in sizes.items() if limit is None or (size is not None and size <= limit)]
    spent = {
        i: formal["searched"][i]["epsilon_train"] + formal["searched"][i]["epsilon_calibration"]
        for i in near
    }
    least = [i for i in near if spent[i] == min(spent.values())]
    ordered = sorted(least, key=lambda i: (sizes[i] is None, sizes[i] or 0.0, i))
    yield same("selected", formal["selected"], ordered[0])
