"""Signals to a federation that is being started or stopped: nothing of it keeps running."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from confide.simulation.federation.interrupts import Interrupts
from tests.support.programs.processes import marked, members, started
from tests.support.repository.places import ROOT

BLOCK = """
import time
from confide.simulation.federation.harness import federation
print("begins", flush=True)
with federation():
    print("answers", flush=True)
    time.sleep(300)
"""
IGNORING = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
# How many seconds after a federation began to start, or after its SuperLink is there, which signals
# are sent, and the exit code that follows.
MOMENTS = {
    "at-once": (0.0, False, [signal.SIGINT], -signal.SIGINT),
    "soon": (0.02, False, [signal.SIGINT], -signal.SIGINT),
    "superlink": (0.0, True, [signal.SIGINT], -signal.SIGINT),
    "superlink-loads": (1.5, True, [signal.SIGTERM], 128 + signal.SIGTERM),
    "again-while-it-stops": (0.5, True, [signal.SIGINT, signal.SIGINT], -signal.SIGINT),
}


def test_a_federation_interrupted_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C or SIGTERM before, while and after the SuperLink is started, and once more while it is
    stopped: no process and no folder stays."""
    folders = {name: tmp_path / name for name in MOMENTS}
    with ExitStack() as stack:
        processes = {}
        for name, (wait, superlink, signals, _) in MOMENTS.items():
            process = stack.enter_context(
                started(
                    [sys.executable, "-c", BLOCK],
                    cwd=ROOT,
                    env=marked(folders[name]),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            )
            processes[name] = process
            assert process.stdout is not None
            assert process.stdout.readline() == "begins\n"
            until = time.monotonic() + 60
            while superlink and members(folders[name]) <= {process.pid}:
                assert time.monotonic() < until
                time.sleep(0.01)
            time.sleep(wait)
            for number in signals:
                process.send_signal(number)
                time.sleep(0.3)
        codes = {name: one.wait(timeout=90) for name, one in processes.items()}
        assert codes == {name: code for name, (*_, code) in MOMENTS.items()}
    left = {name: members(folder) for name, folder in folders.items()}
    for pid in set().union(*left.values()):
        os.kill(pid, signal.SIGKILL)
    assert not any(left.values()), left
    assert not any(tmp_path.glob("*/confide-flwr-*"))


def test_a_signal_waits_until_a_block_may_be_left() -> None:
    """What is started before is known to the code that ends it; each signal is obeyed once."""
    told = Interrupts()
    told.handle(signal.SIGINT, None)
    reached = False
    with pytest.raises(KeyboardInterrupt), told.allowed():
        reached = True
    assert not reached
    told.leave_if_told()
    with pytest.raises(SystemExit) as left, told.allowed():
        told.handle(signal.SIGTERM, None)
    assert left.value.code == 128 + signal.SIGTERM
    # Outside again, it waits again.
    told.handle(signal.SIGINT, None)
    with pytest.raises(KeyboardInterrupt):
        told.leave_if_told()


@pytest.mark.parametrize(
    ("before", "number", "code"),
    [
        ("", signal.SIGINT, -signal.SIGINT),
        ("", signal.SIGTERM, 128 + signal.SIGTERM),
        (IGNORING, signal.SIGINT, 0),
    ],
)
def test_a_signal_that_waits_is_obeyed_at_the_end(before: str, number: int, code: int) -> None:
    """It does not cut short what the block does last, and is not lost; one that the process ignores
    stays ignored."""
    script = f"""
import signal
{before}
from confide.simulation.federation.interrupts import interrupts
with interrupts():
    signal.raise_signal({number:d})
    print("ended in order", flush=True)
"""
    with started(
        [sys.executable, "-c", script],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        said, complaint = process.communicate(timeout=60)
    assert (said, process.returncode) == ("ended in order\n", code), complaint
