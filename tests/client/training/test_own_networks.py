"""Networks that an owner trains alone: any architecture, and a model for the raw features."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from confide.client.__main__ import main
from confide.client.training import own_training
from confide.client.training.networks import load_weights
from confide.client.training.own_training import OwnTraining
from confide.client.training.weights_file import unpack_weights
from confide.protocol.architectures.base import Network, scaled
from confide.protocol.models.model_file import Model
from tests.support.cards.mutants import mutant
from tests.support.networks.factories import forget, installed
from tests.support.owners.own_training import LONG, N, owner, run, spent, step_of, stopped_midway
from tests.support.programs.commands import run_main

# Limits of features, and the centre that the network sees as 0.
SEEN = [(0.0, 1.0, 0.5), (-3.0, 20.0, 0.0), (1e9, 1e9 + 1, 0.3)]
NUMBERS: dict[str, Any] = {
    "epsilon": 2.0,
    "delta": 1e-6,
    "epochs": 2.0,
    "batch": 60,
    "rate": 0.01,
    "clip": 1.0,
}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with records of three classes and a new owner."""
    return owner(tmp_path / "one")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from installed(tmp_path, monkeypatch)


def change(place: Path, **arrays: NDArray[Any]) -> None:
    """Write other arrays into the file of records."""
    with np.load(place / "records.npz") as archive:
        kept = {name: archive[name] for name in archive}
    np.savez(place / "records.npz", **(kept | arrays))


def features_of(place: Path) -> NDArray[np.float64]:
    with np.load(place / "records.npz") as archive:
        return np.asarray(archive["features"])


def in_range(place: Path, low: float, high: float) -> NDArray[np.float64]:
    """Give the records features of this range, a few of them beyond it."""
    features = low + (high - low) * features_of(place)
    features[0], features[1] = low - (high - low), high + 3 * (high - low)
    change(place, features=features)
    return features


def scored(file: bytes, features: NDArray[Any]) -> NDArray[np.float32]:
    """What a model says of records on the owner's path: checked, and one record a call."""
    session = Model.of(file).open()
    session.accept(features.shape[1:], 3)
    found = np.full((len(features), 3), np.nan, dtype=np.float32)
    session.each(features, found)
    return found


