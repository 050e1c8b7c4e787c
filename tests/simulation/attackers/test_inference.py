"""Lower bounds on epsilon: below the claim, and above it where the noise is not what is stated."""

from typing import Any

import pytest
from typer.testing import CliRunner

from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import SeededEntropy
from confide.simulation.attackers.inference import TARGETS, infer
from confide.simulation.cli import app

# An honest release fails with at most this probability, in any of these tests.
FALSE_ALARM = 1e-2
# Target, claim, runs, and the part of the noise that a planted bug draws. A card takes a campaign.
AUDITS = [
    ("bits", 1.0, 20_000, 0.5),
    ("bits", 4.0, 20_000, 0.5),
    ("labels", 1.0, 40_000, 0.5),
    ("counts", 1.0, 4_000, 0.5),
    ("noised", 1.0, 20_000, 0.5),
    ("weights", 4.0, 1_500, 0.5),
    ("cards", 1.0, 300, 0.25),
]


@pytest.mark.parametrize(("target", "epsilon", "runs", "planted"), AUDITS)
def test_attackers_learn_no_more_than_is_claimed(
    target: str, epsilon: float, runs: int, planted: float
) -> None:
    """The bound stays below the claim; with part of the noise it is above."""
    assert {audit[0] for audit in AUDITS} == {*TARGETS}
    given: dict[str, Any] = {"epsilon": epsilon, "runs": runs, "false_alarm": FALSE_ALARM}
    stated = infer(target, entropy=SeededEntropy("stated", target), **given)
    weak = infer(
        target,
        entropy=SeededEntropy("weak", target),
        noise=planted,
        **given,
    )
    assert not stated.exceeds, stated
    assert max(stated.lower, stated.assumed or 0) > 0.2 * epsilon or target == "cards", stated
    assert weak.exceeds, weak


def test_the_command_ends_with_status_1_above_the_claim() -> None:
    """Half of the noise is found, and said."""

    def run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["attack", "inference", *words, "--seed", "1"])
        return done.exit_code, done.output

    assert run("labels")[0] == 0
    code, said = run("labels", "--noise", "0.5")
    assert code == 1
    assert "More is learned than the claim allows" in said
    assert run("nonsense")[0] == 2


def test_impossible_audits_are_refused() -> None:
    """No runs, a certain alarm, more noise than there is."""
    for change in ({"runs": 0}, {"false_alarm": 1.0}, {"noise": 1.5}, {"noise": 0.0}):
        given = {"epsilon": 1.0, "runs": 10, "entropy": SeededEntropy("none"), **change}
        with pytest.raises(BadInput, match="accepted are at least 1"):
            infer("bits", **given)  # type: ignore[arg-type]
