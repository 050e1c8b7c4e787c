"""What modules of the repository import, read from their text."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.repository.places import ROOT


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        # The packages that benchmarks install beside them lie in a hidden folder.
        for path in (ROOT / folder).rglob("*.py"):
            if not any(part.startswith(".") for part in path.relative_to(ROOT).parts):
                yield path


def imports(path: Path, *, at_once: bool = False) -> set[str]:
    """The full names of all modules that a file imports, or imports from.

    With `at_once`, imports inside functions do not count."""
    found, parsed = set(), ast.parse(path.read_text())
    for node in parsed.body if at_once else ast.walk(parsed):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def top(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def within(package: str, names: set[str]) -> set[str]:
    """The parts right below a package that are imported."""
    return {
        name.removeprefix(f"{package}.").partition(".")[0]
        for name in names
        if name.startswith(f"{package}.")
    }
