"""How many calls may be open at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confide.protocol.errors import Refused
from confide.protocol.wire import wire_pb2 as wire


@dataclass(frozen=True)
class Bounds:
    """How many calls may be open at a time, by kind.

    `calls` are those of owners that ask or send, `watches` those that follow a campaign;
    `strangers` have a token that is not known yet; `checks` and `health_watches` are health checks.
    """

    calls: int = 1_000
    watches: int = 10_000
    strangers: int = 100
    # Each may read one message of the largest size from a client without a token.
    checks: int = 32
    health_watches: int = 16


class Slots:
    """A fixed number of slots; callers are refused while all of them are taken."""

    def __init__(self, free: int) -> None:
        self._free = free

    @contextmanager
    def one(self) -> Iterator[None]:
        """Hold one slot for the duration of the block, or refuse if none is free."""
        if self._free <= 0:
            raise Refused(wire.Code.RATE_LIMITED)
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1
