"""Verify the clauses of every track: the released threshold and the decision."""

from collections.abc import Iterator, Mapping

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.findings import Finding, same
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import OPERATING_SYSTEM
from confide.protocol.scores.registry import check_text, find_score


def released_flags(released: Layer | None) -> dict[str, bool]:
    """Return the flags of the released threshold.

    Anybody can draw seeded noise again, and a threshold of 1 carries no information; of the
    thresholds of parts one must be below 1. A card that released nothing passes both clauses.
    """
    if released is None:
        return {"randomness": True, "informative": True}
    parts = released.get("strata", {}).get("parts", [released])
    return {
        "randomness": released["randomness"] == OPERATING_SYSTEM,
        "informative": min(part["threshold"] for part in parts) < 1,
    }


def on_grid(released: Layer, shown: Layer) -> Iterator[Finding]:
    """Check that the released threshold is the edge of its bin.

    Edges that stand in the plan are compared where the plan is (`plan.py`).
    """
    yield from edge_of(released, shown, "released")
    yield Finding("released/bin", released["bin"] < shown["bins"], f"of {shown['bins']} bins")


def edge_of(one: Layer, shown: Layer, place: str) -> Iterator[Finding]:
    """Check that a threshold is the edge of its bin, on a grid that has a definition."""
    if shown["grid"] not in ("even", "given"):
        edge = _edge(shown["grid"], shown["bins"], min(one["bin"] + 1, shown["bins"]))
        yield same(f"{place}/threshold", one["threshold"], edge)


def _edge(grid: str, bins: int, j: int) -> float:
    """Edge j of a public grid, from its definition.

    Rungs of a logit grid stand at 2^-23, 2^-22, ..., 1/2 and at 1 minus these. A grid climbs from
    rung to rung in equal shares (logit), in proportion to q (uniform), or by the mean (mixed).
    """
    if grid == "uniform":
        return j / bins
    halves = [2.0**-power for power in range(23, 0, -1)]
    rungs = [0.0, *halves, *(1 - half for half in reversed(halves[:-1])), 1.0]
    last, unit = len(rungs) - 1, 1 << 23
    tilt = {"logit": 0, "mixed": 1}[grid]
    # The climb in whole numbers, up to `top` at q = 1.
    climbed = [
        tilt * last * int(rung * unit) + (2 - tilt) * unit * step for step, rung in enumerate(rungs)
    ]
    top = climbed[-1]
    below = max(step for step in range(last) if climbed[step] * bins < j * top)
    share = (j * top - bins * climbed[below]) / (bins * (climbed[below + 1] - climbed[below]))
    return rungs[below] + share * (rungs[below + 1] - rungs[below])


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
    yield same("released/task", released["task"], score.task.name)
    try:
        score.check_labels(released["labels"])
    except BadInput as error:
        yield Finding("released/labels", False, str(error))
    if score.task.of_numbers or "reach" in released:
        yield same("released/reach", released.get("reach", "nothing"), _reach(released))


def _reach(released: Layer) -> float | None:
    """How far intervals reach beyond the model's results, in the target's unit; None: unbounded.

    Residuals are divided by the public bound. CQR's excesses run from -bound to bound, and are
    mapped to [0, 1].
    """
    name, _, bound = released["score"].partition(" bound=")
    threshold = float(released["threshold"])
    if released["labels"] or threshold >= 1:
        return None
    share = 2 * threshold - 1 if name == "cqr" else threshold
    return share * float(bound)


def decided(formal: Layer, flags: Mapping[str, bool], failed: list[str]) -> Iterator[Finding]:
    """Check the flags, the clauses that failed and the decision.

    The decision is a simulation if noise was seeded, and feasible if nothing failed.
    """
    yield same("flags", formal["flags"], flags)
    yield same("failed", formal["failed"], failed)
    holds = "infeasible" if failed else "feasible"
    yield same("decision", formal["decision"], holds if flags["randomness"] else "simulation")
