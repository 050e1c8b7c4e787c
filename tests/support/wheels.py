"""The project's wheel."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.places import ROOT


def built_wheel(folder: Path) -> Path:
    """Build the wheel in a folder, from a copy of what it is built from."""
    for name in ("confide", "protocol", "client", "aggregator", "shuffler", "simulation"):
        shutil.copytree(
            ROOT / name,
            folder / "source" / name,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    build = "import setuptools.build_meta as b; b.build_wheel('..')"
    subprocess.run(
        [sys.executable, "-c", build], cwd=folder / "source", capture_output=True, check=True
    )
    (wheel,) = folder.glob("*.whl")
    return wheel
