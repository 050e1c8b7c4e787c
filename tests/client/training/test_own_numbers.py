"""Networks of numbers that an owner trains alone: targets within a public range."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from confide.client.__main__ import main
from confide.client.training.networks import load_weights
from confide.client.training.own_training import OwnTraining
from confide.client.training.weights_file import unpack_weights
from confide.protocol.architectures.export import predict_file
from tests.support.owners.own_training import N, spent
from tests.support.programs.commands import run_main

LOW, HIGH = 20.0, 80.0
GIVEN = ["--epsilon", "4", "--epochs", "20", "--batch", "60", "--rate", "0.02", "--device", "cpu"]
RANGE = ["--target-range", str(LOW), str(HIGH)]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with records of a number, some of them beyond the range, and a new owner."""
    rng = np.random.default_rng(1)
    features = rng.random((N, 3))
    targets = 25 + features @ [30.0, 20.0, 0.0] + rng.normal(0, 1, N)
    targets[:5] = 1e6
    np.savez(tmp_path / "records.npz", features=features, targets=targets, ids=np.arange(N))
    assert run_main(main, "init", "--home", tmp_path / "home").returncode == 0
    policy = tmp_path / "home" / "policy.toml"
    policy.write_text(
        policy.read_text().replace("epsilon_per_campaign = 2.0", "epsilon_per_campaign = 4.0")
    )
    return tmp_path


def run(place: Path, *more: str) -> subprocess.CompletedProcess[str]:
    files = ["--records", str(place / "records.npz"), "--home", str(place / "home")]
    return run_main(main, "train", *files, "--out", str(place / "weights.npz"), *GIVEN, *more)


def test_an_owner_trains_a_network_of_numbers(place: Path) -> None:
    """Squared error within the range: the model predicts new records in the target's unit, as its
    weights say, and a target far outside counts as the end of the range."""
    found = run(place, "--architecture", "mlp hidden=8", *RANGE)
    assert found.returncode == 0, found.stderr
    assert spent(place) == (N, 4.0)
    weights, about = unpack_weights((place / "weights.npz").read_bytes())
    assert (about["target_range"], "labels" in about) == ([LOW, HIGH], False)
    features = np.random.default_rng(2).random((500, 3))
    shown = predict_file((place / "weights.onnx").read_bytes(), features)[:, 0]
    truth = 25 + features @ [30.0, 20.0, 0.0]
    # Targets have a deviation of 10.4.
    assert np.sqrt(np.mean((shown - truth) ** 2)) < 5
    numbers = {"epsilon": 4.0, "delta": 1e-6, "epochs": 20.0, "batch": 60, "rate": 0.02}
    training = OwnTraining.of("mlp hidden=8", features=3, outputs=1, clip=1.0, **numbers)
    network = training.network()
    module = network.module().double()
    load_weights(module, network, weights)
    outputs = module(torch.from_numpy(training.seen(features))).detach().numpy()[:, 0]
    expected = (LOW + HIGH) / 2 + (HIGH - LOW) / 2 * np.clip(outputs, -1, 1)
    assert np.allclose(shown, expected, atol=1e-3)
    assert json.loads((place / "weights.about.json").read_text())["target_range"] == [LOW, HIGH]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ([], "accepted is one of --labels and --target-range"),
        (["--labels", "3", *RANGE], "accepted is one of --labels and --target-range"),
        (["--labels", "3"], "hold targets, which are numbers; accepted is a training with a range"),
        (["--target-range", "80", "20"], "target-low below target-high"),
        (["--target-range", "0", "inf"], "target-low below target-high"),
    ],
)
def test_numbers_without_a_public_range_are_refused(
    more: list[str], says: str, place: Path
) -> None:
    """With one line, and at no cost."""
    found = run(place, *more)
    assert (found.returncode, found.stderr.count("\n")) == (2, 1), found.stderr
    assert says in found.stderr
    assert spent(place) == (0, 0.0)


def test_labels_are_no_targets(place: Path) -> None:
    features, labels = np.zeros((N, 3)), np.zeros(N, dtype=np.int64)
    np.savez(place / "records.npz", features=features, labels=labels, ids=np.arange(N))
    found = run(place, *RANGE)
    assert found.returncode == 2
    assert "the records hold labels; accepted is a training with a number of labels" in found.stderr
