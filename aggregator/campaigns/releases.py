"""Releases that are drawn only once.

A second draw from the same counts would cost the privacy budget a second time. A draw is given a
mechanism with a histogram and a rank, or a divided one with those of all parts.
"""

import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from confide.aggregator.procedures.counts.central import Draw
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import Entropy


class Kept:
    """A draw that writes and syncs its release to a file first, and from then on only reads it."""

    def __init__(self, path: Path, entropy: Entropy) -> None:
        self._path, self._entropy = path, entropy

    def __call__(self, mechanism: Any, histogram: Any, rank: Any) -> Any:
        if not self._path.exists():
            drawn = asdict(mechanism.release(histogram, rank, self._entropy))
            handle, partial = tempfile.mkstemp(dir=self._path.parent)
            with os.fdopen(handle, "w") as file:
                json.dump(drawn, file)
                file.flush()
                os.fsync(file.fileno())
            try:
                # A link fails if the file exists: of two draws at once, one is kept and both
                # return it.
                os.link(partial, self._path)
            except FileExistsError:
                pass
            finally:
                os.unlink(partial)
            _sync(self._path.parent)
        return self._read(mechanism, rank)

    def _read(self, mechanism: Any, rank: Any) -> Any:
        try:
            text = self._path.read_text()
        except (OSError, ValueError) as error:
            raise BadInput(
                f"{self._path} cannot be read: {error}; a lost release must not be drawn again"
            ) from None
        return read_release(text, mechanism, rank, where=str(self._path))


def read_release(text: str, mechanism: Any, rank: Any, *, where: str) -> Any:
    """Read a stored release, and check that it has this mechanism and rank."""
    try:
        return mechanism.read(json.loads(text), rank)
    except BadInput as error:
        raise BadInput(f"{where} holds {error}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise BadInput(
            f"{where} cannot be read as a release: {error}; a lost release must not be drawn again"
        ) from None


class Audited:
    """A draw that also measures the release in thresholds, for a trusted auditor.

    Neither number in `diagnostic` is protected by differential privacy.
    """

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self.diagnostic: dict[str, float] = {}

    def __call__(self, mechanism: Any, histogram: Any, rank: Any) -> Any:
        release = self._draw(mechanism, histogram, rank)
        self.diagnostic = mechanism.observed(histogram, rank, release)
        return release


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
