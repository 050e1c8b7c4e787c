"""Check who a card says took part: owners counted, and what each round received of them."""

from collections.abc import Iterator

from confide.protocol.cards.card import Card, Layer
from confide.protocol.cards.verify.findings import Finding, same
from confide.protocol.certificate import PLANNED_MIXTURE
from confide.protocol.methods.base import CENTRAL, FULL_DATA, LOCAL
from confide.protocol.plan import Plan


def contributors(card: Card, plan: Plan) -> Iterator[Finding]:
    """Check the owners that were counted.

    They must be at least as many as the plan requires, with as many reports or records as the card
    covers. The card must also say what remains of the certificate if the largest of them lied.
    """
    formal, place = card.formal, "provenance/contributors"
    found = card.provenance.get("contributors")
    if found is None:
        yield Finding(place, False, "the card of a campaign says how many owners were counted")
        return
    owners, largest, of = found["owners"], found["largest"], found["of"]
    least = plan.minimum_owners
    yield same(f"{place}/minimum_owners", found["minimum_owners"], least)
    yield Finding(f"{place}/owners", owners >= least, f"at least {least} by the plan")
    if formal["track"] in (CENTRAL, FULL_DATA):
        central = formal["track"] == CENTRAL
        unit, entry = "records", formal["searched"][0] if central else formal["calibration"]
        yield same(f"{place}/of", max(of, 1), entry["n"])
        # Owners without records also answer, but they contribute nothing.
        answered = entry["owners"] >= owners
        where = "searched/0/owners" if central else "calibration/owners"
        yield Finding(where, answered, f"{owners} contributed")
    elif rounds := formal.get("shuffle", {}).get("rounds", []):
        # Only the shuffler knows who sent; it signed this with the last round.
        unit = "reports"
        yield same(f"{place}/of", of, sum(one["reports"] for one in rounds))
        yield same(f"{place}/owners", owners, rounds[-1]["owners"])
        yield same(f"{place}/largest", largest, rounds[-1]["largest"])
    else:
        unit = "reports"
        yield same(f"{place}/of", of, formal["certificate"]["n"])
    yield from _by_round(formal, found, plan)
    possible = max(largest, owners) <= of <= owners * largest
    detail = f"{owners} owners with at most {largest} each, {of} in all"
    yield Finding(f"{place}/largest", possible, detail)
    left = f"the certificate holds: max_corrupt is {plan.max_corrupt}"
    if largest > plan.max_corrupt:
        left = "nothing is guaranteed"
    said = f"if the largest contributor ({largest} of {of} {unit}) lied, {left}"
    yield same(f"{place}/if_the_largest_lied", found["if_the_largest_lied"], said)


def _by_round(formal: Layer, found: Layer, plan: Plan) -> Iterator[Finding]:
    """Check what each round received, where the card says so, with the owners it left out.

    Rounds ask disjoint slices, and the last of them are the stages that the certificate tested, of
    a planned mixture on some of the answers.
    """
    rounds, place = found.get("rounds"), "provenance/contributors/rounds"
    if rounds is None:
        return
    yield Finding(place, formal["track"] == LOCAL, "given for campaigns of rounds only")
    yield same(f"{place}/reports", sum(one["reports"] for one in rounds), found["of"])
    asked = sum(one["expected"] for one in rounds)
    most = plan.expected_records + len(rounds)
    yield Finding(f"{place}/expected", asked <= most, f"at most {most} in all")
    for i, one in enumerate(rounds):
        fits = (one["owners"] == 0) == (one["reports"] == 0)
        held = fits and one["owners"] <= min(found["owners"], one["reports"])
        yield Finding(f"{place}/{i}/owners", held, f"owners with {one['reports']} reports")
    certificate = formal["certificate"]
    tested = _tested(certificate)
    if tested and certificate["variant"] == "certified":
        stages = [one["reports"] for one in rounds[-len(tested) :]]
        drawn = PLANNED_MIXTURE in certificate["assumptions"]
        yield Finding(f"{place}/stages", drawn or stages == tested, f"{tested} were tested")


def _tested(certificate: Layer) -> list[int]:
    """The answers of each stage; levels share stages, told apart by the answers still to come."""
    rungs = [rung for rung in certificate["rungs"] if "rest" in rung]
    if "levels" in certificate:
        shared = [rung for one in certificate["levels"] for rung in one["rungs"] if "rest" in rung]
        by_rest = {rung["rest"]: rung for rung in shared}
        rungs = [by_rest[rest] for rest in sorted(by_rest, reverse=True)]
    return [rung["n"] for rung in rungs]
