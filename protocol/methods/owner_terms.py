"""What plans say of owners and groups: whose coverage is certified, and in which mixture."""

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

from confide.protocol.errors import BadInput, check_choice
from confide.protocol.methods.partition import Division, Groups, by_owner

# One threshold that covers at every owner, or in every group; a threshold for each.
FOR_EVERY_OWNER, PER_OWNER = "for-every-owner", "per-owner"
FOR_EVERY_GROUP, PER_GROUP = "for-every-group", "per-group"
OWNER_VARIANTS = (FOR_EVERY_OWNER, PER_OWNER)
GROUP_VARIANTS = (FOR_EVERY_GROUP, PER_GROUP)
PART_VARIANTS = (*OWNER_VARIANTS, *GROUP_VARIANTS)
TOGETHER, EACH = (FOR_EVERY_OWNER, FOR_EVERY_GROUP), (PER_OWNER, PER_GROUP)
# The settings of variants that keep parts apart, each with the variants that have it.
PART_SETTINGS: dict[str, tuple[str, ...]] = {
    "owner-floor": OWNER_VARIANTS,
    "group-floor": GROUP_VARIANTS,
    "group-column": GROUP_VARIANTS,
    "groups": GROUP_VARIANTS,
}
# The mixture of owners that a campaign of several rounds speaks of: that of the reports as they
# came, or of the owners of the first round, in which all still answer: by their reports of it, or
# each as much as any other.
AS_ANSWERED, PLANNED, EQUAL = "as-answered", "planned", "equal-owners"
MIXTURES = (AS_ANSWERED, PLANNED, EQUAL)


def part_settings(
    variant: str, settings: Mapping[str, Any], *, deviation: float, tested: float
) -> dict[str, Any]:
    """The fields of the terms of a variant of owners or groups.

    `deviation` is that of a report in units of coverage, and a share `tested` of reports tests.
    """
    by_group = variant in GROUP_VARIANTS
    floor = int(settings.get("group-floor" if by_group else "owner-floor", 0))
    alpha, delta = float(settings["alpha"]), float(settings["failure-probability"])
    usual = usual_floor(deviation / math.sqrt(tested), alpha=alpha, delta=delta)
    own: dict[str, Any] = {"part_floor": floor or usual}
    if variant in EACH:
        own["joint"] = bool(settings.get("joint", False))
    return own | (group_settings(settings) if by_group else {})


def group_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The public column that a plan names, and the groups that it accepts.

    Groups are a list, or text with commas between them.
    """
    column, given = str(settings.get("group-column", "")), settings.get("groups", ())
    listed = given.split(",") if isinstance(given, str) else given
    groups = tuple(name.strip() for name in map(str, listed) if name.strip())
    if not column or not groups:
        raise BadInput(
            f"group-column is {column!r} and groups are {', '.join(groups)[:80] or 'not given'}; "
            "accepted are the name of a column of owners' records and its values, as 'A,B,C'"
        )
    return {"group_column": column, "groups": groups}


def check_groups(variant: str, column: str, groups: tuple[str, ...]) -> None:
    """Refuse groups that no column has, and terms that name some which their variant lacks."""
    if (variant in GROUP_VARIANTS) != bool(groups) or bool(groups) != bool(column):
        raise BadInput(
            f"group_column is {column!r} with {len(groups)} groups for variant {variant}; accepted "
            f"are both for {' and '.join(GROUP_VARIANTS)}, and neither for others"
        )
    if groups:
        Groups(column, groups)


def in_clear(column: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """What owners are told about groups: a column leaves in clear, and which records take part."""
    return _of_groups(
        f"With each goes its {column} IN CLEAR, which no epsilon covers.", column, groups
    )


def _of_groups(said: str, column: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    if not groups:
        return ()
    shown = ", ".join(groups[:20]) + (f" and {len(groups) - 20} more" if len(groups) > 20 else "")
    return (f"{said} Only records take part whose {column} is one of: {shown}.",)


def counted_by(column: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """What owners that count are told of groups: the counts say how many records are in each."""
    return _of_groups(f"Counts are apart by {column}, IN CLEAR.", column, groups)


def division_of(column: str, groups: tuple[str, ...]) -> Division:
    """What tallies keep apart: groups if a plan names some, else owners."""
    return Groups(column, groups) if groups else by_owner


def usual_floor(deviation: float, *, alpha: float, delta: float) -> int:
    """The reports with which coverage half-way between 1 - alpha and 1 is certified half the time.

    By the normal law: (z s / (alpha/2))^2, with z the upper delta quantile and s the deviation.
    """
    z = max(NormalDist().inv_cdf(1 - delta), 0.0)
    return max(1, math.ceil((2 * z * deviation / alpha) ** 2))


def mixture_settings(settings: Mapping[str, Any]) -> dict[str, bool]:
    """The fields of the terms that say which mixture of owners the operator wants certified."""
    chosen = str(settings.get("mixture", AS_ANSWERED))
    check_choice("mixture", chosen, MIXTURES)
    return {"planned_mixture": chosen != AS_ANSWERED, "equal_owners": chosen == EQUAL}
