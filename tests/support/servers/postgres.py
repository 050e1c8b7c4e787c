"""A real PostgreSQL for tests, from the package `pgserver` or from the system.

It never runs as root.
"""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

PATIENCE = 60


def binaries() -> Path | None:
    """Return the folder with `initdb` and `postgres`, if there is one that can be run here."""
    found = importlib.util.find_spec("pgserver")
    bundled = (
        Path(found.origin).parent / "pginstall/bin" if found is not None and found.origin else None
    )
    system = shutil.which("initdb")
    candidates = [bundled, None if system is None else Path(system).resolve().parent]
    return next(
        (folder for folder in candidates if folder is not None and _runs(folder / "postgres")), None
    )


def unprivileged() -> str | None:
    """Return the user to run PostgreSQL as if this is root, because it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), None)


def _runs(program: Path) -> bool:
    try:
        return (
            subprocess.run(
                [program, "--version"], user=unprivileged(), capture_output=True, check=False
            ).returncode
            == 0
        )
    except OSError:
        return False


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Start a server with an empty database on a socket in the folder; yield its URL."""
    place = Path(tempfile.mkdtemp(dir=folder))
    user, bin_ = unprivileged(), binaries()
    assert bin_ is not None
    if user is not None:
        shutil.chown(place, user)
    data = place / "d"
    make: list[str | Path] = [
        bin_ / "initdb",
        "-D",
        data,
        "-U",
        "confide",
        "--auth=trust",
        "--no-sync",
    ]
    subprocess.run(make, user=user, capture_output=True, check=True, timeout=PATIENCE, cwd=place)
    # No network: a socket in the folder, whose name must be short.
    run: list[str | Path] = [
        bin_ / "postgres",
        "-D",
        data,
        "-h",
        "",
        "-k",
        place,
        "-c",
        "max_connections=60",
        "-c",
        "max_wal_size=4GB",
    ]
    with (place / "log").open("w") as log:
        process = subprocess.Popen(run, user=user, cwd=place, stdout=log, stderr=log)
    url = f"postgresql://confide@/postgres?host={place}"
    try:
        _wait(url, process, place / "log")
        yield url
    finally:
        # Stopped at once, without cleanup, because nobody uses this database again.
        process.send_signal(signal.SIGQUIT)
        process.wait(timeout=PATIENCE)
        shutil.rmtree(place, ignore_errors=True)


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError(log.read_text()) from None
            time.sleep(0.05)
