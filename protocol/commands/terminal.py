"""How every command line starts and ends, and which characters it may print.

Bad input ends a command with one line and exit code 2, Ctrl-C with one line and exit code 130. This
module needs no extra, so that `run_command` can name the extra that is missing;
`confide.protocol.commands.command_line` makes the command lines, with typer.
"""

import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType

from confide.protocol.errors import BadInput

INTERRUPTED = 130
# The extra of a package that several command lines use, whichever of them lacks it.
EXTRAS = {
    "torch": "train",
    "opacus": "train",
    "dp_accounting": "train",
    "onnxscript": "train",
    "onnx": "client",
    "onnxruntime": "client",
    "pyarrow": "client",
    "flwr": "flower",
    "matplotlib": "plots",
    "psutil": "simulation",
    "ray": "simulation",
}

NO_OTHERS: Mapping[str, str] = MappingProxyType({})


def run_command(module: str, *, name: str, extra: str, own: Mapping[str, str] = NO_OTHERS) -> None:
    """Run the command line `app` of a module.

    If a package of an extra is not installed, one line names the extra to install: that of EXTRAS,
    unless the command line has its `own` for the package, and else its `extra`.
    """
    try:
        import_module(module).app(prog_name=name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("confide", ""):
            raise
        wanted = {**EXTRAS, **own}.get(missing, extra)
        print(
            (
                f"error: the package {missing} is not installed; accepted: pip install "
                f"'confide[{wanted}]'"
            ),
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        # Ctrl-C while packages are loaded, before any command has begun.
        raise SystemExit(_interrupted()) from None


def check_installed(package: str) -> None:
    """Fail as an import of this package would, without loading it."""
    if find_spec(package) is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)


def columns() -> int | None:
    """Return the width of the terminal, or None if standard output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def printable(text: str) -> str:
    """Replace control characters and line ends in foreign text by spaces."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn bad input and Ctrl-C into one line and an exit code.

    Any other exception is a bug and keeps its traceback.
    """
    try:
        yield
    except BadInput as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(_interrupted()) from None


def _interrupted() -> int:
    """Say that Ctrl-C ended the command; return its exit code."""
    print("interrupted", file=sys.stderr)
    return INTERRUPTED
