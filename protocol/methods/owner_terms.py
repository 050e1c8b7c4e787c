"""What plans say of owners: a threshold that holds at every one, and whose mixture is certified."""

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

from confide.protocol.errors import check_choice

# One threshold that covers at every owner; a threshold for each.
FOR_EVERY_OWNER, PER_OWNER = "for-every-owner", "per-owner"
OWNER_VARIANTS = (FOR_EVERY_OWNER, PER_OWNER)
# The mixture of owners that a campaign of several rounds speaks of: that of the reports as they
# came, or that of the first round, in which all owners still answer.
AS_ANSWERED, PLANNED = "as-answered", "planned"
MIXTURES = (AS_ANSWERED, PLANNED)


def owner_settings(
    variant: str, settings: Mapping[str, Any], *, deviation: float, tested: float
) -> dict[str, Any]:
    """The fields of the terms of a variant of owners.

    `deviation` is that of a report in units of coverage, and a share `tested` of reports tests.
    """
    floor = int(settings.get("owner-floor", 0))
    alpha, delta = float(settings["alpha"]), float(settings["failure-probability"])
    usual = usual_floor(deviation / math.sqrt(tested), alpha=alpha, delta=delta)
    own: dict[str, Any] = {"owner_floor": floor or usual}
    if variant == PER_OWNER:
        own["joint"] = bool(settings.get("joint", False))
    return own


def usual_floor(deviation: float, *, alpha: float, delta: float) -> int:
    """The reports with which coverage half-way between 1 - alpha and 1 is certified half the time.

    By the normal law: (z s / (alpha/2))^2, with z the upper delta quantile and s the deviation.
    """
    z = max(NormalDist().inv_cdf(1 - delta), 0.0)
    return max(1, math.ceil((2 * z * deviation / alpha) ** 2))


def plans_mixture(settings: Mapping[str, Any]) -> bool:
    """Whether the operator wants the mixture of the first round certified."""
    chosen = str(settings.get("mixture", AS_ANSWERED))
    check_choice("mixture", chosen, MIXTURES)
    return chosen == PLANNED
