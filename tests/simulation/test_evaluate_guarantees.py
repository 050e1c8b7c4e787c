"""Averages and bands of local methods, evaluated."""

import json
from pathlib import Path

import pytest

from tests.support.simulation import in_process


@pytest.mark.parametrize(
    ("method", "variant", "guarantee"),
    [("labels", "certified", "marginal"), ("bits", "one-shot", "band")],
)
def test_other_guarantees_are_evaluated(
    records: Path, method: str, variant: str, guarantee: str
) -> None:
    """The kind of the promise stands beside its level; an average has no failure probability."""
    given = ["--method", method, "--variant", variant, "--guarantee", guarantee]
    given += ["--epsilon", "4", "--n", "2000", "--trials", "2", "--seed", "5"]
    run = in_process("--data", records, *given, "--json", "-")
    assert run.exit_code == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["arguments"]["kind"] == guarantee
    assert (found["arguments"]["failure_probability"] == 0) == (guarantee == "marginal")
    assert f"0.900 {guarantee}" in in_process("--data", records, *given).stdout
    if guarantee == "marginal":
        refused = in_process("--data", records, *given, "--failure-probability", "0.1")
        assert refused.exit_code == 2
        assert "failure-probability is given" in refused.stderr
