"""Starts examples, and reads the numbers that they print."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.repository.places import ROOT

EXAMPLES = ROOT / "examples"


def run(name: str, *arguments: str, folder: Path, fails: bool = False) -> str:
    """What an example prints, started in a folder of its own."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == int(fails), done.stderr
    return done.stdout


def number(text: str, after: str) -> float:
    """The first number that stands after these words."""
    found = re.search(rf"{re.escape(after)} ([\d.]+\d)", text)
    assert found is not None, text
    return float(found[1])
