"""Deciding again what holds of any track: what was released, and the decision that all clauses come
to."""

from collections.abc import Iterator, Mapping

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.findings import Finding, same
from confide.protocol.exact.sampling import OPERATING_SYSTEM
from confide.protocol.scores.registry import SCORES
from confide.protocol.scores.regression import ABSOLUTE_RESIDUAL


def released_flags(released: Layer | None) -> dict[str, bool]:
    """Seeded noise can be drawn again by anybody, and a threshold of 1 says nothing; what is not
    released breaks neither."""
    if released is None:
        return {"randomness": True, "informative": True}
    return {
        "randomness": released["randomness"] == OPERATING_SYSTEM,
        "informative": released["threshold"] < 1,
    }


def released_score(formal: Layer) -> Iterator[Finding]:
    """That the score is one of those known; regression is for full-data cards."""
    known = [*SCORES, ABSOLUTE_RESIDUAL] if formal["track"] == "full-data" else [*SCORES]
    yield Finding(
        "released/score", formal["released"]["score"] in known, f"one of {', '.join(known)}"
    )


def decided(formal: Layer, flags: Mapping[str, bool], failed: list[str]) -> Iterator[Finding]:
    """Flags, the clauses that failed, and the decision: a simulation where noise was seeded,
    feasible where nothing failed."""
    yield same("flags", formal["flags"], flags)
    yield same("failed", formal["failed"], failed)
    holds = "infeasible" if failed else "feasible"
    yield same("decision", formal["decision"], holds if flags["randomness"] else "simulation")
