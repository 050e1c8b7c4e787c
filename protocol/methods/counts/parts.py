"""The parts of the records that counts keep apart: every class, or every group of a plan."""

from collections.abc import Mapping
from typing import Any, Protocol

from confide.protocol.certificate import BY_CLASS, BY_GROUP
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.methods.owner_terms import group_settings
from confide.protocol.methods.partition import Groups

# The most counts of an owner, over all parts and bins.
MOST_CELLS = 1 << 21
# How many of the parts a record may be in before and after another takes its place: the label is
# private, and the group is public and stays.
MOVED = {BY_CLASS: 2, BY_GROUP: 1}


class PartedTerms(Protocol):
    """The fields of terms that say what has a threshold each."""

    @property
    def by(self) -> str: ...
    @property
    def parts(self) -> int: ...
    @property
    def bins(self) -> int: ...
    @property
    def delta(self) -> float: ...
    @property
    def group_column(self) -> str: ...
    @property
    def groups(self) -> tuple[str, ...]: ...


def parts_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What an operator wants a threshold of each of."""
    by = str(settings.get("by", ""))
    if by == BY_GROUP:
        found = group_settings(settings)
        return {"by": by, "parts": len(found["groups"]), **found}
    return {"by": by, "parts": int(settings["labels"]) if by == BY_CLASS else 0}


def check_parts(terms: PartedTerms) -> None:
    """Refuse parts that cannot be counted apart, or cannot be promised what the plan says."""
    by, column, groups = terms.by, terms.group_column, terms.groups
    check_choice("by", by, ("", *MOVED))
    if (by == BY_GROUP) != bool(groups) or bool(groups) != bool(column):
        raise BadInput(
            f"by is {by!r} with column {column!r} and {len(groups)} groups; accepted are both with "
            f"by {BY_GROUP!r}, and neither without"
        )
    if groups:
        Groups(column, groups)
    if terms.parts != len(groups) and by != BY_CLASS:
        raise BadInput(f"parts is {terms.parts}; accepted is {len(groups)}")
    if by == BY_CLASS and terms.delta:
        raise BadInput(
            "guarantee is PAC with by class; the number of records of a class is private, and "
            "accepted is marginal (or a campaign of labels or pairs)"
        )
    if (terms.parts + 1) * terms.bins > MOST_CELLS:
        raise BadInput(
            f"{terms.parts} parts with {terms.bins:,} bins; accepted are at most {MOST_CELLS:,} "
            "counts in all"
        )
