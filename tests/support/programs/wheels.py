"""The project's wheel, built from the files that a test names."""

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

from tests.support.repository.places import ROOT

PACKAGES = "confide", "protocol", "client", "aggregator", "shuffler", "simulation"
PACKAGED = (*PACKAGES, "pyproject.toml", "README.md", "LICENSE")


def built_wheel(folder: Path, names: Iterable[str] = PACKAGED) -> Path:
    """Build the wheel in a folder, from a copy of these files and folders of the checkout."""
    source = folder / "source"
    source.mkdir()
    for name in names:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, source)
    build = "import setuptools.build_meta as b; b.build_wheel('..')"
    done = subprocess.run(
        [sys.executable, "-c", build], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def unpacked_wheel(folder: Path, names: Iterable[str] = PACKAGED) -> Path:
    """Build the wheel, and unpack it as an installer does."""
    with zipfile.ZipFile(built_wheel(folder, names)) as archive:
        archive.extractall(folder / "site")
    return folder / "site"
