"""Check what a campaign's card says of its contributors against its plan and its own numbers."""

from collections.abc import Iterator

from confide.protocol.cards.card import Card
from confide.protocol.cards.verify.findings import Finding, same
from confide.protocol.cards.verify.tracks.base import CONTRIBUTORS, TRACK_RULES
from confide.protocol.plan import Plan


def contributors(card: Card, plan: Plan) -> Iterator[Finding]:
    """Check the owners that were counted.

    They must be at least as many as the plan requires, with as many reports or records as the card
    covers. The card must also say what remains of the certificate if the largest of them lied.
    """
    formal, place = card.formal, CONTRIBUTORS
    rules = TRACK_RULES[formal["track"]]
    found = card.provenance.get("contributors")
    if found is None:
        yield Finding(place, False, "the card of a campaign says how many owners were counted")
        return
    owners, largest, of = found["owners"], found["largest"], found["of"]
    least = plan.minimum_owners
    yield same(f"{place}/minimum_owners", found["minimum_owners"], least)
    yield Finding(f"{place}/owners", owners >= least, f"at least {least} by the plan")
    yield from rules.counted(formal, found)
    if found.get("rounds") is None:
        # A shuffler signs rounds of its own; a campaign that asks nobody has none.
        shuffled = formal.get("shuffle", {}).get("rounds")
        due = rules.by_round is not None and not shuffled and of > 0
        yield Finding(f"{place}/rounds", not due, "a campaign of rounds says what each received")
    else:
        yield Finding(
            f"{place}/rounds", rules.by_round is not None, "given for campaigns of rounds only"
        )
        if rules.by_round is not None:
            yield from rules.by_round(formal, found, plan)
    possible = max(largest, owners) <= of <= owners * largest
    detail = f"{owners} owners with at most {largest} each, {of} in all"
    yield Finding(f"{place}/largest", possible, detail)
    left = f"the certificate holds: max_corrupt is {plan.max_corrupt}"
    if largest > plan.max_corrupt:
        left = "nothing is guaranteed"
    said = f"if the largest contributor ({largest} of {of} {rules.unit}) lied, {left}"
    yield same(f"{place}/if_the_largest_lied", found["if_the_largest_lied"], said)
