"""Ctrl-C and SIGTERM leave blocks in order, and only where a block may be left."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """Handles both signals: they wait, except inside a block of `allowed`.

    So what is started outside of such a block is always reached by the code that ends it.
    """

    def __init__(self) -> None:
        self._waits, self._number = True, 0

    def handle(self, number: int, _: FrameType | None) -> None:
        """Leave the block now, or note the signal for later."""
        self._number = number
        if not self._waits:
            self.leave_if_told()

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Let a signal leave this block; one that came before leaves it at once."""
        self._waits = False
        try:
            self.leave_if_told()
            yield
        finally:
            self._waits = True

    def leave_if_told(self) -> None:
        """Raise KeyboardInterrupt after Ctrl-C, and exit after SIGTERM; once for each signal."""
        number, self._number = self._number, 0
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        if number:
            sys.exit(128 + number)


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Handle both signals in this block; one that still waits at its end is obeyed then.

    A signal that this process ignores, as background jobs of a shell ignore Ctrl-C, stays ignored.
    """
    made, before = Interrupts(), {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, made.handle)
        yield made
    finally:
        for number, handler in reversed(before.items()):
            signal.signal(number, handler)
    made.leave_if_told()
