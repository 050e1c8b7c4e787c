"""The files of models that owners fetch, each in memory once however many calls send it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakValueDictionary


@dataclass(frozen=True, eq=False)
class ModelFile:
    """The bytes of a file; calls that send it hold this object."""

    data: bytes


class ModelFiles:
    """Reads a file when a call needs it, and shares it with all calls that send it meanwhile.

    The file that was read last stays in memory, the others as long as a call holds them. One is
    read at a time.
    """

    def __init__(self, read: Callable[[bytes], bytes | None]) -> None:
        self._read, self._reading = read, asyncio.Lock()
        self._held: WeakValueDictionary[bytes, ModelFile] = WeakValueDictionary()
        self._last: ModelFile | None = None

    async def file(self, digest: bytes) -> ModelFile | None:
        """The file with this SHA-256, or None if it is not kept here."""
        async with self._reading:
            found = self._held.get(digest)
            if found is None:
                data = await asyncio.to_thread(self._read, digest)
                if data is None:
                    return None
                found = self._held[digest] = ModelFile(data)
            self._last = found
            return found
