"""Verify which owners and groups a campaign's card covers: by its plan, and by who left."""

from collections.abc import Iterator

from confide.protocol.cards.card import Card
from confide.protocol.cards.verify.findings import Finding, same
from confide.protocol.cards.verify.local.stages import in_search, in_stages
from confide.protocol.certificate import BY_OWNER
from confide.protocol.methods.local import LocalTerms
from confide.protocol.plan import Plan


def left_out(card: Card, plan: Plan) -> Iterator[Finding]:
    """Check that the plan's floor, and nothing else, decides which owners or groups are covered.

    One that left while it was tested is not: its reports by round must show a stage without any.
    Groups are those of the plan, in its order; owners are as many as contributed, by number.
    """
    strata = card.formal.get("certificate", {}).get("strata")
    if strata is None or strata["by"] == "class":
        return
    named = [part["name"] for part in strata["parts"]]
    # Owners that are not kept apart stand together as one that is not covered.
    together = strata["by"] == BY_OWNER and named == ["all"]
    expected = [*plan.terms.groups]
    if strata["by"] == BY_OWNER:
        expected = [str(number) for number in range(1, len(named) + 1)]
        if not together:
            counted = card.provenance["contributors"]["owners"]
            yield same("certificate/strata/parts", len(named), counted)
    yield same("certificate/strata/names", named, ["all"] if together else expected)
    floor = LocalTerms.of(plan.terms).part_floor
    for i, part in enumerate(strata["parts"]):
        name, reports = f"certificate/strata/parts/{i}/covered", part.get("reports")
        size = part["n"] if reports is None else in_search(part)
        few = size < floor or together
        left = not few and (part["reason"] or "").startswith("left")
        if left:
            stages = [] if reports is None else in_stages(part)
            detail = f"{stages} reports in the stages, one without any is meant"
            yield Finding(f"certificate/strata/parts/{i}/reason", 0 in stages, detail)
        covered = part.get("covered", True)
        yield Finding(name, covered != (few or left), f"{size} reports, the plan asks for {floor}")
