"""An option that no campaign of a federation would use is refused."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from confide.simulation.cli import app


@pytest.mark.parametrize("campaigns", ["central:trusted", "bits:certified central:trusted"])
def test_a_federation_with_a_privacy_delta_that_nothing_spends_does_not_start(
    campaigns: str, tmp_path: Path
) -> None:
    """Before anything is asked or written."""
    out = tmp_path / "out"
    given = ["--campaigns", campaigns, "--privacy-delta", "1e-5", "--out", str(out)]
    result = CliRunner().invoke(app, ["federation", *given])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith("error: privacy-delta is 1e-05, and the mechanism is pure")
    assert not out.exists()
