"""Verify which owners and groups a campaign's card covers: by its plan, and by who left."""

from collections.abc import Iterator

from confide.protocol.cards.card import Card
from confide.protocol.cards.verify.findings import Finding, same
from confide.protocol.methods.local import LocalTerms
from confide.protocol.plan import Plan

# The rounds of a search for owners or groups, before its stages.
SEARCH_ROUNDS = 2


def left_out(card: Card, plan: Plan) -> Iterator[Finding]:
    """Check that the plan's floor, and nothing else, decides which owners or groups are covered.

    One that left while it was tested is not; the owner's reports by round, where the card has them,
    must show a stage without any. Groups are those of the plan, in its order.
    """
    strata = card.formal.get("certificate", {}).get("strata")
    if strata is None or strata["by"] == "class":
        return
    if strata["by"] == "group":
        named = [part["name"] for part in strata["parts"]]
        yield same("certificate/strata/names", named, [*plan.terms.groups])
    floor = LocalTerms.of(plan.terms).part_floor
    for i, part in enumerate(strata["parts"]):
        size, name = part.get("planned", part["n"]), f"certificate/strata/parts/{i}/covered"
        # Owners that are not kept apart stand together as one that is not covered.
        few = size < floor or (strata["by"] == "owner" and part["name"] == "all")
        left = not few and (part["reason"] or "").startswith("left")
        if left and strata["by"] == "owner" and (stages := _stages(card, part["name"])):
            detail = f"{stages} reports in the stages, one without any is meant"
            yield Finding(f"certificate/strata/parts/{i}/reason", 0 in stages, detail)
        covered = part.get("covered", True)
        yield Finding(name, covered != (few or left), f"{size} reports, the plan asks for {floor}")


def _stages(card: Card, owner: str) -> list[int]:
    """The reports of an owner in every round after the search; nothing if the card has not all."""
    rounds = card.provenance.get("contributors", {}).get("rounds", ())
    rows = [one["reports"] for one in card.diagnostic.get("owners", ()) if one["owner"] == owner]
    return rows[0][SEARCH_ROUNDS:] if rows and len(rows[0]) == len(rounds) else []
