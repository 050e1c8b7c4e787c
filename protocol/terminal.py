"""How every command line of the project ends: what cannot be used is one line and exit code 2, Ctrl-C a line and 130."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from protocol.errors import BadInput

INTERRUPTED = 130


def printable(text: str) -> str:
    """Text from elsewhere that leaves a terminal as it is: no control characters, no line ends."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn bad input and Ctrl-C into a line and an exit code; anything else is a bug and shows itself."""
    try:
        yield
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
