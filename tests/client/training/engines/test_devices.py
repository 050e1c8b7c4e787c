"""Training on a device other than the CPU: no tensor of the wrong device takes part."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from confide.client.training.descent import Schedule, pick_device
from confide.client.training.engines.choice import ENGINES, make_clipper
from confide.client.training.engines.clipper import clipped_sum
from confide.client.training.engines.probe import probe
from confide.client.training.private_training import train
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import SeededEntropy
from tests.support.networks.torch_models import KINDS, REFUSED
from tests.support.training.devices import SECOND, Elsewhere, Mixture, second_device
from tests.support.training.private_trainings import cross_entropy, fit, sgd, weights

pytestmark = pytest.mark.filterwarnings(
    "ignore:Full backward hook:UserWarning", "ignore:Secure RNG:UserWarning"
)
torch.set_num_threads(1)
CPU = torch.device("cpu")
PAIRS = [(name, engine) for name in KINDS for engine in ENGINES if (name, engine) not in REFUSED]
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA")


def sums(name: str, engine: str, device: torch.device) -> Any:
    """The clipped sum of a few records, dropout included, on the device."""
    kind = KINDS[name]
    model = kind.model().to(device)
    clipped = make_clipper(
        model, cross_entropy, 0.5, engine=engine, like=kind.like(device), batch=8
    )
    features, targets = kind.records(13)
    return clipped_sum(
        clipped,
        (features.to(device), targets.to(device)),
        np.arange(13),
        weights=sum(value.numel() for value in model.parameters() if value.requires_grad),
        entropy=SeededEntropy(1),
    )


def test_the_second_device_computes_and_refuses_mixtures() -> None:
    """It holds numbers, and operations on tensors of both devices fail as they would on CUDA."""
    with second_device() as device:
        there, here = torch.ones(3, device=device), torch.ones(3)
        assert isinstance(there, Elsewhere)
        assert there.device == SECOND
        assert float((2 * there + torch.tensor(1.0)).sum()) == 9.0
        assert torch.equal(there.cpu(), here)
        assert isinstance(here.to(device) + there, Elsewhere)
        with pytest.raises(Mixture):
            there + here
        with pytest.raises(Mixture):
            there.add_(here)
        with pytest.raises(Mixture):
            torch.dot(here, there)


@pytest.mark.parametrize(("name", "engine"), PAIRS)
def test_every_tensor_is_on_the_device(name: str, engine: str) -> None:
    """Every engine has the same sums on the second device, and no tensor of the CPU takes part."""
    here = sums(name, engine, CPU)
    with second_device() as device:
        there = sums(name, engine, device)
    assert np.array_equal(here, there)


@pytest.mark.parametrize("engine", list(ENGINES))
def test_a_stray_tensor_is_found(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: padding that is made on the CPU."""

    def stray(rows: Tensor, shape: int) -> Tensor:
        filled = torch.zeros((shape, *rows.shape[1:]), dtype=rows.dtype)
        return torch.cat([rows, filled])[:shape]

    monkeypatch.setattr("confide.client.training.engines.clipper.padded", stray)
    monkeypatch.setattr("confide.client.training.engines.choice.fixed_shapes", lambda *_: (8,))
    sums("mlp", engine, CPU)
    with second_device() as device, pytest.raises(Mixture):
        sums("mlp", engine, device)


@pytest.mark.parametrize("name", ["mlp", "images", "twice", "transformer"])
def test_the_trial_of_models_is_on_the_device(name: str) -> None:
    """Also made-up rows and weights."""
    kind = KINDS[name]
    with second_device() as device:
        probe(kind.model().to(device), cross_entropy, kind.like(device), engine="auto")


@pytest.mark.parametrize("name", ["mlp", "images"])
def test_a_whole_training_is_on_the_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches, sums, noise, updates and checkpoints: the weights are those of the CPU."""
    kind = KINDS[name]
    features, targets = (array.numpy() for array in kind.records(40))
    schedule = Schedule(noise_multiplier=1.0, sampling_rate=0.5, steps=3, clip=1.0, batch=20.0)
    options: dict[str, Any] = {"loss": cross_entropy, "schedule": schedule, "optimizer": sgd}
    model = kind.model()
    here = train(model, features, targets, entropy=SeededEntropy(1), device="cpu", **options)
    monkeypatch.setattr("confide.client.training.private_training.pick_device", lambda _: SECOND)
    with second_device():
        there = train(model, features, targets, entropy=SeededEntropy(1), **options)
    assert np.array_equal(weights(here.model), weights(there.model))


@pytest.mark.parametrize("name", ["tpu", "cuda:", "cuda:x", "cuda:-1", "CUDA", "", "cuda:1000"])
def test_unknown_devices_are_refused(name: str) -> None:
    """The message names what was found and what is accepted."""
    with pytest.raises(BadInput, match=f"device is {name!r}; accepted are 'auto', 'cpu', 'cuda'"):
        pick_device(name)


def test_devices_are_picked_by_name_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` and `cuda` are the first CUDA device; a number that is not there is refused."""
    assert pick_device("cpu") == CPU
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    found = [pick_device(name) for name in ("auto", "cuda", "cuda:1", "cpu")]
    assert [str(device) for device in found] == ["cuda:0", "cuda:0", "cuda:1", "cpu"]
    with pytest.raises(BadInput, match="device is 'cuda:2'; accepted are 'cuda:0' to 'cuda:1'"):
        pick_device("cuda:2")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert pick_device("auto") == CPU
    for name in ("cuda", "cuda:0"):
        with pytest.raises(BadInput, match=f"device is {name!r} and torch finds none here"):
            pick_device(name)


@cuda
@pytest.mark.parametrize(("name", "engine"), PAIRS)
def test_sums_on_cuda_are_those_of_the_cpu(name: str, engine: str) -> None:
    """Up to rounding; dropout draws other numbers there."""
    if name == "transformer":
        pytest.skip("dropout")
    here, there = sums(name, engine, CPU), sums(name, engine, torch.device("cuda"))
    np.testing.assert_allclose(here, there, rtol=1e-6, atol=1e3)


@cuda
def test_training_on_cuda_repeats() -> None:
    """The same key gives the same weights, near those of the CPU."""
    first, second, here = (fit(device=device) for device in ("cuda", "cuda:0", "cpu"))
    np.testing.assert_allclose(weights(first.model), weights(second.model), atol=1e-6)
    np.testing.assert_allclose(weights(first.model), weights(here.model), atol=1e-4)
