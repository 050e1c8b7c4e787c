"""Files written whole or not at all."""

import os
import tempfile
from pathlib import Path

from protocol.errors import BadInput


def write_new(files: dict[Path, bytes]) -> list[Path]:
    """Write the files that do not exist yet, for their owner's eyes only; returns those. What exists is left alone."""
    written = []
    for path, content in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if path.exists():
                continue
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
        except OSError as error:
            raise BadInput(f"cannot write {path}: {error.strerror}; accepted is a folder of your own") from None
        written.append(path)
    return written


def write_whole(path: Path, text: str) -> None:
    """Write a file, or replace it, in one step that a crash cannot split."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}; accepted is a file in a folder of your own") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException as error:
        os.unlink(name)
        if isinstance(error, OSError):
            raise BadInput(f"cannot write {path}: {error.strerror}") from None
        raise
