"""The finished trials of an experiment, a line each, in a file that is only appended to.

A process that is killed leaves at most one half-written line, which no reader takes for a trial:
its trial runs again.
"""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from confide.protocol.errors import BadInput
from confide.simulation.evaluate.repeated import Row, plain_value

NAME = "journal.jsonl"


class Finished(NamedTuple):
    """A trial that has run: the code that ran it, what it measured, and its seconds."""

    row: Row
    commit: str
    seconds: float


Key = tuple[str, int]


class Journal:
    """Finished trials by the name of their cell and their number."""

    def __init__(self, file: TextIO, done: dict[Key, Finished]) -> None:
        self._file, self.done = file, done

    def add(self, key: Key, finished: Finished) -> None:
        """Keep a trial; when this returns, killing the process does not lose it."""
        line = {"cell": key[0], "trial": key[1], **finished._asdict()}
        self._file.write(json.dumps(line, allow_nan=False, default=plain_value) + "\n")
        self._file.flush()
        # What is read back, so that a trial is the same whether it ran now or before.
        self.done[key] = _read(json.dumps(line, allow_nan=False, default=plain_value))[1]


@contextmanager
def open_journal(folder: Path) -> Iterator[Journal]:
    """Open the journal of a folder for one process, with the trials that it holds."""
    path = folder / NAME
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInput(
                f"{folder} is in use by another run; accepted is to wait for it, or another --out"
            ) from None
        file.seek(0)
        text = file.read()
        if text and not text.endswith("\n"):
            file.write("\n")
        yield Journal(file, dict(_lines(text)))


def _lines(text: str) -> Iterator[tuple[Key, Finished]]:
    for line in text.splitlines():
        try:
            yield _read(line)
        except (ValueError, KeyError, TypeError):
            continue


def _read(line: str) -> tuple[Key, Finished]:
    found: dict[str, Any] = json.loads(line)
    finished = Finished(dict(found["row"]), str(found["commit"]), float(found["seconds"]))
    return (str(found["cell"]), int(found["trial"])), finished
