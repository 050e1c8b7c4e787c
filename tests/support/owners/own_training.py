"""An owner that trains alone, by the command line."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from confide.client.__main__ import main
from confide.client.home import Home
from tests.support.programs.commands import run_main
from tests.support.programs.processes import interruptible
from tests.support.repository.places import ROOT

N = 600
NETWORK = ["--architecture", "mlp hidden=8", "--labels", "3"]
QUICK = ["--epsilon", "2", "--epochs", "2", "--batch", "60", "--device", "cpu"]
# Long enough to be stopped, with checkpoints that come often.
LONG = ["--epochs", "40", "--every", "5"]
STEPS = 400


def owner(folder: Path) -> Path:
    """Make a folder with records of three classes and a new owner."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, N)
    features = np.clip(0.2 + 0.3 * labels[:, None] + rng.normal(0, 0.05, (N, 4)), 0, 1)
    np.savez(folder / "records.npz", features=features, labels=labels, ids=np.arange(N))
    assert run_main(main, "init", "--home", folder / "home").returncode == 0
    return folder


def command(place: Path, *more: str) -> list[str]:
    files = ["--records", f"{place}/records.npz", "--home", f"{place}/home"]
    return ["train", *files, "--out", f"{place}/weights.npz", *NETWORK, *QUICK, *more]


def run(place: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return run_main(main, *command(place, *more))


def spent(place: Path) -> tuple[int, float]:
    """How many records have paid, and the most any has spent."""
    ledger = Home(place / "home").ledger()
    try:
        return ledger.spent_by_record()
    finally:
        ledger.close()


def process(place: Path, *more: str, path: Path = ROOT) -> subprocess.Popen[str]:
    """Start a training in a process of its own, which also imports from `path`."""
    return subprocess.Popen(
        [sys.executable, "-m", "confide.client", *command(place, *more)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:{path}"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=interruptible,
    )


def step_of(path: Path) -> int:
    """How many steps a checkpoint has taken."""
    return int(torch.load(path, weights_only=True)["step"]) if path.exists() else 0


def stopped_midway(
    place: Path, how: signal.Signals, *more: str, path: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Start a long training in a process of its own, and stop it after its first checkpoint."""
    with process(place, *LONG, *more, path=path) as started:
        assert started.stderr is not None
        # A process that is forked beside gRPC may have a word of its polling before.
        engine = next((line for line in started.stderr if line.startswith("gradients by")), "")
        first = started.stderr.readline()
        os.kill(started.pid, how)
        out, err = started.communicate(timeout=60)
    assert engine.startswith("gradients by engine "), engine
    assert first == f"step 5 of {STEPS}\n", first + err
    assert 0 < step_of(place / "weights.npz.checkpoint") < STEPS
    return subprocess.CompletedProcess([], started.returncode, out, err)
