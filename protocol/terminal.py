"""How every command line of the project ends: what cannot be used is one line and exit code 2,
Ctrl-C a line and 130."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from confide.protocol.errors import BadInput

INTERRUPTED = 130
TRAINING = ("torch", "opacus", "dp_accounting")


def run_command(module: str, *, name: str, extra: str) -> None:
    """Run the command line `app` of a module.

    What belongs to an extra that is not installed is said in one line. This module imports none of
    it, so that it can.
    """
    try:
        import_module(module).app(prog_name=name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("confide", ""):
            raise
        wanted = "train" if missing in TRAINING else extra
        print(
            (
                f"error: the package {missing} is not installed; accepted: pip install "
                f"'confide[{wanted}]'"
            ),
            file=sys.stderr,
        )
        raise SystemExit(2) from None


def columns() -> int | None:
    """How wide the terminal is that standard output goes to; None where it goes elsewhere, which
    takes any width."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def printable(text: str) -> str:
    """Text from elsewhere that leaves a terminal as it is: no control characters, no line ends."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn bad input and Ctrl-C into a line and an exit code; anything else is a bug and shows
    itself."""
    try:
        yield
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
