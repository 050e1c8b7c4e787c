"""Documents name files, modules and commands that exist, and the picture is the code's."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import confide
from confide.protocol.wire.service import SERVICE
from tests.support.repository.places import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
FOLDERS = "protocol|client|aggregator|shuffler|simulation|confide|tests|benchmarks|docs|examples"
# A path of the repository: in code quotes or in a command, with a slash.
PATHS = re.compile(rf"(?<![\w/.~-])(?:{FOLDERS})/[\w./*{{}},-]*")
MODULES = re.compile(r"\bconfide(?:\.\w+)+")
LINKS = re.compile(r"\]\(([^)#:]+)\)")
SCRIPTS = re.compile(r"python (?:-m (confide[\w.]*)|((?:benchmarks|docs|examples)/[\w/]+\.py))")
TARGETS = re.compile(r"\bmake ([a-z]+)\b")
# Made where the reader works, not part of the repository.
MADE = ("benchmarks/.peers", "confide/bin/")


@pytest.fixture(params=PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def page(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def defined(body: list[ast.stmt]) -> dict[str, list[ast.stmt]]:
    """The names that statements define, with the body of classes."""
    names: dict[str, list[ast.stmt]] = {}
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names[node.name] = node.body
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = []
        elif isinstance(node, ast.Assign):
            names |= {one.id: [] for one in node.targets if isinstance(one, ast.Name)}
    return names


def exists(dotted: str) -> bool:
    """Whether a dotted name is a package, a module, or something that a module defines."""
    parts = dotted.split(".")[1:]
    if parts[0] in confide.__all__:
        return exists_in(confide, parts)
    for length in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:length])
        if place.is_dir():
            return length == len(parts)
        if not place.with_suffix(".py").is_file():
            continue
        names = defined(ast.parse(place.with_suffix(".py").read_text()).body)
        for name in parts[length:]:
            if name not in names:
                return False
            names = defined(names[name])
        return True
    return False


def exists_in(place: object, parts: list[str]) -> bool:
    """Whether a public name, and what is asked of it, can be reached from the package."""
    for part in parts:
        if not hasattr(place, part):
            return False
        place = getattr(place, part)
    return True


def test_the_api_page_is_what_the_script_writes(tmp_path: Path) -> None:
    """Write it again with `python docs/write_api.py` after public names or docstrings change."""
    subprocess.run(
        [sys.executable, str(ROOT / "docs" / "write_api.py"), str(tmp_path / "now.md")],
        check=True,
        timeout=60,
    )
    assert (ROOT / "docs" / "api.md").read_text() == (tmp_path / "now.md").read_text()


def test_every_public_name_is_documented() -> None:
    """Functions, classes, and their members have a docstring."""
    page = (ROOT / "docs" / "api.md").read_text()
    for part in page.split("\n##")[1:]:
        head, _, body = part.partition("\n")
        words = re.sub(r"```.*?```", "", body, flags=re.DOTALL).strip()
        assert words, head


def test_paths_exist(page: Path) -> None:
    """Every path of the repository that a page mentions is there."""
    for found in PATHS.findall(page.read_text()):
        path = found.rstrip(".,")
        if not path.startswith(MADE):
            assert list(ROOT.glob(path)), path


def test_modules_and_names_exist(page: Path) -> None:
    """Every `confide.x.y` that a page mentions is a module, or is defined in one."""
    named = [name for name in MODULES.findall(page.read_text()) if not _is_no_module(name)]
    assert [name for name in named if not exists(name)] == []


def _is_no_module(name: str) -> bool:
    """Files and the gRPC service have such names too."""
    return name == SERVICE or name.rpartition(".")[2] in ("sqlite", "service", "toml")


def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link leads to a file."""
    for link in LINKS.findall(page.read_text()):
        assert (page.parent / link).exists(), link


def test_commands_exist(page: Path) -> None:
    """Scripts and modules that a page runs are there, and so are the targets of make."""
    text = page.read_text()
    for module, script in SCRIPTS.findall(text):
        assert exists(f"{module}.__main__") if module else (ROOT / script).is_file()
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    # What a program prints is no command.
    typed = re.sub(r"^```text$.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    quoted = " ".join(re.findall(r"`[^`]+`|^    .*$", typed, re.MULTILINE))
    for target in TARGETS.findall(quoted):
        assert target in targets, target


def test_the_picture_is_what_the_script_draws(tmp_path: Path) -> None:
    """Draw it again with `python docs/draw_architecture.py` after imports between rooms change."""
    subprocess.run(
        [sys.executable, str(ROOT / "docs" / "draw_architecture.py"), str(tmp_path / "now.svg")],
        check=True,
        timeout=60,
    )
    drawn = (tmp_path / "now.svg").read_text()
    assert (ROOT / "docs" / "architecture.svg").read_text() == drawn


def test_the_path_in_words_is_the_path_in_the_picture() -> None:
    """The numbered steps of the page name the modules of the numbered boxes."""
    words = (ROOT / "docs" / "architecture.md").read_text()
    steps = re.split(r"^\d+\. ", words.split("## The path of a report")[1], flags=re.MULTILINE)[1:]
    source = ast.parse((ROOT / "docs" / "draw_architecture.py").read_text())
    (path,) = [
        ast.literal_eval(node.value)
        for node in source.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PATH"
    ]
    assert len(steps) == len(path)
    for step, named in zip(steps, path, strict=True):
        assert f"confide.{named.split(':')[0]}" in step


def test_every_room_is_in_the_table() -> None:
    """The table of rooms has every folder of the packages with code."""
    words = (ROOT / "docs" / "architecture.md").read_text()
    for package in ("protocol", "client", "aggregator", "simulation"):
        for path in (ROOT / package).iterdir():
            if (path / "__init__.py").exists():
                assert f"`{package}/{path.name}/`" in words, path


def test_the_bundle_leaves_documents_out() -> None:
    """What owners run holds neither documents nor examples."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    excluded = settings["tool"]["flwr"]["app"]["fab-exclude"]
    assert {"docs/**", "examples/**", "CONTRIBUTING.md"} <= set(excluded)
