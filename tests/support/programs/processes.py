"""Processes that tests start.

They can be interrupted, they end with the test, and they can be told from all others.
"""

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

    A shell starts background jobs with SIGINT ignored, and every process passes that on to its
    children: without this call, tests that run in the background would have children that no
    interrupt reaches.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def started(command: Sequence[str | Path], **given: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a process that can be interrupted; on exit it has ended and its pipes are closed."""
    with subprocess.Popen(command, text=True, preexec_fn=interruptible, **given) as process:
        try:
            yield process
        finally:
            process.kill()


def marked(folder: Path) -> dict[str, str]:
    """Return an environment with temporary files in this folder; `members` finds its processes.

    Ray's files stay in their default place, because its sockets need a short path.
    """
    folder.mkdir(exist_ok=True)
    return os.environ | {"TMPDIR": str(folder), "RAY_TMPDIR": tempfile.gettempdir()}


def members(folder: Path) -> set[int]:
    """Return all processes that run in the environment of `marked(folder)`.

    It does not matter who started them.
    """
    found = set()
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == str(folder):
                found.add(process.pid)
        except psutil.Error:
            # The process belongs to another user, or has just ended.
            continue
    return found


@contextmanager
def terminal(columns: int) -> Iterator[tuple[int, int]]:
    """Open a terminal of this many columns and yield its two ends.

    The first end reads what is written to the second.
    """
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    try:
        yield ours, theirs
    finally:
        os.close(ours)


def read_terminal(ours: int) -> bytes:
    """Read the next output of a terminal; nothing if its other end is closed."""
    try:
        return os.read(ours, 65_536)
    except OSError:
        # Linux raises this error if the other end is closed.
        return b""
