import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from confide.client.__main__ import main
from confide.client.cli import train as train_module
from confide.client.home import Home
from confide.client.ledger.ledger import Ledger
from confide.client.training import own_training
from confide.client.training.own_training import OwnTraining, network
from confide.protocol.errors import BadInput
from confide.protocol.privacy.renyi import training_epsilon
from tests.support.commands import run_main
from tests.support.mutants import mutant
from tests.support.places import ROOT
from tests.support.processes import interruptible

N = 600
QUICK = ["--layers", "4 8 3", "--epsilon", "2", "--epochs", "2", "--batch", "60", "--device", "cpu"]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with records of three classes and a new owner."""
    return owner(tmp_path / "one")


def owner(folder: Path) -> Path:
    folder.mkdir()
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, N)
    features = np.clip(0.2 + 0.3 * labels[:, None] + rng.normal(0, 0.05, (N, 4)), 0, 1)
    np.savez(folder / "records.npz", features=features, labels=labels, ids=np.arange(N))
    assert run_main(main, "init", "--home", folder / "home").returncode == 0
    return folder


def command(place: Path, *more: str) -> list[str]:
    files = ["--records", f"{place}/records.npz", "--home", f"{place}/home"]
    return ["train", *files, "--out", f"{place}/weights.npz", *QUICK, *more]


def run(place: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return run_main(main, *command(place, *more))


def spent(place: Path) -> tuple[int, float]:
    """How many records have paid, and the most any has spent."""
    ledger = Home(place / "home").ledger()
    try:
        return ledger.spent_by_record()
    finally:
        ledger.close()


def process(place: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "confide.client", *command(place, *more)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=interruptible,
    )


def step_of(path: Path) -> int:
    return int(torch.load(path, weights_only=True)["step"]) if path.exists() else 0


def stopped_midway(place: Path, how: signal.Signals) -> subprocess.CompletedProcess[str]:
    """Start a training in a process of its own, and stop it after its first checkpoint."""
    with process(place, *LONG) as started:
        assert started.stderr is not None
        first = started.stderr.readline()
        os.kill(started.pid, how)
        out, err = started.communicate(timeout=60)
    assert first == f"step 5 of {STEPS}\n", first + err
    assert 0 < step_of(place / "weights.npz.checkpoint") < STEPS
    return subprocess.CompletedProcess([], started.returncode, out, err)


# Long enough to be stopped, with checkpoints that come often.
LONG = ["--epochs", "40", "--every", "5"]
STEPS = 400


def test_training_writes_weights_that_were_charged_for(place: Path) -> None:
    """The file predicts far above chance, says what it cost, and every record has paid once."""
    found = run(place, "--epochs", "20", "--rate", "0.03")
    assert found.returncode == 0, found.stderr
    assert spent(place) == (N, 2.0)
    about = json.loads((place / "weights.about.json").read_text())
    assert (about["adjacency"], about["epsilon"], about["delta"]) == ("replace-one", 2.0, 1e-6)
    assert 1.9 < about["epsilon_of_steps"] <= 2.0
    assert about["schedule"]["steps"] == about["steps_asked"] == 200
    model = network((4, 8, 3))
    with np.load(place / "weights.npz") as archive:
        weights = {name: torch.from_numpy(archive[name]) for name in archive if name != "about"}
    model.load_state_dict(weights)
    with np.load(place / "records.npz") as archive:
        guesses = model(torch.from_numpy(archive["features"]).float()).argmax(dim=1).numpy()
        assert np.mean(guesses == archive["labels"]) > 0.8
    assert not (place / "weights.npz.checkpoint").exists()
    assert "loss" not in found.stdout + found.stderr


def test_the_same_training_again_is_not_charged_again(place: Path) -> None:
    """A lost file is written again from the ledger, byte for byte, and nothing is spent."""
    assert run(place).returncode == 0
    first = (place / "weights.npz").read_bytes()
    (place / "weights.npz").unlink()
    again = run(place)
    assert (again.returncode, "nothing was charged now" in again.stdout) == (0, True)
    assert (place / "weights.npz").read_bytes() == first
    assert spent(place) == (N, 2.0)


def test_a_killed_training_goes_on_and_is_charged_once(tmp_path: Path) -> None:
    """After kill -9 nothing is spent; going on from one checkpoint twice gives the same weights."""
    one, other = owner(tmp_path / "one"), owner(tmp_path / "other")
    assert stopped_midway(one, signal.SIGKILL).returncode == -signal.SIGKILL
    assert spent(one) == (0, 0.0)
    assert not (one / "weights.npz").exists()
    state = one / "weights.npz.checkpoint"
    assert oct(state.stat().st_mode & 0o777) == "0o600"
    (other / state.name).write_bytes(state.read_bytes())
    left = STEPS - step_of(state)
    ended = [run(place, *LONG) for place in (one, other)]
    assert [found.returncode for found in ended] == [0, 0], ended
    # It went on: only the steps that were left are reported.
    assert ended[0].stderr.count("step ") == left // 5
    assert (one / "weights.npz").read_bytes() == (other / "weights.npz").read_bytes()
    assert spent(one) == (N, 2.0)


def test_an_interrupt_keeps_the_checkpoint(place: Path) -> None:
    """Ctrl-C ends with one line and exit code 130; nothing is charged and nothing is lost."""
    ended = stopped_midway(place, signal.SIGINT)
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (130, "interrupted")
    assert spent(place) == (0, 0.0)
    assert run(place, *LONG).returncode == 0
    assert spent(place) == (N, 2.0)


@pytest.mark.parametrize("where", ["before the charge", "after the charge"])
def test_a_kill_around_the_charge_costs_nothing_more(
    where: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trained model whose charge or file is missing is finished by the next run, not redrawn."""

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if where == "before the charge":
            patched.setattr("confide.client.ledger.spending.charge", killed)
        else:
            patched.setattr(train_module, "_write", killed)
        assert run(place).returncode == 130
    assert spent(place) == ((0, 0.0) if where == "before the charge" else (N, 2.0))
    ended = run(place)
    assert ended.returncode == 0
    assert "step " not in ended.stderr
    assert spent(place) == (N, 2.0)


