"""Compare a campaign's card with the plan that its owners saw: both must say the same."""

from collections.abc import Iterator

from confide.protocol.cards.card import Card
from confide.protocol.cards.verify.chain import chain
from confide.protocol.cards.verify.contributors import contributors
from confide.protocol.cards.verify.findings import Finding, same
from confide.protocol.cards.verify.tracks.base import TRACK_RULES
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
    yield from contributors(card, plan)
    yield from chain(formal, plan)
    yield from rules.compared(card, plan)
    stated = {"released": {"model": plan.model.hex(), "score": plan.score, "labels": plan.labels}}
    stated |= rules.stated(plan)
    for part, fields in stated.items():
        found = formal["searched"][0] if part == "searched/0" else formal[part]
        for name, value in fields.items():
            yield same(f"{part}/{name}", found[name], value)
