"""Models that many owners fetch at once are read and held once."""

import asyncio
import gc
import weakref

from confide.aggregator.server.model_files import ModelFile, ModelFiles

ONE, OTHER = b"1" * 32, b"2" * 32


def test_calls_share_a_file_and_the_last_one_stays() -> None:
    """A hundred calls at once read it once; a later call, too. Another model takes its place, and
    the first is read again only when no call holds it any more."""
    read: list[bytes] = []

    def store(digest: bytes) -> bytes | None:
        read.append(digest)
        return None if digest == b"" else digest * 1_000

    async def use() -> None:
        files = ModelFiles(store)
        together = await asyncio.gather(*(files.file(ONE) for _ in range(100)))
        first: ModelFile | None = together[0]
        assert first is not None
        assert first.data == ONE * 1_000
        assert all(one is first for one in together)
        assert await files.file(ONE) is first
        assert read == [ONE]
        assert await files.file(b"") is None
        other = await files.file(OTHER)
        assert other is not None
        assert await files.file(ONE) is first
        assert read == [ONE, b"", OTHER]
        gone = weakref.ref(other)
        del other
        gc.collect()
        assert gone() is None
        await files.file(OTHER)
        assert read == [ONE, b"", OTHER, OTHER]

    asyncio.run(use())
