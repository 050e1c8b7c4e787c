"""Rounds of a federation where owners train on devices other than the CPU."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from confide.aggregator.campaigns.driver import run_training
from confide.client.ledger.ledger import Ledger
from confide.client.records.records import Records
from confide.client.respond import Respondent
from confide.client.training import networks
from confide.client.training.computing import Computing
from confide.client.training.local_round import Trainer
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.training.network_terms import described
from tests.support.owners.owners import NOW, asking, signed
from tests.support.training.devices import SECOND, second_device
from tests.support.training.learners import LEARNS, TERMS, TRAINING, people

pytestmark = pytest.mark.filterwarnings(
    "ignore:Full backward hook:UserWarning", "ignore:Secure RNG:UserWarning"
)
CNN = described("cnn image=1,2,2 channels=4", features=4, outputs=3)
TRAINS = replace(TERMS, **CNN, rounds=2, local_steps=2)
PLAN = replace(TRAINING, terms=TRAINS)


@pytest.fixture(autouse=True)
def _two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cuda` is the second device."""
    monkeypatch.setattr(
        "confide.client.training.descent.pick_device",
        lambda name: SECOND if name == "cuda" else torch.device("cpu"),
    )


def learned(computing: Computing) -> Any:
    """The weights after a round of an owner with 60 records."""
    features, labels = people(60, 1)
    trainer, start = Trainer(TRAINS, computing=computing), np.full(TRAINS.size, 0.01, np.float32)
    return trainer.learn(start, features, labels, entropy=SeededEntropy(1))


def owner(folder: Path, seed: int, device: str) -> Respondent:
    folder.mkdir(parents=True)
    features, labels = people(60, seed)
    names = tuple(f"{seed}/{i}".encode() for i in range(60))
    return Respondent(
        records=Records(names, None, labels, None, features),
        policy=lambda: LEARNS,
        ledger=Ledger(folder / "ledger.sqlite"),
        secret=bytes([seed]) * 32,
        entropy=SeededEntropy(seed),
        now=lambda: NOW,
        computing=Computing(device),
    )


@pytest.mark.parametrize("engine", ["ghost", "hooks"])
def test_every_tensor_of_a_round_is_on_the_device(engine: str) -> None:
    """Trial, weights, records and sums: what is learned has the bits of the CPU."""
    here = learned(Computing("cpu", engine))
    with second_device():
        there = learned(Computing("cuda", engine))
    assert np.array_equal(here, there)
    assert np.abs(here - np.float32(0.01)).max() > 0.01


def test_a_stray_tensor_is_found(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Planted: with the weights comes a mask of the features that is made on the CPU. An error
    leaves out the records that it comes with, and the owner's log says so."""
    load = networks.load_weights

    def stray(module: Any, network: Any, weights: Any) -> None:
        load(module, network, weights)
        module.register_forward_pre_hook(lambda _, given: given[0] * torch.ones(given[0].shape[1]))

    monkeypatch.setattr(networks, "load_weights", stray)
    learned(Computing("cpu"))
    assert "the network fails" not in caplog.text
    with second_device():
        learned(Computing("cuda"))
    assert caplog.text.count("the network fails on") == TRAINS.local_steps


def test_owners_on_different_devices_train_one_model(tmp_path: Path) -> None:
    """One of two owners has another device: the model is that of two owners with CPUs."""

    def trained(name: str, *devices: str) -> Any:
        owners = [
            owner(tmp_path / name / str(seed), seed, device)
            for seed, device in enumerate(devices, start=1)
        ]
        found, received = run_training(PLAN, asking(signed(PLAN), owners))
        assert received == {"OK": 4}
        return found.weights

    here = trained("one device", "cpu", "cpu")
    with second_device():
        there = trained("two devices", "cpu", "cuda")
    assert np.array_equal(here, there)
