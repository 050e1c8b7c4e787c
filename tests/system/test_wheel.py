"""The wheel in an environment of its own: one package, and five programs that start or say why."""

import os
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from confide.protocol.version import CODE_VERSION
from tests.support.programs.wheels import built_wheel
from tests.support.repository.places import ROOT

# Every program, and the extra that it needs.
EXTRAS = {
    "confide": "client",
    "confide-client": "client",
    "confide-aggregator": "server",
    "confide-card": "server",
    "confide-shuffler": "server,client",
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment in which the wheel alone is installed, without what it requires."""
    place = tmp_path_factory.mktemp("place")
    wheel = built_wheel(tmp_path_factory.mktemp("wheel"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "env"], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(place / "env"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", wheel], check=True, capture_output=True)
    return place / "env"


def started(environment: Path, name: str, *arguments: str, more: str = "") -> tuple[int, str]:
    """The code of a program in an empty folder, and its output; `more` are packages beside it."""
    folder = environment.parent / "empty"
    folder.mkdir(exist_ok=True)
    given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [environment / "bin" / name, *arguments],
        cwd=folder,
        env=given | ({"PYTHONPATH": more} if more else {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_one_package_is_installed(environment: Path) -> None:
    """Nothing called `client` or `protocol` lands among the packages of a user, and every program
    of the project is there."""
    (site,) = environment.glob("lib/python*/site-packages")
    names = {path.name for path in site.iterdir() if path.suffix != ".dist-info"}
    assert names == {"confide"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS) == set(project["scripts"])
    assert set(EXTRAS) <= {path.name for path in (environment / "bin").iterdir()}


@pytest.mark.parametrize("name", EXTRAS)
def test_a_program_without_its_packages_names_the_extra(environment: Path, name: str) -> None:
    """One line and code 2; the extra is one that the project has."""
    code, said = started(environment, name, "--help")
    assert (code, said.count("\n")) == (2, 1), said
    assert f"pip install 'confide[{EXTRAS[name]}]'" in said
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS[name].split(",")) <= set(project["optional-dependencies"])


@pytest.mark.parametrize("name", EXTRAS)
def test_a_program_starts_from_the_wheel(environment: Path, name: str) -> None:
    """With the packages of its extra beside it, it shows its version and its commands; its code is
    that of the wheel, not of this checkout."""
    more = sysconfig.get_paths()["purelib"]
    assert started(environment, name, "--version", more=more) == (0, f"{name} {CODE_VERSION}\n")
    code, said = started(environment, name, "--help", more=more)
    assert (code, "Commands:" in said) == (0, True), said
    where = "import confide.protocol as p; print(p.__file__)"
    assert str(environment) in started(environment, "python", "-c", where, more=more)[1]
