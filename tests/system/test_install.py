"""What each extra pulls in, and the files that build containers."""

import re
import shutil
import subprocess
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from confide.aggregator.__main__ import main as aggregator
from confide.client.__main__ import main as client
from tests.support.programs.commands import run_main
from tests.support.programs.wheels import unpacked_wheel
from tests.support.repository.places import ROOT

HEAVY = {"torch", "opacus", "ray", "flwr", "matplotlib"}
CONTAINERS = ROOT / "examples" / "container" / "Containerfile"
COMPOSE = ROOT / "examples" / "compose.yaml"


def pulled(wanted: list[str], extras: set[str], seen: set[tuple[str, ...]]) -> set[str]:
    """The packages that these requirements pull in, by what the installed ones require."""
    found: set[str] = set()
    for requirement in map(Requirement, wanted):
        marker, step = requirement.marker, (requirement.name, *sorted(requirement.extras))
        if marker and not any(marker.evaluate({"extra": extra}) for extra in extras | {""}):
            continue
        if step in seen:
            continue
        seen.add(step)
        found.add(canonicalize_name(requirement.name))
        with suppress(PackageNotFoundError):
            found |= pulled(requires(requirement.name) or [], requirement.extras, seen)
    return found


@pytest.mark.parametrize(
    ("extra", "with_it"),
    [
        ("", set()),
        ("client", set()),
        ("server", set()),
        ("flower", {"flwr"}),
        ("train", {"torch", "opacus"}),
        ("plots", {"matplotlib"}),
        ("simulation", {"flwr", "ray", "matplotlib"}),
    ],
)
def test_extras_pull_in_what_their_users_need(extra: str, with_it: set[str]) -> None:
    """Owners and operators get no framework that they did not ask for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"].get(extra, [])
    found = pulled(wanted, set(), set()) & HEAVY
    assert found >= with_it
    assert with_it or not found


def test_models_run_in_the_version_that_is_tried() -> None:
    """Which graphs are harmless depends on what runs them, so owners install exactly that."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = map(Requirement, project["optional-dependencies"]["client"])
    pinned = {str(one.specifier) for one in wanted if one.name == "onnxruntime"}
    assert pinned == {f"=={version('onnxruntime')}"}


def test_containers_start_commands_that_exist() -> None:
    """Every command in the compose file has the options it is given, and files that are copied
    are there."""
    text = " ".join(COMPOSE.read_text().split())
    commands = re.findall(r"confide-(aggregator|client) (\w+)((?: (?!#|docker)\S+)*)", text)
    assert {name for _, name, _ in commands} == {"init", "serve"}
    for which, name, rest in commands:
        help_ = run_main(aggregator if which == "aggregator" else client, name, "--help").stdout
        for option in re.findall(r"--[a-z-]+", rest):
            assert option in help_, (name, option)


def test_images_copy_all_that_their_packages_are_built_from(tmp_path: Path) -> None:
    """The wheel of the copied files has every package of the project, and says that it is typed."""
    lines = [line.split() for line in CONTAINERS.read_text().splitlines()]
    copied = [name for line in lines if line[:1] == ["COPY"] for name in line[1:-1]]
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not {name.partition("/")[0] for name in copied} & set(ignored)
    site = unpacked_wheel(tmp_path, copied)
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "packages"
    ]
    assert all((site / name.replace(".", "/") / "__init__.py").exists() for name in packages)
    assert (site / "confide" / "py.typed").exists()


@pytest.mark.parametrize("role", ["server", "client"])
def test_images_build_where_a_builder_runs(role: str) -> None:
    """An image of each role is built, where Docker has an engine."""
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True).returncode:
        pytest.skip("no container engine runs here")
    built = subprocess.run(
        [docker, "build", "-q", "-f", CONTAINERS, "--build-arg", f"ROLE={role}", ROOT],
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert built.returncode == 0, built.stderr
