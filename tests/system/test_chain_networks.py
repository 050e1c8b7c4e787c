"""Chains of a head and of a factory's network over a real server, by the commands of both sides."""

import hashlib
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from confide.aggregator.__main__ import main
from confide.client.__main__ import main as client_main
from confide.protocol.cards.card import read_card
from confide.protocol.cards.verify.card import verify
from tests.support.networks.factories import installed
from tests.support.networks.heads import BACKBONE, INPUTS
from tests.support.owners.owners import PUBLIC
from tests.support.programs.commands import run_main
from tests.support.servers.servers import Place, Running, client
from tests.support.training.chains import SECONDS, Operator, Owner
from tests.support.training.learners import people

RECORDS = 600
CHAIN = """
title = "network"
labels = 3
records = 600
owners = 1
train-share = 0.4

[training]
architecture = {architecture}
features = {features}
{backbone}
epsilon = 4.0
rounds = 2
local-steps = 2
sampling-rate = 0.5
momentum = 0.5
averaged-rounds = 1
centre = 0.5

[[calibration]]
campaign = "{calibration}"
epsilon = 4.0
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with factories, installed for this process and for those that it starts."""
    for found in installed(tmp_path, monkeypatch):
        monkeypatch.setenv("PYTHONPATH", str(found.parent))
        yield found


def _chain_file(architecture: str, *, calibration: str, features: int = 4, more: str = "") -> str:
    return CHAIN.format(
        architecture=json.dumps(architecture),
        features=features,
        backbone=more,
        calibration=calibration,
    )


def _contribute(owner: Owner, server: Running, campaign: str) -> None:
    """Take part by the command, in this process: starting another takes seconds."""
    done = run_main(client_main, *owner.words(server, campaign))
    assert done.returncode == 0, done.stderr + done.stdout


def spaced(text: str) -> str:
    """Text in one line, whatever its lines were."""
    return " ".join(text.split())


def _taken_to_a_card(operator: Operator, owner: Owner, server: Running) -> str:
    """Train, list the model, and calibrate it; return its name. The command ends in between, and
    says what to type."""
    with operator.running() as process:
        _contribute(owner, server, operator.campaign("network: training:federated-averaging"))
        assert process.wait(timeout=SECONDS) == 0, operator.log.read_text()
    name = hashlib.sha256((operator.out / "model.onnx").read_bytes()).hexdigest()
    assert f"`confide-client allow model {name}`" in spaced(operator.log.read_text())
    assert len(operator.place.store.campaigns()) == 1
    (calibration,) = tomllib.loads(operator.file.read_text())["calibration"]
    assert client("allow", "model", name, "--home", owner.home, "--yes")[0] == 0
    with operator.running("--listed") as process:
        _contribute(owner, server, operator.campaign(f"network: {calibration['campaign']}"))
        assert process.wait(timeout=SECONDS) == 0, operator.log.read_text()
    card = read_card(operator.out / f"{calibration['campaign'].replace(':', '-')}.card.json")
    assert [found.clause for found in verify(card, key=PUBLIC) if not found.holds] == []
    assert card.formal["chain"]["epsilon_calibration"] == 4.0
    assert 3.5 < card.formal["chain"]["epsilon_train"] <= 4.0
    assert card.formal["released"]["model"] == name
    return name


def test_a_head_is_trained_and_calibrated_by_labels(place: Place, tmp_path: Path) -> None:
    """The owner lists the backbone and fetches it from the aggregator. The model holds both; the
    owner lists it, because its probabilities leave, and answers with noised labels. The operator
    sees a noised error rate of every round."""
    backbone = tmp_path / "backbone.onnx"
    backbone.write_bytes(BACKBONE.data)
    text = _chain_file(
        "head",
        calibration="labels:certified",
        features=INPUTS,
        more=f"backbone = {json.dumps(str(backbone))}\nloss-share = 0.2",
    )
    server, operator = place.serve(), Operator(place, tmp_path, text)
    policy = {
        "methods": '["labels", "training"]',
        "models": f'["{BACKBONE.digest.hex()}"]',
        "probabilities_may_leave": "true",
    }
    owner = Owner(tmp_path / "owner", place, *people(RECORDS, 1), policy)
    assert _taken_to_a_card(operator, owner, server) != BACKBONE.digest.hex()
    assert "2 of 2 rounds done; round 2 began with" in spaced(operator.log.read_text())
    card = read_card(operator.out / "labels-certified.card.json")
    assert 0.7 < card.formal["chain"]["epsilon_loss"] <= 0.8


def test_a_factory_is_taken_to_a_card(place: Place, tmp_path: Path, package: Path) -> None:
    """The owner lists its code and, once it is trained, its model: only then is it calibrated. The
    command ends between the two and says what to type; it refuses to go on too early."""
    factory = f"{package.name}.models:plain"
    server = place.serve()
    operator = Operator(place, tmp_path, _chain_file(factory, calibration="central:trusted"))
    owner = Owner(tmp_path / "owner", place, *people(RECORDS, 1))
    home = ("--home", owner.home, "--yes")
    assert client("allow", "architecture", factory, *home)[0] == 0
    early = run_main(main, *operator.words("--listed"))
    assert early.returncode == 2
    assert "model.onnx to list; accepted is the command without it" in spaced(early.stderr)
    _taken_to_a_card(operator, owner, server)
