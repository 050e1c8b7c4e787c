"""Processes that tests start: they can be interrupted, they end with the test, and they are told
from those of anybody else."""

import fcntl
import os
import signal
import struct
import subprocess
import tempfile
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil


def interruptible() -> None:
    """Let SIGINT end this process, as it does in a terminal.

    A shell starts what runs in the background with SIGINT ignored, and every process passes that on
    to its children: without this, a run of the tests in the background has children that no
    interrupt reaches.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def started(command: Sequence[str | Path], **given: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that can be interrupted; after the block it is gone and its pipes are closed."""
    with subprocess.Popen(command, text=True, preexec_fn=interruptible, **given) as process:
        try:
            yield process
        finally:
            process.kill()


def marked(folder: Path) -> dict[str, str]:
    """An environment in which temporary files go to this folder; `members` finds what has it.

    Ray's stay where they are by default, because its sockets need a short path.
    """
    folder.mkdir(exist_ok=True)
    return os.environ | {"TMPDIR": str(folder), "RAY_TMPDIR": tempfile.gettempdir()}


def members(folder: Path) -> set[int]:
    """Processes that run in the environment of `marked(folder)`, whoever started them."""
    found = set()
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == str(folder):
                found.add(process.pid)
        except psutil.Error:
            # It is somebody else's, or it has just ended.
            continue
    return found


@contextmanager
def terminal(columns: int) -> Iterator[tuple[int, int]]:
    """Two ends of a terminal of so many columns: what is written to the second is read from the
    first."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    try:
        yield ours, theirs
    finally:
        os.close(ours)


def read_terminal(ours: int) -> bytes:
    """What a terminal shows next; nothing when everybody has closed its other end."""
    try:
        return os.read(ours, 65_536)
    except OSError:
        # Linux says so when the other end is closed.
        return b""
