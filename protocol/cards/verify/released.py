"""Decide again the clauses of every track: the released threshold and the decision."""

from collections.abc import Iterator, Mapping

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.findings import Finding, same
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import OPERATING_SYSTEM
from confide.protocol.scores.registry import check_text, find_score


def released_flags(released: Layer | None) -> dict[str, bool]:
    """Return the flags of the released threshold.

    Anybody can draw seeded noise again, and a threshold of 1 carries no information. A card that
    released nothing passes both clauses.
    """
    if released is None:
        return {"randomness": True, "informative": True}
    return {
        "randomness": released["randomness"] == OPERATING_SYSTEM,
        "informative": released["threshold"] < 1,
    }


def released_score(formal: Layer) -> Iterator[Finding]:
    """Check that the score is known and has all its constants, and that task and labels fit it."""
    released = formal["released"]
    try:
        check_text(released["score"])
    except BadInput as error:
        yield Finding("released/score", False, str(error))
        return
    score = find_score(released["score"])
    yield Finding("released/score", True, f"known, with its constants: {score.text}")
    yield same("released/task", released["task"], score.task)
    try:
        score.check_labels(released["labels"])
    except BadInput as error:
        yield Finding("released/labels", False, str(error))


def decided(formal: Layer, flags: Mapping[str, bool], failed: list[str]) -> Iterator[Finding]:
    """Check the flags, the clauses that failed and the decision.

    The decision is a simulation if noise was seeded, and feasible if nothing failed.
    """
    yield same("flags", formal["flags"], flags)
    yield same("failed", formal["failed"], failed)
    holds = "infeasible" if failed else "feasible"
    yield same("decision", formal["decision"], holds if flags["randomness"] else "simulation")