def test_training_that_fails_is_not_charged(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error while training reaches the owner only: the ledger stays as it was."""

    def fails(*_: Any, **__: Any) -> bytes:
        raise BadInput("the loss or a weight is no number")

    with monkeypatch.context() as patched:
        patched.setattr(OwnTraining, "train", fails)
        found = run(place)
    assert (found.returncode, found.stderr) == (2, "error: the loss or a weight is no number\n")
    assert spent(place) == (0, 0.0)
    assert run(place).returncode == 0


def test_the_budget_ends_training(place: Path) -> None:
    """With a given noise, one step more would pass epsilon, and the owner is told."""
    found = run(place, "--epochs", "20", "--noise-multiplier", "2.5")
    assert found.returncode == 0, found.stderr
    assert "one more would pass the budget" in found.stdout
    schedule = json.loads((place / "weights.about.json").read_text())["schedule"]
    cost = {name: schedule[name] for name in ("noise_multiplier", "sampling_rate")}
    assert 0 < schedule["steps"] < 200
    assert training_epsilon(**cost, steps=schedule["steps"], delta=1e-6) <= 2.0
    assert training_epsilon(**cost, steps=schedule["steps"] + 1, delta=1e-6) > 2.0


def test_a_budget_that_counts_half_is_found() -> None:
    """Accounting for half of the steps passes the budget that the test above checks."""
    wrong = mutant(own_training, "steps=schedule.steps,", "steps=max(1, schedule.steps // 2),")
    given = {"layers": (4, 8, 3), "epsilon": 2.0, "delta": 1e-6, "epochs": 20.0, "batch": 60}
    training = wrong.OwnTraining(**given, rate=0.01, clip=1.0, noise_multiplier=2.5)
    schedule, _ = training.schedule(N)
    assert OwnTraining.spent(training, schedule) > 2.0


def test_own_trainings_share_one_budget(place: Path) -> None:
    """A second training passes what the policy allows a campaign, and is refused unspent."""
    assert run(place).returncode == 0
    again = run(place, "--epochs", "3")
    assert again.returncode == 2
    assert "of 600 records fewer than 20 can pay epsilon 2" in again.stderr
    assert spent(place) == (N, 2.0)


def test_a_person_pays_for_one_record(place: Path) -> None:
    """Of a person with several records one takes part."""
    with np.load(place / "records.npz") as archive:
        arrays = {name: archive[name] for name in archive}
    np.savez(place / "records.npz", persons=np.arange(N) // 3, **arrays)
    assert run(place).returncode == 0
    batch = json.loads((place / "weights.about.json").read_text())["schedule"]
    assert batch["sampling_rate"] == pytest.approx(60 / 200)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--layers", "5 8 3"], "the first layer takes 5"),
        (["--layers", "4 8 2"], "labels run from 0 to 2"),
        (["--layers", "4"], "2 to 16 widths"),
        (["--layers", "4 x 3"], "layers is '4 x 3'"),
        (["--epsilon", "0"], "epsilon is 0.0"),
        (["--epsilon", "3"], "fewer than 20 can pay"),
        (["--delta", "1e-3"], "can pay epsilon 2 and delta 0.001"),
        (["--delta", "0"], "delta is 0.0"),
        (["--epochs", "nan"], "epochs is nan"),
        (["--epochs", "1e9"], "at most 1048576"),
        (["--batch", "0"], "batch is 0"),
        (["--rate", "0"], "learning_rate is 0.0"),
        (["--clip", "inf"], "clip is inf"),
        (["--noise-multiplier", "0.2"], "one step"),
        (["--feature-range", "1", "0"], "in order"),
        (["--device", "tpu"], "device is 'tpu'"),
        (["--records", "/nonexistent.npz"], "does not exist"),
        (["--out", "/nonexistent/w.npz"], "its folder does not exist"),
    ],
)
def test_what_cannot_be_trained_gets_one_clear_line(
    more: list[str], says: str, place: Path
) -> None:
    """Exit code 2, what was found and what is accepted; nothing is written or spent."""
    found = run(place, *more)
    assert found.returncode == 2, found.stdout
    assert found.stderr.count("\n") == 1
    assert says in found.stderr
    assert not (place / "weights.npz").exists()
    assert spent(place) == (0, 0.0)


def test_a_checkpoint_of_other_records_is_refused(place: Path) -> None:
    """A key of noise never meets other records: the file is named, and nothing is spent."""
    stopped_midway(place, signal.SIGKILL)
    with np.load(place / "records.npz") as archive:
        arrays = {name: archive[name] for name in archive}
    arrays["features"][0] = 0.5
    np.savez(place / "records.npz", **arrays)
    found = run(place, *LONG)
    assert found.returncode == 2
    assert "weights.npz.checkpoint was written for other records" in found.stderr
    assert spent(place) == (0, 0.0)


def test_the_ledger_is_a_real_one(place: Path) -> None:
    """The owner's status lists the training beside campaigns."""
    assert run(place).returncode == 0
    shown = run_main(main, "status", "--home", place / "home")
    assert "own training" in shown.stdout
    assert isinstance(Home(place / "home").ledger(), Ledger)
