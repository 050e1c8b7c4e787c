"""Which records are in a group that a plan names."""

import logging

from confide.client.records.records import Records
from confide.protocol.methods.partition import NO_PART, numbers
from confide.protocol.plan import Plan
from confide.protocol.wire.columns import Array

log = logging.getLogger(__name__)


def in_groups(records: Records, plan: Plan, taking: Array) -> Array:
    """The records in a group that the plan names; others take no part, and spend nothing."""
    column, groups = plan.terms.group_column, plan.terms.groups
    if not groups:
        return taking
    named = numbers(records.public[column][taking], groups) != NO_PART
    if not named.all():
        log.warning(
            "%d of %d records take no part: the plan does not name their %s",
            len(taking) - named.sum(),
            len(taking),
            column,
        )
    return taking[named]
