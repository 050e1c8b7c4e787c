"""Write files completely or not at all; they are on disk when the call returns."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from confide.protocol.errors import BadInput


def write_new(files: dict[Path, bytes]) -> list[Path]:
    """Write the files that do not exist yet, readable by their owner only; return their paths.

    Existing files are not changed.
    """
    written = []
    for path, content in files.items():
        with _clear_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Unlike a rename, a link never replaces an existing file.
            if not path.exists():
                with _aside(path, content) as made, suppress(FileExistsError):
                    os.link(made, path)
                    written.append(path)
    return written


def write_whole(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Write or replace a file in one atomic step: a crash leaves the old or the new content."""
    with (
        _clear_errors(path),
        _aside(path, content.encode() if isinstance(content, str) else content) as made,
    ):
        os.chmod(made, mode)
        os.replace(made, path)


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written there, before anything is computed."""
    if not path.parent.is_dir():
        raise BadInput(f"cannot write {path}: its folder does not exist")
    if path.is_dir():
        raise BadInput(f"cannot write {path}: it is a folder")


def make_folder(path: Path) -> None:
    """Make a folder for results, if it is missing."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"cannot write into {path}: {error.strerror}; accepted is a folder of your own"
        ) from None


@contextmanager
def _aside(path: Path, content: bytes) -> Iterator[str]:
    """Write the content to a temporary file beside the path, for the caller to link or rename.

    The file has mode 0600; the folder is synced at the end.
    """
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
