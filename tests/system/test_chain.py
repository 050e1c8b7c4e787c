"""A chain over a real server, by the commands that operators and owners type: owners train a
network, fetch the file it became, and calibrate it; the operator's command is killed on the way."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.aggregator.__main__ import main
from confide.aggregator.keys import SIGNING_KEY
from confide.client.ledger.ledger import Ledger
from confide.protocol.architectures.export import predict_file
from confide.protocol.cards.card import read_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.simulated.embedded import owned
from tests.support.owners.owners import PUBLIC
from tests.support.programs.commands import run_main
from tests.support.servers.servers import Place, eventually
from tests.support.training.chains import Operator, Owner

OWNERS, EACH, SPLIT = 2, 400, 0.5
TRAINED = "training:federated-averaging"
# What an owner's log says of the engine that it chose.
OPACUS = "gradients by engine hooks on cpu"
CHAIN = f"""
title = "letters"
labels = 26
records = {OWNERS * EACH}
owners = {OWNERS}
train-share = {SPLIT}
minimum-reports = 50

[training]
architecture = "cnn image=1,4,4 channels=8"
features = 16
epsilon = 4.0
privacy-delta = 1e-6
rounds = 3
local-steps = 2
sampling-rate = 0.5
momentum = 0.5
averaged-rounds = 1
centre = 0.5

[[calibration]]
campaign = "central:trusted"
epsilon = 1.0
bins = 256

[[calibration]]
campaign = "bits:certified"
epsilon = 2.0

[[calibration]]
campaign = "full-data:certified"
epsilon = 1.5
"""


def chain_owner(folder: Path, place: Place, number: int) -> Owner:
    features, labels = owned()
    mine = slice(number * EACH, (number + 1) * EACH)
    return Owner(folder / str(number), place, features[mine], labels[mine])


def test_owners_train_and_calibrate_a_model_by_commands(place: Place, tmp_path: Path) -> None:
    """Gradients come from Opacus, as the owners asked. One card each for counts, bits and full
    data: verified, of the file that owners fetched, with what training and calibration cost; each
    record paid for one of them, and those of full data for both; a killed operator goes on."""
    server, operator = place.serve(), Operator(place, tmp_path, CHAIN)
    owners = [chain_owner(tmp_path, place, number) for number in range(OWNERS)]
    process = operator.start()
    with ThreadPoolExecutor(OWNERS) as pool:

        def everyone(title: str) -> str:
            campaign = operator.campaign(f"letters: {title}")
            every = pool.map(lambda one: one.contribute(server, campaign, engine="hooks"), owners)
            for done in every:
                assert done.returncode == 0, done.stderr + done.stdout
                assert "answered, and the aggregator holds it" in done.stderr
                assert title != TRAINED or OPACUS in done.stderr
            return campaign

        training = everyone(TRAINED)
        operator.campaign("letters: central:trusted")
        process.kill()
        process.wait()
        process = operator.start()
        everyone("central:trusted")
        everyone("bits:certified")
        everyone("full-data:certified")
        assert process.wait(timeout=120) == 0, operator.log.read_text()
    said = operator.log.read_text()
    assert said.count(f"campaign {training}: letters: training:federated-averaging") == 2
    assert len(place.store.campaigns()) == 4
    terms = TrainingTerms.of(place.store.campaign(training).plan.terms)
    assert terms.batch == 0.5 * SPLIT * EACH
    model = (operator.out / "model.onnx").read_bytes()
    _check_cards(operator.out, model, place.store.campaign(training).digest)
    features, _ = owned()
    assert np.allclose(predict_file(model, features[:9]).sum(axis=1), 1, atol=1e-5)
    for one in owners:
        ledger = Ledger(one.home / "ledger.sqlite")
        spent = {row.campaign: row.records for row in ledger.campaigns()}
        ledger.close()
        trained = spent["letters: training:federated-averaging"]
        assert spent["letters: full-data:certified"] == trained
        rest = EACH - trained
        # A search by bits may end before it has asked everybody.
        assert spent["letters: central:trusted"] == rest >= spent["letters: bits:certified"] > 0


def _check_cards(folder: Path, model: bytes, training: bytes) -> None:
    costs = {"central-trusted": 1.0, "bits-certified": 2.0, "full-data-certified": 1.5}
    for name, epsilon in costs.items():
        card = read_card(folder / f"{name}.card.json")
        assert [found.clause for found in verify(card, key=PUBLIC) if not found.holds] == []
        assert card.formal["released"]["model"] == hashlib.sha256(model).hexdigest()
        found = card.formal["chain"]
        assert hashlib.sha256(bytes.fromhex(found["training"])).digest() == training
        assert found["epsilon_calibration"] == epsilon
        # What records that trained pay; the others pay 3 for the two other calibrations.
        assert [one["epsilon"] for one in found["calibrations"]] == list(costs.values())
        assert found["epsilon"] == found["epsilon_train"] + costs["full-data-certified"]
        assert 3.5 < found["epsilon_train"] <= 4.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("[training]", "[teaching]"), "lacks a table [training]"),
        (('title = "letters"', ""), "has no title"),
        (('campaign = "bits:certified"', 'campaign = "central:trusted"'), "that differ"),
        (("train-share = 0.5", "train-share = 1.0"), "train-share below 1"),
        (('"cnn image=1,4,4 channels=8"', '"cnn image=1,5,5"'), "as many numbers"),
        (("epsilon = 2.0", "epsilon = -1.0"), "epsilon is -1.0"),
        (("labels = 26\n", ""), "missing: labels"),
    ],
)
def test_a_chain_that_cannot_end_is_refused_before_it_begins(
    change: tuple[str, str], words: str, place: Place, tmp_path: Path
) -> None:
    """Exit code 2, what is accepted, and no campaign."""
    file: Any = tmp_path / "chain.toml"
    file.write_text(CHAIN.replace(*change))
    key = place.keys / SIGNING_KEY
    done = run_main(main, "chain", file, "--out", tmp_path / "out", "--key", key, "--db", place.url)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
    assert place.store.campaigns() == []
    assert not (tmp_path / "out").exists()


def test_other_terms_under_the_same_title_are_refused(place: Place, tmp_path: Path) -> None:
    """The campaign that is there was asked with the terms that owners saw."""
    operator = Operator(place, tmp_path, CHAIN)
    process = operator.start()
    eventually(lambda: place.store.campaigns() and "rounds done" in operator.log.read_text())
    process.kill()
    process.wait()
    operator.file.write_text(CHAIN.replace("rounds = 3", "rounds = 4"))
    process = operator.start()
    assert process.wait(timeout=60) == 2
    assert "other terms; accepted is another title" in " ".join(operator.log.read_text().split())
    assert json.dumps([one.state for one in place.store.campaigns()]) == '["open"]'
