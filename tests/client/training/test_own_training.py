import json
import signal
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
from confide.client.training.own_training import OwnTraining
from confide.client.training.weights_file import unpack_weights
from confide.protocol.architectures.export import predict_file
from confide.protocol.errors import BadInput
from confide.protocol.privacy.renyi import training_epsilon
from tests.support.cards.mutants import mutant
from tests.support.owners.own_training import (
    LONG,
    STEPS,
    N,
    owner,
    run,
    spent,
    step_of,
    stopped_midway,
)
from tests.support.programs.commands import run_main


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with records of three classes and a new owner."""
    return owner(tmp_path / "one")


def test_training_writes_weights_that_were_charged_for(place: Path) -> None:
    """The file predicts far above chance, says what it cost, and every record has paid once."""
    found = run(place, "--epochs", "20", "--rate", "0.03")
    assert found.returncode == 0, found.stderr
    assert spent(place) == (N, 2.0)
    about = json.loads((place / "weights.about.json").read_text())
    assert (about["adjacency"], about["epsilon"], about["delta"]) == ("replace-one", 2.0, 1e-6)
    assert 1.9 < about["epsilon_of_steps"] <= 2.0
    assert about["schedule"]["steps"] == about["steps_asked"] == 200
    weights, said = unpack_weights((place / "weights.npz").read_bytes())
    assert about == said | {"model_sha256": about["model_sha256"]}
    shapes = {"0.weight": [8, 4], "0.bias": [8], "2.weight": [3, 8], "2.bias": [3]}
    assert (about["parameters"], weights.shape, str(weights.dtype)) == (shapes, (67,), "float32")
    with np.load(place / "records.npz") as archive:
        guesses = predict_file((place / "weights.onnx").read_bytes(), archive["features"])
        assert np.mean(guesses.argmax(axis=1) == archive["labels"]) > 0.8
    assert not (place / "weights.npz.checkpoint").exists()
    assert f"Each of the {N} records that took part was charged epsilon 2" in found.stdout
    assert "loss" not in found.stdout + found.stderr


def test_the_same_training_again_is_not_charged_again(place: Path) -> None:
    """A lost file is written again from the ledger, byte for byte, and nothing is spent."""
    assert run(place).returncode == 0
    files = [place / name for name in ("weights.npz", "weights.onnx", "weights.about.json")]
    first = [file.read_bytes() for file in files]
    for file in files:
        file.unlink()
    again = run(place)
    assert (again.returncode, "nothing was charged now" in again.stdout) == (0, True)
    assert [file.read_bytes() for file in files] == first
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
    given = {"features": 4, "outputs": 3, "epsilon": 2.0, "delta": 1e-6, "epochs": 20.0}
    training = wrong.OwnTraining.of(
        "linear", **given, batch=60, rate=0.01, clip=1.0, noise_multiplier=2.5
    )
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
        (["--labels", "2"], "labels run from 0 to 2"),
        (["--labels", "-1"], "labels are -1"),
        (["--architecture", "lstm"], "architecture is 'lstm'"),
        (["--architecture", ""], "architecture is empty"),
        (["--architecture", "mlp hidden=x"], "hidden is x"),
        (["--architecture", "mlp hidden=131072"], "at most 131072 together"),
        (["--architecture", "mlp hidden=60000,60000"], "weights; accepted are at most"),
        (["--architecture", "cnn image=1,3,3"], "image is (1, 3, 3) and features are 4"),
        (["--architecture", "no_such_package:network"], "no package no_such_package"),
        (["--centre", "2"], "centre is 2.0"),
        (["--epsilon", "0"], "epsilon is 0.0"),
        (["--epsilon", "3"], "fewer than 20 can pay"),
        (["--delta", "1e-3"], "can pay epsilon 2 and delta 0.001"),
        (["--delta", "0"], "delta is 0.0"),
        (["--epochs", "nan"], "epochs is nan"),
        (["--epochs", "1e9"], "at most 1048576"),
        (["--batch", "0"], "batch is 0"),
        (["--rate", "0"], "learning_rate is 0.0"),
        (
            ["--engine", "fast"],
            "engine is 'fast'; accepted are 'auto', 'alone', 'stack', 'ghost', 'hooks'",
        ),
        (["--clip", "inf"], "clip is inf"),
        (["--noise-multiplier", "0.2"], "one step"),
        (["--feature-range", "1", "0"], "in order"),
        (["--feature-range", "-1e308", "1e308"], "at a finite distance"),
        (["--device", "tpu"], "device is 'tpu'"),
        (["--records", "/nonexistent.npz"], "does not exist"),
        (["--out", "/nonexistent/w.npz"], "its folder does not exist"),
        (["--out", "model.onnx"], "does not end in .onnx"),
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
