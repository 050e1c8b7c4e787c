"""Verify a central card with a threshold for each class or group.

A record that another replaces may leave a class for another. Its label is private, so it may move
two of the thresholds, each by one record more or less: both releases together cost their sum, and
neither may tell how many records its class has. The group of a record is public, and is also that
of the record in its place: one threshold moves, and the number of records of a group is public too.
"""

from collections.abc import Callable, Iterator

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.findings import Finding, number, same
from confide.protocol.cards.verify.released import edge_of

# The thresholds that replacing a record may move, by what divides the records.
MOVED = {"class": 2, "group": 1}


def moved(formal: Layer) -> int:
    """How many thresholds replacing a record may move."""
    return MOVED.get(formal["strata"]["by"], 0) if "strata" in formal else 1


def shares(formal: Layer) -> int:
    """Return how many releases share the budget; 1 where owners noise all counts at once."""
    return 1 if formal["searched"][0]["noised_by"] == "owners" else moved(formal)


def of_a_part(contract: Layer, formal: Layer) -> Layer:
    """The contract of one release, if the budget pays for several."""
    times = shares(formal)
    if times == 1:
        return contract
    share = {
        name: float(number(contract[name]) / times) for name in ("epsilon_calibration", "delta")
    }
    return contract | share | {"adjacency": "add-remove"}


def divided(formal: Layer, shown: Layer, judged: Callable[[Layer], Layer]) -> Iterator[Finding]:
    """Check every part: its bin, and, where its number of records is public, rank and inflation."""
    strata, released = formal["strata"], formal["released"]
    parts, public = strata["parts"], strata["by"] == "group"
    names = [part["name"] for part in parts]
    yield Finding("strata/by", strata["by"] in MOVED, f"one of {', '.join(MOVED)}")
    yield same("strata/moved", strata["moved"], moved(formal))
    noised = shown["noised_by"] == "owners"
    yield same("searched/0/moved", shown.get("moved", 1), moved(formal) if noised else 1)
    yield Finding("strata/names", 0 < len(names) == len({*names}), "each part is named once")
    for i, part in enumerate(parts):
        where, top = f"strata/parts/{i}", part["bin"] == shown["bins"] - 1
        yield Finding(f"{where}/bin", part["bin"] < shown["bins"], f"of {shown['bins']} bins")
        yield from edge_of(part, shown, where)
        yield same(f"{where}/reason", part["reason"] is not None, part["threshold"] >= 1)
        told = {"rank": None, "inflation": None}
        yield Finding(f"{where}/n", (part["n"] is not None) == public, "given of groups alone")
        if public and part["n"] is not None:
            one = judged(shown | {"n": part["n"]})
            exists = one["flags"]["certified"] and one["rank"] <= part["n"]
            if exists:
                bounded = released["complete"] or not noised
                told = {"rank": one["rank"]}
                told["inflation"] = one["inflation_ranks"] if bounded else None
            yield Finding(f"{where}/threshold", exists or top, "without a rank only the top covers")
        for name, value in told.items():
            yield same(f"{where}/{name}", part[name], value)
    if public:
        count = sum(part["n"] or 0 for part in parts)
        yield same("strata/n", max(count, 1), shown["n"])
    shown_parts = [{"name": part["name"], "threshold": part["threshold"]} for part in parts]
    yield same("released/strata", released["strata"], {"by": strata["by"], "parts": shown_parts})
    yield same("released/bin", released["bin"], max(part["bin"] for part in parts))
