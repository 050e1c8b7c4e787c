"""The process that runs the other packages in an environment of their own: for `speed.py`."""

import contextlib
import json
import math
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.speed.turns import Row, Side, times_faster

HERE = Path(__file__).resolve().parent
# The environment of the other packages.
HOME = HERE.parent / ".peers"


class Peers:
    """Runs the other packages; `remarks` name what could not be measured, and why."""

    def __init__(self, home: Path, data: Path, scratch: Path) -> None:
        self.remarks: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self.ways: list[str] = []
        self.results: dict[str, float | None] = {}
        self._process: subprocess.Popen[str] | None = None
        self._errors = scratch / "peers.log"
        try:
            install(home)
            with self._errors.open("w") as log:
                self._process = subprocess.Popen(
                    [home / "bin" / "python", HERE / "peers.py", data],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            hello = self._answer()
        except (OSError, subprocess.CalledProcessError, EOFError) as error:
            self.remarks["every package"] = f"not measured, {error}"
        else:
            self.ways, self.versions = hello["ways"], hello["versions"]
            self.remarks = {
                package: f"not measured, {reason}" for package, reason in hello["missing"].items()
            }

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            said = self._errors.read_text().strip().splitlines() or ["it said nothing"]
            raise EOFError(f"the peers' process ended: {said[-1]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ask(self, way: str) -> float:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            print(way, file=self._process.stdin, flush=True)
            answer = self._answer()
        except (OSError, EOFError) as error:
            answer = {"error": str(error)}
        if "error" in answer:
            self.remarks[way] = f"not measured, {answer['error']}"
            return math.inf
        self.results[way] = answer["result"]
        return float(answer["seconds"])

    def sides(self, task: str) -> dict[str, Side]:
        return {way: partial(self._ask, way) for way in self.ways if way.split()[0] == task}

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.wait()


def install(home: Path) -> None:
    """Make the peers' environment where there is none. An existing one is used as it is."""
    python = home / "bin" / "python"
    if python.exists():
        return
    print(f"installing the packages of peers.txt into {home} (once)", file=sys.stderr)
    wanted = [
        line
        for line in (HERE / "peers.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    alone = [line for line in wanted if line.startswith("torchcp==")]
    pip: list[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    try:
        subprocess.run([sys.executable, "-m", "venv", home], check=True, stdout=sys.stderr)
        subprocess.run(
            [*pip, *(line for line in wanted if line not in alone)], check=True, stdout=sys.stderr
        )
        subprocess.run([*pip, "--no-deps", *alone], check=True, stdout=sys.stderr)
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise


def against_peers(
    what: str, seconds: dict[str, list[float]], peers: Peers, *, ours: list[float], goal: float
) -> tuple[list[Row], list[str]]:
    """A row for the fastest way of every package, and these ways; the goal is for the fastest."""
    fastest: dict[str, str] = {}
    for way in sorted(seconds, key=lambda way: min(seconds[way]), reverse=True):
        fastest[way.split()[1]] = way
    ranked = sorted(fastest.values(), key=lambda way: min(seconds[way]))
    rows = []
    for place, way in enumerate(ranked):
        _, package, how = way.split()
        against = f"{package} {peers.versions[package]}, {how}"
        at_least = goal if place == 0 else None
        against += " (the fastest)" if place == 0 else ""
        rows.append(times_faster(what, against, ours=ours, peer=seconds[way], at_least=at_least))
    return rows or [Row(what, "nothing measured", min(ours))], ranked
