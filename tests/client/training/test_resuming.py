"""A training that is killed goes on from its checkpoint, and spends nothing twice."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from confide.client.training.descent import Schedule
from confide.client.training.private_training import (
    train,
)
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import (
    SEEDED,
    Entropy,
    SeededEntropy,
    os_entropy,
)
from tests.support.repository.places import ROOT
from tests.support.training.private_trainings import (
    SCHEDULE,
    adam,
    cross_entropy,
    fit,
    mlp,
    records,
    sgd,
    weights,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:Full backward hook:UserWarning", "ignore:Secure RNG:UserWarning"
)
torch.set_num_threads(1)


class Killed(Exception):
    """Stands for the end of a process."""


@pytest.mark.parametrize("second", [SeededEntropy(2), os_entropy])
def test_resumed_training_equals_an_undisturbed_one(second: Entropy, tmp_path: Path) -> None:
    """Resumed training repeats the draws of the steps lost, whatever source it is given; a finished
    file holds no key."""
    path = tmp_path / "state.pt"

    def kill(step: int, steps: int) -> None:
        if step == 40:
            raise Killed

    whole = fit(optimizer=adam)
    with pytest.raises(Killed):
        fit(optimizer=adam, checkpoint=path, every=20, progress=kill)
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    for _ in range(2):
        resumed = fit(entropy=second, optimizer=adam, checkpoint=path, every=20)
        assert (resumed.steps, resumed.randomness) == (SCHEDULE.steps, SEEDED)
        assert np.array_equal(weights(whole.model), weights(resumed.model))
    assert torch.load(path, weights_only=True)["key"] == ""


def test_a_killed_process_resumes(tmp_path: Path) -> None:
    """After kill -9 in the middle, a second process finishes with the weights of a run that was
    never killed."""
    program = (
        "import sys, time\nfrom pathlib import Path\n"
        "from tests.support.training.private_trainings import *\n"
        "trained = fit(checkpoint=Path(sys.argv[1]), every=5, progress=lambda *_: "
        "time.sleep(float(sys.argv[2])))\n"
        "np.save(sys.argv[1] + '.npy', weights(trained.model))\n"
    )
    path = tmp_path / "state.pt"
    command = [sys.executable, "-c", program, str(path)]
    process = subprocess.Popen([*command, "5"], cwd=ROOT)
    for _ in range(600):
        if path.exists() and torch.load(path, weights_only=True)["step"] > 0:
            break
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert 0 < torch.load(path, weights_only=True)["step"] < SCHEDULE.steps
    subprocess.run([*command, "0"], cwd=ROOT, check=True)
    assert np.array_equal(np.load(f"{path}.npy"), weights(fit().model))


def test_a_checkpoint_is_for_its_own_records_and_settings(tmp_path: Path) -> None:
    """Other records, another schedule or a broken file are refused: a key never meets other
    records."""
    path = tmp_path / "state.pt"
    fit(checkpoint=path)
    features, labels = records(seed=9)
    with pytest.raises(BadInput, match="other records or settings"):
        train(
            mlp(),
            features,
            labels,
            loss=cross_entropy,
            schedule=SCHEDULE,
            optimizer=sgd,
            checkpoint=path,
        )
    with pytest.raises(BadInput, match="other records or settings"):
        fit(checkpoint=path, schedule=Schedule(2.0, 0.05, 60, 1.0, 30.0))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(BadInput, match="cannot be read as a checkpoint"):
        fit(checkpoint=path)
