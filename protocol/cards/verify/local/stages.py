"""Verify the stages in which thresholds were tested: none that failed may be left out.

A test that may skip what it failed starts again at its whole delta. Levels, and parts taken
together, are tested by the same stages, so each says what the others were asked. A part with
thresholds of its own tests one stage after the other, until it tests no more. The answers of a part
by round tell its stages apart.
"""

from collections.abc import Iterator, Mapping, Sequence

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.findings import Finding, same

# Variants that test parts of the records on reports of their own, and those with one threshold.
PARTS = {
    "for-every-owner": "owner",
    "per-owner": "owner",
    "for-every-group": "group",
    "per-group": "group",
}
TOGETHER = ("for-every-owner", "for-every-group")
# Variants whose parts are certified in stages, each on answers of its own.
STAGED = (*TOGETHER, "per-group")
# Shares of the records in the stages of certified, by the records of the smallest owner that they
# are made for.
STAGES = (
    (600, (0.08, 0.09, 0.18, 0.14, 0.19, 0.17)),
    (200, (0.15, 0.2, 0.25, 0.25)),
    (150, (0.2, 0.25, 0.35)),
    (120, (0.3, 0.45)),
)
# The shares of a part's answers in its stages, and what the rounds of search before them have.
PART_SHARES = (0.15, 0.3, 0.4)
SEARCH_ROUNDS, SEARCHED = 2, 0.05 + 0.1


def in_search(part: Layer) -> int:
    """The answers that stages of a part are planned for, by what its rounds of search received."""
    return int(sum(part["reports"][:SEARCH_ROUNDS]) / SEARCHED)


def in_stages(part: Layer) -> list[int]:
    """The answers of a part to every stage."""
    return list(part["reports"][SEARCH_ROUNDS:])


def planned_rests(found: Layer) -> list[int]:
    """The answers planned after each stage."""
    planned = [int(found["planned"] * share) for share in _shares(found)]
    return [sum(planned[i + 1 :]) for i in range(len(planned))]


def _shares(found: Layer) -> tuple[float, ...]:
    """The shares of the stages, by the plan's smallest owner; none are for owners too small."""
    if found["variant"] in STAGED:
        return PART_SHARES
    smallest = found.get("smallest_owner", STAGES[0][0])
    return next((shares for least, shares in STAGES if smallest >= least), ())


def numbered(found: Layer) -> dict[int, Layer]:
    """The rungs by the number of their stage, told by the answers still to come."""
    rungs = [rung for rung in found["rungs"] if "rest" in rung]
    rests = planned_rests(found) if rungs else []
    stages: dict[int, Layer] = {}
    for rung in rungs:
        later = range(max(stages, default=-1) + 1, len(rests))
        stage = next((i for i in later if rests[i] == rung["rest"]), later.start)
        stages[stage] = rung
    return stages


def in_common(
    place: str, tests: Mapping[str, Mapping[int, Layer]], *, needed: Sequence[int] | None = None
) -> Iterator[Finding]:
    """Check the stages of tests that were asked the same thresholds, each under its name.

    A test skips a stage only if it has certified its threshold, or has no level left. Those that
    are `needed` were tested by somebody: every one up to the last, if that is not said.
    """
    asked: dict[int, set[float]] = {}
    for own in tests.values():
        for stage, rung in own.items():
            asked.setdefault(stage, set()).add(rung["threshold"])
    missing = {*(range(len(asked)) if needed is None else needed)} - {*asked}
    yield Finding(f"{place}/stages", not missing, f"stages {sorted(missing)} are left out")
    for stage, thresholds in sorted(asked.items()):
        detail = f"{len(thresholds)} thresholds in stage {stage}"
        yield Finding(f"{place}/stages", len(thresholds) == 1, detail)
    for name, own in tests.items():
        certified, over = 1.0, False
        for stage, thresholds in sorted(asked.items()):
            if stage in own:
                left = own[stage]["level_after"]
                certified = own[stage]["threshold"] if left == 1 else certified
                over = left == 0
                continue
            detail = f"leaves out stage {stage} at {min(thresholds)}, certifies {certified}"
            yield Finding(f"{name}/stages", over or min(thresholds) >= certified, detail)


def alone(name: str, own: Mapping[int, Layer]) -> Finding:
    """Check that a test with thresholds of its own leaves out no stage before its last one."""
    return same(f"{name}/stages", [*own], [*range(len(own))])


def as_answered(name: str, part: Layer, own: Mapping[int, Layer]) -> Iterator[Finding]:
    """Check that the stages of a part count what it answered to them, and its rounds all of it."""
    yield same(f"{name}/n", part["n"], sum(part["reports"]))
    came = dict(enumerate(in_stages(part)))
    told = {stage: rung["n"] for stage, rung in own.items()}
    yield same(f"{name}/stages", told, {stage: came.get(stage) for stage in told})
