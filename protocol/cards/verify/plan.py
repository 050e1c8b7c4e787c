"""Compare a campaign's card with the plan that its owners saw: both must say the same."""

from collections.abc import Iterator

from confide.protocol.cards.card import Card
from confide.protocol.cards.verify.chain import chain
from confide.protocol.cards.verify.findings import Finding, same
from confide.protocol.cards.verify.tracks.base import CONTRIBUTORS, TRACK_RULES
from confide.protocol.plan import Plan, digest


def planned(card: Card) -> Iterator[Finding]:
    """Check every field of a campaign's card that its plan fixes.

    `provenance` names the plan by its digest.
    """
    formal = card.formal
    text = formal.get("plan")
    rules = TRACK_RULES[formal["track"]]
    optional = rules.without_plan and text is None
    expected = formal["released"] is not None and not optional
    yield Finding("plan", (text is not None) == expected, "campaigns have one")
    yield same(
        "provenance/plan",
        card.provenance["plan"],
        None if text is None else digest(bytes.fromhex(text)).hex(),
    )
    if text is None:
        yield same("provenance/contributors", card.provenance.get("contributors"), None)
        return
    plan = Plan.from_bytes(bytes.fromhex(text))
    yield same("plan/track", formal["track"], plan.terms.track)
    if formal["track"] != plan.terms.track:
        # No other field can be compared with a plan of another kind.
        return
    yield from _contributors(card, plan)
    yield from chain(formal, plan)
    yield from rules.compared(card, plan)
    stated = {"released": {"model": plan.model.hex(), "score": plan.score, "labels": plan.labels}}
    stated |= rules.stated(plan)
    for part, fields in stated.items():
        found = formal["searched"][0] if part == "searched/0" else formal[part]
        for name, value in fields.items():
            yield same(f"{part}/{name}", found[name], value)


def _contributors(card: Card, plan: Plan) -> Iterator[Finding]:
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
    if found.get("rounds") is not None:
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
