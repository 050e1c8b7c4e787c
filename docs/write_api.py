"""Writes docs/api.md from the public names of the package, their signatures and docstrings.

`python docs/write_api.py [FILE]`; a test fails when the page is not what this script writes.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import confide  # noqa: E402

WIDTH = 88
HEAD = """# API

What `import confide` gives: {names}. Everything else is internal and may change.

Written by `python docs/write_api.py` from the code.
[Tutorials](tutorials.md) show how the names are used together.
"""


def main(target: Path) -> None:
    lines = [HEAD.format(names=", ".join(f"`{name}`" for name in confide.__all__))]
    for name in sorted(confide.__all__, key=lambda name: (order(getattr(confide, name)), name)):
        lines += entry(f"confide.{name}", getattr(confide, name))
    target.write_text("\n".join(lines).rstrip() + "\n")


def order(value: Any) -> int:
    """Functions first, then classes, then modules."""
    return 2 if inspect.ismodule(value) else 1 if inspect.isclass(value) else 0


def entry(name: str, value: Any) -> Iterator[str]:
    """A heading, the signature, the docstring, and the members."""
    yield f"## {name}\n"
    if inspect.ismodule(value):
        yield f"{doc(value)}\n"
        for inner in value.__all__:
            yield from member(f"{name}.{inner}", getattr(value, inner))
        return
    yield f"{signature(name, value)}\n"
    yield f"{doc(value)}\n"
    if inspect.isclass(value):
        for inner, found in vars(value).items():
            if not inner.startswith("_") and is_member(found):
                yield from member(f"{name.rpartition('.')[2]}.{inner}", found)


def bare(value: Any) -> Any:
    """The function of a class or static method."""
    return value.__func__ if isinstance(value, classmethod | staticmethod) else value


def is_member(value: Any) -> bool:
    return inspect.isfunction(bare(value)) or isinstance(value, property)


def member(name: str, value: Any) -> Iterator[str]:
    found = bare(value)
    yield f"### {name}\n"
    if not isinstance(found, property):
        yield f"{signature(name, found)}\n"
    text = doc(found.fget if isinstance(found, property) else found)
    if text:
        yield f"{text}\n"


def signature(name: str, value: Any) -> str:
    """A call as the source writes it, a parameter a line where it is long."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(value))).body
    if isinstance(node, ast.ClassDef):
        parts = [ast.unparse(one) for one in node.body if isinstance(one, ast.AnnAssign)]
        back = ""
        if not parts:
            return code(name)
    else:
        assert isinstance(node, ast.FunctionDef)
        parts, back = list(parameters(node.args)), f" -> {plain(node.returns)}"
    line = f"{name}({', '.join(parts)}){back}"
    if len(line) > WIDTH:
        line = "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){back}"])
    return code(line)


def parameters(given: ast.arguments) -> Iterator[str]:
    """The parameters of a function, without self and cls."""
    late = [None] * (len(given.args) - len(given.defaults)) + [*given.defaults]
    for one, value in zip(given.args, late, strict=True):
        if one.arg not in ("self", "cls"):
            yield parameter(one, value)
    if given.kwonlyargs:
        yield "*"
    for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield parameter(one, value)
    if given.kwarg:
        yield f"**{parameter(given.kwarg, None)}"


def parameter(one: ast.arg, value: ast.expr | None) -> str:
    return f"{one.arg}: {plain(one.annotation)}" + (
        "" if value is None else f" = {ast.unparse(value)}"
    )


def plain(annotation: ast.expr | None) -> str:
    """A type without the quotes of one that is not imported."""
    return "None" if annotation is None else ast.unparse(annotation).replace("'", "")


def code(text: str) -> str:
    return f"```python\n{text}\n```"


def doc(value: Any) -> str:
    found = inspect.getdoc(value) or ""
    return found if not isinstance(value, ModuleType) else inspect.cleandoc(value.__doc__ or "")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "api.md")
