"""Files written whole or not at all, and on disk when the call returns."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from confide.protocol.errors import BadInput


def write_new(files: dict[Path, bytes]) -> list[Path]:
    """Write the files that do not exist yet, for their owner's eyes only; returns those. What
    exists is left alone."""
    written = []
    for path, content in files.items():
        with _clear_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # A link, unlike a new name, replaces nothing.
            if not path.exists():
                with _aside(path, content) as made, suppress(FileExistsError):
                    os.link(made, path)
                    written.append(path)
    return written


def write_whole(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Write a file, or replace it, in one step that a crash cannot split."""
    with (
        _clear_errors(path),
        _aside(path, content.encode() if isinstance(content, str) else content) as made,
    ):
        os.chmod(made, mode)
        os.replace(made, path)


@contextmanager
def _aside(path: Path, content: bytes) -> Iterator[str]:
    """The content as a file of mode 0600 beside the path, to be given its name; what happens to
    names is synced at the end."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def _clear_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(
            f"cannot write {path}: {error.strerror}; accepted is a file in a folder of your own"
        ) from None
