"""All targets by name. To add one, make it in the module of its paper."""

from difflib import get_close_matches

from confide.protocol.errors import BadInput
from confide.simulation.reproduce.full_data import dpcp, scp
from confide.simulation.reproduce.split import card, ldp_sets, ldp_terms, pps
from confide.simulation.reproduce.target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for paper in (ldp_terms, ldp_sets, card, pps, dpcp, scp)
    for target in paper.TARGETS
}
# The name of all targets that need no file and train no network.
QUICK = "quick"


def find(name: str) -> list[Target]:
    """The target of this name, or all quick ones; an unknown name is answered by the nearest."""
    if name == QUICK:
        return [target for target in TARGETS.values() if target.quick]
    if name in TARGETS:
        return [TARGETS[name]]
    near = get_close_matches(name.lower().replace(" ", "-"), [*TARGETS, QUICK], n=1, cutoff=0.0)
    raise BadInput(
        f"there is no {name!r}; the nearest name is {near[0]}, and --list shows all of them"
    )
