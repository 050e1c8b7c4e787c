"""The project's wheel, built from the files that a test names."""

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

from tests.support.places import ROOT


def unpacked_wheel(names: Iterable[str], folder: Path) -> Path:
    """Copy these files and folders of the checkout, build a wheel from the copy, and unpack it as
    an installer does."""
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
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"
