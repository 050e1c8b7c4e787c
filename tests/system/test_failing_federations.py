"""Federations that fail, are interrupted, hang or cannot be."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psutil
import pytest

from confide.__main__ import main
from confide.simulation.federation.harness import HOME, stop
from tests.support.programs.commands import run_main
from tests.support.programs.federations import command
from tests.support.programs.processes import marked, members, started
from tests.support.repository.places import ROOT


def test_a_failing_server_app_is_a_failing_command(tmp_path: Path) -> None:
    """A run that raises ends in exit code 1 with the cause, where `flwr run` says 0."""
    done = subprocess.run(
        command(tmp_path, "--campaigns", "bits:certified", "--dropout", "0.99"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert "finished:failed" in done.stderr
    assert "the plan asks for at least 100" in done.stderr


def test_interrupted_it_stops_what_it_started(tmp_path: Path) -> None:
    """Ctrl-C or a termination in the middle: nothing of Flower keeps running, and no folder
    stays."""
    own = {how: tmp_path / how.name for how in (signal.SIGINT, signal.SIGTERM)}
    with ExitStack() as stack:
        both = {
            how: stack.enter_context(
                started(
                    command(tmp_path / f"{how.name}-out"),
                    cwd=ROOT,
                    env=marked(folder),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            for how, folder in own.items()
        }
        for how, process in both.items():
            wait_until(partial(has_nodes, own[how], process), seconds=120)
            assert process.poll() is None
            process.send_signal(how)
        assert [one.wait(timeout=60) for one in both.values()] == [130, 143]
    for folder in own.values():
        wait_until(partial(nobody_is_left, folder), seconds=30)
        assert not any(folder.glob("confide-flwr-*"))


def nobody_is_left(folder: Path) -> bool:
    return not members(folder)


def has_nodes(folder: Path, process: subprocess.Popen[str]) -> bool:
    """Whether nodes of a federation run: workers of Ray, the last of its processes to start."""
    return process.poll() is not None or any(
        name.startswith("ray::") for name in map(command_line, members(folder))
    )


def command_line(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ""


def wait_until(holds: Callable[[], bool], *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.2)


def test_what_hangs_does_not_outlive_its_federation(tmp_path: Path) -> None:
    """Neither in a session of its own, nor deaf to being told, nor when what started it is gone."""
    deaf = "setsid sh -c \"trap '' TERM; echo; exec sleep 600\" & echo $!"
    members = []
    for more in ("", "; wait"):
        command = ["sh", "-c", f"{deaf}{more}"]
        leader = subprocess.Popen(
            command, env=os.environ | {HOME: str(tmp_path)}, stdout=subprocess.PIPE, text=True
        )
        assert leader.stdout is not None
        with leader.stdout as said:
            members.append(Path("/proc", (said.readline() + said.readline()).strip()))
        if not more:
            assert leader.wait(timeout=30) == 0
    bystander = subprocess.Popen(["sleep", "600"], env=os.environ | {HOME: str(tmp_path / "other")})
    try:
        assert all(member.exists() for member in members)
        stop(leader, tmp_path, grace=2)
        assert not any(member.exists() for member in members)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nodes", "0"],
        ["--dropout", "1"],
        ["--records", "16000"],
        ["--campaigns", "votes:certified"],
        ["--epsilon", "0"],
        ["--out", "/proc/nowhere"],
        ["--concentration", "-1"],
        ["--sizes", "1 0"],
        ["--failure-probability", "0"],
        ["--failure-probability", "0.1", "--campaigns", "central:trusted"],
        ["--bins", "64"],
        ["--delta", "0.1"],
    ],
)
def test_impossible_federations_are_refused_at_once(arguments: list[str], tmp_path: Path) -> None:
    """Exit code 2 and one line, before anything starts."""
    done = run_main(main, *command(tmp_path, *arguments)[3:])
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert any(word in done.stderr for word in ("accepted", "must", "belongs to", "is now"))
