"""The commands of the simulator."""

import subprocess
import sys
from pathlib import Path

from click.testing import Result
from typer.testing import CliRunner

from confide.simulation.cli import app
from tests.support.repository.places import ROOT


def simulation(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "confide", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False
    )


def in_process(*arguments: str | Path) -> Result:
    """Run the command in this process and return its output and exit code.

    This saves the start of a second interpreter.
    """
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


CENTRAL = ["--method", "central"]
FULL = ["--method", "full-data"]