def expected(
    network: Network, weights: NDArray[Any], features: NDArray[Any], seen: tuple[float, ...]
) -> NDArray[np.float64]:
    """The module's probabilities, in double precision."""
    low, high, centre = seen
    module = network.module().double().eval()
    load_weights(module, network, weights)
    inputs = scaled((features - low) / (high - low), centre)
    logits = module(torch.from_numpy(inputs))
    return np.asarray(torch.softmax(logits, dim=1).detach().numpy())


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("name", ["linear", "mlp hidden=9,8", "cnn image=1,2,2 channels=4"])
def test_the_model_takes_the_features_of_the_file(
    name: str, seen: tuple[float, float, float], place: Path
) -> None:
    """It gives the module's probabilities for raw records, and the other commands accept it."""
    low, high, centre = seen
    features = in_range(place, low, high)
    limits = ["--feature-range", repr(low), repr(high), "--centre", repr(centre)]
    found = run(place, "--architecture", name, *limits)
    assert found.returncode == 0, found.stderr
    weights, about = unpack_weights((place / "weights.npz").read_bytes())
    network = OwnTraining.of(name, features=4, outputs=3, **NUMBERS).network()
    assert about["parameters"] == {key: list(shape) for key, shape in network.shapes.items()}
    assert not np.array_equal(weights, network.first_weights())
    model = place / "weights.onnx"
    shown = scored(model.read_bytes(), features)
    assert np.allclose(shown, expected(network, weights, features, seen), atol=1e-5)
    assert np.ptp(shown, axis=0).max() > 1e-3
    home = ["--home", str(place / "home")]
    assert run_main(main, "allow", "model", model, "--yes", *home).returncode == 0
    told = json.loads((place / "weights.about.json").read_text())
    assert told["model_sha256"] == Model.read(model).digest.hex()
    assert told["model_sha256"] in (place / "home" / "policy.toml").read_text()
    checked = run_main(main, "doctor", "--records", place / "records.npz", "--model", model, *home)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return with_range(file, low=self.low, high=self.high)", "return file"),
        ("low=self.low, high=self.high)", "low=0.0, high=self.high)"),
        (
            "to_onnx(self.network(), weights, centre=self.centre, span",
            "to_onnx(self.network(), weights, centre=0.5, span",
        ),
        ("- self.low) / (self.high - self.low)", "- self.low) / self.high"),
    ],
)
def test_a_model_of_another_range_is_found(old: str, new: str) -> None:
    """What training sees and what the file computes differ as soon as either scales otherwise."""
    given = NUMBERS | {"features": 4, "outputs": 3, "low": -3.0, "high": 20.0, "centre": 0.3}
    features = np.random.default_rng(1).uniform(-5, 22, (30, 4))

    def differs(kind: Any) -> float:
        training = kind.of("linear", **given)
        network = training.network()
        weights = np.random.default_rng(2).normal(size=network.size).astype(np.float32)
        module = network.module().double()
        load_weights(module, network, weights)
        logits = module(torch.from_numpy(training.seen(features)))
        shown = scored(training.model(weights), features)
        return float(np.abs(shown - torch.softmax(logits, dim=1).detach().numpy()).max())

    assert differs(OwnTraining) < 1e-5
    assert differs(mutant(own_training, old, new).OwnTraining) > 1e-2


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-2.0, 7.0)])
def test_an_installed_factory_is_trained(
    low: float, high: float, package: Path, place: Path
) -> None:
    """Without an entry in the policy, because the owner named the code itself."""
    features = in_range(place, low, high)
    name = f"{package.name}.models:plain"
    limits = ["--feature-range", repr(low), repr(high)]
    found = run(place, "--architecture", f"{name} hidden=6", *limits)
    assert found.returncode == 0, found.stderr
    assert spent(place) == (N, 2.0)
    weights, about = unpack_weights((place / "weights.npz").read_bytes())
    assert (about["architecture"], about["arguments"]) == (name, {"hidden": 6})
    network = OwnTraining.of(f"{name} hidden=6", features=4, outputs=3, **NUMBERS).network()
    shown = scored((place / "weights.onnx").read_bytes(), features)
    assert np.allclose(shown, expected(network, weights, features, (low, high, 0.5)), atol=1e-5)


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        ("mixing", "record"),
        ("batch_norm", "record"),
        ("no_module", "returns int; accepted is a torch module"),
        ("plain depth=3", "fails with TypeError"),
        ("missing", "cannot be imported"),
    ],
)
def test_a_factory_that_cannot_be_trained_costs_nothing(
    factory: str, says: str, package: Path, place: Path
) -> None:
    """Records that are treated together are refused, also in code of the owner's own choice."""
    found = run(place, "--architecture", f"{package.name}.models:{factory}")
    assert (found.returncode, found.stderr.count("\n")) == (2, 1), found.stderr
    assert says in found.stderr
    assert spent(place) == (0, 0.0)
    assert not (place / "weights.npz").exists()


def test_other_code_is_another_training(package: Path, place: Path) -> None:
    """A checkpoint of the code as it was is refused, although its layers look alike."""
    named = ["--architecture", f"{package.name}.models:plain", *LONG]
    stopped_midway(place, signal.SIGKILL, *named, path=package.parent)
    state = place / "weights.npz.checkpoint"
    taken = step_of(state)
    models = package / "models.py"
    models.write_text(models.read_text().replace("hidden=5", "hidden=5 + 0"))
    forget(package.name)
    found = run(place, *named)
    assert found.returncode == 2
    assert "weights.npz.checkpoint was written for other records or settings" in found.stderr
    assert (step_of(state), spent(place)) == (taken, (0, 0.0))


def test_features_of_another_shape_are_refused(place: Path) -> None:
    change(place, features=features_of(place).reshape(N, 2, 2))
    found = run(place)
    assert found.returncode == 2
    assert "features of shape (2, 2); accepted are features in a row" in found.stderr


def test_the_help_names_devices_and_says_that_a_factory_is_code() -> None:
    shown = " ".join(run_main(main, "train", "--help").stdout.replace("│", " ").split())
    assert "auto, cpu, cuda or cuda:N" in shown
    assert "A factory is code of an installed package" in shown
