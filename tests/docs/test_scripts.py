"""Benchmarks, examples and the scripts of documents import what is there; few of them run here."""

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.repository.imports import sources
from tests.support.repository.places import ROOT

SCRIPTS = sorted(sources("benchmarks", "examples", "docs"))


def missing(text: str) -> list[str]:
    """The names that a script imports from this project and that are not there."""
    asked = [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if node.module.partition(".")[0] in ("confide", "tests")
    ]
    return [f"{module}.{name}" for module, name in asked if not is_there(module, name)]


def is_there(module: str, name: str) -> bool:
    if find_spec(module) is None:
        return False
    found = importlib.import_module(module)
    package = hasattr(found, "__path__")
    return hasattr(found, name) or (package and find_spec(f"{module}.{name}") is not None)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_scripts_import_what_is_there(path: Path) -> None:
    """A function that moves takes the scripts that nobody runs every day with it."""
    assert missing(path.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "from confide.protocol.simulated.embedded import nothing",
        "from confide.protocol.nowhere import deal",
        "def later():\n    from tests.support.repository.places import nothing",
    ],
)
def test_a_name_that_is_not_there_is_found(line: str) -> None:
    """So the test above can fail."""
    assert missing(line) != []
