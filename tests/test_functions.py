"""The shape of functions: what they take by position, and how long they are."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repository.places import ROOT

# More positions are given in the wrong order, sooner or later.
POSITIONS = 3
# What fits a screen, without signature and docstring.
LINES = 48
# Statements of a database, one after the other.
LISTS = "aggregator/storage/migrations/"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions() -> Iterator[tuple[str, Function]]:
    for folder in ("confide", "protocol", "client", "aggregator", "shuffler", "simulation"):
        for path in (ROOT / folder).rglob("*.py"):
            yield from in_file(path)


def in_file(path: Path) -> Iterator[tuple[str, Function]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Function):
            yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node


def positions(function: Function) -> int:
    """The parameters that are given by position; what a caller dictates and nobody uses is none."""
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    return sum(name not in ("self", "cls") and bool(name.strip("_")) for name in names)


def length(function: Function) -> int:
    """The lines of the body after the docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_functions_take_three_positions_at_most() -> None:
    """Everything else is named where it is given."""
    assert [name for name, one in functions() if positions(one) > POSITIONS] == []


def test_functions_fit_a_screen() -> None:
    """A longer one does several things, each of which has a name."""
    long = [name for name, one in functions() if length(one) > LINES and LISTS not in name]
    assert long == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f(self, a, b, c, *, d): pass", (3, 1)),
        ("def f(a, /, b, c, d): pass", (4, 1)),
        ("def f(_, __, a): pass", (1, 1)),
        ('async def f(a=1):\n    """What."""\n    x = (\n        1)\n    return x', (1, 3)),
        ('def f():\n    """What."""', (0, 0)),
    ],
)
def test_shapes_are_counted(text: str, expected: tuple[int, int]) -> None:
    (node,) = ast.parse(text).body
    assert isinstance(node, Function)
    assert (positions(node), length(node)) == expected
