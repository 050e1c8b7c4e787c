"""A real PostgreSQL for tests: from the package `pgserver`, or as the system has it; never run as root."""

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 60


def binaries() -> Path | None:
    """The folder with `initdb` and `postgres`, if there is one that can be run here."""
    found = importlib.util.find_spec("pgserver")
    bundled = Path(found.origin).parent / "pginstall/bin" if found is not None and found.origin else None
    system = shutil.which("initdb")
    candidates = [bundled, None if system is None else Path(system).resolve().parent]
    return next((folder for folder in candidates if folder is not None and _runs(folder / "postgres")), None)


def _user() -> str | None:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), None)


def _runs(program: Path) -> bool:
    try:
        return subprocess.run([program, "--version"], user=_user(), capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A server with an empty database, reached over a socket in the folder; yields its URL."""
    place = Path(tempfile.mkdtemp(dir=folder))
    user, bin_ = _user(), binaries()
    assert bin_ is not None
    if user is not None:
        shutil.chown(place, user)
    # libpq's name for a folder of sockets must be short.
    data = place / "d"
    as_user = {"user": user, "capture_output": True, "check": True, "timeout": PATIENCE, "cwd": place}
    subprocess.run([bin_ / "initdb", "-D", data, "-U", "confide", "--auth=trust", "--no-sync"], **as_user)  # type: ignore[call-overload]
    options = f"-h '' -k {place} -c max_connections=60"
    start: list[str | Path] = [bin_ / "pg_ctl", "-D", data, "-w", "-l", place / "log", "-o", options, "start"]
    with (place / "ctl").open("w") as out:
        subprocess.run(start, user=user, check=True, timeout=PATIENCE, cwd=place, stdout=out, stderr=out)
    try:
        yield f"postgresql://confide@/postgres?host={place}"
    finally:
        subprocess.run([bin_ / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop"], **as_user)  # type: ignore[call-overload]
        shutil.rmtree(place, ignore_errors=True)
